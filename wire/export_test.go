package wire

// Held returns how many bytes of memory a frame keeps for the next one.
func (f *Frame) Held() int { return cap(f.scratch) }

// Held returns how many bytes of memory a drain holds.
func (d *Drain) Held() int {
	return cap(d.key) + cap(d.text) + cap(d.typ) + cap(d.invocation) + cap(d.function) + cap(d.id)
}

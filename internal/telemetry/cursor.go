package telemetry

import (
	"encoding/binary"
	"slices"
)

// cursor walks the records of a ring. It copies a chunk at a time, so that writers wait for one copy of
// 64 KiB at most, however long the walk takes.
type cursor struct {
	ring   *ring
	data   []byte   // copy of the chunk being read
	starts []uint16 // where its records begin, in units of 8 bytes, oldest first
}

// chunkRef names a chunk as it was when the walk began.
type chunkRef struct {
	chunk  *chunk
	serial uint64
}

// walk visits records, the last recorded first, until visit returns false. Chunks without a record that is
// timed within [from, to] are skipped, single records are not. What is recorded or overwritten meanwhile may
// be missed. A record is valid until visit returns.
func (r *ring) walk(from, to int64, visit func(record []byte) bool) {
	c := cursor{ring: r}
	for _, ref := range slices.Backward(r.chunks(from, to)) {
		c.copy(ref)
		for _, start := range slices.Backward(c.starts) {
			if !visit(c.record(start)) {
				return
			}
		}
	}
}

// forward is walk in the order of recording.
func (r *ring) forward(from, to int64, visit func(record []byte) bool) {
	c := cursor{ring: r}
	for _, ref := range r.chunks(from, to) {
		c.copy(ref)
		for _, start := range c.starts {
			if !visit(c.record(start)) {
				return
			}
		}
	}
}

// chunks notes which chunks there are, oldest first.
func (r *ring) chunks(from, to int64) (refs []chunkRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note := func(c *chunk) {
		if c.from <= to && c.to >= from {
			refs = append(refs, chunkRef{c, c.serial})
		}
	}
	for _, c := range r.sealed {
		note(c)
	}
	if r.open != nil {
		note(r.open)
	}
	return refs
}

// copy reads a chunk; of one that was reused since, nothing.
func (c *cursor) copy(ref chunkRef) {
	c.data = slices.Grow(c.data[:0], chunkBytes)
	c.ring.mu.Lock()
	if ref.chunk.serial == ref.serial {
		c.data = append(c.data, ref.chunk.data[:ref.chunk.used]...)
	}
	c.ring.mu.Unlock()
	c.starts = c.starts[:0]
	for at := 0; at < len(c.data); {
		c.starts = append(c.starts, uint16(at/8))
		at += int(binary.LittleEndian.Uint32(c.data[at+atSize:]))
	}
}

func (c *cursor) record(start uint16) []byte {
	at := int(start) * 8
	return c.data[at : at+int(binary.LittleEndian.Uint32(c.data[at+atSize:]))]
}

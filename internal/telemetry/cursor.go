package telemetry

import (
	"encoding/binary"
	"slices"
)

// cursor walks the records of a ring from the newest to the oldest. It copies a chunk at a time, so
// that writers wait for one copy of 64 KiB at most, however long the walk takes.
type cursor struct {
	ring   *ring
	left   []chunkRef // chunks still to read, oldest first
	data   []byte     // copy of the chunk being read
	starts []uint16   // where its records begin, in units of 8 bytes, oldest first
}

// chunkRef names a chunk as it was when the walk began.
type chunkRef struct {
	chunk  *chunk
	serial uint64
}

// walk visits records, the last recorded first, until visit returns false. Chunks without a record that
// is timed within [from, to] are skipped, single records are not. What is recorded or overwritten
// meanwhile may be missed. A record is valid until visit returns.
func (r *ring) walk(from, to int64, visit func(record []byte) bool) {
	c := cursor{ring: r}
	c.begin(from, to)
	for {
		for _, start := range slices.Backward(c.starts) {
			at := int(start) * 8
			if !visit(c.data[at : at+int(binary.LittleEndian.Uint32(c.data[at+atSize:]))]) {
				return
			}
		}
		if !c.next() {
			return
		}
	}
}

// begin copies the open chunk and notes the sealed ones.
func (c *cursor) begin(from, to int64) {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sealed {
		if s.from <= to && s.to >= from {
			c.left = append(c.left, chunkRef{s, s.serial})
		}
	}
	if o := r.open; o != nil && o.from <= to && o.to >= from {
		c.data = append(c.data, o.data[:o.used]...)
	}
	c.scan()
}

// next reads the next chunk, unless it was reused since: the older ones were, too, then.
func (c *cursor) next() bool {
	n := len(c.left)
	if n == 0 {
		return false
	}
	ref := c.left[n-1]
	c.left = c.left[:n-1]
	c.data = slices.Grow(c.data[:0], chunkBytes)
	c.ring.mu.Lock()
	ok := ref.chunk.serial == ref.serial
	if ok {
		c.data = append(c.data, ref.chunk.data[:ref.chunk.used]...)
	}
	c.ring.mu.Unlock()
	c.scan()
	return ok
}

// scan finds where the records of the copy begin.
func (c *cursor) scan() {
	c.starts = c.starts[:0]
	for at := 0; at < len(c.data); {
		c.starts = append(c.starts, uint16(at/8))
		at += int(binary.LittleEndian.Uint32(c.data[at+atSize:]))
	}
}

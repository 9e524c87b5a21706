package telemetry

import (
	"encoding/binary"
	"slices"
)

// cursor walks the records of one lane from the newest to the oldest. It copies a chunk at a time, so
// that a long walk holds no lock that a writer waits for longer than one copy of 64 KiB takes.
type cursor struct {
	ring   *ring
	left   []chunkRef // chunks still to read, oldest first
	data   []byte     // copy of the chunk being read
	starts []uint16   // offsets / 8 of its records that are still to come, oldest first
	from   int64
	to     int64
}

// chunkRef names a chunk as it was when the walk began.
type chunkRef struct {
	chunk  *chunk
	serial uint64
}

// walk visits records newest first until visit returns false: within a lane in the order of recording,
// across lanes by their order field. Chunks with nothing ordered within [from, to] are skipped, single
// records are not. What is recorded or overwritten meanwhile may be seen or missed. A record is valid
// until visit returns.
func (r *ring) walk(from, to int64, visit func(record []byte) bool) {
	cursors := r.cursors(from, to)
	for {
		var next *cursor
		for i := range cursors {
			c := &cursors[i]
			if c.ready() && (next == nil || c.order() > next.order()) {
				next = c
			}
		}
		if next == nil || !visit(next.pop()) {
			return
		}
	}
}

// cursors copies the open chunk of each lane and notes the sealed ones.
func (r *ring) cursors(from, to int64) []cursor {
	r.mu.Lock()
	lanes := r.lanes
	r.mu.Unlock()
	cursors := make([]cursor, len(lanes))
	newest := make([]uint64, len(lanes)) // serial of the open chunk: sealed ones from there on are known
	for i, l := range lanes {
		c := &cursors[i]
		c.ring, c.from, c.to = r, from, to
		newest[i] = 1<<64 - 1
		l.mu.Lock()
		if o := l.open; o != nil {
			newest[i] = o.serial
			if o.from <= to && o.to >= from {
				c.data = append(c.data, o.data[:o.used]...)
			}
		}
		l.mu.Unlock()
		c.scan()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sealed {
		if s.lane < len(cursors) && s.serial < newest[s.lane] && s.from <= to && s.to >= from {
			c := &cursors[s.lane]
			c.left = append(c.left, chunkRef{s, s.serial})
		}
	}
	return cursors
}

// ready reports whether there is another record, after reading on where needed.
func (c *cursor) ready() bool {
	for len(c.starts) == 0 {
		n := len(c.left)
		if n == 0 {
			return false
		}
		ref := c.left[n-1]
		c.left = c.left[:n-1]
		if !c.copy(ref) {
			c.left = nil // older ones went first
			return false
		}
	}
	return true
}

// copy reads a chunk, if it still is what it was.
func (c *cursor) copy(ref chunkRef) bool {
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

func (c *cursor) peek() []byte {
	at := int(c.starts[len(c.starts)-1]) * 8
	return c.data[at : at+int(binary.LittleEndian.Uint32(c.data[at+atSize:]))]
}

func (c *cursor) order() int64 { return int64(binary.LittleEndian.Uint64(c.peek()[atOrder:])) }

func (c *cursor) pop() []byte {
	b := c.peek()
	c.starts = c.starts[:len(c.starts)-1]
	return b
}

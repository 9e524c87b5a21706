package store

import (
	"encoding/binary"
	"fmt"
	"io"
)

// cursor walks the frames of one segment. It reads through a window, so its memory is bounded by the largest
// frame that really is in the file, whatever lengths the bytes claim.
type cursor struct {
	r    io.ReaderAt
	end  int64  // bytes of the segment to look at; nothing behind them is read
	off  int64  // of the next frame
	next uint64 // sequence number that the next frame must have
	seed uint32
	// proof is the newest sequence number that was durable for certain, by what the walk has seen.
	proof uint64

	window []byte
	base   int64 // of the window in the file
}

const windowBytes = 64 << 10

func newCursor(r io.ReaderAt, end int64, h segmentHeader) *cursor {
	return &cursor{r: r, end: end, off: segmentHead, next: h.first, seed: h.seed()}
}

// badFrame says where and why the walk cannot go on: the bytes at off are not the frame that must be there.
type badFrame struct {
	off    int64
	reason string
}

func (b *badFrame) Error() string { return fmt.Sprintf("byte %d: %s", b.off, b.reason) }

// step returns the next frame and its payload, valid until the next call. At the exact end it returns io.EOF,
// for bytes that are no frame a *badFrame, and otherwise the error of reading.
func (c *cursor) step() (frame, []byte, error) {
	if c.off == c.end {
		return frame{}, nil, io.EOF
	}
	left := c.end - c.off
	if left < frameHead {
		return frame{}, nil, c.bad("%d bytes are too few for a record", left)
	}
	head, err := c.at(c.off, frameHead)
	if err != nil {
		return frame{}, nil, err
	}
	f, ok := parseFrame(head, c.seed)
	switch {
	case !ok:
		return frame{}, nil, c.bad("the header of a record is wrong")
	case f.seq != c.next:
		return frame{}, nil, c.bad("record %d stands where %d must be", f.seq, c.next)
	case f.size() > left:
		return frame{}, nil, c.bad("a record of %d bytes is cut off after %d", f.size(), left)
	}
	whole, err := c.at(c.off, int(f.size()))
	if err != nil {
		return frame{}, nil, err
	}
	if !f.whole(whole, c.seed) {
		return frame{}, nil, c.bad("the checksum of record %d does not fit", f.seq)
	}
	payload := whole[frameHead : frameHead+f.length]
	next, ok := f.next(payload)
	if !ok {
		return frame{}, nil, c.bad("a hole of an impossible size")
	}
	c.off += f.size()
	c.next = next
	c.proof = max(c.proof, f.durable())
	return f, payload, nil
}

func (c *cursor) bad(form string, args ...any) error {
	return &badFrame{off: c.off, reason: fmt.Sprintf(form, args...)}
}

// at returns n bytes of the file at off, which must lie before c.end.
func (c *cursor) at(off int64, n int) ([]byte, error) {
	if off >= c.base && off+int64(n) <= c.base+int64(len(c.window)) {
		return c.window[off-c.base:][:n], nil
	}
	want := int(min(int64(max(n, windowBytes)), c.end-off))
	if cap(c.window) < want || cap(c.window) > 16*windowBytes && want <= windowBytes {
		c.window = make([]byte, want)
	}
	c.window, c.base = c.window[:want], off
	got, err := c.r.ReadAt(c.window, off)
	if got == want {
		return c.window[:n], nil
	}
	c.window = c.window[:0]
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read at byte %d: %w", off, err)
}

// search looks, from the frame boundary at off on, for a frame that accept takes, and returns its place; -1
// when there is none. A candidate needs a number that a frame behind this point can have and a right header
// checksum, which takes the salt of the log to forge.
func (c *cursor) search(off int64, accept func(frame, int64) (bool, error)) (frame, int64, error) {
	first := c.next
	for ; off+frameHead <= c.end; off += frameAlign {
		head, err := c.at(off, frameHead)
		if err != nil {
			return frame{}, -1, err
		}
		if seq := binary.LittleEndian.Uint64(head[16:]); seq < first {
			continue
		}
		f, ok := parseFrame(head, c.seed)
		if !ok {
			continue
		}
		if ok, err = accept(f, off); err != nil || ok {
			return f, off, err
		}
	}
	return frame{}, -1, nil
}

// proven reports whether the frame that is bad at c.off was once durable: whether any header behind it was
// written when the missing number was on disk already. Without such a proof the bytes are what an interrupted
// write left.
func (c *cursor) proven() (bool, error) {
	if c.proof >= c.next {
		return true, nil
	}
	later := func(f frame, _ int64) (bool, error) { return f.durable() >= c.next, nil }
	_, at, err := c.search(c.off+frameAlign, later)
	return at >= 0, err
}

// resume finds the next whole frame behind a bad one: the rest of the segment that a salvage can keep.
func (c *cursor) resume() (frame, int64, error) {
	return c.search(c.off+frameAlign, func(f frame, off int64) (bool, error) {
		if f.kind == kindMark || off+f.size() > c.end {
			return false, nil
		}
		whole, err := c.at(off, int(f.size()))
		return err == nil && f.whole(whole, c.seed), err
	})
}

// lastByte returns the offset behind the last byte from off on that is not zero: zeros at the end of a file
// are space that the file system gave, not bytes that anybody wrote.
func (c *cursor) lastByte(off int64) (int64, error) {
	last := off
	for at := off; at < c.end; {
		n := int(min(windowBytes, c.end-at))
		b, err := c.at(at, n)
		if err != nil {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if b[i] != 0 {
				last = at + int64(i) + 1
				break
			}
		}
		at += int64(n)
	}
	return last, nil
}

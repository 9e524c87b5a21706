package loop

import "sync"

const (
	firstQueue = 1 << 10  // bytes of a new buffer
	smallQueue = 64 << 10 // most bytes of a buffer in the small pool
	largeQueue = 1 << 20  // most bytes of a buffer that is kept at all
	quotaStep  = 4 << 10  // bytes asked of the budget at least
)

// buffer holds queued bytes; those before off are written.
type buffer struct {
	b   []byte
	off int
}

// queuePool lends buffers to connections that have something to send. Both pools shrink when the garbage
// collector runs, so what they hold is bounded by what was lent at one time a moment ago; larger buffers
// are not kept. Two pools, because a connection with little to say should not hold, nor one with much
// wait for, a large buffer.
type queuePool struct {
	small, large sync.Pool
}

// get returns an empty buffer; hint is how much the connection sent last time.
func (p *queuePool) get(hint int) *buffer {
	if hint > smallQueue {
		if b, ok := p.large.Get().(*buffer); ok {
			return b
		}
	}
	if b, ok := p.small.Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 0, firstQueue)}
}

func (p *queuePool) put(b *buffer) {
	b.b, b.off = b.b[:0], 0
	switch n := cap(b.b); {
	case n <= smallQueue:
		p.small.Put(b)
	case n <= largeQueue:
		p.large.Put(b)
	}
}

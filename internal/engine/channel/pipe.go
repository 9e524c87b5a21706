package channel

import (
	"container/list"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

// side is a direction, as an index.
type side uint8

const (
	writes side = iota
	reads
)

const (
	headRoom  = 16      // a read makes frames of at most this much more than itself
	frameHead = 10      // the header of a frame of ours, at most
	quotaStep = 4 << 10 // bytes asked of the budget at least

	// A reader that has room again is noticed by looking, as a connection tells of an empty queue only
	// after it was very full. Looking at doubling times means that a look is never later than the wait
	// was long already.
	firstLook = time.Millisecond
	lastLook  = 64 * time.Millisecond
)

// farewell is what a close frame says.
type farewell struct {
	code   uint16
	reason string
}

// pipe is one channel.
type pipe struct {
	// set by Create
	hub   *Hub
	id    string
	keys  [2]string
	owner any
	born  int64 // Unix ns
	most  int   // messages in wait

	fresh *list.Element // in hub.fresh; guarded by hub.mu

	mu       sync.Mutex // guards all below and what End says; held for the time of one Data call
	ends     [2]*End    // nil until taken
	wait     []byte     // frames for the reader that are not in its write queue
	messages int        // in wait, whole ones
	payload  int        // bytes of messages in wait
	quota    int        // bytes of the budget, for wait
	part     bool       // the reader was given the start of a message
	stalled  bool       // the writer is not read
	looking  bool       // a look is due
	last     *farewell  // the writer is done: goes to the reader behind all else
	told     bool       // last is in the reader's queue
	cut      bool       // it is over: nothing is passed on any more
}

// reader returns the reader once frames may be sent to it.
func (p *pipe) reader() *End {
	if r := p.ends[reads]; r != nil && r.open && !r.gone {
		return r
	}
	return nil
}

// room reports whether n more bytes of the writer may be handled; under p.mu, like all that follows.
func (p *pipe) room(n int) bool {
	if r := p.reader(); r != nil {
		return p.flush(r) && r.conn.Queued() < p.window()
	}
	return p.messages < p.most && len(p.wait) < p.hub.o.BufferBytes && p.reserve(len(p.wait)+n+headRoom)
}

// window is how much may be in the reader's write queue before the writer is held back. It is half of what
// may wait for a reader, so that the loop's buffers, which double, stay of a size that is used again.
func (p *pipe) window() int { return p.hub.o.BufferBytes / 2 }

// reserve sees to it that the budget covers n bytes in wait.
func (p *pipe) reserve(n int) bool {
	if n <= p.quota {
		return true
	}
	n = (n + quotaStep - 1) &^ (quotaStep - 1)
	if !p.hub.o.Take(int64(n - p.quota)) {
		return false
	}
	p.quota = n
	return true
}

// repay gives the budget back what wait needed.
func (p *pipe) repay() {
	if p.quota > 0 {
		p.hub.o.Give(int64(p.quota))
	}
	p.quota = 0
}

// pass sends one frame on. A last one ends its message.
func (p *pipe) pass(op ws.Opcode, last bool, payload []byte) {
	s := &p.hub.stats
	s.bytesIn.Add(uint64(len(payload)))
	if last {
		s.messagesIn.Add(1)
	}
	r := p.reader()
	if r == nil || len(p.wait) > 0 {
		p.hold(op, last, payload)
		return
	}
	out := appendFrame(r.conn.Begin(), op, last, payload)
	err := r.conn.EndWithin(p.ends[writes].toward(r), out, math.MaxInt)
	switch {
	case err == nil:
		r.owing = true
		s.bytesOut.Add(uint64(len(payload)))
		if last {
			s.messagesOut.Add(1)
		}
	case errors.Is(err, loop.ErrClosed):
		p.hold(op, last, payload)
		p.desert()
	default: // no memory; what has been read cannot be unread, and is no more than one read
		p.hold(op, last, payload)
		p.look()
	}
}

// hold keeps a frame until the reader has come, or has room.
func (p *pipe) hold(op ws.Opcode, last bool, payload []byte) {
	p.wait = appendFrame(p.wait, op, last, payload)
	p.payload += len(payload)
	if last {
		p.messages++
	}
}

// appendFrame appends a frame that may be a fragment of a message.
func appendFrame(dst []byte, op ws.Opcode, last bool, payload []byte) []byte {
	start := len(dst)
	if n := len(payload) + frameHead; n > cap(dst)-start { // append would add a quarter only, and copy often
		dst = slices.Grow(dst, max(n, cap(dst)))
	}
	dst = ws.AppendFrame(dst, op, payload)
	if !last {
		dst[start] &^= 0x80 // FIN
	}
	return dst
}

// flush moves what waits into the reader's write queue and reports whether nothing waits.
func (p *pipe) flush(r *End) bool {
	if len(p.wait) == 0 {
		return true
	}
	p.repay() // the queue asks for the same bytes; with both counted, a full budget would stay full
	err := r.conn.EndWithin(nil, append(r.conn.Begin(), p.wait...), math.MaxInt)
	if err != nil {
		p.reserve(len(p.wait)) // if refused, these are a few bytes too many for a while
		if errors.Is(err, loop.ErrClosed) {
			p.desert()
		}
		return false
	}
	r.owing = true
	p.hub.stats.messagesOut.Add(uint64(p.messages))
	p.hub.stats.bytesOut.Add(uint64(p.payload))
	p.wait, p.messages, p.payload = nil, 0, 0
	return true
}

// stall holds the writer back.
func (p *pipe) stall() {
	if p.stalled || p.cut {
		return
	}
	p.stalled = true
	p.hub.stats.paused.Add(1)
	p.hub.stats.held.Add(1)
	p.ends[writes].conn.Pause()
	if p.reader() != nil {
		p.look()
	}
}

// unstall has the writer read on. That is done on its own loop: a Data call that has just left bytes
// unused must be over.
func (p *pipe) unstall() {
	if p.stalled {
		p.stalled = false
		p.hub.stats.held.Add(^uint64(0))
		w := p.ends[writes].conn
		w.Loop().Post(w.Resume)
	}
}

// advance does what a reader with room allows. It reports whether there is more to do later.
func (p *pipe) advance() bool {
	r := p.reader()
	if r == nil || p.cut || p.told {
		return false
	}
	if !p.flush(r) {
		return !p.cut
	}
	if p.last != nil {
		p.told = r.say(*p.last)
		return !p.told
	}
	if p.stalled && r.conn.Queued() <= p.window()/2 {
		p.unstall()
	}
	return p.stalled
}

// look sees to it that advance is called again and again while there is need.
func (p *pipe) look() {
	if !p.looking {
		p.looking = true
		p.lookIn(p.ends[reads].conn.Loop(), firstLook)
	}
}

func (p *pipe) lookIn(l *loop.Loop, d time.Duration) {
	l.After(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.looking = p.advance(); p.looking {
			p.lookIn(l, min(2*d, lastLook))
		}
	})
}

// progress is advance for who has no look under way.
func (p *pipe) progress() {
	if p.advance() {
		p.look()
	}
}

// complete records how the writer ended; what waits goes first.
func (p *pipe) complete(f farewell) {
	if p.cut || p.last != nil {
		return
	}
	p.last = &f
	if f.code == ws.CloseNormal {
		p.hub.stats.finished.Add(1)
	} else {
		p.hub.stats.broken.Add(1)
	}
	p.progress()
}

// desert ends a channel whose reader is gone.
func (p *pipe) desert() {
	if !p.cut && !p.told {
		p.sever(farewell{ws.CloseGoingAway, "the reader went away"})
	}
}

// end is sever for who does not hold p.mu. It reports whether there was something to end: a reader that
// was told how its stream ended is left to take it.
func (p *pipe) end(f farewell) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.told {
		return false
	}
	p.sever(f)
	return true
}

// sever ends the channel at once: what waits is lost, both ends are closed.
func (p *pipe) sever(f farewell) {
	s := &p.hub.stats
	if p.last == nil {
		s.broken.Add(1)
	}
	p.cut = true
	s.messagesLost.Add(uint64(p.messages))
	s.bytesLost.Add(uint64(p.payload))
	p.wait, p.messages, p.payload = nil, 0, 0
	p.repay()
	if p.stalled {
		p.stalled = false
		s.held.Add(^uint64(0))
	}
	for _, e := range p.ends {
		if e != nil {
			e.shut(f)
		}
	}
	p.hub.forget(p)
}

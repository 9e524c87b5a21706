package loop

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Bits of Conn.state. They are set under Conn.mu and may be read without it.
const (
	closing   = 1 << iota // Closed is due: no more Data, no more queueing
	finishing             // Finish was called: what is read is thrown away
	lingering             // all is sent and the peer was told so
	paused                // nothing is read
	broken                // a write failed: reading goes on to its end
	resumed               // for the reader of a portable connection: Resume came after its last look
	deaf                  // the peer ended its side while Finish was still sending
	gone                  // the descriptor is closed
)

// Bits of Conn.todo: what the connection's own loop has to do for it.
const (
	todoAdopt = 1 << iota
	todoFlush
	todoResume
	todoDrained
	todoFinish
	todoShut
)

// Conn is one connection. An idle one holds no buffer; that is why it is packed.
type Conn struct {
	// set before the handler sees c
	loop    *Loop
	handler Handler
	stream  *stream // the portable connection; nil on epoll
	remote  netip.AddrPort
	id      uint64

	accepted func(*Conn) Handler // until there is a handler
	fd       int32

	// the loop's
	slot int32
	kept []byte // bytes the handler left unused

	state atomic.Uint32

	mu       sync.Mutex // guards all below; held from Begin to End
	interest uint32     // what epoll watches for
	listed   bool       // on some loop's dirty list, or about to be
	asked    bool       // in its loop's inbox
	writing  bool       // one goroutine is writing pend
	blocked  bool       // the kernel takes no more; it will say when
	over     bool       // was over the soft mark
	timed    bool       // Finish has its deadline
	todo     uint8
	out      *buffer // being filled
	pend     *buffer // being written
	queued   int     // bytes in both
	quota    int     // bytes taken from the budget
	last     int     // bytes of the last buffer
	reason   error   // for Closed
}

// Loop returns the loop that c belongs to.
func (c *Conn) Loop() *Loop { return c.loop }

// ID returns a number that no other connection of the group has; the first is 1.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address; the zero value when it has none (a Unix socket).
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Begin locks the write queue and returns it, to be appended to. Nothing between Begin and End may panic:
// it would leave the queue locked. The caller must call End soon, on the same goroutine, and no other
// method of c before that; what is appended before the returned slice's length must stay.
func (c *Conn) Begin() []byte {
	c.mu.Lock()
	if c.out == nil {
		c.out = c.loop.group.queue.get(c.last)
	}
	return c.out.b
}

// End unlocks the write queue. out is what Begin returned with new bytes behind it; with nothing new it
// only unlocks. l is the loop that the caller runs on: it sends at the end of its batch, also when c
// belongs to another loop. A caller on any other goroutine passes nil, and c's loop is woken.
//
// With ErrClosed or ErrQueueFull the new bytes are taken back and what was queued before is untouched.
// The queue is full when the new bytes would take it over Config.WriteQueue. Bytes that alone are more
// than that are taken while the queue is below its soft mark, so that one great message passes.
func (c *Conn) End(l *Loop, out []byte) error {
	return c.EndWithin(l, out, c.loop.group.cfg.WriteQueue)
}

// EndWithin is End with a bound of its own in place of Config.WriteQueue, for bytes that must not be
// refused as early as others, such as answers that the peer has asked for.
func (c *Conn) EndWithin(l *Loop, out []byte, limit int) error {
	defer c.mu.Unlock()
	n := len(out) - len(c.out.b)
	if n > 0 {
		if err := c.enqueue(l, n, limit); err != nil {
			c.unused()
			return err
		}
		c.out.b = out
		return nil
	}
	c.unused()
	return nil
}

// unused gives back a buffer that Begin took for nothing.
func (c *Conn) unused() {
	if len(c.out.b) == 0 {
		c.loop.group.queue.put(c.out)
		c.out = nil
	}
}

// enqueue decides on n new bytes and sees to it that somebody sends them; under c.mu.
func (c *Conn) enqueue(l *Loop, n, limit int) error {
	if c.state.Load()&(closing|finishing|broken) != 0 {
		return ErrClosed
	}
	total, soft := c.queued+n, c.loop.group.cfg.WriteQueue/2
	if total > limit && (n <= limit || c.queued > soft) || !c.reserve(total) {
		c.loop.count.queueFull.Add(1)
		return ErrQueueFull
	}
	c.queued = total
	if total > soft {
		c.over = true
	}
	if c.listed || c.blocked {
		return nil
	}
	c.listed = true
	if l != nil {
		l.dirty = append(l.dirty, c)
	} else {
		c.ask(todoFlush)
	}
	return nil
}

// reserve sees to it that total bytes are covered by the budget. It asks in doubling steps, so that many
// small frames cost few questions, and in small steps where the budget ends.
func (c *Conn) reserve(total int) bool {
	take := c.loop.group.cfg.Take
	if take == nil || total <= c.quota {
		return true
	}
	step := (total + quotaStep - 1) &^ (quotaStep - 1)
	for _, want := range [2]int{max(step, 2*c.quota), step} {
		if take(int64(want - c.quota)) {
			c.quota = want
			return true
		}
	}
	return false
}

// repay gives the budget back what an empty queue does not need; under c.mu.
func (c *Conn) repay() {
	if c.quota > 0 && c.loop.group.cfg.Give != nil {
		c.loop.group.cfg.Give(int64(c.quota))
	}
	c.quota = 0
}

// Queued returns how many bytes wait to be sent.
func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued
}

// Pause stops reading, so that the peer is held back by TCP. Bytes that Data leaves unused stay. When
// called on another goroutine than c's loop, one Data call may still be under way.
func (c *Conn) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load()&(closing|finishing|paused) == 0 {
		c.state.Or(paused)
		if c.stream == nil {
			c.arm()
		}
	}
}

// Resume starts reading again; kept bytes come first.
func (c *Conn) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load()&(closing|finishing|paused) == paused {
		c.state.Or(resumed)
		c.state.And(^uint32(paused))
		c.ask(todoResume)
	}
}

// Close ends the connection now; what is queued is lost. Closed is called soon, with err, unless
// something else ended c before. It may be called any number of times.
func (c *Conn) Close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(err)
}

// fail is Close under c.mu. Once all is sent after Finish, nothing that happens is an error any more.
func (c *Conn) fail(err error) {
	if c.state.Load()&closing != 0 {
		return
	}
	if c.state.Load()&lingering == 0 {
		c.reason = err
	}
	c.state.Or(closing)
	c.ask(todoShut)
}

// Finish ends the connection as soon as what is queued was sent, at most five seconds from now. No more
// bytes are queued and no more are delivered: what the peer still sends is read and thrown away for up to
// a second after the last byte left, as closing a socket with unread bytes would reset it and lose what
// was sent last.
func (c *Conn) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load()&(closing|finishing) == 0 {
		c.state.Or(finishing)
		c.state.And(^uint32(paused))
		c.ask(todoFinish)
	}
}

// ask puts work for c into its loop's inbox; under c.mu.
func (c *Conn) ask(todo uint8) {
	c.todo |= todo
	if !c.asked {
		c.asked = true
		c.loop.inbox.ask(c)
		c.loop.rouse()
	}
}

// pick makes the next bytes to write c.pend and returns them; nil when there are none. Under c.mu.
func (c *Conn) pick() []byte {
	if c.pend == nil {
		if c.out == nil || len(c.out.b) == 0 {
			return nil
		}
		c.pend, c.out = c.out, nil
		c.last = len(c.pend.b)
	}
	return c.pend.b[c.pend.off:]
}

// sent records that n bytes of c.pend are written; under c.mu.
func (c *Conn) sent(n int) {
	c.queued -= n
	c.pend.off += n
	if c.pend.off == len(c.pend.b) {
		c.loop.group.queue.put(c.pend)
		c.pend = nil
	}
}

// settle ends a turn of writing: it passes on what others waited for; under c.mu.
func (c *Conn) settle() {
	c.writing = false
	if c.queued == 0 {
		c.repay()
		if c.over {
			c.over = false
			c.ask(todoDrained)
		}
		if c.state.Load()&finishing != 0 {
			c.ask(todoFinish)
		}
	}
	if c.state.Load()&closing != 0 {
		c.ask(todoShut)
	}
}

// empty drops what is queued; under c.mu, with no writer under way.
func (c *Conn) empty() {
	for _, b := range []*buffer{c.out, c.pend} {
		if b != nil {
			c.loop.group.queue.put(b)
		}
	}
	c.out, c.pend, c.queued, c.over = nil, nil, 0, false
	c.repay()
}

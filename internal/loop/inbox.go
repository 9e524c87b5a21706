package loop

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Loop runs callbacks one after another.
type Loop struct {
	group  *Group
	index  int
	now    atomic.Int64
	inbox  inbox
	asleep atomic.Bool
	count  counts
	bell   chan struct{} // wakes a portable loop
	batch  sync.Mutex    // held by whoever runs callbacks of a portable loop

	// the loop's
	dirty     []*Conn
	timers    timers
	conns     []*Conn  // by slot
	free      []int32  // slots without connection
	ended     bool     // connections were told to close
	posts     []func() // change places with the inbox's
	asks      []*Conn
	listeners []*listener // of loop 0
	poll      poller
}

type counts struct {
	accepted, closed, refused, panics, queueFull, wakeups, batches atomic.Uint64
	reads, writes, bytesIn, bytesOut                               atomic.Uint64
}

func newLoop(g *Group, index int) *Loop {
	l := &Loop{group: g, index: index, bell: make(chan struct{}, 1)}
	l.now.Store(g.cfg.Now())
	return l
}

// Index returns the loop's place in Group.Loops.
func (l *Loop) Index() int { return l.index }

// Now returns the time at which the current batch began, in ns since the Unix epoch.
func (l *Loop) Now() int64 { return l.now.Load() }

// Post has f run on the loop soon, after what was posted before. After the group ended f never runs.
func (l *Loop) Post(f func()) {
	if l.inbox.post(f) {
		l.rouse()
	}
}

// Every has f run on the loop each d, first after d.
func (l *Loop) Every(d time.Duration, f func()) { l.schedule(d, max(d, 1), f) }

// After has f run on the loop once, after d. It cannot be taken back.
func (l *Loop) After(d time.Duration, f func()) { l.schedule(d, 0, f) }

func (l *Loop) schedule(d, every time.Duration, f func()) {
	t := &timer{when: l.group.cfg.Now() + int64(d), every: int64(every), f: f}
	l.Post(func() { l.start(t) })
}

// inbox is what other goroutines want of a loop.
type inbox struct {
	full  atomic.Bool // something is in it
	mu    sync.Mutex
	shut  bool
	posts []func()
	conns []*Conn
}

func (i *inbox) post(f func()) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.shut {
		return false
	}
	i.posts = append(i.posts, f)
	i.full.Store(true)
	return true
}

func (i *inbox) ask(c *Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.shut {
		i.conns = append(i.conns, c)
		i.full.Store(true)
	}
}

// swap takes what is in the inbox and leaves the emptied slices of the last turn in it.
func (i *inbox) swap(posts []func(), conns []*Conn) ([]func(), []*Conn) {
	clear(posts)
	clear(conns)
	i.mu.Lock()
	defer i.mu.Unlock()
	posts, i.posts = i.posts, posts[:0]
	conns, i.conns = i.conns, conns[:0]
	i.full.Store(false)
	return posts, conns
}

// shutIfEmpty refuses all that comes later, but only when nothing is waiting.
func (i *inbox) shutIfEmpty() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.posts)+len(i.conns) == 0 {
		i.shut = true
	}
	return i.shut
}

// rouse makes a sleeping loop look at its inbox.
func (l *Loop) rouse() {
	if !l.group.cfg.Portable {
		l.ring()
		return
	}
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

func (l *Loop) run() {
	if l.group.cfg.Portable {
		l.runPortable()
	} else {
		l.runEpoll()
	}
}

// chores does what the inbox asks for.
func (l *Loop) chores() {
	if !l.inbox.full.Load() {
		return
	}
	posts, conns := l.inbox.swap(l.posts, l.asks)
	for _, c := range conns {
		l.attend(c)
	}
	for _, f := range posts {
		l.call(f)
	}
	l.posts, l.asks = posts, conns
}

// attend does what c asked its loop for.
func (l *Loop) attend(c *Conn) {
	c.mu.Lock()
	todo := c.todo
	c.todo, c.asked = 0, false
	c.mu.Unlock()
	if todo&todoAdopt != 0 {
		l.adopt(c)
	}
	if c.state.Load()&gone != 0 {
		return
	}
	if todo&todoShut != 0 {
		l.shut(c)
		return
	}
	if todo&todoResume != 0 {
		if c.stream != nil {
			c.stream.wake()
		} else {
			l.again(c)
		}
	}
	if todo&todoDrained != 0 && c.state.Load()&(closing|finishing) == 0 {
		l.guard(c, func() { c.handler.Drained(c) })
	}
	if todo&todoFinish != 0 {
		l.finish(c)
	}
	if todo&todoFlush != 0 {
		l.dirty = append(l.dirty, c)
	}
}

// flush sends what was queued in this batch.
func (l *Loop) flush() {
	for i, c := range l.dirty {
		l.dirty[i] = nil
		if c.stream != nil {
			c.stream.flush()
		} else {
			c.write(l)
		}
	}
	l.dirty = l.dirty[:0]
}

// place gives c a slot.
func (l *Loop) place(c *Conn) {
	if n := len(l.free); n > 0 {
		c.slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.conns[c.slot] = c
		return
	}
	c.slot = int32(len(l.conns))
	l.conns = append(l.conns, c)
}

func (l *Loop) unplace(c *Conn) {
	l.conns[c.slot] = nil
	l.free = append(l.free, c.slot)
}

// adopt takes a new connection into the loop and asks for its handler.
func (l *Loop) adopt(c *Conn) {
	l.place(c)
	if l.group.ending.Load() {
		c.Close(ErrShutdown)
	} else if c.stream == nil {
		if err := c.watch(); err != nil {
			c.Close(err)
		}
	}
	if accept := c.accepted; accept != nil {
		c.accepted = nil
		if c.state.Load()&closing == 0 {
			l.guard(c, func() { c.handler = accept(c) })
		}
	}
	if c.handler == nil {
		l.count.refused.Add(1)
		c.Close(nil)
		return
	}
	l.count.accepted.Add(1)
	if c.stream != nil {
		l.group.tasks.Go(c.stream.read)
	}
}

// finish goes on with the end of a connection for which Finish was called.
func (l *Loop) finish(c *Conn) {
	c.kept = nil
	if c.state.Load()&lingering != 0 {
		return
	}
	c.mu.Lock()
	done := c.queued == 0 && !c.writing
	first := !c.timed
	c.timed = true
	half := false
	switch {
	case done && c.stream != nil:
		half = c.stream.halve()
	case done:
		half = c.halve()
	}
	if done {
		c.state.Or(lingering)
	}
	if c.stream == nil {
		c.arm()
	}
	if done && !half {
		c.fail(nil)
	}
	c.mu.Unlock()
	if first {
		l.start(&timer{when: l.now.Load() + int64(finishWithin), f: func() { c.Close(nil) }})
	}
	if half {
		l.start(&timer{when: l.now.Load() + int64(lingerWithin), f: func() { c.Close(nil) }})
	}
}

// shut closes c unless a write is under way; whoever writes asks again.
func (l *Loop) shut(c *Conn) {
	c.mu.Lock()
	var ready bool
	switch {
	case c.state.Load()&gone != 0:
	case c.stream != nil:
		ready = c.stream.part()
	default:
		ready = c.part()
	}
	if !ready {
		c.mu.Unlock()
		return
	}
	c.state.Or(closing | gone)
	c.empty()
	if c.stream == nil {
		c.drop()
	}
	err := c.reason
	c.mu.Unlock()
	c.kept = nil
	l.unplace(c)
	if c.handler != nil {
		l.count.closed.Add(1)
		l.guard(c, func() { c.handler.Closed(c, err) })
	}
	l.group.gone()
}

// deliver gives b (kept bytes and new ones) to the handler and keeps the rest.
func (l *Loop) deliver(c *Conn, b []byte) (rest []byte) {
	used := l.give(c, b)
	if c.state.Load()&(closing|finishing) != 0 {
		return nil
	}
	if used < 0 || used > len(b) {
		c.Close(ErrMisuse)
		return nil
	}
	rest = b[used:]
	if len(rest) > maxKept && c.state.Load()&paused == 0 {
		c.Close(ErrKept)
		return nil
	}
	return rest
}

// give calls the handler. It is the hot one of the callbacks, so it is guarded without a closure.
func (l *Loop) give(c *Conn, b []byte) (used int) {
	defer l.rescue(c)
	return c.handler.Data(c, b)
}

// guard runs a callback of c. A panic closes c.
func (l *Loop) guard(c *Conn, f func()) {
	defer l.rescue(c)
	f()
}

// rescue is deferred around callbacks of c.
func (l *Loop) rescue(c *Conn) {
	if v := recover(); v != nil {
		l.panicked(v)
		c.Close(fmt.Errorf("%w: %v", ErrPanic, v))
	}
}

// call runs a posted function or a timer.
func (l *Loop) call(f func()) {
	defer func() {
		if v := recover(); v != nil {
			l.panicked(v)
		}
	}()
	f()
}

func (l *Loop) panicked(v any) {
	l.count.panics.Add(1)
	l.group.cfg.Log.Error("panic in a callback of the event loop", "loop", l.index, "panic", fmt.Sprint(v),
		"stack", string(debug.Stack()))
}

// wind closes every connection once the group is ending. It reports whether the loop may return.
func (l *Loop) wind() bool {
	if !l.group.ending.Load() {
		return false
	}
	if !l.ended {
		l.ended = true
		if l.index == 0 {
			l.dropListeners()
			l.group.gone()
		}
		for _, c := range l.conns {
			if c != nil {
				c.Close(ErrShutdown)
			}
		}
	}
	return l.group.live.Load() == 0 && l.inbox.shutIfEmpty()
}

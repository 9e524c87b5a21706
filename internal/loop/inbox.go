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
	reads, writes, bytesIn, bytesOut, handshakes                   atomic.Uint64
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

// Package loop moves the bytes of many sockets on a few goroutines. It accepts connections, reads what
// has come, hands it to a handler, and sends what handlers queued in one write a connection at the end of
// each batch.
//
// It promises: all callbacks of a connection (accept, Data, Drained, Closed) and all posted functions and
// timers of a loop run one after another, never at once; the bytes of a connection leave in the order of
// their End calls, and what lies between Begin and End leaves whole or not at all, unless the connection
// breaks; a peer that floods or does not read costs the others nothing but its share of a batch; what a
// connection may queue is bounded; Closed comes once and last for every connection that was accepted,
// also when the group ends; a panic in a callback closes that connection and is counted. Run leaves no
// goroutine and no descriptor behind.
//
// Listen, Post, Every, After, Stats and every method of Conn but Handler callbacks may be called from any
// goroutine. Loop.Now and End with a loop belong to code that runs on that loop.
//
// With Config.TLS a portable group encrypts: accept is called once the handshake is done, and a peer that
// cannot finish one within ten seconds is counted and never heard of.
//
// It does not: know any protocol besides, dial, or limit the number of connections, but for those in a TLS
// handshake. A callback must not block: it would stop every connection of its loop.
//
// On Linux a loop is an epoll instance and connections are bare descriptors
// (docs/decisions/0002-event-loop.md). Elsewhere, and with Config.Portable, each connection has a
// goroutine over a net.Conn and a loop is a mutex.
package loop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is told what happens on one connection, always on that connection's loop.
type Handler interface {
	// Data is given the bytes that were read and returns how many of them it used up. The rest is kept
	// and comes again in front of the next bytes. b may be written to and is valid during the call only.
	Data(c *Conn, b []byte) int
	// Drained says that the write queue was over its soft mark (half of Config.WriteQueue) and is empty
	// again.
	Drained(c *Conn)
	// Closed is the last call for c. err is io.EOF when the peer ended, what Close was given, nil after
	// Finish, ErrShutdown when the group ends, or what broke the connection.
	Closed(c *Conn, err error)
}

// Errors of this package. ErrQueueFull and ErrClosed are what End returns, the others are given to Closed.
var (
	ErrClosed    = errors.New("loop: connection is closed")
	ErrQueueFull = errors.New("loop: write queue is full")
	ErrKept      = errors.New("loop: handler left too many bytes unused")
	ErrPanic     = errors.New("loop: handler panicked")
	ErrShutdown  = errors.New("loop: shutting down")
	ErrUnsent    = errors.New("loop: not everything was sent in time")
	ErrMisuse    = errors.New("loop: handler used more bytes than it was given")
)

const (
	maxKept     = 64 << 10 // bytes a handler may leave unused
	maxWrite    = 1 << 20  // bytes of one connection written in one batch
	acceptBatch = 64       // connections accepted in one batch
)

// spans are the times of a group; tests shorten them.
type spans struct {
	finish time.Duration // from Finish to Closed at most
	linger time.Duration // from the last byte sent to Closed at most
	last   time.Duration // the last write of a portable connection at most
	shake  time.Duration // a TLS handshake at most
	rest   time.Duration // between attempts to accept when there is no descriptor
}

func usual() spans {
	return spans{
		finish: 5 * time.Second, linger: time.Second,
		last: 100 * time.Millisecond, rest: 100 * time.Millisecond, shake: 10 * time.Second,
	}
}

// Config says how a Group works. The zero value is usable.
type Config struct {
	Loops      int              // number of loops; 0: GOMAXPROCS
	Portable   bool             // goroutines over net.Conn also where there is epoll
	ReadBytes  int              // most bytes of one read; 0: 64 KiB
	WriteQueue int              // bytes a connection may queue; 0: 8 MiB
	TLS        *tls.Config      // nil: plain; only portable groups do TLS, others refuse to listen
	Log        *slog.Logger     // nil: silent
	Now        func() int64     // ns since the Unix epoch, never backwards; nil: the system's clock
	Take       func(int64) bool // asks for memory for write queues, in bytes; nil: granted; must not block
	Give       func(int64)      // gives n bytes back
}

// Stats are counts since the group was made, but for Open, which is the number of connections now. Refused
// were turned away by accept, or came while there were as many TLS handshakes as can be at a time;
// Handshakes are those that failed. BytesIn and BytesOut are as handlers see them, without what TLS adds.
type Stats struct {
	Accepted, Closed, Open, Refused, Panics, QueueFull, Wakeups, Batches uint64
	Reads, Writes, BytesIn, BytesOut, Handshakes                         uint64
}

// Group is a set of loops that share listeners, settings and buffers.
type Group struct {
	cfg   Config
	loops []*Loop
	queue queuePool
	span  spans
	ids   atomic.Uint64
	live  atomic.Int64   // connections not gone, plus one while listeners may accept
	tasks sync.WaitGroup // goroutines of portable connections and listeners

	shaking atomic.Int64 // TLS handshakes that are under way

	mu        sync.Mutex
	listeners []*listener // not yet taken over by loop 0
	started   bool
	ended     bool
	ending    atomic.Bool
	over      chan struct{} // closed when the group is ending
}

// New returns a group with cfg. It opens nothing until Listen or Run.
func New(cfg Config) *Group {
	if cfg.Loops <= 0 {
		cfg.Loops = runtime.GOMAXPROCS(0)
	}
	if cfg.ReadBytes <= 0 {
		cfg.ReadBytes = 64 << 10
	}
	if cfg.WriteQueue <= 0 {
		cfg.WriteQueue = 8 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		start := time.Now()
		base := start.UnixNano()
		cfg.Now = func() int64 { return base + int64(time.Since(start)) }
	}
	if !havePoller {
		cfg.Portable = true
	}
	g := &Group{cfg: cfg, span: usual(), over: make(chan struct{})}
	g.live.Store(1)
	for i := range cfg.Loops {
		g.loops = append(g.loops, newLoop(g, i))
	}
	return g
}

// Loops returns the loops, in the order of their Index.
func (g *Group) Loops() []*Loop { return g.loops }

// Listen opens a listening socket ("tcp", "tcp4", "tcp6" or "unix") and returns its address. Connections
// wait in the kernel until Run. Each new connection is dealt to a loop in turn, and accept, on that loop,
// returns its handler; with nil the connection is closed and Closed is not called. The socket is closed
// when Run returns.
func (g *Group) Listen(ctx context.Context, network, address string, accept func(*Conn) Handler) (
	net.Addr, error,
) {
	if err := g.checkTLS(); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	nl, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("loop: listen: %w", err)
	}
	addr := nl.Addr()
	ln := &listener{group: g, accept: accept, fd: -1}
	if g.cfg.Portable {
		ln.net = nl
	} else if err := ln.take(nl); err != nil {
		return nil, errors.Join(fmt.Errorf("loop: listen on %v: %w", addr, err), nl.Close())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		ln.close()
		return nil, fmt.Errorf("loop: listen on %v: %w", addr, ErrShutdown)
	}
	g.listeners = append(g.listeners, ln)
	if g.started {
		g.loops[0].Post(g.loops[0].takeListeners)
	}
	return addr, nil
}

// Run runs the loops until ctx ends, then closes every connection (Closed is called with ErrShutdown) and
// returns nil. It may be called once. An error means that the loops could not be started.
func (g *Group) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.started {
		g.mu.Unlock()
		return errors.New("loop: Run called twice")
	}
	g.started = true
	g.mu.Unlock()

	err := g.open()
	if err == nil {
		g.loops[0].Post(g.loops[0].takeListeners)
		told := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(told)
			g.end()
		})
		var all sync.WaitGroup
		for _, l := range g.loops {
			all.Go(l.run)
		}
		all.Wait()
		if !stop() {
			<-told
		}
		g.tasks.Wait()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	for _, ln := range g.listeners {
		ln.close()
	}
	g.listeners = nil
	if !g.cfg.Portable {
		for _, l := range g.loops {
			l.release()
		}
	}
	return err
}

func (g *Group) open() error {
	if g.cfg.Portable {
		return nil
	}
	for _, l := range g.loops {
		if err := l.acquire(); err != nil {
			return fmt.Errorf("loop: start loop %d: %w", l.index, err)
		}
	}
	return nil
}

// end tells every loop to close what it has.
func (g *Group) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.ending.Store(true)
	close(g.over)
	for _, l := range g.loops {
		l.rouse()
	}
}

// gone gives up one reason to stay alive; the last one wakes all loops so that they can return.
func (g *Group) gone() {
	if g.live.Add(-1) == 0 {
		for _, l := range g.loops {
			l.rouse()
		}
	}
}

// deal gives a new connection to the loop whose turn it is. The caller knows that the group is not ended.
func (g *Group) deal(c *Conn) {
	g.live.Add(1)
	c.id = g.ids.Add(1)
	c.loop = g.loops[(c.id-1)%uint64(len(g.loops))]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask(todoAdopt)
}

// Stats adds up the counts of all loops.
func (g *Group) Stats() Stats {
	var s Stats
	for _, l := range g.loops {
		n := &l.count
		s.Accepted += n.accepted.Load()
		s.Closed += n.closed.Load()
		s.Refused += n.refused.Load()
		s.Panics += n.panics.Load()
		s.QueueFull += n.queueFull.Load()
		s.Wakeups += n.wakeups.Load()
		s.Batches += n.batches.Load()
		s.Reads += n.reads.Load()
		s.Writes += n.writes.Load()
		s.BytesIn += n.bytesIn.Load()
		s.BytesOut += n.bytesOut.Load()
		s.Handshakes += n.handshakes.Load()
	}
	if s.Accepted > s.Closed {
		s.Open = s.Accepted - s.Closed
	}
	return s
}

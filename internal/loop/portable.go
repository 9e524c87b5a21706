package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

const firstRead = 4 << 10 // bytes of a stream's read buffer at first

// stream is a connection over a net.Conn: one goroutine reads while it is open, and one writes while
// there is something to write. Callbacks run under the loop's batch lock.
type stream struct {
	c      *Conn
	net    net.Conn      // what is read and written
	raw    net.Conn      // the socket: net itself, or what is below TLS
	tls    *tls.Conn     // net, where the group does TLS; else nil
	bell   chan struct{} // Resume and the end wake the reader
	closed bool          // under c.mu, like final
	final  bool          // a last write is allowed although c is closing
	hushed bool          // the peer is told that nothing more comes

	state atomic.Pointer[tls.ConnectionState] // once the handshake is done
}

// Attach gives the group a connection that was made elsewhere. It works on portable groups only. The
// group owns nc from then on, also when it returns an error. With Config.TLS nc gets a handshake first; if
// that fails, h is told by Closed.
func (g *Group) Attach(nc net.Conn, h Handler) (*Conn, error) {
	if !g.cfg.Portable || h == nil {
		return nil, errors.Join(errors.New("loop: attach: not a portable group, or no handler"), nc.Close())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil, errors.Join(ErrShutdown, nc.Close())
	}
	c := g.newStream(nc)
	c.handler = h
	g.deal(c)
	return c, nil
}

func (g *Group) newStream(nc net.Conn) *Conn {
	c := &Conn{fd: -1}
	c.stream = &stream{c: c, net: nc, raw: nc, bell: make(chan struct{}, 1)}
	if g.cfg.TLS != nil {
		c.stream.tls = tls.Server(nc, g.cfg.TLS)
		c.stream.net = c.stream.tls
	}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		ap := a.AddrPort()
		c.remote = netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
	}
	return c
}

// serve accepts until the listener is closed.
func (ln *listener) serve() {
	g := ln.group
	for {
		nc, err := ln.net.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !ln.tired {
				g.cfg.Log.Error("cannot accept connections", "error", err, "retry", g.span.rest)
			}
			ln.tired = true
			if !g.pause(g.span.rest) {
				return
			}
			continue
		}
		ln.tired = false
		c := g.newStream(nc)
		c.accepted = ln.accept
		g.mu.Lock()
		if g.ended {
			nc.Close()
		} else {
			g.deal(c)
		}
		g.mu.Unlock()
	}
}

// pause waits for d; it reports false when the group ends before.
func (g *Group) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.over:
		return false
	}
}

// runPortable does chores and timers; reading and writing have goroutines of their own.
func (l *Loop) runPortable() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		l.enter()
		l.chores()
		l.tick()
		done := l.leave()
		if done {
			return
		}
		l.batch.Lock()
		t.Reset(l.wait())
		l.batch.Unlock()
		select {
		case <-l.bell:
			l.count.wakeups.Add(1)
		case <-t.C:
		}
	}
}

func (l *Loop) enter() {
	l.batch.Lock()
	l.now.Store(l.group.cfg.Now())
	l.count.batches.Add(1)
}

// leave ends a batch of a portable loop and reports whether the loop may return.
func (l *Loop) leave() bool {
	defer l.batch.Unlock()
	l.flush()
	return l.wind()
}

// read is the reading goroutine of a stream.
func (s *stream) read() {
	c, l := s.c, s.c.loop
	buf := make([]byte, firstRead)
	kept := 0
	for {
		if len(buf)-kept < firstRead/2 {
			buf = append(buf, make([]byte, len(buf))...)
		}
		end := min(len(buf), kept+l.group.cfg.ReadBytes)
		n, err := s.net.Read(buf[kept:end])
		l.count.reads.Add(1)
		l.count.bytesIn.Add(uint64(n))
		full := kept+n == len(buf)
		kept = s.deliver(buf, kept, n)
		if errors.Is(err, io.EOF) {
			c.hearEnd()
			return
		}
		if err != nil {
			c.Close(fmt.Errorf("loop: read: %w", err))
			return
		}
		if c.state.Load()&closing != 0 {
			return
		}
		if full && kept == 0 && len(buf) < l.group.cfg.ReadBytes {
			buf = make([]byte, 2*len(buf))
		}
	}
}

// deliver gives the handler buf[:kept+n] and returns how many bytes stay. While c is paused it waits, and
// after each Resume it delivers what stayed once more.
func (s *stream) deliver(buf []byte, kept, n int) int {
	c, l := s.c, s.c.loop
	n += kept
	for fresh := n > kept; ; fresh = n > 0 {
		l.enter()
		c.state.And(^uint32(resumed))
		state := c.state.Load()
		switch {
		case state&(closing|finishing) != 0:
			n = 0
		case state&paused == 0 && fresh:
			n = copy(buf, l.deliver(c, buf[:n]))
		}
		l.leave()
		state = c.state.Load()
		switch {
		case state&(closing|finishing) != 0:
			return 0
		case state&paused != 0:
			<-s.bell
		case state&resumed == 0:
			return n
		}
	}
}

// write is the writing goroutine of a stream; it ends when nothing is queued.
func (s *stream) write() {
	c, l := s.c, s.c.loop
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.final || c.state.Load()&closing == 0 {
		b := c.pick()
		if b == nil {
			break
		}
		c.mu.Unlock()
		n, err := s.net.Write(b[:min(len(b), maxWrite)])
		c.mu.Lock()
		l.count.writes.Add(1)
		l.count.bytesOut.Add(uint64(n))
		if err != nil {
			s.final = false
			c.state.Or(broken)
			c.empty()
			c.fail(fmt.Errorf("loop: write: %w", err))
			break
		}
		c.sent(n)
	}
	c.settle()
}

// flush sees to it that a goroutine writes what is queued.
func (s *stream) flush() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = false
	if !c.writing && c.queued > 0 && c.state.Load()&(closing|broken|gone) == 0 {
		c.writing = true
		c.loop.group.tasks.Go(s.write)
	}
}

func (s *stream) wake() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// part closes the net.Conn, which ends a write under way, and reports whether there was none. A peer that
// only ended its own side, or one that is left because the process ends, gets a last try of what is
// queued.
func (s *stream) part() bool {
	c := s.c
	if !s.final && c.queued > 0 && (errors.Is(c.reason, io.EOF) || errors.Is(c.reason, ErrShutdown)) {
		s.final = s.net.SetWriteDeadline(time.Now().Add(c.loop.group.span.last)) == nil
		if s.final && !c.writing {
			c.writing = true
			c.loop.group.tasks.Go(s.write)
		}
	}
	if c.writing && s.final {
		return false
	}
	s.close()
	return !c.writing
}

func (s *stream) close() {
	if !s.closed {
		s.closed = true
		if s.polite() {
			s.c.loop.group.tasks.Go(s.goodbye)
		} else {
			s.raw.Close()
		}
		s.wake()
	}
}

// halve ends the sending side where the net.Conn can do so.
func (s *stream) halve() bool {
	if s.tls != nil {
		s.hushed = true
		s.c.loop.group.tasks.Go(s.hush)
		return true
	}
	half, ok := s.net.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

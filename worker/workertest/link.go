package workertest

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// link is the engine's end of one connection. Its reader and its writer belong to Engine.tasks.
type link struct {
	engine *Engine
	conn   net.Conn
	id     string
	token  string
	kick   chan struct{} // capacity 1
	down   chan struct{}
	once   sync.Once
	turn   chan struct{} // capacity 1: full while one sends; a mutex would stop the clock of a bubble

	// Guarded by Engine.mu.
	announced bool
	name      string
	namespace string
	held      [][]byte // registrations that came before the introduction

	mu    sync.Mutex // guards out
	out   []byte
	awake bool

	frame wire.Frame // the reader's
}

// cut breaks the connection.
func (l *link) cut() {
	l.once.Do(func() {
		_ = l.conn.Close()
		close(l.down)
	})
}

// read serves the handshake and then the frames, and tears the link down in the end.
func (l *link) read() {
	defer l.engine.teardown(l)
	defer l.cut()
	buf := make([]byte, 64<<10)
	r, have, ok := l.handshake(buf)
	if !ok {
		return
	}
	if p, side, ok := l.engine.take(l, &r); ok {
		switch {
		case p == nil:
		case side == writes:
			l.pipeIn(p, buf, have)
		default:
			l.pipeOut(p, buf, have)
		}
		return
	}
	l.send(&wire.Frame{Type: wire.TypeWorkerRegistered, WorkerID: []byte(l.id), ReattachToken: []byte(l.token),
		Features: []byte(`["caller"]`)})
	l.events(buf, have, l.event)
}

// events hands out what comes until see says no or the connection ends.
func (l *link) events(buf []byte, have int, see func(ws.Event) bool) {
	var codec ws.Decoder
	cfg := ws.Config{Role: ws.Server}
	for {
		used := 0
		for {
			ev, n, err := codec.Next(&cfg, buf[used:have])
			used += n
			if err != nil {
				return
			}
			if ev.Kind == ws.KindNone {
				break
			}
			if !see(ev) {
				return
			}
		}
		have = copy(buf, buf[used:have])
		n, err := l.conn.Read(buf[have:])
		if have += n; err != nil {
			return
		}
	}
}

// handshake answers the request for a WebSocket and leaves what came behind it in buf.
func (l *link) handshake(buf []byte) (r ws.Request, have int, ok bool) {
	for {
		n, err := l.conn.Read(buf[have:])
		if have += n; err != nil {
			return r, 0, false
		}
		r, used, err := ws.ParseRequest(buf[:have])
		status, reason := 0, ""
		switch {
		case err != nil || used > 0 && !r.Upgrade:
			status, reason = 400, "a WebSocket is expected"
		case used > 0:
			status, reason = l.engine.admit(&r)
		}
		if status != 0 {
			_, _ = l.conn.Write(ws.AppendRefusal(nil, status, reason)) // the connection ends either way
			return r, 0, false
		}
		if used > 0 {
			if _, err := l.conn.Write(ws.AppendAccept(nil, r.Key)); err != nil {
				return r, 0, false
			}
			return r, copy(buf, buf[used:have]), true
		}
	}
}

func (l *link) event(ev ws.Event) bool {
	switch ev.Kind {
	case ws.KindMessage:
		return l.message(ev.Payload)
	case ws.KindPing:
		l.put(ws.Pong, ev.Payload)
	case ws.KindClose:
		_ = l.push(ws.AppendClose(nil, ev.Code, ""))
		return false
	}
	return true
}

func (l *link) message(b []byte) bool {
	f := &l.frame
	if f.Scan(b) != nil {
		return true
	}
	switch l.engine.judge(l, f, b, false) {
	case Drop:
		return true
	case Cut:
		return false
	}
	l.engine.route(l, f, b)
	return true
}

// send sends a frame, unless the interceptor objects.
func (l *link) send(f *wire.Frame) {
	if text := f.Append(nil); l.allowed(f, text) {
		l.text(text)
	}
}

func (l *link) allowed(f *wire.Frame, text []byte) bool {
	switch l.engine.judge(l, f, text, true) {
	case Drop:
		return false
	case Cut:
		l.cut()
		return false
	}
	return true
}

// push sends what is whole frames, and waits until that is read.
func (l *link) push(b []byte) error {
	select {
	case l.turn <- struct{}{}:
	case <-l.down:
		return net.ErrClosed
	}
	_, err := l.conn.Write(b)
	<-l.turn
	return err
}

func (l *link) text(b []byte) { l.put(ws.Text, b) }

func (l *link) put(op ws.Opcode, b []byte) {
	l.mu.Lock()
	l.out = ws.AppendFrame(l.out, op, b)
	wake := !l.awake
	l.awake = true
	l.mu.Unlock()
	if wake {
		l.kick <- struct{}{}
	}
}

// write sends what has gathered, in one write.
func (l *link) write() {
	var spare []byte
	for {
		select {
		case <-l.kick:
		case <-l.down:
			return
		}
		for {
			runtime.Gosched()
			if !l.pause() {
				return
			}
			l.mu.Lock()
			batch := l.out
			if len(batch) == 0 {
				l.awake = false
				l.mu.Unlock()
				break
			}
			l.out = spare[:0]
			l.mu.Unlock()
			if err := l.push(batch); err != nil {
				l.cut()
				return
			}
			spare = batch
		}
	}
}

// pause waits for the delay that the test wants; false means that the link is over.
func (l *link) pause() bool {
	l.engine.mu.Lock()
	d := l.engine.delay
	l.engine.mu.Unlock()
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.down:
		return false
	}
}

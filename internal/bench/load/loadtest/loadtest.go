// Package loadtest is a small server for tests of the load generator: it speaks the worker frames and
// relays calls, and can be told to fail in the ways that a generator must notice.
//
// It promises to count every call that it took in. A Relay may be used by any goroutine. It is no
// peer to measure against: a goroutine and a lock for everything.
package loadtest

import (
	"bytes"
	"net"
	"strconv"
	"sync"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// Fault says what to do wrong with call number n, which counts from 1. The zero Fault does it right.
type Fault struct {
	Code    string // answer with this error in place of calling the host
	Swallow bool   // never answer
	Twice   bool   // answer a second time
	Alter   bool   // answer with another payload
	Close   bool   // close the caller's connection
}

// Relay is the server. Fault is set before Serve and called with the lock held.
type Relay struct {
	Fault func(n int64) Fault // nil: no fault
	// Late is how many calls find no function first, as before a registration has come in.
	Late int64

	mu      sync.Mutex
	hosts   map[string]*peer
	pending map[string]call
	conns   map[*peer]bool
	names   []string // of workers that have introduced themselves
	calls   int64
	busy    sync.WaitGroup
}

type peer struct {
	conn net.Conn
	mu   sync.Mutex
	id   string
}

type call struct {
	from  *peer
	id    string
	fault Fault
}

func (p *peer) send(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.conn.Write(b) // a reader on the other side notices
}

func (p *peer) frame(f *wire.Frame) { p.send(ws.AppendFrame(nil, ws.Text, f.Append(nil))) }

// Calls returns how many calls have come in, those of functions nobody has registered left out.
func (r *Relay) Calls() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// Functions returns how many functions are registered.
func (r *Relay) Functions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.hosts)
}

// Workers returns how many workers have introduced themselves.
func (r *Relay) Workers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}

// Serve takes connections until l is closed, then closes them and returns.
func (r *Relay) Serve(l net.Listener) {
	r.hosts, r.pending, r.conns = map[string]*peer{}, map[string]call{}, map[*peer]bool{}
	for n := 0; ; n++ {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		p := &peer{conn: conn, id: strconv.Itoa(n)}
		r.mu.Lock()
		r.conns[p] = true
		r.mu.Unlock()
		r.busy.Go(func() { r.serve(p) })
	}
	r.mu.Lock()
	for p := range r.conns {
		_ = p.conn.Close()
	}
	r.mu.Unlock()
	r.busy.Wait()
}

func (r *Relay) serve(p *peer) {
	defer func() {
		_ = p.conn.Close()
		r.mu.Lock()
		delete(r.conns, p)
		r.mu.Unlock()
	}()
	buf := make([]byte, 1<<20)
	have, open := 0, false
	var d ws.Decoder
	cfg := &ws.Config{Role: ws.Server}
	for {
		n, err := p.conn.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		used := 0
		if !open {
			req, n, err := ws.ParseRequest(buf[:have])
			if err != nil {
				return
			}
			if n == 0 {
				continue
			}
			open, used = true, n
			p.send(ws.AppendAccept(nil, req.Key))
			p.frame(&wire.Frame{Type: wire.TypeWorkerRegistered, WorkerID: []byte(p.id)})
		}
		for {
			ev, n, err := d.Next(cfg, buf[used:have])
			used += n
			if err != nil || ev.Kind == ws.KindClose {
				return
			}
			if ev.Kind == ws.KindNone {
				break
			}
			if ev.Kind == ws.KindPing {
				p.send(ws.AppendFrame(nil, ws.Pong, ev.Payload))
			}
			if ev.Kind == ws.KindMessage && !r.message(p, ev.Payload) {
				return
			}
		}
		have = copy(buf, buf[used:have])
	}
}

func (r *Relay) message(p *peer, b []byte) bool {
	var f wire.Frame
	if f.Scan(b) != nil {
		return false
	}
	switch f.Type {
	case wire.TypeRegisterFunction:
		r.mu.Lock()
		r.hosts[string(f.ID)] = p
		r.mu.Unlock()
	case wire.TypePing:
		p.frame(&wire.Frame{Type: wire.TypePong})
	case wire.TypeInvokeFunction:
		if string(f.FunctionID) == "engine::workers::register" {
			r.mu.Lock()
			r.names = append(r.names, string(f.Data))
			r.mu.Unlock()
			return true
		}
		return r.invoke(p, &f)
	case wire.TypeInvocationResult:
		r.mu.Lock()
		c, ok := r.pending[string(f.InvocationID)]
		delete(r.pending, string(f.InvocationID))
		r.mu.Unlock()
		if !ok {
			return true
		}
		f.InvocationID = []byte(c.id)
		if c.fault.Alter {
			f.Result = bytes.ToUpper(f.Result)
		}
		c.from.frame(&f)
		if c.fault.Twice {
			c.from.frame(&f)
		}
	}
	return true
}

func (r *Relay) invoke(p *peer, f *wire.Frame) bool {
	r.mu.Lock()
	host := r.hosts[string(f.FunctionID)]
	var fault Fault
	if r.Late > 0 {
		r.Late--
		host = nil
	}
	if host == nil {
		fault.Code = "function_not_found"
	} else {
		r.calls++
		if r.Fault != nil {
			fault = r.Fault(r.calls)
		}
	}
	id := "call-" + strconv.FormatInt(r.calls, 10)
	if fault.Code == "" && !fault.Swallow && !fault.Close {
		r.pending[id] = call{from: p, id: string(f.InvocationID), fault: fault}
	}
	r.mu.Unlock()
	switch {
	case fault.Close:
		return false
	case fault.Swallow:
	case fault.Code != "":
		p.frame(&wire.Frame{
			Type: wire.TypeInvocationResult, InvocationID: f.InvocationID, FunctionID: f.FunctionID,
			Error: wire.AppendError(nil, &wire.Error{Code: fault.Code, Message: "as told"}),
		})
	default:
		host.frame(&wire.Frame{
			Type: wire.TypeInvokeFunction, InvocationID: []byte(id), FunctionID: f.FunctionID, Data: f.Data,
		})
	}
	return true
}

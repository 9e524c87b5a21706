package relay

import (
	"strconv"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// session is what the protocol keeps for one connection.
type session struct {
	open      bool // the handshake is done
	decoder   ws.Decoder
	functions []string
}

// table is what the relay knows: who hosts which function, and who waits for which call.
type table struct {
	config  *ws.Config
	hosts   map[string]*conn
	pending map[uint64]waiter
	last    uint64 // id of the last call on its way to a host
	worker  uint64 // id of the last connection
	frame   wire.Frame
	scratch []byte
}

// waiter is a caller and its own id of the call.
type waiter struct {
	caller *conn
	id     [maxID]byte
	size   uint8
}

// maxID is the longest id a caller may choose; UUIDs have 36 bytes.
const maxID = 48

func newTable() table {
	return table{
		config:  &ws.Config{Role: ws.Server},
		hosts:   map[string]*conn{},
		pending: map[uint64]waiter{},
	}
}

// feed reads what is whole in b and returns how much that was.
func (p *loop) feed(c *conn, b []byte) (used int, err error) {
	if !c.open {
		used, err = p.handshake(c, b)
		if err != nil || !c.open {
			return used, err
		}
	}
	for {
		ev, n, err := c.decoder.Next(p.config, b[used:])
		used += n
		if err != nil {
			return used, err
		}
		switch ev.Kind {
		case ws.KindNone:
			return used, nil
		case ws.KindMessage:
			p.message(c, ev.Payload)
		case ws.KindPing:
			c.out = ws.AppendFrame(c.out, ws.Pong, ev.Payload)
			p.touch(c)
		}
	}
}

func (p *loop) handshake(c *conn, b []byte) (int, error) {
	req, n, err := ws.ParseRequest(b)
	if err != nil || n == 0 {
		return 0, err
	}
	c.open = true
	p.worker++
	c.out = ws.AppendAccept(c.out, req.Key)
	p.frame.Reset()
	p.frame.Type = wire.TypeWorkerRegistered
	p.frame.WorkerID = strconv.AppendUint(nil, p.worker, 10)
	p.send(c)
	return n, nil
}

// send queues p.frame.
func (p *loop) send(c *conn) {
	start := len(c.out)
	c.out = ws.End(p.frame.Append(ws.Begin(c.out)), start, ws.Text)
	p.touch(c)
}

func (p *loop) message(c *conn, b []byte) {
	f := &p.frame
	if f.Scan(b) != nil {
		return
	}
	switch f.Type {
	case wire.TypeInvokeFunction:
		p.invoke(c)
	case wire.TypeInvocationResult:
		p.result()
	case wire.TypeRegisterFunction:
		id := string(f.ID)
		p.hosts[id] = c
		c.functions = append(c.functions, id)
	case wire.TypePing:
		f.Reset()
		f.Type = wire.TypePong
		p.send(c)
	}
}

// invoke sends a call on to its host, under an id of the relay's own.
func (p *loop) invoke(c *conn) {
	f := &p.frame
	host := p.hosts[string(f.FunctionID)]
	if host == nil {
		p.missing(c)
		return
	}
	f.Action, f.Namespace = nil, nil
	if len(f.InvocationID) > 0 {
		if len(f.InvocationID) > maxID {
			return
		}
		p.last++
		w := waiter{caller: c, size: uint8(len(f.InvocationID))}
		copy(w.id[:], f.InvocationID)
		p.pending[p.last] = w
		p.scratch = strconv.AppendUint(p.scratch[:0], p.last, 10)
		f.InvocationID = p.scratch
	}
	start := len(host.out)
	host.out = ws.End(wire.AppendInvoke(ws.Begin(host.out), f), start, ws.Text)
	p.touch(host)
}

// missing answers a call of a function that nobody has.
func (p *loop) missing(c *conn) {
	f := &p.frame
	if len(f.InvocationID) == 0 {
		return
	}
	f.Type, f.Data, f.Action = wire.TypeInvocationResult, nil, nil
	f.Error = wire.AppendError(nil, &wire.Error{Code: wire.CodeFunctionNotFound, Message: "no such function"})
	p.send(c)
}

// result sends an answer back under the caller's id.
func (p *loop) result() {
	f := &p.frame
	id, ok := number(f.InvocationID)
	if !ok {
		return
	}
	w, ok := p.pending[id]
	if !ok {
		return
	}
	delete(p.pending, id)
	if w.caller.closed {
		return
	}
	f.InvocationID = w.id[:w.size]
	start := len(w.caller.out)
	w.caller.out = ws.End(wire.AppendResult(ws.Begin(w.caller.out), f), start, ws.Text)
	p.touch(w.caller)
}

// number reads a decimal number without making it a string.
func number(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	return n, true
}

// forget takes the functions of a connection out of the table.
func (p *loop) forget(c *conn) {
	for _, id := range c.functions {
		if p.hosts[id] == c {
			delete(p.hosts, id)
		}
	}
	c.decoder.Release()
}

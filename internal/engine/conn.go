package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// phase is how far a connection has come.
type phase uint8

const (
	handshaking phase = iota
	serving           // a worker, on path /
	admitting         // an auth function is being asked
	reporting         // telemetry only, on path /otel
	piping            // one end of a channel
	closed
)

// conn is one connection. It is a peer of the function core: the target of the functions that its worker
// registered, and the completer of the calls that its worker made. Fields belong to the connection's loop
// unless said otherwise.
type conn struct {
	peer   fn.Peer
	engine *Engine
	sock   *loop.Conn
	codec  ws.Decoder
	id     uuid
	token  uuid // proves, on a later connection, that this one may be retired
	place  int  // in its lane's conns
	lane   *lane
	door   *door

	phase     phase
	full      bool // it came when there were enough connections
	announced bool // engine::workers::register has come, or the grace time is over
	waiting   bool // a predecessor on another loop is being retired: no frame is read meanwhile
	slow      bool // its write queue is over the soft mark: nothing is read from it
	callers   bool // its worker understands `caller` in invokefunction
	space     string
	card      *card // what the worker said of itself; guarded by engine.mu once announced
	hold      *hold // registrations that wait for the announcement
	drain     *wire.Drain
	pipe      *channel.End  // while piping
	session   *rbac.Session // what an auth function allowed; nil: none was asked

	since  int64 // connected, Unix ns
	seen   int64 // last bytes, Unix ns
	pinged int64 // last ping of ours, Unix ns

	complained int64 // last log line about it, Unix ns
}

// maxEvents is how many messages of one connection are handled before the others have their turn: more
// than fit one read at the size of an ordinary call, so that only a flood of tiny ones is cut.
const maxEvents = 512

// overBound is how many connections past MaxConnections are told 503; those past that are closed unheard.
const overBound = 256

// accept is called on the new connection's loop; nil refuses it.
func (e *Engine) accept(d *door, c *loop.Conn) *conn {
	open := e.open.Add(1)
	if open > int64(e.bounds.MaxConnections)+overBound {
		e.open.Add(-1)
		e.stats.refused.Add(1)
		return nil
	}
	now := c.Loop().Now()
	n := d.group.lanes[c.Loop().Index()]
	k := &conn{engine: e, sock: c, since: now, seen: now, full: open > int64(e.bounds.MaxConnections),
		door: d, lane: n}
	k.place = len(n.conns)
	n.conns = append(n.conns, k)
	return k
}

// Data takes what has been read, frame by frame. The codec is asked until it has no more: an event may be
// due without another byte.
func (k *conn) Data(c *loop.Conn, b []byte) int {
	k.seen = c.Loop().Now()
	used := 0
	if k.phase == handshaking {
		if used = k.handshake(b); used == 0 || k.phase == handshaking {
			return used
		}
	}
	if k.pipe != nil {
		return used + k.pipe.Data(c, b[used:])
	}
	events := 0
	for k.phase != closed && !k.waiting {
		ev, n, err := k.codec.Next(&k.engine.codec, b[used:])
		used += n
		if err != nil {
			k.fail(err)
			return used
		}
		if ev.Kind == ws.KindNone {
			break
		}
		k.event(ev)
		if events++; events == maxEvents {
			k.sock.Pause() // and no resume in place: what is left may be more than the loop keeps of one that reads
			k.sock.Loop().Post(k.resume)
			break
		}
	}
	if k.phase == closed {
		return len(b)
	}
	if !k.slow && k.sock.Queued() > k.engine.bounds.WriteQueueBytes/2 {
		k.slow = true
		k.sock.Pause()
	}
	return used
}

// event handles one event of the codec.
func (k *conn) event(ev ws.Event) {
	switch ev.Kind {
	case ws.KindMessage:
		k.message(ev)
	case ws.KindPing:
		k.control(ws.Pong, ev.Payload)
	case ws.KindPong:
	case ws.KindClose:
		k.shut(ev.Code, "")
	case ws.KindChunk:
		if k.drain == nil {
			k.drain = new(wire.Drain)
		}
		k.drain.Write(ev.Payload)
	case ws.KindDropped:
		k.engine.stats.oversized.Add(1)
		if k.drain != nil {
			f := k.drain.Frame()
			k.blame(f, fault.Newf(fault.Limit, wire.CodeMessageTooLarge,
				"the message is larger than %d bytes, or than the memory that is left; send large data in parts",
				k.engine.bounds.MaxMessageBytes))
		}
		k.drain = nil
	}
}

// message handles one whole message.
func (k *conn) message(ev ws.Event) {
	e, b := k.engine, ev.Payload
	if ev.Op == ws.Binary && isTelemetry(b) {
		e.inbox.put(b)
		return
	}
	if k.phase != serving || len(b) == 0 || b[0] != '{' && wire.Blank(b) {
		return
	}
	f := &k.lane.frame
	if err := f.Scan(b); err != nil || !ws.ValidText(b) {
		e.stats.malformed.Add(1)
		k.malformed(b, err)
		return
	}
	k.frame(f, b)
}

// malformed fails the call that a broken message belongs to, if it says which.
func (k *conn) malformed(b []byte, err error) {
	fail := fault.New(fault.Invalid, wire.CodeMalformedFrame, "its text is not valid UTF-8")
	var we *wire.Error
	if errors.As(err, &we) {
		fail = fault.New(fault.Invalid, we.Code, we.Message)
	}
	d := new(wire.Drain)
	d.Write(b)
	f := d.Frame()
	k.complain("message cannot be used", "type", f.Type.String(), "code", fail.Code, "error", fail.Message)
	k.blame(f, fail)
}

// blame fails the one call that a message which cannot be used belongs to.
func (k *conn) blame(f *wire.Frame, err *fault.Error) {
	switch f.Type {
	case wire.TypeInvokeFunction:
		k.refuse(f.InvocationID, f.FunctionID, err)
	case wire.TypeInvocationResult:
		k.answer(f.InvocationID, fn.Outcome{Err: err})
	default:
		k.complain("message dropped", "type", f.Type.String(), "error", err)
	}
}

// complain logs what a worker does wrong, at most once a second for each worker: whoever floods us must
// not flood the log. The counters have every case.
func (k *conn) complain(what string, args ...any) {
	now := k.sock.Loop().Now()
	if now-k.complained < int64(time.Second) {
		return
	}
	k.complained = now
	k.engine.log.Warn(what, append([]any{"worker", k.peer.Name()}, args...)...)
}

// control sends a control frame. A peer that does not take them is dropped by its silence, not here.
func (k *conn) control(op ws.Opcode, payload []byte) {
	out := k.sock.Begin()
	out = ws.AppendFrame(out, op, payload)
	k.sent(k.sock.End(k.sock.Loop(), out))
}

// send writes one frame that is no part of a call, from the connection's own loop.
func (k *conn) send(f *wire.Frame) { k.sendFrom(k.sock.Loop(), f) }

// sendFrom is send from any loop, or from a goroutine with nil.
func (k *conn) sendFrom(l *loop.Loop, f *wire.Frame) {
	out := k.sock.Begin()
	start := len(out)
	out = f.Append(ws.Begin(out))
	k.sent(k.sock.End(l, ws.End(out, start, ws.Text)))
}

// sent counts a frame that found no place in the queue of a worker that does not read.
func (k *conn) sent(err error) {
	if err != nil && !errors.Is(err, loop.ErrClosed) {
		k.engine.stats.answersLost.Add(1)
	}
}

// Drained is called when the write queue is empty again after it was over the soft mark.
func (k *conn) Drained(c *loop.Conn) {
	if k.pipe != nil {
		k.pipe.Drained(c)
	}
	if k.slow {
		k.slow = false
		k.resume()
	}
}

// resume reads on when nothing stands against it.
func (k *conn) resume() {
	if !k.waiting && !k.slow {
		k.sock.Resume()
	}
}

// fail closes a connection whose framing is broken, with the code that RFC 6455 gives it.
func (k *conn) fail(err error) {
	code, reason := uint16(ws.CloseProtocol), err.Error()
	var ce *ws.CloseError
	if errors.As(err, &ce) {
		code, reason = ce.Code, ce.Reason
	}
	k.engine.log.Warn("connection closed", "worker", k.peer.Name(), "remote", k.sock.RemoteAddr().String(),
		"code", code, "reason", reason)
	k.shut(code, reason)
}

// shut ends the connection: what belongs to the worker is taken down first, then the close frame leaves. The
// ends of a channel say goodbye themselves.
func (k *conn) shut(code uint16, reason string) {
	if k.phase == closed || k.phase == piping {
		return
	}
	upgraded := k.phase != handshaking && k.phase != admitting
	k.teardown()
	if upgraded {
		out := k.sock.Begin()
		k.sent(k.sock.End(k.sock.Loop(), ws.AppendClose(out, code, reason)))
	}
	k.sock.Finish()
}

// Closed is called once, when the socket is gone.
func (k *conn) Closed(c *loop.Conn, err error) {
	if k.pipe != nil {
		k.pipe.Closed(c, err)
	}
	if k.phase == serving && err != nil {
		k.engine.log.Debug("connection lost", "worker", k.peer.Name(), "error", err)
	}
	k.teardown()
	k.codec.Release()
	e, n := k.engine, k.lane
	last := len(n.conns) - 1
	n.conns[k.place] = n.conns[last]
	n.conns[k.place].place = k.place
	n.conns[last] = nil
	n.conns = n.conns[:last]
	e.open.Add(-1)
}

// teardown takes away all that the worker had, once, in the order of protocol section 13. When it returns,
// a successor can register the same names.
func (k *conn) teardown() {
	was := k.phase
	k.phase = closed
	if was != serving {
		return
	}
	k.drop()
	k.engine.dismiss(k.sock.Loop(), k)
	if k.card != nil {
		k.engine.log.Log(context.Background(), k.card.level(), "worker left", "worker", k.peer.Name(), "id",
			k.id.String())
	}
}

// enroll makes a worker of a connection: a peer with an id of its own and a token.
func (e *Engine) enroll(k *conn) {
	k.id, k.token = newUUID(), newUUID()
	k.peer.Data = k
	e.fn.Join(&k.peer, k.peer.Principal)
	e.mu.Lock()
	e.workers[k.id] = k
	e.mu.Unlock()
	e.stats.spawned.Add(1)
}

// dismiss takes a worker out: its functions, its calls, its name, its row.
func (e *Engine) dismiss(l *loop.Loop, k *conn) {
	e.fn.Leave(l, &k.peer)
	e.triggers.Leave(l, (*party)(k))
	e.channels.Leave(k)
	e.news.functions()
	if k.card != nil {
		e.news.worker(workerDisconnected, k.id)
	}
	e.mu.Lock()
	if k.card != nil && e.names[workerName{k.space, k.card.name}] == k {
		delete(e.names, workerName{k.space, k.card.name})
	}
	delete(e.workers, k.id)
	e.mu.Unlock()
	e.stats.died.Add(1)
}

func (k *conn) String() string { return fmt.Sprintf("worker %s", k.peer.Name()) }

package channel

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

// maxEvents is how many frames of one end are handled before other connections have their turn.
const maxEvents = 4096

// controlRoom is how much a peer that does not read may have us queue in pongs, besides messages.
const controlRoom = 64 << 10

var (
	errSilent = errors.New("channel: no sign of life")
	errStuck  = errors.New("channel: the reader does not take what is left")
	errMemory = errors.New("channel: no memory for a close frame")
)

// End is one end of a channel and its connection. It is told what happens there like a loop.Handler.
type End struct {
	pipe  *pipe
	side  side
	conn  *loop.Conn
	group any

	// the loop's
	codec  ws.Decoder
	text   text
	pinged int64 // last ping of ours, Unix ns
	left   int   // bytes in the queue of a reader that was told the end, when they last changed
	moved  int64 // and when that was, Unix ns

	// guarded by pipe.mu
	seen  int64     // last bytes, Unix ns
	owing bool      // it was sent messages after its last sign of life
	open  bool      // the upgrade is answered: frames may be sent
	said  bool      // a close frame of ours is queued, or due
	gone  bool      // its socket is closed
	bye   *farewell // the close frame that is due when it opens
}

// toward returns the loop to name for bytes from e's loop in r's queue.
func (e *End) toward(r *End) *loop.Loop {
	if e == nil || e.group != r.group {
		return nil
	}
	return e.conn.Loop()
}

// Open lets frames flow; the answer to the upgrade must be in the connection's queue. What has waited for
// a reader is sent.
func (e *End) Open() {
	p := e.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	e.open = true
	if e.bye != nil {
		e.said = false
		e.shut(*e.bye)
		return
	}
	p.progress()
}

// Data takes what was read from the connection, as loop.Handler has it.
func (e *End) Data(c *loop.Conn, b []byte) int {
	p := e.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	e.seen, e.owing = c.Loop().Now(), false
	used := 0
	for events := 0; used < len(b); events++ {
		if events == maxEvents {
			c.Pause()
			c.Loop().Post(c.Resume)
			break
		}
		if e.side == writes {
			if e.said || p.cut {
				return len(b)
			}
			if !p.room(len(b) - used) {
				p.stall()
				return used
			}
		}
		ev, n, err := e.codec.Next(&p.hub.codec, b[used:])
		used += n
		if err != nil {
			e.fail(err)
			return len(b)
		}
		if ev.Kind == ws.KindNone {
			break
		}
		e.event(ev)
	}
	return used
}

// event handles one event of the codec; under pipe.mu, like all that follows.
func (e *End) event(ev ws.Event) {
	switch ev.Kind {
	case ws.KindPing:
		e.control(ws.Pong, ev.Payload)
	case ws.KindClose:
		e.hear(ev.Code, string(ev.Payload))
	case ws.KindMessage, ws.KindChunk, ws.KindDropped:
		if e.side == writes {
			e.message(ev)
		}
	}
}

// message passes on what the writer sent.
func (e *End) message(ev ws.Event) {
	p := e.pipe
	if ev.Op == ws.Text && !e.valid(ev) {
		e.fail(&ws.CloseError{Code: ws.CloseInvalidText, Reason: "text message is no UTF-8"})
		return
	}
	op, last := ev.Op, ev.Kind != ws.KindChunk
	if p.part {
		op = ws.Continuation
	}
	p.part = !last
	p.pass(op, last, ev.Payload)
	if last || p.cut {
		return
	}
	// That the part was the last one is told without another byte; it must not wait for one.
	if end, _, err := e.codec.Next(&p.hub.codec, nil); err == nil && end.Kind == ws.KindDropped {
		e.message(end)
	}
}

func (e *End) valid(ev ws.Event) bool {
	switch ev.Kind {
	case ws.KindMessage:
		return ws.ValidText(ev.Payload)
	case ws.KindChunk:
		return e.text.add(ev.Payload)
	}
	return e.text.end()
}

// hear is told that the peer closed. A writer that says no code has closed on purpose all the same; any
// code but 1000, and a message that was begun, mean that the stream is not whole.
func (e *End) hear(code uint16, reason string) {
	p := e.pipe
	if e.side == reads {
		p.desert()
	} else {
		switch {
		case p.part:
			p.complete(farewell{ws.CloseInternal, "the writer closed within a message"})
		case code == ws.CloseNormal, code == ws.CloseNoStatus:
			p.complete(farewell{ws.CloseNormal, reason})
		default:
			why := strings.TrimSpace(fmt.Sprintf("the writer closed with %d %s", code, reason))
			p.complete(farewell{ws.CloseInternal, why})
		}
	}
	e.shut(farewell{code, ""})
}

// fail ends the connection of a peer that broke the protocol.
func (e *End) fail(err error) {
	f := farewell{ws.CloseProtocol, "protocol error"}
	if ce, ok := errors.AsType[*ws.CloseError](err); ok {
		f = farewell{ce.Code, ce.Reason}
	}
	e.shut(f)
	if e.side == reads {
		e.pipe.desert()
		return
	}
	e.pipe.complete(farewell{ws.CloseInternal, "the writer was closed: " + f.reason})
}

// control sends a control frame. What finds no room is lost: the peer does not read.
func (e *End) control(op ws.Opcode, payload []byte) {
	if e.said || !e.open {
		return
	}
	out := ws.AppendFrame(e.conn.Begin(), op, payload)
	limit := controlRoom
	if e.side == reads {
		limit += 2 * e.pipe.hub.o.BufferBytes
	}
	if errors.Is(e.conn.EndWithin(e.conn.Loop(), out, limit), loop.ErrQueueFull) {
		e.pipe.hub.stats.unanswered.Add(1)
	}
}

// say queues a close frame and reports whether that is done with.
func (e *End) say(f farewell) bool {
	if e.said {
		return true
	}
	err := e.conn.EndWithin(nil, ws.AppendClose(e.conn.Begin(), f.code, f.reason), math.MaxInt)
	if errors.Is(err, loop.ErrQueueFull) {
		return false
	}
	e.said = true
	return true
}

// shut closes the end: with a close frame, and as soon as that is sent.
func (e *End) shut(f farewell) {
	switch {
	case e.gone:
	case !e.open:
		e.said, e.bye = true, &f
	case e.say(f):
		e.conn.Finish()
	default:
		e.conn.Close(errMemory)
	}
}

// Drained is told that the write queue is empty after it was very full.
func (e *End) Drained(*loop.Conn) {
	e.pipe.mu.Lock()
	defer e.pipe.mu.Unlock()
	if e.side == reads {
		e.pipe.progress()
	}
}

// Closed is told that the connection is gone.
func (e *End) Closed(*loop.Conn, error) {
	p := e.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.gone {
		return
	}
	e.gone = true
	e.codec.Release()
	if e.side == writes {
		p.unstall()
		p.complete(farewell{ws.CloseInternal, "the connection of the writer broke"})
		return
	}
	p.desert()
	p.hub.forget(p)
}

// Beat looks after the end, about once a second; now is in ns since the Unix epoch. A silent peer is
// pinged, then dropped. Silence is no sign of death while we do not read, and in a reader that has
// messages to take before it comes to our ping: whether its host still lives, TCP finds out.
func (e *End) Beat(now int64) {
	p := e.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.gone || !e.open {
		return
	}
	queued := e.conn.Queued()
	if e.side == reads && p.told {
		e.lapse(now, queued)
		return
	}
	o := &p.hub.o
	if e.side == writes && p.stalled {
		e.seen = now
	}
	idle := now - e.seen
	switch {
	case idle > int64(o.DropAfter) && !e.owing && queued == 0:
		e.conn.Close(errSilent)
	case idle > int64(o.PingAfter) && now-e.pinged > int64(o.PingAfter) && queued == 0:
		e.pinged = now
		e.control(ws.Ping, nil)
	}
}

// lapse waits until a reader that was told the end has taken all, as long as it goes on taking.
func (e *End) lapse(now int64, queued int) {
	switch {
	case queued == 0:
		e.conn.Finish()
	case queued != e.left || e.moved == 0:
		e.left, e.moved = queued, now
	case now-e.moved > int64(e.pipe.hub.o.Untaken):
		e.conn.Close(errStuck)
	}
}

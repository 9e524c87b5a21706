package worker

import (
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// queue holds the calls that were made while there was no connection, in order. Worker.mu guards it.
type queue struct {
	text    []byte // the frames, as JSON, one behind the other
	entries []entry
	dead    int // bytes of calls that do not wait any more
}

type entry struct {
	end int    // of its frame in text
	id  uint64 // 0: a void call
}

// add ends the frame that was appended to text behind start.
func (q *queue) add(id uint64) { q.entries = append(q.entries, entry{len(q.text), id}) }

// each calls visit with every frame in order.
func (q *queue) each(visit func(text []byte, id uint64)) {
	start := 0
	for _, e := range q.entries {
		visit(q.text[start:e.end], e.id)
		start = e.end
	}
}

// compact drops the calls that do not wait any more, once they are half of the queue. alive tells.
func (q *queue) compact(alive func(id uint64) bool) {
	if 2*q.dead < len(q.text) || q.dead == 0 {
		return
	}
	text, kept, start := q.text[:0], q.entries[:0], 0
	for _, e := range q.entries {
		if e.id == 0 || alive(e.id) {
			text = append(text, q.text[start:e.end]...)
			kept = append(kept, entry{len(text), e.id})
		}
		start = e.end
	}
	q.text, q.entries, q.dead = text, kept, 0
}

// release moves the queue into the buffer of a fresh connection. Caller holds mu.
func (w *Worker) release(c *conn) {
	w.queue.each(func(text []byte, id uint64) {
		if id != 0 {
			k := w.table.get(id)
			if k == nil {
				return
			}
			k.held = 0
		}
		start := len(c.out)
		c.out = append(ws.Begin(c.out), text...)
		c.seal(start, ws.Text)
	})
	w.queue = queue{}
}

// salvage brings the calls that a broken connection did not send back into the queue, and ends those that
// it did send: whether they ran is not known. unsent are whole masked frames. Caller holds mu.
func (w *Worker) salvage(unsent ...[]byte) (lost int) {
	cfg := ws.Config{Role: ws.Server, MaxMessage: int64(w.opts.MaxMessage) + 1}
	var f wire.Frame
	for _, b := range unsent {
		var d ws.Decoder
		for len(b) > 0 {
			ev, n, err := d.Next(&cfg, b)
			b = b[n:]
			if err != nil || ev.Kind == ws.KindNone {
				break // cannot be: we wrote these frames
			}
			if ev.Kind != ws.KindMessage || f.Scan(ev.Payload) != nil {
				continue
			}
			switch f.Type {
			case wire.TypeInvokeFunction:
				w.hold(ev.Payload, f.InvocationID, f.FunctionID)
			case wire.TypeInvocationResult:
				lost++ // the engine has failed that call already
			}
		}
		d.Release()
	}
	w.table.end(func(c *call) (outcome, bool) { return unknown, c.held == 0 })
	return lost
}

// hold puts a call that was not sent into the queue again, if its caller still waits.
func (w *Worker) hold(text, invocation, function []byte) {
	id, _ := parseID(invocation)
	if id != 0 {
		c := w.table.get(id)
		if c == nil {
			return
		}
		c.held = len(text)
	} else if string(function) == registerName {
		return // said anew on each connection
	}
	w.queue.text = append(w.queue.text, text...)
	w.queue.add(id)
}

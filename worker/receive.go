package worker

import (
	"context"
	"fmt"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// event handles one event of the codec; an error ends the connection.
func (c *conn) event(ctx context.Context, ev ws.Event) error {
	switch ev.Kind {
	case ws.KindMessage:
		return c.message(ctx, ev.Payload)
	case ws.KindPing:
		c.control(ws.Pong, ev.Payload)
	case ws.KindClose:
		c.goodbye(ev.Code, "")
		if ev.Code == ws.CloseNormal || ev.Code == ws.CloseNoStatus {
			return errGone
		}
		return fmt.Errorf("%w: %d %s", errGone, ev.Code, ev.Payload)
	case ws.KindChunk:
		if c.drain == nil {
			c.drain = new(wire.Drain)
		}
		c.drain.Write(ev.Payload)
	case ws.KindDropped:
		c.dropped()
	}
	return nil
}

// dropped fails the call that a message over MaxMessage belongs to.
func (c *conn) dropped() {
	c.w.count.oversized.Add(1)
	if c.drain == nil {
		return
	}
	f := c.drain.Frame()
	c.drain = nil
	switch f.Type {
	case wire.TypeInvocationResult:
		id, _ := parseID(f.InvocationID)
		c.w.mu.Lock()
		k := c.w.take(id)
		c.w.mu.Unlock()
		if k == nil {
			c.w.count.late.Add(1)
			return
		}
		k.outcome = tooLarge
		k.done <- struct{}{}
	case wire.TypeInvokeFunction:
		c.w.refuse(c, f.InvocationID, f.FunctionID, wire.CodeMessageTooLarge,
			fmt.Sprintf("the call is larger than %d bytes, what this worker takes; send large data in parts",
				c.w.opts.MaxMessage))
	default:
		c.w.log.Warn("message dropped: too large", "type", f.Type.String())
	}
}

// message handles one message. ctx is that of handlers.
func (c *conn) message(ctx context.Context, b []byte) error {
	w, f := c.w, &c.frame
	if err := f.Scan(b); err != nil {
		if !wire.Blank(b) {
			w.count.malformed.Add(1)
			w.log.Warn("message ignored", "error", err)
		}
		return nil
	}
	switch f.Type {
	case wire.TypeInvocationResult:
		w.finish(f)
	case wire.TypeInvokeFunction:
		c.invoke(ctx, f)
	case wire.TypePing:
		w.mu.Lock()
		wake := c.append(&wire.Frame{Type: wire.TypePong})
		w.mu.Unlock()
		if wake {
			c.kick <- struct{}{}
		}
	case wire.TypePong:
		w.settled(c)
	case wire.TypeWorkerRegistered:
		w.greeted(c, f)
	case wire.TypeRegistrationRejected:
		return w.rejected(f)
	case wire.TypeError:
		if e := wire.ParseError(f.Error); e != nil {
			return fmt.Errorf("worker: the engine refused the session: %w", &Error{Code: e.Code, Message: e.Message})
		}
	case wire.TypeTriggerRegistrationResult:
		w.triggerFailed(f)
	case wire.TypeRegisterTrigger:
		w.deliver(c, f)
	case wire.TypeUnregisterTrigger:
		w.bound.unbind(string(f.ID))
	default:
		w.count.ignored.Add(1)
	}
	return nil
}

const stopping = "the worker that hosts the function is stopping"

// invoke takes an incoming call into the batch of this read, or refuses it.
func (c *conn) invoke(ctx context.Context, f *wire.Frame) {
	w := c.w
	fn := w.lookup(f.FunctionID)
	if fn == nil {
		w.refuse(c, f.InvocationID, f.FunctionID, wire.CodeFunctionNotFound,
			"this worker has no function "+string(f.FunctionID))
		return
	}
	if w.leaving.Load() {
		w.refuse(c, f.InvocationID, f.FunctionID, wire.CodeDraining, stopping)
		return
	}
	c.batch = append(c.batch, w.accept(ctx, c, fn, f))
}

// submit gives the batch to the pool and refuses what finds no room there.
func (c *conn) submit() {
	if len(c.batch) == 0 {
		return
	}
	w := c.w
	for _, j := range c.batch[w.pool.add(c.batch):] {
		w.turnAway(j)
	}
	clear(c.batch)
	c.batch = c.batch[:0]
}

// turnAway answers a job that is not run.
func (w *Worker) turnAway(j *job) {
	if w.leaving.Load() {
		w.refuse(j.conn, j.id, j.function.id, wire.CodeDraining, stopping)
	} else {
		w.refuse(j.conn, j.id, j.function.id, wire.CodeHostOverloaded, fmt.Sprintf(
			"the worker that hosts the function runs %d calls and has no room for more to wait; retry later",
			w.opts.Concurrency))
	}
	w.discard(j)
}

const maxGhosts = 8

// greeted notes who we are on this connection.
func (w *Worker) greeted(c *conn, f *wire.Frame) {
	w.mu.Lock()
	c.id = string(f.WorkerID)
	w.ghosts = append(w.ghosts, greeting{c.id, string(f.ReattachToken)})
	if len(w.ghosts) > maxGhosts {
		w.ghosts = w.ghosts[1:]
	}
	c.greeted = true
	w.mu.Unlock()
	c.tell()
}

// settled: the engine has answered the ping behind the registrations.
func (w *Worker) settled(c *conn) {
	w.mu.Lock()
	c.settled = true
	if n := len(w.ghosts); c.greeted && n > 1 { // the others have been retired
		w.ghosts = w.ghosts[n-1:]
	}
	w.mu.Unlock()
	w.bound.release(func(b *bound) bool { return b.stale }) // the engine has named those that are left
	c.tell()
}

// tell lets Worker.attend look at what has changed.
func (c *conn) tell() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// rejected reports a registration that the engine refused. A refused worker name is the end.
func (w *Worker) rejected(f *wire.Frame) error {
	r := Rejection{Code: string(f.Code), Namespace: string(f.Namespace), Function: string(f.FunctionID),
		Worker: string(f.WorkerName), Owner: string(f.OwnerWorkerID)}
	w.count.rejected.Add(1)
	w.log.Error("registration rejected", "code", r.Code, "namespace", r.Namespace, "function", r.Function,
		"worker", r.Worker, "owner", r.Owner)
	if w.opts.OnRejected != nil {
		w.opts.OnRejected(r)
	}
	if r.Code == wire.CodeWorkerConflict {
		return &fatal{&Error{Code: r.Code, Message: fmt.Sprintf(
			"another worker is named %q in namespace %q already; give each worker its own Options.Name",
			r.Worker, r.Namespace)}}
	}
	return nil
}

// fatal is an error after which connecting again is of no use.
type fatal struct{ err *Error }

func (f *fatal) Error() string { return f.err.Error() }

// Unwrap returns the error for the caller of Run.
func (f *fatal) Unwrap() error { return f.err }

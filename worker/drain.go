package worker

import (
	"context"
	"time"

	"github.com/plinth-run/plinth/wire/ws"
)

// drain ends the work of a connection in order: take no more calls, finish the handlers, send all, say
// goodbye. It ends early when the connection does.
func (w *Worker) drain(hard context.Context, giveUp func(), c *conn) {
	w.leave(c)
	w.finishHandlers(hard, giveUp)
	if !w.flush(hard, c) {
		return
	}
	c.control(ws.Close, closeNormal)
	t := time.NewTimer(leaveTimeout)
	defer t.Stop()
	select { // the engine's goodbye shows that it has read all of ours
	case <-c.down:
	case <-t.C:
	}
}

var closeNormal = []byte{byte(ws.CloseNormal >> 8), byte(ws.CloseNormal & 0xff)}

// leave takes no more calls and takes back the functions that other workers host as well, so that calls
// go there.
func (w *Worker) leave(c *conn) {
	if w.leaving.Swap(true) {
		return
	}
	w.tell(State{Phase: Draining, WorkerID: w.State().WorkerID})
	if c == nil {
		return
	}
	w.mu.Lock()
	wake := false
	for _, f := range w.order {
		if f.replicas {
			wake = c.text(f.withdrawal()) || wake
		}
	}
	w.mu.Unlock()
	if wake {
		c.kick <- struct{}{}
	}
}

// finishProviders waits until the providers have let their bindings go, for the grace time; then it ends hard
// and gives them a moment. false means that one is still running.
func (w *Worker) finishProviders(hard context.Context, giveUp func(), delivered <-chan struct{}) bool {
	w.bound.end()
	t := time.NewTimer(w.opts.Grace)
	defer t.Stop()
	select {
	case <-delivered:
		return true
	case <-hard.Done():
	case <-t.C:
	}
	giveUp()
	t.Reset(leaveTimeout)
	select {
	case <-delivered:
		return true
	case <-t.C:
		return false
	}
}

// finishHandlers waits for the handlers that run or wait, for the grace time; then it ends hard, their
// context, and gives them a moment to heed it. They get both once.
func (w *Worker) finishHandlers(hard context.Context, giveUp func()) {
	if hard.Err() != nil || w.calm(w.opts.Grace) {
		return
	}
	running, waiting := w.pool.size()
	w.log.Warn("grace time is over: handlers are told to stop", "running", running, "waiting", waiting)
	giveUp()
	for _, j := range w.pool.clear() {
		w.turnAway(j) // it has not begun: its caller may try again elsewhere
	}
	w.calm(leaveTimeout)
}

// calm waits until no handler runs or waits, at most d.
func (w *Worker) calm(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for !w.pool.quiet() {
		select {
		case <-w.pool.calm:
		case <-t.C:
			return w.pool.quiet()
		}
	}
	return true
}

// flush waits until all is sent, for the grace time again if the handlers left some; false means that the
// connection is over or too slow.
func (w *Worker) flush(hard context.Context, c *conn) bool {
	patience := leaveTimeout
	if hard.Err() == nil {
		patience = max(patience, w.opts.Grace)
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		w.mu.Lock()
		left := c.queued()
		w.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-c.drank:
		case <-c.down:
			return false
		case <-t.C:
			return false
		}
	}
}

// stop ends the providers and the pool. Without a connection, handlers get their grace time here. delivered
// is closed when the providers have let all bindings go.
func (w *Worker) stop(hard context.Context, giveUp func(), delivered <-chan struct{}) {
	w.leave(nil)
	w.finishHandlers(hard, giveUp)
	if !w.finishProviders(hard, giveUp, delivered) {
		w.log.Error("a trigger provider is still running: it ignores the end of its context")
	}
	giveUp()
	left, stuck := w.pool.close()
	for _, j := range left {
		w.turnAway(j)
	}
	if stuck > 0 {
		w.log.Error("handlers are still running: they ignore the end of their context", "running", stuck)
	}
}

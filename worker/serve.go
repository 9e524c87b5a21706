package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// job is one incoming call. The payload lies in buf, which is used again.
type job struct {
	conn     *conn // to answer on
	function *function
	scope    *scope
	id       []byte // in buf; nil: nobody waits
	payload  []byte // in buf; nil: absent
	buf      []byte
	frame    wire.Frame // scratch for the answer
	answered bool
}

func newJob() any { return new(job) }

func (j *job) size() int { return len(j.buf) }

// accept makes a job of an incoming call, whose bytes are the reader's.
func (w *Worker) accept(ctx context.Context, c *conn, fn *function, f *wire.Frame) *job {
	j := w.jobs.Get().(*job)
	j.conn, j.function, j.answered = c, fn, false
	j.scope = newScope(ctx, fn, f)
	j.buf = append(append(j.buf[:0], f.InvocationID...), f.Data...)
	n := len(f.InvocationID)
	j.id, j.payload = nil, nil
	if n > 0 {
		j.id = j.buf[:n:n]
	}
	if f.Data != nil {
		j.payload = j.buf[n:]
	}
	return j
}

func (w *Worker) discard(j *job) {
	if cap(j.buf) > keepBytes {
		j.buf = nil
	}
	j.conn, j.function, j.scope, j.id, j.payload = nil, nil, nil, nil, nil
	w.jobs.Put(j)
}

// serve runs one job and answers it.
func (w *Worker) serve(j *job) {
	defer func() {
		if j.answered {
			w.discard(j)
			return
		}
		// runtime.Goexit in the handler: testing.T.FailNow, for one.
		w.answer(j, nil, &Error{Code: wire.CodeInvocationFailed, Message: "the handler ended its goroutine"})
	}()
	result, err := w.invoke(j)
	w.answer(j, result, err)
}

// invoke runs the handler. A panic becomes its error.
func (w *Worker) invoke(j *job) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := string(debug.Stack())
			w.count.panics.Add(1)
			w.log.Error("handler panicked", "function", j.function.name, "panic", fmt.Sprint(p), "stack", stack)
			result, err = nil, &Error{Code: wire.CodeInvocationFailed, Message: fmt.Sprint(p), Stack: stack}
		}
	}()
	if d := j.function.deadline; d > 0 {
		ctx, cancel := context.WithTimeout(j.scope, d)
		defer cancel()
		return j.function.handler(ctx, j.payload)
	}
	return j.function.handler(j.scope, j.payload)
}

// answer sends the outcome of a job, if anybody waits for it. It waits for room in the send buffer as long
// as the connection lasts.
func (w *Worker) answer(j *job, result []byte, err error) {
	j.answered = true
	w.count.served.Add(1)
	if err == nil && result != nil && !j.function.trusted && !validJSON(&j.frame, result) {
		err = errors.New("the handler returned no JSON in UTF-8")
	}
	if err != nil {
		w.count.failed.Add(1)
		w.log.Debug("handler failed", "function", j.function.name, "error", err)
	}
	if j.id == nil {
		return
	}
	f := &j.frame
	f.Reset()
	f.InvocationID, f.FunctionID, f.Result = j.id, j.function.id, result
	if err != nil {
		f.Result, f.Error = nil, wire.AppendError(nil, wireError(err))
	}
	size := len(f.Result) + len(f.Error) + len(f.FunctionID) + 128
	if size > w.opts.MaxMessage {
		f.Result = nil
		f.Error = wire.AppendError(nil, &wire.Error{Code: wire.CodeMessageTooLarge, Message: fmt.Sprintf(
			"the result of %s has %d bytes, more than MaxMessage, %d", j.function.name, size, w.opts.MaxMessage)})
		size = len(f.Error) + len(f.FunctionID) + 128
	}
	c := j.conn
	w.mu.Lock()
	for w.conn == c && c.queued() > 0 && c.queued()+size > w.opts.SendBuffer {
		w.blocked++
		w.room.Wait()
		w.blocked--
	}
	if w.conn != c {
		w.mu.Unlock()
		w.count.lost.Add(1)
		return
	}
	start := len(c.out)
	c.out = wire.AppendResult(ws.Begin(c.out), f)
	wake := c.seal(start, ws.Text)
	w.mu.Unlock()
	f.Result, f.Error = nil, nil
	if wake {
		c.kick <- struct{}{}
	}
}

// refuse answers a call that is not run. It is called by the reader, which must not wait: past the send
// buffer and some room for refusals, the refusal is dropped and counted.
func (w *Worker) refuse(c *conn, id, function []byte, code, message string) {
	w.count.refused.Add(1)
	if len(id) == 0 {
		w.log.Warn("call dropped", "function", string(function), "code", code)
		return
	}
	f := wire.Frame{InvocationID: id, FunctionID: function,
		Error: wire.AppendError(nil, &wire.Error{Code: code, Message: message})}
	w.mu.Lock()
	if w.conn != c || c.queued() > w.opts.SendBuffer+refusalRoom {
		w.mu.Unlock()
		w.count.lost.Add(1)
		return
	}
	start := len(c.out)
	c.out = wire.AppendResult(ws.Begin(c.out), &f)
	wake := c.seal(start, ws.Text)
	w.mu.Unlock()
	if wake {
		c.kick <- struct{}{}
	}
}

const refusalRoom = 1 << 20

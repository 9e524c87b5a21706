package fn

import (
	"context"
	"errors"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Register adds a plain handler under a name in the default namespace, on behalf of the process itself.
// Rooms use Add with a peer of their own.
func (r *Registry) Register(name string, h Handler) error {
	_, err := r.Add(r.house, Spec{Name: name, Target: Func(h)})
	return err
}

// Call runs a function and waits for its outcome. When ctx belongs to a handler, the call carries on its
// trace, and its caller is the owner of that handler. Errors are *fault.Error: the host's own code, or
// TIMEOUT when ctx ended first (whether the call took effect is then not known).
func (r *Registry) Call(ctx context.Context, name string, payload []byte) ([]byte, error) {
	return r.CallFrom(ctx, nil, Default, name, payload)
}

// CallFrom is Call on behalf of a peer, in a namespace. A nil peer means the one that ctx belongs to.
func (r *Registry) CallFrom(ctx context.Context, from *Peer, space, name string, payload []byte,
) ([]byte, error) {
	f := find(&r.directory, space, name)
	if f == nil {
		return nil, r.NotFound(space, name)
	}
	c := r.Acquire()
	c.Function, c.Payload, c.Caller, c.Inline = f, payload, from, true
	r.inherit(ctx, c)
	if err := ctx.Err(); err != nil {
		c.release()
		return nil, ended(err)
	}
	w := r.waiters.Get().(*waiter)
	c.ctx, c.Done, c.ref = ctx, w, &w.id
	caller := c.Caller
	r.Invoke(c)
	select {
	case <-w.ready:
	default:
		w.wait(ctx, r, caller)
	}
	result, err := w.result, w.err
	*w = waiter{ready: w.ready}
	r.waiters.Put(w)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// inherit takes trace, deadline and principal from ctx: the principal that As put there, else the one of the
// call that ctx belongs to.
func (r *Registry) inherit(ctx context.Context, c *Call) {
	if d, ok := ctx.Deadline(); ok {
		c.Deadline = d.UnixNano()
	}
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		c.Trace, c.Baggage, c.Principal = s.info.Trace, []byte(s.info.Baggage), &s.info.Principal
	}
	if who, ok := ctx.Value(principalKey{}).(*Principal); ok {
		c.Principal = who
	}
	if c.Caller == nil {
		c.Caller = r.house
	}
}

// waiter is the completer of a synchronous call.
type waiter struct {
	ready  chan struct{} // holds one token once result and err are set
	id     uint64        // set by Park
	result []byte
	err    error
}

// Complete keeps the outcome; bytes that are lent only until it returns are copied.
func (w *waiter) Complete(c *Call, o Outcome) {
	if err := o.Error(); err != nil {
		w.err = err
	} else if o.given {
		w.result = o.Result
	} else if o.Result != nil {
		w.result = append(make([]byte, 0, len(o.Result)), o.Result...)
	}
	w.ready <- struct{}{}
}

// wait blocks until the outcome is there or ctx ends. A call that is given up is taken out of the table,
// unless its outcome is already on the way, which then counts.
func (w *waiter) wait(ctx context.Context, r *Registry, caller *Peer) {
	select {
	case <-w.ready:
		return
	case <-ctx.Done():
	}
	err := ended(ctx.Err())
	if r.Abandon(w.id, caller, err) {
		w.err = err
		return
	}
	<-w.ready
}

func ended(err error) *fault.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &fault.Error{Kind: fault.Timeout, Code: wire.CodeTimeout, Err: err,
			Message: "no answer in time; whether the call took effect is not known"}
	}
	return &fault.Error{Kind: fault.Unavailable, Code: wire.CodeOutcomeUnknown, Err: err,
		Message: "the caller gave up; whether the call took effect is not known"}
}

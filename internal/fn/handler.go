package fn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// Handler is a plain function: JSON in, JSON out. A nil payload is an absent one, a nil result too. The
// payload may be kept: it is the handler's own unless the caller handed it over through Registry.Call,
// where it is the caller's and must not be changed.
type Handler = func(ctx context.Context, payload []byte) ([]byte, error)

// Func makes a target of a handler that may block. A call from Go runs it on the caller's goroutine; a
// call from an event loop runs it on a goroutine of its own, with a copy of the payload.
func Func(h Handler) Target { return &handler{run: h} }

// Quick makes a target of a function that never blocks and is cheap: it runs where the call arrives, also
// on an event loop, without a context and without an allocation of ours. The rules of Target hold for c. Its
// span has no length: it ends in the batch in which it began.
func Quick(f func(c *Call) Outcome) Target { return quick(f) }

type quick func(c *Call) Outcome

func (q quick) Invoke(c *Call) {
	c.settleAt(c.start, q.guarded(c))
	c.release()
}

func (q quick) guarded(c *Call) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = Outcome{Err: c.registry.panicked(c.Function, p)}
		}
	}()
	return q(c)
}

type handler struct{ run Handler }

func (h *handler) Invoke(c *Call) {
	if !c.Inline {
		h.start(c)
		return
	}
	x := &scope{parent: c.ctx, info: c.info()}
	result, err := h.guarded(x, c.registry, c.Function, c.Payload)
	c.Finish(Outcome{Result: result, Err: asFault(err), given: true})
}

// start runs the handler on a goroutine of its own; the registry owns it and Run waits for it.
func (h *handler) start(c *Call) {
	r, f := c.registry, c.Function
	if err := r.running.enter(r.cfg.MaxRunning); err != nil {
		r.stats.refused.Add(1)
		c.Finish(Outcome{Err: err})
		return
	}
	x := &scope{parent: r.life.Load().ctx, info: c.info(), deadline: c.Deadline, own: true}
	var payload []byte
	if c.Payload != nil {
		payload = append(make([]byte, 0, len(c.Payload)), c.Payload...)
	}
	id, ok := c.Park(f.Owner, x.cancel)
	if !ok {
		r.running.leave()
		return
	}
	go func() {
		defer r.running.leave()
		result, err := h.guarded(x, r, f, payload)
		r.Complete(nil, id, f.Owner, Outcome{Result: result, Err: asFault(err)})
	}()
}

// crew counts the handlers that run on goroutines of their own.
type crew struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when n is 0 and closed is set
}

func (w *crew) enter(most int) *fault.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return fault.New(fault.Unavailable, wire.CodeDraining, "Plinth is stopping")
	case w.n >= most:
		return fault.Newf(fault.Limit, wire.CodeHostOverloaded,
			"%d handlers are running in this process, its limit; retry later", w.n)
	}
	w.n++
	return nil
}

func (w *crew) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.closed {
		close(w.idle)
	}
}

// close lets nobody in any more and waits for those inside.
func (w *crew) close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed, w.idle = true, make(chan struct{})
	if w.n == 0 {
		close(w.idle)
	}
	w.mu.Unlock()
	<-w.idle
}

func (w *crew) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// guarded is the door at which a panic of a handler ends: it fails that call and is counted.
func (h *handler) guarded(ctx context.Context, r *Registry, f *Function, payload []byte,
) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, r.panicked(f, p)
		}
	}()
	return h.run(ctx, payload)
}

func (r *Registry) panicked(f *Function, p any) *fault.Error {
	r.stats.panics.Add(1)
	r.log.Error("handler panicked", "function", f.Name, "panic", fmt.Sprint(p))
	return fault.New(fault.Internal, wire.CodeInvocationFailed, "the handler panicked")
}

// asFault turns a handler's error into one with a code. What has no kind is Internal, and its text is the
// handler's own to show: handlers are ours.
func asFault(err error) *fault.Error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		if f.Code == "" {
			g := *f
			g.Code = wire.CodeInvocationFailed
			return &g
		}
		return f
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &fault.Error{Kind: fault.Timeout, Code: wire.CodeTimeout, Message: err.Error(), Err: err}
	case errors.Is(err, context.Canceled):
		return &fault.Error{Kind: fault.Unavailable, Code: wire.CodeInvocationStopped, Message: err.Error(),
			Err: err}
	}
	return &fault.Error{Kind: fault.Internal, Code: wire.CodeInvocationFailed, Message: err.Error(), Err: err}
}

// Info is what a handler can know of the call it serves.
type Info struct {
	Function  string
	Namespace string
	Caller    *Peer
	Principal Principal
	Trace     telemetry.Context // the call's own span
	Baggage   string
	Metadata  []byte
}

func (c *Call) info() Info {
	i := Info{Function: c.Function.Name, Namespace: c.Function.Namespace, Caller: c.Caller,
		Principal: *c.Principal, Trace: c.Trace, Baggage: string(c.Baggage)}
	if c.Metadata != nil {
		i.Metadata = append([]byte(nil), c.Metadata...)
	}
	return i
}

// Current returns the call that ctx belongs to.
func Current(ctx context.Context) (Info, bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok {
		return Info{}, false
	}
	return s.info, true
}

type scopeKey struct{}

// As returns a context whose calls are made on behalf of a principal: a door that knows who asks puts it
// there. Handlers inherit the principal of the call that they serve.
func As(ctx context.Context, who *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, who)
}

type principalKey struct{}

// scope is the context of one handler run. It is made for each run and never reused, because a handler may
// keep it; its done channel exists only when somebody asks for it.
type scope struct {
	parent   context.Context
	info     Info
	deadline int64
	own      bool // it ends with its call, not only with its parent

	mu   sync.Mutex // guards done and err
	done chan struct{}
	err  error
	stop func() bool
}

func (s *scope) Deadline() (time.Time, bool) {
	if s.deadline != 0 {
		return time.Unix(0, s.deadline), true
	}
	return s.parent.Deadline()
}

func (s *scope) Value(k any) any {
	if _, ok := k.(scopeKey); ok {
		return s
	}
	return s.parent.Value(k)
}

func (s *scope) Done() <-chan struct{} {
	if !s.own {
		return s.parent.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.err != nil {
			close(s.done)
		} else {
			s.stop = context.AfterFunc(s.parent, func() { s.end(s.parent.Err()) })
		}
	}
	return s.done
}

func (s *scope) Err() error {
	if !s.own {
		return s.parent.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return s.parent.Err()
	}
	return s.err
}

// cancel ends the scope because its call has ended.
func (s *scope) cancel() { s.end(context.Canceled) }

func (s *scope) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	if s.done != nil {
		close(s.done)
	}
	if s.stop != nil {
		s.stop()
	}
}

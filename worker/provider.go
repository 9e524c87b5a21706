package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// TriggerType is a kind of event that a worker can tell of.
type TriggerType struct {
	ID            string
	Description   string          // for listings, up to 4 KiB
	ConfigSchema  json.RawMessage // JSON Schema of Trigger.Config, for listings; nil: none
	PayloadSchema json.RawMessage // JSON Schema of what the functions are called with; nil: none
}

// Binding is a function that wants to be called when something happens. When it does, the provider makes the
// call: w.CallWith(ctx, b.Function, payload, worker.CallBinding(b)), or Void.
type Binding struct {
	ID        string
	Type      string
	Function  string
	Namespace string          // of the function, never empty
	Config    json.RawMessage // nil: none
	Metadata  json.RawMessage // goes with every call; nil: none
}

// CallBinding sends the call where a binding wants it, to the namespace of its function, and with the
// metadata of its trigger.
func CallBinding(b Binding) CallOption {
	return func(o *callOptions) { o.namespace, o.metadata = b.Namespace, b.Metadata }
}

func (b *Binding) equal(o *Binding) bool {
	return b.ID == o.ID && b.Type == o.Type && b.Function == o.Function && b.Namespace == o.Namespace &&
		bytes.Equal(b.Config, o.Config) && bytes.Equal(b.Metadata, o.Metadata)
}

// TriggerProvider tells of the events of a trigger type.
type TriggerProvider struct {
	// Register begins to tell a binding of events. An error refuses the binding and is told its owner: an *Error
	// with its Code, any other as trigger_registration_failed.
	Register func(ctx context.Context, b Binding) error
	// Unregister stops that. It is called once for each binding that Register has taken: when the binding is
	// taken back or changed, when its owner leaves, and when Run ends.
	Unregister func(ctx context.Context, b Binding)
}

// kind is a trigger type that this worker offers.
type kind struct {
	id       string
	provider TriggerProvider
	frame    []byte
}

// RegisterTriggerType offers a trigger type, at once or when the worker connects, and again on every
// connection. A type that the engine refuses is told by Options.OnTriggerFailed.
//
// The functions of the provider are called one at a time, in the order in which the bindings came and went;
// they may call other functions. Their context ends as that of handlers. While the connection is lost the
// bindings stay; those that do not come back with the next one are unregistered then.
func (w *Worker) RegisterTriggerType(t TriggerType, p TriggerProvider) error {
	k := &kind{id: t.ID, provider: p}
	err := k.build(&t)
	if err == nil {
		err = w.fits(k.frame)
	}
	if err != nil {
		return fmt.Errorf("worker: register trigger type %q: %w", t.ID, err)
	}
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		return &Error{Code: CodeClosed, Message: "register trigger type " + t.ID + ": the worker has ended"}
	case w.kind(t.ID) >= 0:
		w.mu.Unlock()
		return fmt.Errorf("worker: register trigger type %q: it is registered already", t.ID)
	case len(w.kinds) >= maxTriggers:
		w.mu.Unlock()
		return fmt.Errorf("worker: a worker has at most %d trigger types", maxTriggers)
	}
	w.kinds = append(w.kinds, k)
	w.announce(k.frame)
	return nil
}

// UnregisterTriggerType takes a trigger type back and unregisters its bindings, which wait for another
// provider. It reports whether there was one.
func (w *Worker) UnregisterTriggerType(id string) bool {
	w.mu.Lock()
	i := w.kind(id)
	if i < 0 {
		w.mu.Unlock()
		return false
	}
	k := w.kinds[i]
	w.kinds = slices.Delete(w.kinds, i, i+1)
	w.announce((&wire.Frame{Type: wire.TypeUnregisterTriggerType, ID: []byte(id)}).Append(nil))
	w.bound.release(func(b *bound) bool { return b.kind == k })
	return true
}

// kind returns the place of a trigger type in kinds, or -1. Caller holds mu.
func (w *Worker) kind(id string) int {
	return slices.IndexFunc(w.kinds, func(k *kind) bool { return k.id == id })
}

// build checks the registration and makes its frame.
func (k *kind) build(t *TriggerType) error {
	if k.provider.Register == nil || k.provider.Unregister == nil {
		return errors.New("a provider needs Register and Unregister")
	}
	if err := checkName(t.ID); err != nil {
		return err
	}
	if strings.HasPrefix(t.ID, "engine::") {
		return errors.New("names that begin with engine:: are the engine's own")
	}
	var scratch wire.Frame
	for _, raw := range []json.RawMessage{t.ConfigSchema, t.PayloadSchema} {
		if raw != nil && !validJSON(&scratch, raw) {
			return errors.New("a schema is no JSON in UTF-8")
		}
		if len(raw) > maxSchema {
			return fmt.Errorf("a schema is larger than %d bytes", maxSchema)
		}
	}
	f := wire.Frame{Type: wire.TypeRegisterTriggerType, ID: []byte(t.ID), TriggerRequestFormat: t.ConfigSchema,
		CallRequestFormat: t.PayloadSchema}
	if t.Description != "" {
		f.Description = []byte(t.Description)
	}
	k.frame = f.Append(nil)
	return nil
}

// bound is a binding at its provider: what the engine wants, and what the provider was told. Guarded by the
// mutex of its ledger, but for the calls of the provider, which the courier alone makes.
type bound struct {
	kind   *kind
	want   *Binding // nil: it is to go
	conn   *conn    // where the wish came from and the answer goes
	live   *Binding // what Register has taken
	host   *kind    // whose Register that was
	stale  bool     // from an earlier connection; the present one has not named it
	queued bool
}

// ledger has the bindings of a worker's trigger types. It is bounded by what the engine lets be bound: a
// binding is in it once, however often it changes.
type ledger struct {
	mu     sync.Mutex // taken after Worker.mu where both are
	all    map[string]*bound
	queue  []string      // ids that the courier has to look at
	wake   chan struct{} // capacity 1
	ending bool
}

// put queues a binding for the courier. Caller holds mu.
func (l *ledger) put(id string, b *bound) {
	if !b.queued {
		b.queued = true
		l.queue = append(l.queue, id)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// bind notes that the engine wants a binding.
func (l *ledger) bind(k *kind, c *conn, want *Binding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return
	}
	b := l.all[want.ID]
	if b == nil {
		b = &bound{}
		l.all[want.ID] = b
	}
	b.kind, b.want, b.conn, b.stale = k, want, c, false
	l.put(want.ID, b)
}

// unbind notes that a binding is to go.
func (l *ledger) unbind(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.all[id]; b != nil {
		b.want = nil
		l.put(id, b)
	}
}

// release notes that some bindings are to go.
func (l *ledger) release(which func(b *bound) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, b := range l.all {
		if which(b) {
			b.want = nil
			l.put(id, b)
		}
	}
}

// age notes that the connection is over: bindings stay if the next one names them.
func (l *ledger) age() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.all {
		b.stale = true
	}
}

// end takes no more bindings and lets all go.
func (l *ledger) end() {
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	l.release(func(*bound) bool { return true })
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// step is one thing that the courier has to do. Both members may be nil: then an answer is due, or nothing.
type step struct {
	id   string
	drop *Binding // tell host that it has gone
	host *kind
	add  *Binding // tell kind of it
	kind *kind
	conn *conn // to answer; nil: nobody
}

// next returns the next step; more is false if there is none.
func (l *ledger) next() (s step, more, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.queue = nil
		return s, false, l.ending
	}
	s.id = l.queue[0]
	b := l.all[s.id]
	if b.live != nil && (b.want == nil || b.host != b.kind || !b.live.equal(b.want)) {
		s.drop, s.host = b.live, b.host
		b.live, b.host = nil, nil
		return s, true, false // and once more for the rest
	}
	l.queue = l.queue[1:]
	b.queued = false
	switch {
	case b.want == nil:
		delete(l.all, s.id)
	case b.live == nil:
		s.add, s.kind, s.conn = b.want, b.kind, b.conn
	default:
		s.conn = b.conn
		s.kind = b.kind
	}
	return s, true, false
}

// taken notes how a provider took a binding.
func (l *ledger) taken(s *step, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.all[s.id]
	switch {
	case b == nil: // cannot be: only the courier deletes
	case err == nil:
		b.live, b.host = s.add, s.kind
	case b.want == s.add:
		b.want = nil
		l.put(s.id, b)
	}
}

// courier calls the providers, one step after the other. It belongs to Run.
func (w *Worker) courier(ctx context.Context) {
	for {
		s, more, ended := w.bound.next()
		switch {
		case ended:
			return
		case !more:
			<-w.bound.wake
		case s.drop != nil:
			w.unregister(ctx, &s)
		case s.add != nil:
			err := w.register(ctx, &s)
			w.bound.taken(&s, err)
			w.report(&s, s.add, err)
		case s.conn != nil:
			w.report(&s, nil, nil)
		}
	}
}

func (w *Worker) register(ctx context.Context, s *step) (err error) {
	defer w.guard("register", s.add, &err)
	return s.kind.provider.Register(ctx, *s.add)
}

func (w *Worker) unregister(ctx context.Context, s *step) {
	var err error
	defer w.guard("unregister", s.drop, &err)
	s.host.provider.Unregister(ctx, *s.drop)
}

// guard makes an error of a panic in a provider.
func (w *Worker) guard(what string, b *Binding, err *error) {
	p := recover()
	if p == nil {
		return
	}
	w.count.panics.Add(1)
	w.log.Error("trigger provider panicked", "in", what, "type", b.Type, "id", b.ID, "panic", fmt.Sprint(p),
		"stack", string(debug.Stack()))
	*err = fmt.Errorf("the provider panicked: %v", p)
}

// report answers a binding on the connection it came from, and waits for room in the send buffer as long as
// that lasts. err nil: it is taken.
func (w *Worker) report(s *step, b *Binding, err error) {
	f := wire.Frame{Type: wire.TypeTriggerRegistrationResult, ID: []byte(s.id), TriggerType: []byte(s.kind.id)}
	if b != nil {
		f.FunctionID = []byte(b.Function)
	}
	if err != nil {
		e := wire.Error{Code: wire.CodeTriggerFailed, Message: err.Error()}
		var coded *Error
		if errors.As(err, &coded) && coded.Code != "" && !coded.called {
			e.Code, e.Message = coded.Code, coded.Message
		}
		f.Error = wire.AppendError(nil, &e)
	}
	w.mu.Lock()
	c := s.conn
	for w.conn == c && c.queued() > w.opts.SendBuffer {
		w.blocked++
		w.room.Wait()
		w.blocked--
	}
	if w.conn != c {
		w.mu.Unlock()
		return // the next connection delivers the binding again
	}
	start := len(c.out)
	c.out = f.Append(ws.Begin(c.out))
	wake := c.seal(start, ws.Text)
	w.mu.Unlock()
	if wake {
		c.kick <- struct{}{}
	}
}

// deliver takes a binding that the engine sent. It is called by the reader.
func (w *Worker) deliver(c *conn, f *wire.Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.kind(string(f.TriggerType))
	if i < 0 {
		w.count.ignored.Add(1) // it has been taken back meanwhile
		return
	}
	space := string(f.Namespace)
	if space == "" {
		space = "default"
	}
	w.bound.bind(w.kinds[i], c, &Binding{ID: string(f.ID), Type: string(f.TriggerType),
		Function: string(f.FunctionID), Namespace: space,
		Config: bytes.Clone(f.Config), Metadata: bytes.Clone(f.Metadata)})
}

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct {
	namespace string
	timeout   time.Duration
	metadata  []byte
}

// CallNamespace sends the call to a namespace, instead of that of the worker.
func CallNamespace(namespace string) CallOption {
	return func(o *callOptions) { o.namespace = namespace }
}

// CallTimeout ends the call with ErrTimeout after d, in place of Options.Timeout; the deadline of the
// context counts as well.
func CallTimeout(d time.Duration) CallOption {
	return func(o *callOptions) { o.timeout = d }
}

// CallMetadata sends metadata (JSON) beside the payload; the handler finds it in Current.
func CallMetadata(metadata []byte) CallOption {
	return func(o *callOptions) { o.metadata = metadata }
}

// request is one call to be made.
type request struct {
	name    string
	payload []byte
	action  wire.Action
	queue   string
	trusted bool // payload came from json.Marshal
	callOptions
}

// Call runs a function and waits for its result. payload is JSON in UTF-8; nil is an absent one, and a nil
// result is an absent one, as a handler gives that returns nothing. The result is the caller's own.
//
// Errors are *Error. Without a deadline in ctx the call ends after Options.Timeout with ErrTimeout. When
// the connection breaks after the call was sent it ends with ErrOutcomeUnknown; a call not sent yet is sent
// on the next connection. When ctx belongs to a handler, the call carries on its trace and baggage.
func (w *Worker) Call(ctx context.Context, name string, payload []byte) ([]byte, error) {
	return w.plain(ctx, &request{name: name, payload: payload})
}

// CallWith is Call with options.
func (w *Worker) CallWith(
	ctx context.Context, name string, payload []byte, opts ...CallOption,
) ([]byte, error) {
	r := request{name: name, payload: payload}
	r.apply(opts)
	return w.plain(ctx, &r)
}

func (w *Worker) plain(ctx context.Context, r *request) ([]byte, error) {
	c := w.calls.Get().(*call)
	if err := w.do(ctx, c, r); err != nil {
		w.put(c)
		return nil, err
	}
	raw := c.raw
	w.put(c)
	return raw, nil
}

// CallAs runs a function with in as JSON (nil: no payload; json.RawMessage: as it is) and reads its result
// into an Out. An absent result is the zero Out; with Out = None any result is dropped.
func CallAs[Out any](ctx context.Context, w *Worker, name string, in any, opts ...CallOption) (Out, error) {
	var out Out
	r := request{name: name}
	r.apply(opts)
	var err error
	if r.payload, r.trusted, err = encode(in); err != nil {
		return out, &Error{Code: wire.CodeSerializationError, called: true, unsent: true, cause: err,
			Message: fmt.Sprintf("call of %s: %v", name, err)}
	}
	c := w.calls.Get().(*call)
	defer w.put(c)
	c.borrow = true
	if err := w.do(ctx, c, &r); err != nil {
		return out, err
	}
	if err := decode(c.raw, &out); err != nil {
		return out, &Error{Code: wire.CodeDeserializationError, called: true, cause: err,
			Message: fmt.Sprintf("result of %s: %v", name, err)}
	}
	return out, nil
}

// Void runs a function and does not wait for it: nil means that the call is in the send buffer. Nobody
// tells whether it ran.
func (w *Worker) Void(ctx context.Context, name string, payload []byte, opts ...CallOption) error {
	r := request{name: name, payload: payload, action: wire.ActionVoid}
	r.apply(opts)
	c := w.calls.Get().(*call)
	defer w.put(c)
	if _, err := w.send(ctx, c, &r); err != nil {
		return err
	}
	return nil
}

// Enqueue puts a call of a function into a queue of the engine and returns the receipt: the id the message
// has there.
func (w *Worker) Enqueue(
	ctx context.Context, queue, name string, payload []byte, opts ...CallOption,
) (receipt string, err error) {
	r := request{name: name, payload: payload, action: wire.ActionEnqueue, queue: queue}
	r.apply(opts)
	c := w.calls.Get().(*call)
	defer w.put(c)
	c.borrow = true
	if err := w.do(ctx, c, &r); err != nil {
		return "", err
	}
	var answer struct {
		MessageReceiptID string `json:"messageReceiptId"`
	}
	if err := decode(c.raw, &answer); err != nil {
		return "", &Error{Code: wire.CodeDeserializationError, called: true, cause: err,
			Message: fmt.Sprintf("receipt of %s: %v", name, err)}
	}
	return answer.MessageReceiptID, nil
}

func (r *request) apply(opts []CallOption) {
	for _, o := range opts {
		o(&r.callOptions)
	}
}

func (w *Worker) put(c *call) {
	c.reset()
	w.calls.Put(c)
}

// do makes a call and waits for its outcome, which is in c afterwards.
func (w *Worker) do(ctx context.Context, c *call, r *request) error {
	id, err := w.send(ctx, c, r)
	if err != nil {
		return err
	}
	if done := ctx.Done(); done == nil {
		<-c.done
	} else {
		select {
		case <-c.done:
		case <-done:
			if unsent, ok := w.abandon(id); ok {
				return ended(r.name, ctx.Err(), unsent)
			}
			<-c.done // the outcome is being written at this moment
		}
	}
	if c.outcome == succeeded {
		return nil
	}
	return w.explain(c, r)
}

// abandon takes back a call whose caller does not wait any more; ok is false if it has its outcome already.
func (w *Worker) abandon(id uint64) (unsent, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.take(id)
	return c != nil && c.held > 0, c != nil
}

// explain puts the outcome of a call that did not succeed into words.
func (w *Worker) explain(c *call, r *request) *Error {
	e := &Error{called: true, unsent: c.held > 0}
	switch c.outcome {
	case failed:
		return remote(c.raw)
	case timedOut:
		e.Code = wire.CodeTimeout
		e.Message = "call of " + r.name + ": no answer in " + w.timeout(r).String() + neverSent(e.unsent)
	case unknown:
		e.Code = wire.CodeOutcomeUnknown
		e.Message = "call of " + r.name + ": the connection broke after it was sent; it may have run"
	case closed:
		e.Code = CodeClosed
		e.Message = "call of " + r.name + ": the worker ended before it was sent"
	case tooLarge:
		e.Code = wire.CodeMessageTooLarge
		e.Message = fmt.Sprintf("call of %s: the result is larger than MaxMessage, %d bytes; it was not kept",
			r.name, w.opts.MaxMessage)
	}
	return e
}

func (w *Worker) timeout(r *request) time.Duration {
	if r.callOptions.timeout > 0 {
		return r.callOptions.timeout
	}
	return w.opts.Timeout
}

// send checks and encodes a call and puts it on its way, or into the queue while there is no connection.
func (w *Worker) send(ctx context.Context, c *call, r *request) (id uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, ended(r.name, err, true)
	}
	if err := w.check(c, r); err != nil {
		return 0, err
	}
	f := &c.frame
	f.Reset()
	w.compose(ctx, c, r)
	size := len(r.payload) + len(r.metadata) + len(f.Baggage) + len(r.name) + 256

	w.mu.Lock()
	if err := w.admit(r, size); err != nil {
		w.mu.Unlock()
		return 0, err
	}
	if r.action != wire.ActionVoid {
		var ok bool
		if id, ok = w.table.put(c); !ok {
			w.mu.Unlock()
			w.count.refused.Add(1)
			return 0, &Error{Code: wire.CodeCallerOverloaded, called: true, unsent: true,
				Message: fmt.Sprintf("call of %s: %d calls wait for their outcome, the limit",
					r.name, w.opts.MaxCalls)}
		}
		n := len(c.text)
		c.text = appendID(c.text, id)
		f.InvocationID = c.text[n:]
	}
	wake, n := w.enqueue(c, f, id)
	f.InvocationID = nil
	if n > w.opts.MaxMessage {
		w.take(id)
		w.mu.Unlock()
		return 0, w.oversized(r, n)
	}
	if id != 0 {
		if timeout := w.timeout(r); timeout > 0 && (r.callOptions.timeout > 0 || !hasDeadline(ctx)) {
			w.limit(c, timeout)
		}
	}
	conn := w.conn
	w.mu.Unlock()
	if wake {
		conn.kick <- struct{}{}
	}
	w.count.made.Add(1)
	return id, nil
}

func hasDeadline(ctx context.Context) bool {
	_, ok := ctx.Deadline()
	return ok
}

// enqueue encodes a call at the end of what is to be sent, and takes it back if it is n > MaxMessage bytes
// long. Caller holds mu.
func (w *Worker) enqueue(c *call, f *wire.Frame, id uint64) (wake bool, n int) {
	k := w.conn
	if k == nil {
		q := &w.queue
		start := len(q.text)
		q.text = wire.AppendInvoke(q.text, f)
		if n = len(q.text) - start; n > w.opts.MaxMessage {
			q.text = q.text[:start]
			return false, n
		}
		c.held = n
		q.add(id)
		return false, n
	}
	start := len(k.out)
	k.out = wire.AppendInvoke(ws.Begin(k.out), f)
	if n = len(k.out) - start - headRoom; n > w.opts.MaxMessage {
		k.out = k.out[:start]
		return false, n
	}
	return k.seal(start, ws.Text), n
}

// admit refuses a call that nothing can be done with. Caller holds mu.
func (w *Worker) admit(r *request, size int) error {
	if w.closed {
		return &Error{Code: CodeClosed, called: true, unsent: true,
			Message: "call of " + r.name + ": the worker has ended"}
	}
	queued := len(w.queue.text)
	if w.conn != nil {
		queued = w.conn.queued()
	} else if queued+size > w.opts.SendBuffer {
		w.queue.compact(func(id uint64) bool { return w.table.get(id) != nil })
		queued = len(w.queue.text)
	}
	if queued > 0 && queued+size > w.opts.SendBuffer {
		w.count.refused.Add(1)
		return &Error{Code: wire.CodeCallerOverloaded, called: true, unsent: true, Message: fmt.Sprintf(
			"call of %s: the send buffer is full, %d of %d bytes", r.name, queued, w.opts.SendBuffer)}
	}
	return nil
}

// check refuses what must not travel: a payload or metadata that are no JSON in UTF-8, a bad name.
func (w *Worker) check(c *call, r *request) error {
	if r.name == "" || len(r.name) > maxName {
		return &Error{Code: wire.CodeInvalidArguments, called: true, unsent: true,
			Message: fmt.Sprintf("a function name has 1 to %d bytes", maxName)}
	}
	if r.namespace != "" && strings.TrimSpace(r.namespace) == "" {
		return &Error{Code: wire.CodeInvalidNamespace, called: true, unsent: true,
			Message: "call of " + r.name + ": the namespace is blank"}
	}
	if n := len(r.payload) + len(r.metadata); n > w.opts.MaxMessage {
		return w.oversized(r, n)
	}
	if !r.trusted && r.payload != nil && !validJSON(&c.frame, r.payload) {
		return &Error{Code: CodeInvalidJSON, called: true, unsent: true,
			Message: "call of " + r.name + ": the payload is no JSON in UTF-8"}
	}
	if r.metadata != nil && !validJSON(&c.frame, r.metadata) {
		return &Error{Code: CodeInvalidJSON, called: true, unsent: true,
			Message: "call of " + r.name + ": the metadata is no JSON in UTF-8"}
	}
	return nil
}

func (w *Worker) oversized(r *request, n int) *Error {
	w.count.refused.Add(1)
	return &Error{Code: wire.CodeMessageTooLarge, called: true, unsent: true, Message: fmt.Sprintf(
		"call of %s: %d bytes are more than MaxMessage, %d; send large data in parts",
		r.name, n, w.opts.MaxMessage)}
}

// compose fills the frame of a call, all but its id.
func (w *Worker) compose(ctx context.Context, c *call, r *request) {
	f := &c.frame
	c.text = append(c.text[:0], r.name...)
	name := len(c.text)
	space := r.namespace
	if space == "" && !strings.HasPrefix(r.name, "engine::") && !strings.HasPrefix(r.name, "configuration::") {
		space = w.opts.Namespace
	}
	c.text = append(c.text, space...)
	end := len(c.text)
	switch r.action {
	case wire.ActionVoid:
		f.Action = voidAction
	case wire.ActionEnqueue:
		f.Action = append(wire.AppendString([]byte(`{"type":"enqueue","queue":`), r.queue), '}')
	}
	if s, _ := ctx.Value(scopeKey{}).(*scope); s != nil {
		f.Traceparent, f.Baggage = some(s.traceparent), some(s.baggage)
		if s.function != "" {
			c.text = s.appendCaller(c.text)
			f.Caller = c.text[end:]
		}
	}
	f.FunctionID = c.text[:name]
	if end > name {
		f.Namespace = c.text[name:end]
	}
	f.Data, f.Metadata = r.payload, r.metadata
}

var voidAction = []byte(`{"type":"void"}`)

// some makes empty bytes absent.
func some(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// validJSON reports whether b is one JSON value in UTF-8. f is scratch: the scanner of frames is several
// times faster than that of encoding/json, and takes objects only.
func validJSON(f *wire.Frame, b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	if len(b) > 0 && b[0] == '{' {
		return f.Scan(b) == nil
	}
	return json.Valid(b)
}

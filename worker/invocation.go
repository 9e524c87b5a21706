package worker

import (
	"context"
	"encoding/json"

	"github.com/plinth-run/plinth/wire"
)

// Invocation is the call that a handler is running. It may be kept.
type Invocation struct {
	function    string
	id          []byte // towards the engine; nil: nobody waits for the outcome
	traceparent []byte
	baggage     []byte
	metadata    []byte
	caller      []byte
}

// Caller says who made a call, as far as the engine told.
type Caller struct {
	WorkerID     string `json:"worker_id"`
	WorkerName   string `json:"worker_name"`
	FunctionID   string `json:"function_id"`   // the function whose handler made the call
	InvocationID string `json:"invocation_id"` // of that handler
}

// Current returns the invocation that ctx belongs to; ok is false outside of handlers.
func Current(ctx context.Context) (inv *Invocation, ok bool) {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	if s == nil || s.function == "" {
		return nil, false
	}
	return &s.Invocation, true
}

// Function returns the id of the function that is running.
func (v *Invocation) Function() string { return v.function }

// ID returns the engine's id of this call, empty for a call that nobody waits for.
func (v *Invocation) ID() string { return string(v.id) }

// Traceparent returns the W3C trace context of the call, empty if there is none.
func (v *Invocation) Traceparent() string { return string(v.traceparent) }

// Baggage returns the W3C baggage of the call, empty if there is none.
func (v *Invocation) Baggage() string { return string(v.baggage) }

// Metadata returns the metadata that the caller sent beside the payload: JSON, nil if there is none. It must
// not be changed.
func (v *Invocation) Metadata() []byte { return v.metadata }

// Caller returns who made the call. All of it is empty when the engine did not say.
func (v *Invocation) Caller() Caller {
	var c Caller
	if v.caller != nil && json.Unmarshal(v.caller, &c) != nil {
		return Caller{}
	}
	return c
}

// WithTrace returns a context whose calls carry that W3C trace context and baggage, in place of those of
// the running invocation. Empty texts carry none.
func WithTrace(ctx context.Context, traceparent, baggage string) context.Context {
	s := &scope{Context: ctx}
	if outer, _ := ctx.Value(scopeKey{}).(*scope); outer != nil {
		s.Invocation = outer.Invocation
	}
	s.traceparent, s.baggage = []byte(traceparent), []byte(baggage)
	return s
}

// scope is the context of one handler: that of Run (which says when to give up) and the invocation. It is
// request-scoped, which is why a context may lie in it, and never used again, because handlers may leave it
// to goroutines that outlive them.
type scope struct {
	context.Context
	Invocation
	inline [232]byte // most calls need no more room for their texts
}

type scopeKey struct{}

// Value returns the scope itself for the package's own key.
func (s *scope) Value(key any) any {
	if _, ok := key.(scopeKey); ok {
		return s
	}
	return s.Context.Value(key)
}

// newScope copies what a call brought into a context of its own.
func newScope(ctx context.Context, fn *function, f *wire.Frame) *scope {
	s := &scope{Context: ctx}
	s.function = fn.name
	n := len(f.InvocationID) + len(f.Traceparent) + len(f.Baggage) + len(f.Metadata) + len(f.Caller)
	room := s.inline[:0]
	if n > len(s.inline) {
		room = make([]byte, 0, n)
	}
	keep := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		start := len(room)
		room = append(room, b...)
		return room[start:len(room):len(room)]
	}
	s.id, s.traceparent, s.baggage = keep(f.InvocationID), keep(f.Traceparent), keep(f.Baggage)
	s.metadata, s.caller = keep(f.Metadata), keep(f.Caller)
	return s
}

// appendCaller appends what a call made by this handler says of its caller (protocol section 6.4).
func (v *Invocation) appendCaller(dst []byte) []byte {
	dst = wire.AppendString(append(dst, `{"function_id":`...), v.function)
	if v.id != nil {
		dst = wire.AppendString(append(dst, `,"invocation_id":`...), v.id)
	}
	return append(dst, '}')
}

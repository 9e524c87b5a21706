package fn

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// TagBytes is how much of a caller's own invocation id a Call holds without allocating.
const TagBytes = 40

// Call is the record of one run of a function. It is made by Registry.Acquire, filled in by the caller,
// given away with Invoke, and from then on belongs to the target until the target finishes or parks it,
// then to the registry. Records are reused: nobody keeps a *Call past Park or Finish; what parks keeps the
// id.
type Call struct {
	Function  *Function
	Payload   []byte            // JSON; nil = absent. Borrowed until Invoke returns
	Metadata  []byte            // JSON side-car; nil = absent. Borrowed likewise
	Baggage   []byte            // W3C baggage. Borrowed likewise
	Trace     telemetry.Context // in: the caller's context; for the target: this call's own span
	Caller    *Peer             // who calls
	Principal *Principal        // on whose behalf; nil: the caller's own
	Loop      *loop.Loop        // the loop that the current step runs on; nil on a goroutine
	Deadline  int64             // Unix ns; 0 = the registry's ceiling
	Done      Completer         // nil: nobody waits (a void call)
	Inline    bool              // the caller's goroutine may block, so a handler may run on it

	registry *Registry
	tag      []byte
	tagRoom  [TagBytes]byte
	parent   [8]byte
	start    int64
	host     *Peer
	ctx      context.Context // of a synchronous caller, for a handler that runs on its goroutine
	ref      *uint64         // where a synchronous caller wants the id of a parked call
	slot     uint32
	cancel   func()

	links [listCount]link // in the lists of host and Caller
}

// Acquire returns an empty record.
func (r *Registry) Acquire() *Call { return r.records.Get().(*Call) }

// Drop gives back a record that will not be invoked.
func (r *Registry) Drop(c *Call) { c.release() }

// SetTag keeps the name that the caller gave to this call, to find it again in Complete.
func (c *Call) SetTag(tag []byte) {
	c.tag = append(c.tagRoom[:0], tag...)
}

// Tag returns what SetTag kept.
func (c *Call) Tag() []byte { return c.tag }

// Start returns when the call began, in Unix nanoseconds.
func (c *Call) Start() int64 { return c.start }

// open gives the call its own span, as child of the context that came with it. A trace that begins here
// has 64 random bits behind the bits of this process, as W3C Trace Context asks of the right end.
func (c *Call) open() {
	id := rand.Uint64() | 1
	if c.Trace.TraceID == ([16]byte{}) {
		binary.LittleEndian.PutUint64(c.Trace.TraceID[:8], c.registry.prefix)
		binary.LittleEndian.PutUint64(c.Trace.TraceID[8:], id)
		c.Trace.Sampled = true
		id = id*0x9e3779b97f4a7c15 | 1 // another number that is as random; no second draw
	}
	binary.LittleEndian.PutUint64(c.Trace.SpanID[:], id)
}

// Finish ends a call that is not parked: inside Target.Invoke only.
func (c *Call) Finish(o Outcome) {
	c.settle(o)
	c.release()
}

// settle writes the span, counts, and tells whoever waits. It runs once for each call.
func (c *Call) settle(o Outcome) {
	if c.Loop != nil {
		c.settleAt(c.Loop.Now(), o)
	} else {
		c.settleAt(telemetry.Now(), o)
	}
}

func (c *Call) settleAt(now int64, o Outcome) {
	e := ending{at: now}
	if o.Failed() {
		c.registry.explain(&e, o)
	}
	c.close(o, &e)
}

// ending is what the span of a call says of its end. Calls that end together for one reason share it.
type ending struct {
	at      int64
	code    uint32
	message []byte
}

// explain notes code and message of a failure.
func (r *Registry) explain(e *ending, o Outcome) {
	if o.Err != nil {
		e.code, e.message = r.names.Note(o.Err.Code), []byte(o.Err.Message)
		return
	}
	w := wire.ParseError(o.Fail)
	e.code, e.message = r.names.Note(w.Code), []byte(w.Message)
}

// close is settle for an end that is already explained.
func (c *Call) close(o Outcome, e *ending) {
	r, f := c.registry, c.Function
	if c.cancel != nil {
		c.cancel()
	}
	f.calls.Add(1)
	r.stats.observe(e.at - c.start)
	span := telemetry.Span{Context: c.Trace, Parent: c.parent, Name: f.span, Kind: telemetry.KindUser,
		Start: c.start, End: e.at, Status: telemetry.StatusOK}
	if f.Internal {
		span.Kind = telemetry.KindInternal
	}
	if c.host != nil {
		span.Worker = c.host.span.Load()
	} else if f.Owner != nil {
		span.Worker = f.Owner.span.Load()
	}
	if c.Caller != nil {
		span.Caller = c.Caller.span.Load()
	}
	if o.Failed() {
		f.failed.Add(1)
		r.stats.failed.Add(1)
		span.Status, span.Code, span.Message = telemetry.StatusError, e.code, e.message
	}
	r.spans.Record(&span)
	if c.Done != nil {
		c.Done.Complete(c, o)
	}
}

// release empties the record and gives it back.
func (c *Call) release() {
	r := c.registry
	*c = Call{registry: r}
	r.records.Put(c)
}

// Error returns a failure as a typed error; nil for a success. What a host answered keeps its code.
func (o Outcome) Error() *fault.Error {
	if o.Err != nil || o.Fail == nil {
		return o.Err
	}
	e := wire.ParseError(o.Fail)
	return &fault.Error{Kind: KindOf(e.Code), Code: e.Code, Message: e.Message, Stack: e.Stacktrace}
}

// KindOf says what sort of failure a code of the protocol stands for. Codes of an application's own, and
// all others, are Internal.
func KindOf(code string) fault.Kind {
	switch code {
	case wire.CodeFunctionNotFound, wire.CodeNotFound:
		return fault.NotFound
	case wire.CodeForbidden, wire.CodeAuthError:
		return fault.Denied
	case wire.CodeTimeout, wire.CodeInvocationTimeout:
		return fault.Timeout
	case wire.CodeInvocationStopped, wire.CodeChannelSendFailed, wire.CodeDraining:
		return fault.Unavailable
	case wire.CodeHostOverloaded, wire.CodeCallerOverloaded, wire.CodeMessageTooLarge, wire.CodeLimit:
		return fault.Limit
	case wire.CodeInvalidArguments, wire.CodeInvalidNamespace, wire.CodeMalformedFrame:
		return fault.Invalid
	case wire.CodeFunctionConflict, wire.CodeWorkerConflict, wire.CodeReservedPrefix:
		return fault.Conflict
	}
	return fault.Internal
}

// counters are the registry's own figures.
type counters struct {
	failed  atomic.Uint64
	late    atomic.Uint64 // answers that nobody waited for
	timeout atomic.Uint64
	refused atomic.Uint64 // calls over a peer's bound
	denied  atomic.Uint64 // calls that the principal may not make
	panics  atomic.Uint64
	buckets [buckets]atomic.Uint64
	sum     atomic.Int64
}

// buckets of the duration histogram are powers of two of microseconds: < 1 µs, < 2 µs, … < 2^30 µs, more.
const buckets = 32

func (s *counters) observe(ns int64) {
	ns = max(ns, 0)
	s.buckets[min(bits.Len64(uint64(ns)/1000), buckets-1)].Add(1)
	s.sum.Add(ns)
}

// Stats is a snapshot of the registry's counters.
type Stats struct {
	Calls, Failed, Late, TimedOut, Refused, Denied, Panics uint64

	InFlight  int
	Running   int
	Functions int
	// Buckets[i] counts calls that took less than 2^i microseconds and not less than half of that; the
	// last one holds all that took longer.
	Buckets [buckets]uint64
	// DurationNS is the sum of all durations in nanoseconds.
	DurationNS int64
}

// Stats returns the counters as they stand.
func (r *Registry) Stats() Stats {
	s := Stats{Failed: r.stats.failed.Load(), Late: r.stats.late.Load(), TimedOut: r.stats.timeout.Load(),
		Refused: r.stats.refused.Load(), Denied: r.stats.denied.Load(), Panics: r.stats.panics.Load(),
		InFlight: r.calls.size(),
		Running:  r.running.size(), DurationNS: r.stats.sum.Load()}
	for i := range s.Buckets {
		s.Buckets[i] = r.stats.buckets[i].Load()
		s.Calls += s.Buckets[i]
	}
	s.Functions = r.directory.size()
	return s
}

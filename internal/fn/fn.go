// Package fn is the core where the rooms meet: one table from (namespace, name) to a target, and one
// table of the calls that are under way.
//
// It promises that every call gets exactly one outcome, that the access of its principal is asked before
// every handler, that every call leaves a span, and that a target which does not answer cannot keep a call
// past its deadline.
// A Registry is safe for concurrent use; a Call belongs to one party at a time (see Call). The package
// opens no socket and no file, keeps no payload, and knows no room.
//
// Who owns the bytes: Call.Payload, Call.Metadata and Call.Baggage are borrowed by the target until its
// Invoke returns; an Outcome is borrowed by the completer until its Complete returns. Whoever needs bytes
// for longer copies them. DESIGN.md has the whole story.
package fn

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/telemetry"
)

// Default is the namespace of a name that says none.
const Default = "default"

// Target is what a name leads to. Invoke must not block: it either finishes the call before it returns
// (Call.Finish), or parks it (Call.Park) and has it completed later through Registry.Complete.
type Target interface {
	Invoke(c *Call)
}

// Completer receives the one outcome of a call. Complete may run on an event loop, so it must not block.
// c and o are valid until it returns.
type Completer interface {
	Complete(c *Call, o Outcome)
}

// Outcome is how a call ended. Exactly one of three holds: Err is set (the call failed here), Fail is set
// (the host answered with an error), or the call succeeded with Result.
type Outcome struct {
	Result []byte       // JSON; nil = the handler returned nothing, `null` = it returned null
	Err    *fault.Error // a failure that was raised in this process
	Fail   []byte       // the host's own error object, JSON as it came: {code, message, stacktrace?}

	given bool // Result is not lent: a handler of this process made it
}

// Failed reports whether the call failed.
func (o Outcome) Failed() bool { return o.Err != nil || o.Fail != nil }

// Spec describes a function that is about to be registered.
type Spec struct {
	Namespace   string // "" = Default
	Name        string // service::name
	Target      Target // nil: an event; calling it succeeds at once and its result is its input
	Description string
	Request     []byte // JSON Schema, documentation only
	Response    []byte // JSON Schema, documentation only
	Metadata    []byte // any JSON
	Verb        Verb   // what a caller must be allowed to do
	Private     bool   // only the owner may call it
	Internal    bool   // hidden from default listings
	Replicas    bool   // other peers may host it too, if they say the same
}

// Function is a registered name, or one replica of it. Its Spec does not change; registering again makes a
// new Function.
type Function struct {
	Spec
	Owner *Peer

	group  *group // its replicas, itself among them; nil when it has one host
	span   uint32 // interned name
	place  int    // index in Owner.functions, guarded by the registry's owners mutex
	calls  atomic.Uint64
	failed atomic.Uint64
}

// Calls returns how many calls of the function ended so far, and how many of them failed.
func (f *Function) Calls() (total, failed uint64) { return f.calls.Load(), f.failed.Load() }

// Config is what a Registry needs; zero values are usable.
type Config struct {
	Spans       *telemetry.Spans
	Names       *telemetry.Names
	Log         *slog.Logger
	MaxInFlight int           // calls that one peer may host at a time; 0 = 4,096
	MaxMade     int           // calls that one peer may have under way; 0 = 16,384
	MaxRunning  int           // handlers of this process that run on goroutines of their own; 0 = 4,096
	Ceiling     time.Duration // the longest a call may take; 0 = 15 minutes, negative = no ceiling
}

// Registry is the table of functions and of the calls under way.
type Registry struct {
	cfg    Config
	spans  *telemetry.Spans
	names  *telemetry.Names
	log    *slog.Logger
	house  *Peer
	calls  table
	owners sync.Mutex     // guards Peer.functions and spaces
	spaces map[string]int // functions by namespace, but for Default
	prefix uint64         // of the trace ids made here

	directory directory

	records sync.Pool
	waiters sync.Pool
	running crew
	life    atomic.Pointer[life]
	stats   counters
}

// life is the span of one Run: the context that handlers without a caller's context inherit.
type life struct{ ctx context.Context }

// New makes an empty registry. Deadlines are kept while Run runs.
func New(cfg Config) *Registry {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&cfg.MaxInFlight, 4096)
	def(&cfg.MaxMade, 16384)
	def(&cfg.MaxRunning, 4096)
	if cfg.Ceiling == 0 {
		cfg.Ceiling = 15 * time.Minute
	}
	if cfg.Spans == nil {
		cfg.Spans = telemetry.NewSpans(1 << 20)
	}
	if cfg.Names == nil {
		cfg.Names = telemetry.NewNames()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{cfg: cfg, spans: cfg.Spans, names: cfg.Names, log: cfg.Log,
		spaces: map[string]int{}, prefix: rand.Uint64() | 1}
	r.records.New = func() any { return &Call{registry: r} }
	r.waiters.New = func() any { return &waiter{ready: make(chan struct{}, 1)} }
	r.life.Store(&life{context.Background()})
	r.house = r.Room("plinth", Reserved()...)
	return r
}

// Run keeps deadlines until ctx ends, then fails what is still under way with code DRAINING. Handlers that
// run on goroutines see a cancelled context; Run returns when the last of them has returned.
func (r *Registry) Run(ctx context.Context) error {
	r.life.Store(&life{ctx})
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.sweep(telemetry.Now())
		case <-ctx.Done():
			r.drain()
			return nil
		}
	}
}

// Lookup finds a function; nil when there is none. An empty namespace means Default.
func (r *Registry) Lookup(space, name []byte) *Function {
	if len(space) == 0 {
		space = defaultBytes
	}
	return find(&r.directory, space, name)
}

var defaultBytes = []byte(Default)

// Each visits every function, in no order, until visit returns false. Functions that come or go
// meanwhile may be missed or seen.
func (r *Registry) Each(visit func(*Function) bool) {
	for i := range r.directory.shards {
		for _, f := range r.directory.shards[i].all() {
			if !visit(f) {
				return
			}
		}
	}
}

// Invoke runs a call that was made by Acquire and filled in: it asks whether the principal may make it,
// opens the span and hands the call to its target. c.Function must be set. The outcome goes to c.Done, which
// may happen before Invoke returns; c must not be touched by the caller afterwards.
func (r *Registry) Invoke(c *Call) {
	if c.Caller == nil {
		c.Caller = r.house
	}
	if c.Principal == nil {
		c.Principal = &c.Caller.Principal
	}
	if c.Function.group != nil {
		c.Function = r.choose(c.Function.group)
	}
	f := c.Function
	if c.Loop != nil {
		c.start = c.Loop.Now()
	} else {
		c.start = telemetry.Now()
	}
	c.parent = c.Trace.SpanID
	c.open()
	if f.Private && c.Caller != f.Owner {
		c.Finish(Outcome{Err: forbidden(f)})
		return
	}
	if access := c.Principal.Access; access != nil && f.Verb != VerbOpen {
		if err := access.Call(f); err != nil {
			r.stats.denied.Add(1)
			c.Finish(Outcome{Err: err})
			return
		}
	}
	if f.Target == nil {
		c.Finish(Outcome{Result: c.Payload})
		return
	}
	f.Target.Invoke(c)
}

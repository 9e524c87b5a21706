package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the version of this SDK, as listings show it.
const Version = "0.1.0"

// DefaultURL is where an engine listens unless told otherwise.
const DefaultURL = "ws://127.0.0.1:49134"

// Worker is one worker: the functions it hosts and its connection to the engine. Make it with New.
type Worker struct {
	opts   Options // filled in, not changed any more
	target target
	log    *slog.Logger
	born   time.Time
	pool   *pool
	count  counters

	calls sync.Pool // of *call
	jobs  sync.Pool // of *job

	mu       sync.Mutex  // guards all below
	room     sync.Cond   // on mu: the connection has sent bytes, or is gone
	blocked  int         // results that wait for room
	started  bool        // Run was called
	leaving  atomic.Bool // no call is taken any more
	closed   bool        // Run has returned: nothing can be sent any more
	conn     *conn       // nil while there is none
	state    State
	ready    chan struct{} // closed when the engine has read the registrations
	isReady  bool
	table    table
	queue    queue // calls made while there is no connection
	sweeper  *time.Timer
	sweepAt  int64            // when it runs, on the worker's clock; 0: it stands still
	ghosts   []greeting       // our connections, the present one last; the engine may still know the others
	order    []*function      // in order of registration; gaps are nil
	kinds    []*kind          // trigger types that we offer
	triggers []*TriggerHandle // triggers of ours

	bound ledger // what is bound to our trigger types

	// functions is read under reg alone and changed under mu and reg.
	reg       sync.RWMutex
	functions map[string]*function
}

// greeting is what the engine calls a connection, and the secret that retires it.
type greeting struct{ workerID, token string }

// counters count what Stats shows.
type counters struct {
	connects, made, served, failed, refused, late, lost atomic.Uint64
	malformed, oversized, ignored, panics, rejected     atomic.Uint64
	skipped                                             atomic.Uint64
	writes, written, reads                              atomic.Uint64
}

// Stats is a snapshot of a worker. Counters run since New.
type Stats struct {
	Phase     Phase
	WorkerID  string
	Functions int
	Pending   int // calls of this worker without an outcome
	Queued    int // bytes that wait to be sent
	Running   int // handlers
	Waiting   int // calls that wait for a handler

	Connects  uint64 // connections that were opened
	Made      uint64 // calls made, void and enqueued ones too
	Served    uint64 // handlers that ended
	Failed    uint64 // of them, with an error
	Panics    uint64 // of them, by a panic
	Refused   uint64 // incoming calls that were not run: overload, draining, unknown function
	Late      uint64 // results nobody waited for any more: late, repeated or foreign
	Lost      uint64 // results and refusals that could not be sent: the connection had gone
	Malformed uint64 // incoming messages that are no frames
	Oversized uint64 // incoming messages over MaxMessage; each failed its call
	Ignored   uint64 // frames of a type that means nothing to this SDK
	Rejected  uint64 // registrations that the engine refused
	Skipped   uint64 // text messages of channels whose reader has no OnMessage
	Writes    uint64 // write calls on the connection
	Written   uint64 // bytes
	Reads     uint64 // read calls on the connection
}

// New makes a worker for the engine at address, a ws, wss, http or https URL. An empty address is taken
// from the environment: PLINTH_URL, else III_URL, else DefaultURL. A key may be part of it, as the password
// of any user name: ws://any:KEY@host; Options.Token wins over it. New does no I/O; call Run.
func New(address string, opts Options) (*Worker, error) {
	for _, name := range []string{"PLINTH_URL", "III_URL"} {
		address = first(address, os.Getenv(name))
	}
	target, err := parseTarget(first(address, DefaultURL))
	if err != nil {
		return nil, err
	}
	if err := opts.fill(); err != nil {
		return nil, err
	}
	if target.basic == "" { // a key that is meant for this engine comes before one that is meant for any
		opts.Token = first(opts.Token, first(os.Getenv("PLINTH_TOKEN"), os.Getenv("III_TOKEN")))
	}
	w := &Worker{opts: opts, target: target, log: opts.Logger, born: time.Now(),
		ready: make(chan struct{}), functions: map[string]*function{},
		table: table{limit: opts.MaxCalls}}
	w.room.L = &w.mu
	w.bound.all, w.bound.wake = map[string]*bound{}, make(chan struct{}, 1)
	w.calls.New, w.jobs.New = newCall, newJob
	w.pool = newPool(opts.Concurrency, opts.Waiting, opts.WaitingBytes, w.serve)
	w.sweeper = time.AfterFunc(time.Hour, w.sweep)
	w.sweeper.Stop()
	return w, nil
}

// Stats returns a snapshot.
func (w *Worker) Stats() Stats {
	n := &w.count
	s := Stats{
		Connects: n.connects.Load(), Made: n.made.Load(), Served: n.served.Load(), Failed: n.failed.Load(),
		Panics: n.panics.Load(), Refused: n.refused.Load(), Late: n.late.Load(), Lost: n.lost.Load(),
		Malformed: n.malformed.Load(), Oversized: n.oversized.Load(), Ignored: n.ignored.Load(),
		Rejected: n.rejected.Load(), Skipped: n.skipped.Load(),
		Writes: n.writes.Load(), Written: n.written.Load(), Reads: n.reads.Load(),
	}
	s.Running, s.Waiting = w.pool.size()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Phase, s.WorkerID = w.state.Phase, w.state.WorkerID
	s.Functions, s.Pending, s.Queued = len(w.functions), w.table.live, len(w.queue.text)
	if w.conn != nil {
		s.Queued = w.conn.queued()
	}
	return s
}

// State returns the present state of the connection.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Name returns the name the worker has in listings.
func (w *Worker) Name() string { return w.opts.Name }

// Ready waits until the engine has read all registrations of the present connection. It returns ErrClosed
// when the worker ends first, and the error of ctx.
func (w *Worker) Ready(ctx context.Context) error {
	w.mu.Lock()
	ready, closed := w.ready, w.closed
	w.mu.Unlock()
	if closed {
		return &Error{Code: CodeClosed, Message: "the worker has ended"}
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return fmt.Errorf("worker: not ready: %w", ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return &Error{Code: CodeClosed, Message: "the worker has ended"}
	}
	return nil
}

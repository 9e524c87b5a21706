package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/engine/trigger"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
)

// The trigger types of the engine itself (protocol section 9.5).
const (
	functionsAvailable = "engine::functions-available"
	workersAvailable   = "engine::workers-available"
)

// reservedType reports whether a trigger type belongs to Plinth.
func reservedType(id string) bool { return strings.HasPrefix(id, "engine::") }

// What has happened to a worker.
const (
	workerConnected    = "worker_connected"
	workerDisconnected = "worker_disconnected"
	workerChanged      = "worker_metadata_updated"
)

const (
	newsQueue     = 1024
	newsEvery     = time.Second     // functions_changed at most this often
	conditionTime = 5 * time.Second // for a condition function
	newsAtOnce    = 64              // bindings whose condition is being asked
)

// news is the engine as a provider of triggers: it tells bound functions of workers and functions that come
// and go. While nobody is bound it costs one atomic read an event.
type news struct {
	engine  *Engine
	queue   chan workerNews
	bound   atomic.Int64
	changed atomic.Bool // the table of functions
	dropped atomic.Uint64
	asking  chan struct{}
}

type workerNews struct {
	Event    string `json:"event"`
	WorkerID string `json:"worker_id"`
}

// open offers the engine's own trigger types.
func (n *news) open(e *Engine) error {
	n.engine, n.queue, n.asking = e, make(chan workerNews, newsQueue), make(chan struct{}, newsAtOnce)
	for id, about := range map[string]string{
		functionsAvailable: "Functions were registered or removed",
		workersAvailable:   "A worker connected, disconnected, or changed what it says of itself",
	} {
		if err := e.triggers.Offer(nil, trigger.Type{ID: id, Description: about, Provider: n, Instant: true,
			Internal: true}); err != nil {
			return fmt.Errorf("engine: offer %s: %w", id, err)
		}
	}
	return nil
}

// Deliver counts a binding in; the table has it.
func (n *news) Deliver(*loop.Loop, *trigger.Binding) { n.bound.Add(1) }

// Retract counts a binding out.
func (n *news) Retract(*loop.Loop, *trigger.Binding) { n.bound.Add(-1) }

// Failed is never called: the engine binds nothing.
func (n *news) Failed(*loop.Loop, *trigger.Binding, []byte) {}

// worker notes what happened to a worker. It does not block; what finds no room is dropped and counted.
func (n *news) worker(event string, id uuid) {
	if n.bound.Load() == 0 {
		return
	}
	select {
	case n.queue <- workerNews{event, id.String()}:
	default:
		n.dropped.Add(1)
	}
}

// functions notes that the table of functions has changed.
func (n *news) functions() {
	if n.bound.Load() != 0 {
		n.changed.Store(true)
	}
}

func (n *news) run(ctx context.Context) error {
	tick := time.NewTicker(newsEvery)
	defer tick.Stop()
	var askers sync.WaitGroup
	defer askers.Wait()
	for {
		select {
		case w := <-n.queue:
			if payload, err := json.Marshal(w); err == nil {
				n.tell(ctx, &askers, workersAvailable, payload)
			}
		case <-tick.C:
			if !n.changed.Swap(false) {
				continue
			}
			list, err := n.engine.listFunctions(ctx, functionQuery{})
			if err != nil {
				continue
			}
			rows, _ := list.(map[string]any)
			if payload, err := json.Marshal(map[string]any{"event": "functions_changed",
				"functions": rows["functions"]}); err == nil {
				n.tell(ctx, &askers, functionsAvailable, payload)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tell calls the functions that are bound to one of the engine's types.
func (n *news) tell(ctx context.Context, askers *sync.WaitGroup, kind string, payload []byte) {
	for _, b := range n.engine.triggers.Of(n, trigger.Default, kind) {
		condition := conditionOf(b.Config)
		if condition == "" {
			n.fire(b, payload)
			continue
		}
		select {
		case n.asking <- struct{}{}:
		default:
			n.dropped.Add(1)
			continue
		}
		askers.Go(func() {
			defer func() { <-n.asking }()
			if n.allows(ctx, b, condition, payload) {
				n.fire(b, payload)
			}
		})
	}
}

// fire calls one bound function; nobody waits for the answer.
func (n *news) fire(b *trigger.Binding, payload []byte) {
	e := n.engine
	f := e.fn.Lookup([]byte(b.FunctionNamespace), []byte(b.Function))
	if f == nil {
		return
	}
	c := e.fn.Acquire()
	c.Function, c.Caller, c.Payload, c.Metadata = f, e.room, payload, b.Metadata
	e.fn.Invoke(c)
}

// conditionOf reads the function that decides whether a binding fires.
func conditionOf(config []byte) string {
	var c struct {
		Condition string `json:"condition_function_id"`
	}
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	return c.Condition
}

// allows asks a condition function: only an explicit false says no.
func (n *news) allows(ctx context.Context, b *trigger.Binding, condition string, payload []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, conditionTime)
	defer cancel()
	space := b.FunctionNamespace
	if space == "" {
		space = fn.Default
	}
	answer, err := n.engine.fn.CallFrom(ctx, n.engine.room, space, condition, payload)
	if err != nil {
		n.engine.log.Warn("condition of a trigger failed; it fires", "function", condition, "error", err)
		return true
	}
	return string(answer) != "false"
}

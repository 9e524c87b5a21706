// Package engine is the room where workers meet: programs in any language connect over WebSocket, register
// functions, and call each other's.
//
// It speaks the base protocol (package wire) on one listener, keeps functions and calls in package fn, and
// forwards the bytes of a call from socket to socket without decoding its payload and without a goroutine
// for each call. It promises that a bad message costs one call and never the connection, that a worker
// which is slow, mute or hostile harms only itself, and that a reconnecting worker is served only after its
// predecessor is gone for good. It does not keep calls on disk.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/budget"
	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/engine/httpfn"
	"github.com/plinth-run/plinth/internal/engine/trigger"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// Config is what an engine needs. Functions is required; other zero values are usable.
type Config struct {
	Listener             // the worker listener
	More      []Listener // further ones, with rules of their own
	Functions *fn.Registry
	Bounds    wire.Bounds // zero = wire.DefaultBounds
	Loops     int         // event loops; 0 = one for each CPU

	Room *store.Room   // the engine's folder; nil: nothing outlives the process
	HTTP httpfn.Policy // which HTTP endpoints functions may be

	// Authenticate says who connects; nil: everyone is trusted. It runs on an event loop and must not block.
	Authenticate func(Attempt) (fn.Principal, *fault.Error)

	Portable bool // goroutines in place of the event loop, on any system
	Grace    time.Duration
	Version  string
	Spans    *telemetry.Spans
	Logs     *telemetry.Logs
	Names    *telemetry.Names
	Metrics  *telemetry.Metrics
	Budget   *budget.Budget
	Log      *slog.Logger
}

// Engine serves workers. Its methods are safe for concurrent use.
type Engine struct {
	cfg    Config
	bounds wire.Bounds
	fn     *fn.Registry
	room   *fn.Peer
	log    *slog.Logger
	codec  ws.Config
	doors  []*door
	groups []*group
	inbox  *inbox

	channels  *channel.Hub
	http      *httpfn.Client
	catalog   *httpfn.Catalog // nil without a Room
	endpoints *fn.Peer        // owns the functions of the catalog
	enlist    sync.Mutex      // held while the catalog changes

	triggers *trigger.Table
	news     news

	draining atomic.Bool
	ran      atomic.Bool
	open     atomic.Int64
	stats    counters
	began    time.Time

	mu      sync.RWMutex // guards workers and names
	workers map[uuid]*conn
	names   map[workerName]*conn
}

type workerName struct{ space, name string }

// readBytes is the most of one read: a channel's frames of 64 KiB come several at a time, which is worth
// half of
// their throughput.
const readBytes = 256 << 10

// lane is what the connections of one event loop share. Only that loop touches it.
type lane struct {
	loop  *loop.Loop
	frame wire.Frame // of the message being handled
	again wire.Frame // of a held message being replayed
	conns []*conn
}

// counters are what the engine counts besides the calls.
type counters struct {
	spawned, died                           atomic.Uint64
	malformed, oversized, ignored, rejected atomic.Uint64
	refused                                 atomic.Uint64 // handshakes
	overloaded, answersLost, heldFull       atomic.Uint64
}

// New makes an engine and registers its functions (engine::*). It opens nothing: Listen does.
func New(cfg Config) (*Engine, error) {
	if cfg.Functions == nil {
		return nil, errors.New("engine: Config.Functions is missing")
	}
	if cfg.Bounds == (wire.Bounds{}) {
		cfg.Bounds = wire.DefaultBounds()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 10 * time.Second
	}
	e := &Engine{cfg: cfg, bounds: cfg.Bounds, fn: cfg.Functions, log: cfg.Log, began: time.Now(),
		workers: map[uuid]*conn{}, names: map[workerName]*conn{}}
	e.defaults()
	e.room = e.fn.Room("engine", "engine::")
	e.codec = ws.Config{Role: ws.Server, MaxMessage: e.bounds.MaxMessageBytes,
		HardMessage: e.bounds.HardMessageBytes}
	lc := loop.Config{Loops: cfg.Loops, Portable: cfg.Portable, WriteQueue: e.bounds.WriteQueueBytes,
		ReadBytes: readBytes, Now: telemetry.Now, Log: cfg.Log}
	if cfg.Budget != nil {
		messages := cfg.Budget.Account("engine.messages", 90, nil)
		e.codec.Grow = func(n int64) bool {
			if n < 0 {
				messages.Give(-n)
				return true
			}
			return messages.Take(n)
		}
		queues := cfg.Budget.Account("engine.write-queues", 91, nil)
		lc.Take, lc.Give = queues.Take, queues.Give
	}
	e.furnish(lc)
	e.channels = channel.New(channel.Options{PerOwner: e.bounds.MaxChannelsPerWorker,
		Total: e.bounds.MaxChannels, BufferBytes: e.bounds.ChannelBufferBytes, MaxMessage: e.bounds.MaxMessageBytes,
		Untaken: e.bounds.ChannelUntaken, PingAfter: e.bounds.PingAfter, DropAfter: e.bounds.DropAfter,
		Take: lc.Take, Give: lc.Give, Now: telemetry.Now})
	e.inbox = newInbox(e)
	e.triggers = trigger.New(e.bounds.MaxTriggersPerWorker)
	if err := e.news.open(e); err != nil {
		return nil, err
	}
	if err := e.register(); err != nil {
		return nil, fmt.Errorf("engine: register built-in functions: %w", err)
	}
	if err := e.openEndpoints(); err != nil {
		return nil, err
	}
	e.measure()
	return e, nil
}

// defaults makes the stores that the caller did not hand in.
func (e *Engine) defaults() {
	if e.cfg.Spans == nil {
		e.cfg.Spans = telemetry.NewSpans(1 << 20)
	}
	if e.cfg.Logs == nil {
		e.cfg.Logs = telemetry.NewLogs(256 << 10)
	}
	if e.cfg.Names == nil {
		e.cfg.Names = telemetry.NewNames()
	}
	if e.cfg.Metrics == nil {
		e.cfg.Metrics = telemetry.NewMetrics()
	}
}

// Run serves until ctx ends, then drains: new calls are refused with DRAINING, calls under way get up to
// the grace time, and every connection is closed normally.
func (e *Engine) Run(ctx context.Context) error {
	e.ran.Store(true)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts := []func(context.Context) error{e.inbox.run, e.news.run}
	if e.catalog != nil {
		parts = append(parts, e.catalog.Run)
	}
	for _, g := range e.groups {
		for i, l := range g.loops.Loops() {
			n := g.lanes[i]
			l.Every(time.Second, func() { e.beat(l, n) })
		}
		parts = append(parts, g.loops.Run)
	}
	done := make(chan error, len(parts))
	for _, run := range parts {
		go func() { done <- run(serving) }() // owner: Run, which waits for it below
	}
	var err error
	waiting := len(parts)
	select {
	case <-ctx.Done():
		e.drain()
	case err = <-done:
		waiting--
	}
	e.http.Close()
	stop()
	for range waiting {
		err = errors.Join(err, <-done)
	}
	return err
}

// drain refuses new calls and waits for those under way, then says goodbye to every worker.
func (e *Engine) drain() {
	e.draining.Store(true)
	end := time.NewTimer(e.cfg.Grace)
	defer end.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for e.fn.Stats().InFlight > 0 {
		select {
		case <-look.C:
		case <-end.C:
			e.log.Warn("drain: grace time over", "calls_in_flight", e.fn.Stats().InFlight)
			e.goodbye()
			return
		}
	}
	e.goodbye()
}

// goodbye sends a normal close to every connection and waits until its frame had a chance to leave.
func (e *Engine) goodbye() {
	e.channels.Close()
	var wait sync.WaitGroup
	e.everywhere(func(n *lane) {
		wait.Add(1)
		n.loop.Post(func() {
			defer wait.Done()
			for _, k := range n.conns {
				k.shut(ws.CloseNormal, "plinth is stopping")
			}
		})
	})
	wait.Wait()
}

// find returns a live connection by its worker id.
func (e *Engine) find(id uuid) *conn {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.workers[id]
}

// Ready reports whether workers are served.
func (e *Engine) Ready(context.Context) error {
	if e.draining.Load() {
		return errors.New("draining")
	}
	return nil
}

// Close gives back the listener of an engine that did not run; after Run it does nothing.
func (e *Engine) Close() error {
	if e.ran.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.http.Close()
	var err error
	if e.catalog != nil {
		err = e.catalog.Close()
	}
	for _, g := range e.groups {
		err = errors.Join(err, g.loops.Run(ctx))
	}
	return err
}

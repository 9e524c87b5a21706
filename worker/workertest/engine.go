// Package workertest is an engine in memory, for tests of programs that use the package worker.
//
// It speaks the real protocol over in-process pipes or a loopback port, routes calls between the workers of
// a test, and can do on purpose what a network does by accident: cut, delay, drop, refuse. With pipes all of
// it may run in a bubble of testing/synctest.
//
// All methods may be called by all goroutines at once. It keeps nothing on disk, has no observers,
// no HTTP functions and no accounts; of the engine's functions it has engine::channels::create and those that
// a test gives it with Handle.
package workertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
)

// Verdict says what happens to a message.
type Verdict uint8

const (
	Pass Verdict = iota // deliver it
	Drop                // lose it
	Cut                 // lose it and break the connection
)

// Message is one frame that passes the engine, as Intercept sees it.
type Message struct {
	Worker     string // name of the worker; empty before it has introduced itself
	ToWorker   bool   // the engine sends it
	Type       wire.Type
	Function   string
	Invocation string
	Text       []byte // valid during the call of the interceptor
}

// Engine is an engine in memory. Make it with New or Open.
type Engine struct {
	ctx    context.Context
	cancel func()
	tasks  sync.WaitGroup

	mu         sync.Mutex // guards all below
	listener   net.Listener
	links      []*link
	functions  map[key][]host
	builtin    map[string]worker.Handler
	rejected   map[string]bool
	intercept  func(Message) Verdict
	refuse     bool
	delay      time.Duration
	closed     bool
	pending    map[uint64]pending
	pipes      map[string]*pipe
	kinds      map[key]*link // trigger types
	bindings   map[string]*binding
	credential string
	next       uint64 // invocation ids, worker ids, receipts and channels
}

type key struct{ namespace, name string }

// host is a worker that hosts a function.
type host struct {
	link     *link
	replicas bool // others may host it too
}

// pending is a call that a worker is running.
type pending struct {
	caller   *link // nil: nobody waits
	id       string
	function string
	host     *link
}

// New starts an engine that ends with the test.
func New(t testing.TB) *Engine {
	e := Open()
	t.Cleanup(e.Close)
	return e
}

// Open starts an engine outside of a test, for examples and programs; Close ends it.
func Open() *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{ctx: ctx, cancel: cancel, functions: map[key][]host{}, builtin: map[string]worker.Handler{},
		rejected: map[string]bool{}, pending: map[uint64]pending{}, pipes: map[string]*pipe{},
		kinds: map[key]*link{}, bindings: map[string]*binding{}}
}

// Close breaks all connections and waits for the engine's goroutines. New registers it with the test.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	l := e.listener
	e.mu.Unlock()
	e.cancel()
	if l != nil {
		_ = l.Close()
	}
	e.Cut()
	e.tasks.Wait()
}

// Dial connects a worker through a pipe: give it to Options.Dial.
func (e *Engine) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if !e.serve(server) {
		_ = client.Close()
		return nil, errors.New("workertest: connection refused")
	}
	return client, nil
}

// URL returns the address of the engine on a loopback port, which it opens on the first call.
func (e *Engine) URL() (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener == nil {
		l, err := new(net.ListenConfig).Listen(e.ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("workertest: %w", err)
		}
		e.listener = l
		e.tasks.Go(func() { // ends when Close closes the listener
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				e.serve(c)
			}
		})
	}
	return "ws://" + e.listener.Addr().String(), nil
}

// Worker makes a worker, lets setup register its functions, runs it until the test ends, and waits until the
// engine knows the functions. setup may be nil.
func (e *Engine) Worker(
	t testing.TB, opts worker.Options, setup func(w *worker.Worker) error,
) *worker.Worker {
	t.Helper()
	if opts.Dial == nil {
		opts.Dial = e.Dial
	}
	w, err := worker.New("", opts)
	if err != nil {
		t.Fatal(err)
	}
	if setup != nil {
		if err := setup(w); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }() // ends before the test does
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Logf("worker %s: %v", w.Name(), err)
		}
	})
	wait, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if err := w.Ready(wait); err != nil {
		t.Fatal(err)
	}
	return w
}

// Handle makes the engine itself host a function, such as engine::workers::list.
func (e *Engine) Handle(name string, h worker.Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.builtin[name] = h
}

// Reject makes the engine refuse every registration of a function or trigger type, as if another worker had
// it.
func (e *Engine) Reject(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rejected[name] = true
}

// Require makes the engine refuse, with 401, connections that do not show this key; an empty one lets all in.
func (e *Engine) Require(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credential = key
}

// Intercept shows every message but the handshake to f before it goes on; nil shows them to nobody. f may be
// called by several goroutines at once and must not call the engine.
func (e *Engine) Intercept(f func(Message) Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.intercept = f
}

// Delay makes all that the engine sends wait for d.
func (e *Engine) Delay(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delay = d
}

// Refuse makes new connections fail, or lets them in again.
func (e *Engine) Refuse(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = on
}

// Cut breaks all connections without a goodbye and returns how many there were.
func (e *Engine) Cut() int {
	e.mu.Lock()
	links := slices.Clone(e.links)
	e.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
	return len(links)
}

// CutWorker breaks the connection of one worker and reports whether it had one.
func (e *Engine) CutWorker(name string) bool {
	l := e.find(name)
	if l != nil {
		l.cut()
	}
	return l != nil
}

// Send sends a frame to one worker as it is, and reports whether the worker is connected.
func (e *Engine) Send(name string, frame []byte) bool {
	l := e.find(name)
	if l == nil {
		return false
	}
	l.text(frame)
	return true
}

// Workers returns the names of the workers that have introduced themselves.
func (e *Engine) Workers() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, l := range e.links {
		if l.announced {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return names
}

// Hosts reports whether a worker hosts a function in a namespace; an empty one is "default".
func (e *Engine) Hosts(namespace, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.functions[key{space(namespace), name}]) > 0
}

func (e *Engine) find(name string) *link {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.links {
		if l.announced && l.name == name {
			return l
		}
	}
	return nil
}

// serve takes a connection, whose goroutines end with it; false means that it was refused.
func (e *Engine) serve(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse || e.closed {
		_ = c.Close()
		return false
	}
	e.next++
	l := &link{engine: e, conn: c, id: fmt.Sprintf("00000000-0000-4000-8000-%012x", e.next),
		token: fmt.Sprintf("11111111-0000-4000-8000-%012x", e.next),
		kick:  make(chan struct{}, 1), turn: make(chan struct{}, 1), down: make(chan struct{})}
	e.links = append(e.links, l)
	e.tasks.Go(l.read)
	e.tasks.Go(l.write)
	return true
}

func space(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}

package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"

	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/worker"
)

// socket is what a room needs of the function core. The room declares it; two things fit.
type socket interface {
	Register(name string, h func(context.Context, []byte) ([]byte, error)) error
	Call(ctx context.Context, name string, payload []byte) ([]byte, error)
}

var (
	_ socket = (*fn.Registry)(nil)
	_ socket = (*worker.Worker)(nil)
)

// clerk is a small room: it offers a function, which calls a worker's.
type clerk struct{ functions socket }

func openClerk(s socket) (*clerk, error) {
	c := &clerk{s}
	return c, s.Register("clerk::total", c.total)
}

// total asks the till for its count and adds what it was given.
func (c *clerk) total(ctx context.Context, payload []byte) ([]byte, error) {
	count, err := c.functions.Call(ctx, "till::count", nil)
	if err != nil {
		return nil, fmt.Errorf("ask the till: %w", err)
	}
	a, err := strconv.Atoi(string(count))
	if err != nil {
		return nil, err
	}
	b, err := strconv.Atoi(string(payload))
	return strconv.AppendInt(nil, int64(a+b), 10), err
}

// TestARoomCallsAWorkerAndIsCalledByOne plugs the same room into the core of this process, and into a
// worker connection as a process of its own would.
func TestARoomCallsAWorkerAndIsCalledByOne(t *testing.T) {
	r := start(t)
	quiet := slog.New(slog.DiscardHandler)
	connect := func(name string) *worker.Worker {
		w, err := worker.New("ws://"+r.addr, worker.Options{Name: name, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	run := func(w *worker.Worker) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		return func() {
			cancel()
			<-done
		}
	}
	till, customer := connect("till"), connect("customer")
	count := func(context.Context, []byte) ([]byte, error) { return []byte("40"), nil }
	if err := till.Register("till::count", count); err != nil {
		t.Fatal(err)
	}
	defer run(till)()
	defer run(customer)()

	if _, err := openClerk(r.reg); err != nil {
		t.Fatal(err)
	}
	if got, err := customer.Call(t.Context(), "clerk::total", []byte("2")); string(got) != "42" || err != nil {
		t.Errorf("in this process: got %q, %v", got, err)
	}
	if got, err := r.reg.Call(t.Context(), "clerk::total", []byte("3")); string(got) != "43" || err != nil {
		t.Errorf("called from Go: got %q, %v", got, err)
	}
	if tree := r.spans.Stats(); tree.Recorded < 4 {
		t.Errorf("%d spans for two calls of two functions each", tree.Recorded)
	}

	r2 := start(t) // an engine whose process has no clerk
	far, err := worker.New("ws://"+r2.addr, worker.Options{Name: "clerk", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openClerk(far); err != nil {
		t.Fatal(err)
	}
	defer run(far)()
	host, caller := r2.worker("till", "till::count"), r2.dial()
	id := caller.ask("clerk::total", "5")
	host.answer("40")
	if out := caller.result(id); out["result"] != 45.0 {
		t.Errorf("in a process of its own: %v", out)
	}
}

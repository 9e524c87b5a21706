// Package apptest starts a whole Plinth inside a test: all rooms, real sockets on free loopback ports, a
// data folder that goes with the test.
//
// It promises that what it started has stopped when the test ends, and fails the test when it did not stop
// cleanly. A House belongs to one test.
package apptest

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// House is a running Plinth.
type House struct {
	URL   string // of the worker socket
	Admin string // of the admin door

	t    testing.TB
	stop func() error
}

// Start opens all rooms with the given settings ("engine.listen" and the like) over defaults that suit
// tests, and runs them until the test ends.
func Start(t testing.TB, set map[string]string) *House {
	t.Helper()
	table, err := app.Settings()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{house.KeyFolder: t.TempDir(), app.KeyEngineListen: "127.0.0.1:0",
		house.KeyAdminListen: "127.0.0.1:0", house.KeyMemory: "512MiB", house.KeyGrace: "5s"}
	for k, v := range set {
		flags[k] = v
	}
	cfg, err := house.Load(table, house.Sources{Dir: t.TempDir(), Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Open(context.Background(), cfg, app.Options{Version: "test", Log: io.Discard,
		LogName: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }() // ends with ctx; Stop waits for it
	h := &House{URL: a.Banner().Workers, Admin: a.Banner().Admin, t: t}
	stopped := false
	h.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(h.Stop)
	return h
}

// Stop ends the rooms; the end of the test does it otherwise.
func (h *House) Stop() {
	if err := h.stop(); err != nil {
		h.t.Errorf("plinth did not stop cleanly: %v", err)
	}
}

// Worker runs a worker of the Go SDK until the test ends, or until the returned function is called, which
// waits for its end. register is called before it connects; it is ready when Worker returns.
func (h *House) Worker(o worker.Options, register func(w *worker.Worker)) (w *worker.Worker, stop func()) {
	h.t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w, err := worker.New(h.URL, o)
	if err != nil {
		h.t.Fatal(err)
	}
	if register != nil {
		register(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with ctx; stop waits for it
		defer close(done)
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			h.t.Errorf("worker %s: %v", w.Name(), err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	h.t.Cleanup(stop)
	if err := w.Ready(h.t.Context()); err != nil {
		h.t.Fatalf("worker %s: %v", w.Name(), err)
	}
	return w, stop
}

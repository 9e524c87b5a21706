// Package apptest starts a whole Plinth inside a test: all rooms, real sockets on free loopback ports, a
// data folder that goes with the test.
//
// It promises that what it started has stopped when the test ends, and fails the test when it did not stop
// cleanly. A House belongs to one test.
package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// House is a running Plinth.
type House struct {
	URL   string // of the worker socket
	Admin string // of the admin door
	Data  string // the data folder

	Listeners map[string]string // URLs of further worker listeners, by name

	t    testing.TB
	stop func() error
}

// Start opens all rooms with the given settings ("engine.listen" and the like) over defaults that suit
// tests, and runs them until the test ends.
func Start(t testing.TB, set map[string]string) *House {
	t.Helper()
	cfg := load(t, set)
	a, err := app.Open(context.Background(), cfg, app.Options{Version: "test", Log: io.Discard,
		LogName: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }() // ends with ctx; Stop waits for it
	h := &House{URL: a.Banner().Workers, Admin: a.Banner().Admin, Data: cfg.Text(house.KeyFolder),
		Listeners: a.Listeners(), t: t}
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

// load reads the settings of a test.
func load(t testing.TB, set map[string]string) *house.Config {
	t.Helper()
	table, err := app.Settings()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{house.KeyFolder: t.TempDir(), app.KeyEngineListen: "127.0.0.1:0",
		house.KeyAdminListen: "127.0.0.1:0", house.KeyMemory: "512MiB", house.KeyGrace: "5s"}
	var environ []string // of settings that have no flag: secrets, and those of families
	for k, v := range set {
		if s, ok := table.Find(k); ok && s.Flag() != "" {
			flags[k] = v
			continue
		}
		environ = append(environ, "PLINTH_"+strings.ToUpper(strings.ReplaceAll(k, ".", "_"))+"="+v)
	}
	cfg, err := house.Load(table, house.Sources{Dir: t.TempDir(), Flags: flags, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Refused opens a house that must not open, and returns why it did not.
func Refused(t testing.TB, set map[string]string) error {
	t.Helper()
	cfg := load(t, set)
	a, err := app.Open(context.Background(), cfg, app.Options{Version: "test", Log: io.Discard,
		LogName: "nowhere"})
	if err == nil {
		if cerr := a.Close(); cerr != nil {
			t.Error(cerr)
		}
	}
	return err
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

// LocalToken reads the token that proves that its bearer owns the data folder.
func (h *House) LocalToken() string {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.Data, "auth", "local.token"))
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Ask makes a request of the admin door's API with a token, "" for none, and reads the answer's JSON into out
// unless that is nil. It returns the status.
func (h *House) Ask(token, method, path string, in, out any) int {
	h.t.Helper()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			h.t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.Admin+path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		h.t.Fatalf("%s %s: %d: %v: %s", method, path, a.StatusCode, err, b)
	}
	return a.StatusCode
}

// Password is that of every account that a test makes.
const Password = "correct horse battery"

// Claim makes the first account, ann, and returns the local token, with which everything may be done.
func (h *House) Claim() string {
	h.t.Helper()
	local := h.LocalToken()
	if got := h.Ask(local, http.MethodPost, "/api/setup/claim",
		map[string]string{"name": "ann", "password": Password}, nil); got != http.StatusCreated {
		h.t.Fatalf("claim: status %d", got)
	}
	return local
}

// Key makes a key and returns its text and its id.
func (h *House) Key(kind, name string, seconds int, scopes ...string) (secret, id string) {
	h.t.Helper()
	in := map[string]any{"name": name, "kind": kind, "scopes": scopes}
	if seconds > 0 {
		in["expires_in_seconds"] = seconds
	}
	var out struct {
		Key    struct{ ID string }
		Secret string
	}
	if got := h.Ask(h.LocalToken(), http.MethodPost, "/api/keys", in, &out); got != http.StatusCreated {
		h.t.Fatalf("key %s: status %d", name, got)
	}
	return out.Secret, out.Key.ID
}

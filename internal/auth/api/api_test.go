package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/goleak"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "correct horse battery"

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// door is the admin door over identities of one test, with a clock of its own.
type door struct {
	t    *testing.T
	auth *auth.Auth
	api  huma.API
	http http.Handler
	log  *bytes.Buffer
	path string // of the data folder
	stop func()

	mu  sync.Mutex
	now time.Time

	backup func(ctx context.Context, target string) (Summary, error)
}

func (d *door) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *door) later(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

func open(t *testing.T) *door {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	dir, err := store.Open(path, store.Options{})
	ok(t, err)
	d := &door{t: t, path: path, now: time.Now().UTC().Truncate(time.Second), log: new(bytes.Buffer)}
	d.backup = func(_ context.Context, target string) (Summary, error) {
		return Summary{Path: target, Files: 3}, nil
	}
	d.auth, err = auth.Open(t.Context(), dir, auth.Options{Now: d.clock, HashMemory: 64})
	ok(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.auth.Run(ctx) }() // ends with the test
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, dir.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.stop)
	mux := http.NewServeMux()
	plain := huma.DefaultJSONFormat
	d.api = humago.New(mux, huma.Config{OpenAPI: &huma.OpenAPI{Info: &huma.Info{Title: "Plinth", Version: "1"}},
		Formats: map[string]huma.Format{"application/json": plain, "json": plain}})
	Register(d.api, d.auth, Options{
		Backup: func(ctx context.Context, target string) (Summary, error) { return d.backup(ctx, target) },
		Link:   func(token string) string { return "http://door/#" + token },
		Log:    slog.New(slog.NewTextHandler(d.log, nil)),
	})
	for _, path := range []string{"GET /metrics", "GET /api/openapi.json", "/elsewhere"} { // of the house
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(From(r.Context()).Kind)
		})
	}
	d.http = Protect(d.auth)(mux)
	return d
}

// ended ends the identities, so that what was noted is written, and gives the events of an action.
func (d *door) ended(action string) []audit.Event {
	d.t.Helper()
	d.stop()
	trail, err := audit.Open(filepath.Join(d.path, "audit"), audit.Options{})
	ok(d.t, err)
	defer func() { _ = trail.Close() }()
	events, _, err := trail.Query(audit.Query{Action: action, Limit: 1000})
	ok(d.t, err)
	return events
}

// claimed is a door with the owner ann.
func claimed(t *testing.T) *door {
	t.Helper()
	d := open(t)
	if got := d.ask("POST", "/api/setup/claim", map[string]any{"name": "ann", "password": password},
		bearer(d.auth.LocalToken())); got.status != http.StatusCreated {
		t.Fatalf("claim: %+v", got)
	}
	return d
}

// with changes a request: what a client shows, and from where.
type with func(*http.Request)

func bearer(token string) with {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func basic(token string) with { return func(r *http.Request) { r.SetBasicAuth("any", token) } }

func header(name, value string) with { return func(r *http.Request) { r.Header.Add(name, value) } }

func cookie(token string) with {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: Cookie, Value: token}) }
}

func from(address string) with { return func(r *http.Request) { r.RemoteAddr = address + ":1234" } }

// answer is what came back.
type answer struct {
	status int
	header http.Header
	code   string // of a problem
	text   string
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.text), v); err != nil {
		t.Fatalf("%v in %s", err, a.text)
	}
}

func (d *door) ask(method, path string, body any, how ...with) answer {
	d.t.Helper()
	var text io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		ok(d.t, err)
		text = bytes.NewReader(b)
	}
	r := httptest.NewRequestWithContext(d.t.Context(), method, path, text)
	r.Host, r.RemoteAddr = "localhost:8081", "127.0.0.1:1234"
	for _, change := range how {
		change(r)
	}
	w := httptest.NewRecorder()
	d.http.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header(), text: w.Body.String()}
	if w.Code >= 400 {
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err == nil {
			a.code = p.Code
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/problem+json") &&
			w.Code != 404 && w.Code != 405 { // those are the mux's; the house has its own
			d.t.Errorf("%s %s: %d is no problem document: %v", method, path, w.Code, w.Header())
		}
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		d.t.Errorf("%s %s: may be stored: %v", method, path, w.Header())
	}
	return a
}

// login gives the token of a session.
func (d *door) login(name string) string {
	d.t.Helper()
	got := d.ask("POST", "/api/login", map[string]any{"name": name, "password": password})
	var out struct{ Token string }
	if got.status != http.StatusOK {
		d.t.Fatalf("login: %+v", got)
	}
	got.into(d.t, &out)
	return out.Token
}

// user makes an account and gives the token of its session.
func (d *door) user(name, role string) string {
	d.t.Helper()
	got := d.ask("POST", "/api/users", map[string]any{"name": name, "password": password, "role": role},
		bearer(d.auth.LocalToken()))
	if got.status != http.StatusCreated {
		d.t.Fatalf("make a user: %+v", got)
	}
	return d.login(name)
}

// key makes a key and gives its id and text.
func (d *door) key(kind string, expires time.Duration, scopes ...string) (id, text string) {
	d.t.Helper()
	body := map[string]any{"name": fmt.Sprint(kind, scopes, expires), "kind": kind, "scopes": scopes}
	if expires > 0 {
		body["expires"] = d.clock().Add(expires)
	}
	got := d.ask("POST", "/api/keys", body, bearer(d.auth.LocalToken()))
	var out struct {
		Key    struct{ ID string }
		Secret string
	}
	if got.status != http.StatusCreated {
		d.t.Fatalf("make a key: %+v", got)
	}
	got.into(d.t, &out)
	return out.Key.ID, out.Secret
}

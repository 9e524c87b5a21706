package house

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// The limits of the admin door.
const (
	adminHeader  = 16 << 10         // bytes of a request's head
	adminBody    = 1 << 20          // bytes of a request's body
	adminConns   = 256              // connections at once; more wait in the kernel's queue
	adminHead    = 5 * time.Second  // to send the head
	adminRead    = 30 * time.Second // to send all of a request
	adminWrite   = 60 * time.Second // to take the answer
	adminIdle    = 90 * time.Second // between two requests of a connection
	adminGrace   = 3 * time.Second  // for answers under way when the door closes
	checkTimeout = 2 * time.Second  // for one readiness check
)

// A Check says whether a part can do its work now. It must end soon after ctx does.
type Check struct {
	Name  string
	Ready func(ctx context.Context) error
}

// AdminOptions is what the program hands to the admin door.
type AdminOptions struct {
	Hosts   []string // host names beside localhost and loopback addresses
	State   func() State
	Checks  []Check
	Metrics func(w io.Writer) // writes Prometheus text
	Log     *slog.Logger

	// Protect is wrapped around everything but /livez, /healthz and /readyz. nil lets everybody by.
	Protect func(next http.Handler) http.Handler
	TLS     *tls.Config // nil serves plain HTTP
	Version string      // of the program, for the description of the API
}

// Admin is the HTTP server behind the admin door: /livez (and /healthz), /readyz, /metrics, the API below
// /api/, and whatever handlers it is given. Every request passes the check of Host and Origin first, and then
// all but the probes pass Protect.
type Admin struct {
	mux      *http.ServeMux // behind Protect
	api      desk
	server   *http.Server
	options  AdminOptions
	listener net.Listener
}

// NewAdmin makes the door, closed.
func NewAdmin(o AdminOptions) *Admin {
	a := &Admin{mux: http.NewServeMux(), options: o}
	a.api.version, a.api.log = o.Version, o.Log
	open := http.NewServeMux()
	for _, path := range []string{"GET /livez", "GET /healthz"} {
		open.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	}
	open.HandleFunc("GET /readyz", a.readyz)
	var inner http.Handler = a.mux
	if o.Protect != nil {
		inner = o.Protect(inner)
	}
	open.Handle("/", inner)
	a.mux.Handle("/api/", &a.api)
	a.mux.HandleFunc("GET /metrics", a.metrics)
	a.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "nothing is served here; see /livez, /readyz and /metrics")
	})
	a.server = &http.Server{
		Handler:           guard(o.Hosts, bounded(open)),
		ReadHeaderTimeout: adminHead, ReadTimeout: adminRead, WriteTimeout: adminWrite, IdleTimeout: adminIdle,
		MaxHeaderBytes: adminHeader,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return a
}

// Handle adds a handler under a pattern of http.ServeMux. It must come before Run.
func (a *Admin) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// Listen opens the door; Run serves it. Any address is taken: WideProblem is for the caller to ask.
func (a *Admin) Listen(ctx context.Context, address string) (net.Addr, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	a.listener = &limited{Listener: l, room: make(chan struct{}, adminConns), closed: make(chan struct{})}
	return l.Addr(), nil
}

// Close shuts a door that Listen opened and Run never served. On any other it does nothing.
func (a *Admin) Close() error {
	if a.listener == nil {
		return nil
	}
	if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("admin door: %w", err)
	}
	return nil
}

// Run serves until ctx ends; then it takes no more connections and lets answers under way finish,
// for at most three seconds.
func (a *Admin) Run(ctx context.Context) error {
	if a.listener == nil {
		return errors.New("admin door: Run before Listen")
	}
	served := make(chan error, 1)
	go func() { // ends with Shutdown or Close below
		if a.options.TLS == nil {
			served <- a.server.Serve(a.listener)
			return
		}
		a.server.TLSConfig = a.options.TLS.Clone()
		served <- a.server.ServeTLS(a.listener, "", "")
	}()
	select {
	case err := <-served:
		return fmt.Errorf("admin door: %w", err)
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminGrace)
	defer cancel()
	err := a.server.Shutdown(late)
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.server.Close()
	}
	<-served
	return err
}

func (a *Admin) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if a.options.Metrics != nil {
		a.options.Metrics(w)
	}
}

// Readiness is the answer of /readyz?verbose.
type Readiness struct {
	Ready bool        `json:"ready"`
	State string      `json:"state"` // starting, serving, draining, stopped
	Parts []PartReady `json:"parts"`
}

// PartReady is the state of one part.
type PartReady struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"` // when it is not
}

func (a *Admin) readiness(ctx context.Context) Readiness {
	state := Serving
	if a.options.State != nil {
		state = a.options.State()
	}
	r := Readiness{Ready: state == Serving, State: state.String(), Parts: []PartReady{}}
	for _, c := range a.options.Checks {
		limit, cancel := context.WithTimeout(ctx, checkTimeout)
		err := c.Ready(limit)
		cancel()
		part := PartReady{Name: c.Name, Ready: err == nil}
		if err != nil {
			part.Why, r.Ready = err.Error(), false
		}
		r.Parts = append(r.Parts, part)
	}
	return r
}

// why lists what is not ready, a line each.
func (r Readiness) why() string {
	text := "not ready: " + r.State + "\n"
	for _, p := range r.Parts {
		if !p.Ready {
			text += p.Name + ": " + p.Why + "\n"
		}
	}
	return text
}

func (a *Admin) readyz(w http.ResponseWriter, r *http.Request) {
	ready := a.readiness(r.Context())
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	if r.URL.Query().Has("verbose") {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(ready) // the asker is gone: nobody to tell
		return
	}
	text := "ok\n"
	if !ready.Ready {
		text = ready.why()
	}
	plain(w, status, text)
}

// plain answers with text.
func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the asker is gone: nobody to tell
}

// refuse answers with a problem document (RFC 9457) and the stable code.
func refuse(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the asker is gone: nobody to tell
		"title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
}

// bounded caps the body of every request.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, adminBody)
		next.ServeHTTP(w, r)
	})
}

// limited accepts a connection only while there is room for one more.
type limited struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

package house

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ask sends one request through the door's handler, without a network.
func ask(t *testing.T, a *Admin, r *http.Request) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	a.server.Handler.ServeHTTP(w, r)
	return w.Result()
}

func request(method, path, host string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(""))
	r.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHealthIsToldToProbes(t *testing.T) {
	var state atomic.Int32
	var broken atomic.Pointer[error]
	a := NewAdmin(AdminOptions{
		Log:     quiet(),
		State:   func() State { return State(state.Load()) },
		Metrics: func(w io.Writer) { _, _ = io.WriteString(w, "plinth_up 1\n") },
		Checks: []Check{{"engine", func(context.Context) error {
			if e := broken.Load(); e != nil {
				return *e
			}
			return nil
		}}, {"store", func(context.Context) error { return nil }}},
	})
	get := func(path string, status int, want string) {
		t.Helper()
		r := ask(t, a, request("GET", path, "127.0.0.1:8081"))
		if got := body(t, r); r.StatusCode != status || !strings.Contains(got, want) {
			t.Errorf("%s: %d %q", path, r.StatusCode, got)
		}
	}
	get("/readyz", 503, "not ready: starting")
	state.Store(int32(Serving))
	get("/livez", 200, "ok\n")
	get("/healthz", 200, "ok\n")
	get("/readyz", 200, "ok\n")
	get("/metrics", 200, "plinth_up 1\n")
	get("/nothing", 404, "not_found")
	err := errors.New("no room left")
	broken.Store(&err)
	get("/readyz", 503, "engine: no room left")
	get("/livez", 200, "ok\n")
	r := ask(t, a, request("GET", "/readyz?verbose", "localhost"))
	var told Readiness
	if err := json.Unmarshal([]byte(body(t, r)), &told); err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != 503 || told.Ready || told.State != "serving" || len(told.Parts) != 2 ||
		told.Parts[0] != (PartReady{"engine", false, "no room left"}) || told.Parts[1] != (PartReady{"store",
		true, ""}) {
		t.Errorf("got %d %+v", r.StatusCode, told)
	}
	broken.Store(nil)
	state.Store(int32(Draining))
	get("/readyz", 503, "not ready: draining")
}

func TestReadinessWithoutPartsIsAnEmptyList(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet()})
	if got := body(t, ask(t, a, request("GET", "/readyz?verbose", "[::1]:1"))); !strings.Contains(got,
		`"parts":[]`) {
		t.Errorf("got %s", got)
	}
	if got := body(t, ask(t, a, request("GET", "/metrics", "[::1]:1"))); got != "" {
		t.Errorf("got %q", got)
	}
}

// Each line is one request; only those that no other site can send pass.
func TestDoorChecksHostAndOrigin(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet(), Hosts: []string{"box.example"}})
	a.Handle("POST /change", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		method, host string
		header       []string
		status       int
	}{
		{"GET", "127.0.0.1:8081", nil, 200},
		{"GET", "localhost:8081", nil, 200},
		{"GET", "[::1]:8081", nil, 200},
		{"GET", "[::1]", nil, 200},
		{"GET", "BOX.example:8081", nil, 200},
		{"GET", "", nil, 403},
		{"GET", "evil.example", nil, 403},
		{"GET", "evil.example:8081", nil, 403},
		{"GET", "127.0.0.1.evil.example", nil, 403},
		{"GET", "10.0.0.1:8081", nil, 403},
		{"GET", "localhost:8081", []string{"Origin", "http://localhost:8081"}, 200},
		{"GET", "box.example:8081", []string{"Origin", "https://box.example"}, 200},
		{"GET", "localhost:8081", []string{"Origin", "http://localhost:3000"}, 403},
		{"GET", "localhost:8081", []string{"Origin", "http://evil.example"}, 403},
		{"GET", "localhost:8081", []string{"Origin", "null"}, 403},
		{"GET", "localhost:8081", []string{"Origin", "file://localhost:8081"}, 403},
		{"GET", "localhost:8081", []string{"Origin", "http://localhost:8081", "Origin", "http://evil.example"}, 403},
		{"POST", "localhost:8081", nil, 200},
		{"POST", "localhost:8081", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"POST", "localhost:8081", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "localhost:8081", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
	} {
		path := "/livez"
		if c.method == "POST" {
			path = "/change"
		}
		r := ask(t, a, request(c.method, path, c.host, c.header...))
		if r.StatusCode != c.status {
			t.Errorf("%s %q %v: %d, want %d", c.method, c.host, c.header, r.StatusCode, c.status)
		}
		if r.StatusCode == 403 && !strings.Contains(body(t, r), "_refused") {
			t.Errorf("%s %q %v: no code", c.method, c.host, c.header)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet()})
	var failed error
	a.Handle("POST /change", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, failed = io.Copy(io.Discard, r.Body)
	}))
	for size, ok := range map[int]bool{adminBody: true, adminBody + 1: false} {
		r := httptest.NewRequest("POST", "/change", strings.NewReader(strings.Repeat("x", size)))
		r.Host = "localhost"
		ask(t, a, r)
		if (failed == nil) != ok {
			t.Errorf("%d bytes: %v", size, failed)
		}
	}
}

// open starts the door on a port of its own and gives its address and a way to stop it.
func open(t *testing.T, a *Admin) (address string, stop func() error) {
	t.Helper()
	at, err := a.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return at.String(), func() error { cancel(); return <-ended }
}

func TestDoorLetsAnswersUnderWayFinish(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet()})
	arrived, leave := make(chan struct{}), make(chan struct{})
	a.Handle("GET /slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-leave
		_, _ = io.WriteString(w, "done")
	}))
	address, stop := open(t, a)
	answer := make(chan string, 1)
	go func() {
		r, err := http.Get("http://" + address + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer func() { _ = r.Body.Close() }()
		b, _ := io.ReadAll(r.Body)
		answer <- string(b)
	}()
	<-arrived
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for { // the door is shut for newcomers while the old request goes on
		c, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("a door that is shut already: %v", err)
	}
	if got := <-answer; got != "done" {
		t.Errorf("got %q", got)
	}
}

func TestHeadOfARequestIsBounded(t *testing.T) {
	address, stop := open(t, NewAdmin(AdminOptions{Log: quiet()}))
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 2*adminHeader))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d", r.StatusCode)
	}
}

func TestADoorThatIsNotOpenIsNotServed(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet()})
	if err := a.Run(t.Context()); err == nil {
		t.Error("a door that is not open was served")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// full is a listener whose connections come from a channel.
type full struct{ conns chan net.Conn }

func (f *full) Accept() (net.Conn, error) {
	c, ok := <-f.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (f *full) Close() error   { close(f.conns); return nil }
func (f *full) Addr() net.Addr { return &net.TCPAddr{} }

func TestDoorTakesABoundedNumberOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &full{make(chan net.Conn, 3)}
		l := &limited{Listener: inner, room: make(chan struct{}, 2), closed: make(chan struct{})}
		var ends []net.Conn
		for range 3 {
			here, there := net.Pipe()
			inner.conns <- here
			ends = append(ends, there)
		}
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		third := make(chan error, 2)
		go func() { _, err := l.Accept(); third <- err }()
		synctest.Wait()
		select {
		case <-third:
			t.Error("a third connection was taken")
		default:
		}
		_ = first.Close()
		_ = first.Close() // gives its place back once
		if err := <-third; err != nil {
			t.Error(err)
		}
		go func() { _, err := l.Accept(); third <- err }()
		synctest.Wait()
		_ = l.Close()
		if err := <-third; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
		for _, c := range ends {
			_ = c.Close()
		}
	})
}

func TestCheckThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmin(AdminOptions{Log: quiet(), Checks: []Check{{"engine", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}}})
		before := time.Now()
		r := ask(t, a, request("GET", "/readyz", "localhost"))
		if r.StatusCode != 503 || time.Since(before) != checkTimeout {
			t.Errorf("got %d after %v", r.StatusCode, time.Since(before))
		}
	})
}

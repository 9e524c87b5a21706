package house

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

type greeting struct {
	Body struct {
		Text string `json:"text"`
	}
}

type name struct {
	Body struct {
		Name string `json:"name" minLength:"3" maxLength:"8"`
	}
}

// greet registers one operation that takes a body.
func greet(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "greet", Method: http.MethodPost, Path: "/api/greet"},
		func(_ context.Context, in *name) (*greeting, error) {
			out := &greeting{}
			out.Body.Text = "hello " + in.Body.Name
			if in.Body.Name == "panics" {
				panic("secret cause")
			}
			if in.Body.Name == "broken" {
				return nil, fmt.Errorf("secret cause")
			}
			return out, nil
		})
}

func post(a *Admin, path, text string, header ...string) *http.Response {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(text))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.server.Handler.ServeHTTP(w, r)
	return w.Result()
}

func TestAPIAnswersAndRefusesInOneForm(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet(), Version: "1.2"})
	a.Offer(greet)
	long := strings.Repeat("hunter2", 9)
	for _, c := range []struct {
		what, method, path, text string
		status                   int
		code, detail             string
	}{
		{"right", "POST", "/api/greet", `{"name":"ada"}`, 200, "", ""},
		{"too long", "POST", "/api/greet", `{"name":"` + long + `"}`, 422, codeInvalid, "body.name: expected length <= 8"},
		{"unknown member", "POST", "/api/greet", `{"name":"ada","x":1}`, 422, codeInvalid, "body.x"},
		{"no JSON", "POST", "/api/greet", `{`, 400, codeInvalid, ""},
		{"no body", "POST", "/api/greet", ``, 400, codeInvalid, "request body is required"},
		{"unknown query", "POST", "/api/greet?x=1", `{"name":"ada"}`, 422, codeInvalid, "query.x"},
		{"a failure", "POST", "/api/greet", `{"name":"broken"}`, 500, codeInternal, "its log has more"},
		{"a panic", "POST", "/api/greet", `{"name":"panics"}`, 500, codeInternal, "its log has more"},
		{"wrong method", "GET", "/api/greet", ``, 405, "method_not_allowed", "POST"},
		{"no operation", "GET", "/api/gret", ``, 404, "not_found", "/api/openapi.json"},
		{"the root", "GET", "/api/", ``, 404, "not_found", ""},
		{"no docs page", "GET", "/api/docs", ``, 404, "not_found", ""},
		{"too large", "POST", "/api/greet", `{"name":"` + strings.Repeat("x", adminBody) + `"}`, 413, "LIMIT_EXCEEDED", ""},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.text))
		r.Host = "localhost"
		r.Header.Set("Accept", "application/cbor, text/html")
		resp := ask(t, a, r)
		text := body(t, resp)
		if resp.StatusCode != c.status || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %s", c.what, resp.StatusCode, resp.Header, text)
			continue
		}
		if c.status == 200 {
			if text != `{"text":"hello ada"}`+"\n" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v %s", c.what, resp.Header, text)
			}
			continue
		}
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("%s: %v in %s", c.what, err, text)
		}
		if p.Code != c.code || p.Status != c.status || p.Title == "" || !strings.Contains(p.Detail, c.detail) ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v %+v", c.what, resp.Header, p)
		}
		if strings.Contains(text, long) || strings.Contains(text, "secret") {
			t.Errorf("%s: what was sent comes back: %s", c.what, text)
		}
	}
}

func TestAPIDescribesItself(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet(), Version: "1.2"})
	a.Offer(greet)
	var asked sync.WaitGroup
	for range 4 { // at once: the first request makes it
		asked.Go(func() {
			resp := ask(t, a, request("GET", apiSpec, "localhost"))
			var doc struct {
				Info       struct{ Title, Version string }
				Paths      map[string]map[string]any
				Components struct {
					Schemas map[string]struct{ Properties map[string]any }
				}
			}
			if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
				t.Error(err)
			}
			if doc.Info.Title != "Plinth" || doc.Info.Version != "1.2" || doc.Paths["/api/greet"]["post"] == nil ||
				doc.Components.Schemas["ErrorModel"].Properties["code"] == nil {
				t.Errorf("got %+v", doc)
			}
		})
	}
	asked.Wait()
}

func TestWhatIsOfferedLaterIsServedToo(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet()})
	if got := post(a, "/api/greet", `{"name":"ada"}`).StatusCode; got != http.StatusNotFound {
		t.Errorf("got %d", got)
	}
	a.Offer(greet)
	if a.API().OpenAPI().Paths["/api/greet"] == nil {
		t.Error("API does not have what was offered")
	}
	if got := post(a, "/api/greet", `{"name":"ada"}`).StatusCode; got != http.StatusOK {
		t.Errorf("got %d", got)
	}
}

// TestProtectStandsBeforeEverythingButTheProbes asks for all kinds of paths at a door that lets nobody by.
func TestProtectStandsBeforeEverythingButTheProbes(t *testing.T) {
	var stopped []string
	a := NewAdmin(AdminOptions{Log: quiet(), Protect: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stopped = append(stopped, r.URL.Path)
			w.WriteHeader(http.StatusUnauthorized)
		})
	}})
	a.Handle("/thing", http.NotFoundHandler())
	a.Offer(greet)
	for _, path := range []string{"/livez", "/healthz", "/readyz", "/readyz?verbose"} {
		if got := ask(t, a, request("GET", path, "localhost")); got.StatusCode == http.StatusUnauthorized {
			t.Errorf("%s: a probe is stopped", path)
		}
	}
	if len(stopped) > 0 {
		t.Errorf("stopped %v", stopped)
	}
	for _, path := range []string{"/", "/metrics", "/thing", "/api/", "/api/greet", apiSpec, "/livez/",
		"/livezz", "/nothing", "/api/%2e%2e/livez", "/x/%2flivez"} {
		if got := ask(t, a, request("GET", path, "localhost")); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if got := ask(t, a, request(method, "/livez", "localhost")); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s /livez: %d", method, got.StatusCode)
		}
	}
	// A path that is not clean is sent to the clean one, which is stopped there.
	for _, path := range []string{"/livez/../metrics", "//metrics", "/livez/../api/greet"} {
		got := ask(t, a, request("GET", path, "localhost"))
		if got.StatusCode/100 != 3 && got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

func TestDoorAnswersToTheAddressItWasReachedAt(t *testing.T) {
	a := NewAdmin(AdminOptions{Log: quiet()})
	here := &net.TCPAddr{IP: net.IPv4(192, 168, 1, 5), Port: 8081}
	for host, status := range map[string]int{
		"192.168.1.5:8081": 200, "192.168.1.5": 200, "[::ffff:192.168.1.5]:8081": 200,
		"192.168.1.6:8081": 403, "box:8081": 403, "192.168.1.5.evil.example": 403,
	} {
		r := request("GET", "/livez", host)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here))
		if got := ask(t, a, r); got.StatusCode != status {
			t.Errorf("%s: %d, want %d", host, got.StatusCode, status)
		}
	}
}

func TestDoorSpeaksTLS(t *testing.T) {
	// httptest has a certificate for 127.0.0.1, and a client that trusts it.
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	a := NewAdmin(AdminOptions{Log: quiet(), TLS: &tls.Config{Certificates: s.TLS.Certificates}})
	at, err := a.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }() // ends with cancel
	client := s.Client()
	resp, err := client.Get("https://" + at.String() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "ok\n" || resp.TLS == nil {
		t.Errorf("got %q", b)
	}
	_ = resp.Body.Close()
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAnOperationMayTakeLongerThanItsRequest: the time to send a request is not the time to answer it.
func TestAnOperationMayTakeLongerThanItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmin(AdminOptions{Log: quiet()})
		a.Offer(func(h huma.API) {
			huma.Register(h, huma.Operation{OperationID: "wait", Method: http.MethodPost, Path: "/api/wait"},
				func(ctx context.Context, _ *name) (*greeting, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(adminRead + 10*time.Second):
						return &greeting{}, nil
					}
				})
		})
		inner := &full{make(chan net.Conn, 1)}
		served := make(chan error, 1)
		go func() { served <- a.server.Serve(inner) }() // ends with Close below
		here, there := net.Pipe()
		inner.conns <- here
		const body = `{"name":"ada"}`
		_, err := fmt.Fprintf(there, "POST /api/wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(there), nil)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", r, err)
		}
		_ = there.Close()
		_ = a.server.Close()
		<-served
	})
}

// TestADoorWithoutVisitorsHoldsNoAPI: what the operations take is taken when one is asked for.
func TestADoorWithoutVisitorsHoldsNoAPI(t *testing.T) {
	made := 0
	a := NewAdmin(AdminOptions{Log: quiet()})
	a.Offer(func(h huma.API) { made++; greet(h) })
	_ = ask(t, a, request("GET", "/livez", "localhost"))
	_ = ask(t, a, request("GET", "/metrics", "localhost"))
	if made != 0 || a.api.api != nil {
		t.Error("the API was made for nobody")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_ = post(a, "/api/greet", `{"name":"ada"}`)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("an API of one operation holds %d KiB", int64(after.HeapAlloc-before.HeapAlloc)>>10)
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	if paths := a.API().OpenAPI().Paths; !slices.Contains([]int{1}, len(paths)) {
		t.Errorf("%d paths", len(paths))
	}
}

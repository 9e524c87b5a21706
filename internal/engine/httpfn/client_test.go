package httpfn

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/testkit"
	"github.com/plinth-run/plinth/wire"
)

// seen is a request as a server got it.
type seen struct {
	method, path, host string
	header             http.Header
	length             int64
	body               string
}

// recorder serves requests with an answer and keeps the last one.
func recorder(got *seen, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*got = seen{r.Method, r.RequestURI, r.Host, r.Header.Clone(), r.ContentLength, string(b)}
		_, _ = io.WriteString(w, answer)
	}
}

func env(name, value string) func(string) (string, bool) {
	return func(n string) (string, bool) {
		if n != name {
			return "", false
		}
		return value, true
	}
}

func at(unix int64) func() time.Time { return func() time.Time { return time.Unix(unix, 5) } }

func TestRequestSaysWhatSectionTenAsksFor(t *testing.T) {
	var got seen
	url := serve(t, recorder(&got, ` {"ok":true} `))
	c := client(t, open(), Options{Now: at(1700000000)})
	s := spec(url + "/hook?a=b")
	s.Method = http.MethodPut
	s.Headers = map[string]string{"X-Team": "pay", "content-type": "application/json; charset=utf-8"}
	result, err := c.Do(t.Context(), s, &Call{Function: "billing::charge", InvocationID: "i-1",
		TraceID: "0af7651916cd43dd8448eb211c80319c", Caller: "shop::buy", TriggerType: "cron", TriggerID: "t 1/é%",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Payload: []byte(`{"n":1}`)})
	if err != nil || string(result) != `{"ok":true}` {
		t.Fatalf("got %q, %v", result, err)
	}
	if got.method != "PUT" || got.path != "/hook?a=b" || got.body != `{"n":1}` || got.length != 7 ||
		"http://"+got.host != url {
		t.Errorf("got %+v", got)
	}
	want := map[string]string{
		"Content-Type": "application/json; charset=utf-8", "X-Team": "pay", "X-Iii-Function-Path": "billing::charge",
		"X-Iii-Invocation-Id": "i-1", "X-Iii-Timestamp": "1700000000",
		"X-Iii-Trace-Id": "0af7651916cd43dd8448eb211c80319c", "X-Iii-Caller-Function": "shop::buy",
		"X-Iii-Trigger-Type": "cron", "X-Iii-Trigger-Id": "t%201/%C3%A9%25", "User-Agent": "plinth",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Accept": "application/json",
		"Content-Length": "7",
	}
	for name, value := range want {
		if got.header.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), value)
		}
	}
	for name := range got.header {
		if want[name] == "" {
			t.Errorf("the request has a header %s: %q", name, got.header[name])
		}
	}
}

func TestUnknownThingsAreLeftOutOfTheRequest(t *testing.T) {
	var got seen
	url := serve(t, recorder(&got, ""))
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		s := spec(url)
		s.Method = method
		if result, err := do(t, client(t, open(), Options{}), s, ""); err != nil || result != "<none>" {
			t.Errorf("%s: got %s, %v", method, result, err)
		}
		if got.method != method || got.body != "" || got.length > 0 {
			t.Errorf("%s: got %+v", method, got)
		}
		for _, name := range []string{"Content-Type", "X-Iii-Trace-Id", "X-Iii-Caller-Function", "X-Iii-Trigger-Type",
			"X-Iii-Trigger-Id", "X-Iii-Invocation-Id", "Traceparent", "Authorization", "X-Iii-Signature",
			"Accept-Encoding", "Cookie", "Referer", "Transfer-Encoding"} {
			if v, there := got.header[name]; there {
				t.Errorf("%s: %s is %q", method, name, v)
			}
		}
		if result, err := do(t, client(t, open(), Options{}), s, "[1]"); err != nil || got.body != "[1]" {
			t.Errorf("%s with a payload: %+v, %s, %v", method, got, result, err)
		}
	}
}

// TestSignatureVectors holds the formula against an independent spelling of it, and against fixed text.
func TestSignatureVectors(t *testing.T) {
	for _, body := range []string{"", "x", `{"n":1}`, strings.Repeat("é", 1000)} {
		m := hmac.New(sha256.New, []byte("s3cret"))
		m.Write([]byte("1700000000:" + base64.StdEncoding.EncodeToString([]byte(body))))
		want := "sha256=" + hex.EncodeToString(m.Sum(nil))
		if got := Signature("s3cret", "1700000000", []byte(body)); got != want {
			t.Errorf("%.10q: got %s, want %s", body, got, want)
		}
	}
	const fixed = "sha256=1d135db9f77c0c80061df09886ed1de87f25d277c0428aadb784590b5476f337"
	if got := Signature("s3cret", "1700000000", []byte(`{"n":1}`)); got != fixed {
		t.Errorf("got %s", got)
	}
}

func TestAuthProvesItselfWithVariablesOfTheEngine(t *testing.T) {
	var got seen
	url := serve(t, recorder(&got, ""))
	for _, x := range []struct {
		auth         Auth
		header, want string
	}{
		{Auth{Type: "bearer", TokenKey: "V"}, "Authorization", "Bearer s3cret"},
		{Auth{Type: "api_key", Header: "x-key", ValueKey: "V"}, "X-Key", "s3cret"},
		{Auth{Type: "api_key", Header: "Authorization", ValueKey: "V"}, "Authorization", "s3cret"},
		{Auth{Type: "hmac", SecretKey: "V"}, "X-Iii-Signature", Signature("s3cret", "1700000000", []byte(`[7]`))},
	} {
		s := spec(url)
		s.Auth = &x.auth
		c := client(t, open(), Options{Getenv: env("V", "s3cret"), Now: at(1700000000)})
		if _, err := do(t, c, s, `[7]`); err != nil || got.header.Get(x.header) != x.want {
			t.Errorf("%+v: got %q, %v", x.auth, got.header, err)
		}
	}
}

func TestMissingSecretsFailBeforeAnythingIsSent(t *testing.T) {
	at, reached := door(t)
	for _, x := range []struct {
		auth  Auth
		value string
		code  string
	}{
		{Auth{Type: "hmac", SecretKey: "MINE"}, "", wire.CodeSecretNotFound},
		{Auth{Type: "bearer", TokenKey: "MINE"}, "", wire.CodeTokenNotFound},
		{Auth{Type: "api_key", Header: "k", ValueKey: "MINE"}, "", wire.CodeAPIKeyNotFound},
		{Auth{Type: "bearer", TokenKey: "OTHER"}, "s3cret", wire.CodeTokenNotFound},
		{Auth{Type: "bearer", TokenKey: "MINE"}, "s3\r\ncret", wire.CodeTokenNotFound},
		{Auth{Type: "api_key", Header: "k", ValueKey: "MINE"}, "s3cret\n", wire.CodeAPIKeyNotFound},
	} {
		s := spec("http://127.0.0.1" + at)
		s.Auth = &x.auth
		_, err := do(t, client(t, open(), Options{Getenv: env("MINE", x.value)}), s, `1`)
		wants(t, err, fault.Unavailable, x.code)
		if err != nil && strings.Contains(err.Error(), "s3") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
	if reached.Load() != 0 {
		t.Error("something was sent")
	}
}

func TestAClockBefore1970SignsNothing(t *testing.T) {
	at, reached := door(t)
	c := client(t, open(), Options{Now: func() time.Time { return time.Time{} }})
	_, err := do(t, c, spec("http://127.0.0.1"+at), `1`)
	wants(t, err, fault.Internal, wire.CodeTimestampError)
	if reached.Load() != 0 {
		t.Error("something was sent")
	}
}

func TestRedirectsAreAnswersAndNotFollowed(t *testing.T) {
	at, reached := door(t)
	body := ""
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://127.0.0.1"+at+"/inside")
		w.WriteHeader(map[string]int{"/301": 301, "/302": 302, "/303": 303, "/307": 307, "/308": 308}[r.URL.Path])
		_, _ = io.WriteString(w, body)
	})
	c := client(t, open(), Options{})
	for _, b := range []struct{ body, want string }{
		{"", "<none>"}, {`{"moved":1}`, `{"moved":1}`}, {"<html>", "<none>"},
	} {
		body = b.body
		for _, path := range []string{"/301", "/302", "/303", "/307", "/308"} {
			if got, err := do(t, c, spec(url+path), `1`); err != nil || got != b.want {
				t.Errorf("%s with %q: got %s, %v", path, b.body, got, err)
			}
		}
	}
	if reached.Load() != 0 {
		t.Error("the target of a redirect was reached")
	}
}

func TestCookiesAreForgotten(t *testing.T) {
	var cookies atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cookies.Add(int64(len(r.Cookies())))
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
	})
	c := client(t, open(), Options{})
	for range 3 {
		if _, err := do(t, c, spec(url), ``); err != nil {
			t.Error(err)
		}
	}
	if cookies.Load() != 0 {
		t.Error("a cookie came back")
	}
}

func TestConnectionsAreKeptAndEachWasLookedAt(t *testing.T) {
	at, reached := door(t)
	n := &names{answers: [][]netip.Addr{addrs("127.0.0.1")}}
	c := client(t, open(), Options{Resolver: n})
	for range 20 {
		if got, err := do(t, c, spec("http://kept.example"+at), `1`); err != nil || got != `"inside"` {
			t.Fatalf("got %s, %v", got, err)
		}
	}
	if reached.Load() != 1 || c.Stats().Connections != 1 || n.asked != 1 {
		t.Errorf("20 calls took %d connections and %d look-ups", reached.Load(), n.asked)
	}
}

func TestTLSIsVerifiedAndNotOld(t *testing.T) {
	url, trusting := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%d", r.TLS.Version)
	})
	trusting.RequireHTTPS = true
	got, err := do(t, client(t, trusting, Options{}), spec(url), ``)
	if err != nil || got != fmt.Sprint(tls.VersionTLS13) {
		t.Errorf("got %s, %v", got, err)
	}
	_, err = do(t, client(t, open(), Options{}), spec(url), ``)
	wants(t, err, fault.Unavailable, wire.CodeHTTPRequestFailed)
	if err == nil || !strings.Contains(err.Message, "unknown authority") {
		t.Errorf("got %v", err)
	}
	other := Options{Resolver: &names{answers: [][]netip.Addr{addrs("127.0.0.1")}}}
	_, err = do(t, client(t, trusting, other), spec("https://other.invalid"+port(url)), ``)
	if err == nil || !strings.Contains(err.Message, "for another host") {
		t.Errorf("got %v", err)
	}
	v := client(t, open(), Options{}).transport.TLSClientConfig
	if v.MinVersion != tls.VersionTLS12 || v.InsecureSkipVerify {
		t.Errorf("the configuration is %+v", v)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	s.StartTLS()
	defer s.Close()
	p := open()
	p.RootCAs = x509.NewCertPool()
	p.RootCAs.AddCert(s.Certificate())
	_, err := do(t, client(t, p, Options{}), spec(s.URL), ``)
	wants(t, err, fault.Unavailable, wire.CodeHTTPRequestFailed)
}

func TestFailuresOfTheNetworkHaveOurWords(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	for name, x := range map[string]struct {
		url, want string
	}{
		"refused":  {closed, "the connection was refused"},
		"no name":  {"http://nowhere.example", "the host name does not exist"},
		"no TLS":   {strings.Replace(plain, "http", "https", 1), "the endpoint does not speak TLS"},
		"hangs up": {raw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), "the connection was closed"},
		"not HTTP": {raw(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail\r\n"); hold(c) }), "not HTTP"},
	} {
		_, err := do(t, client(t, open(), Options{Resolver: &names{}}), spec(x.url), `1`)
		wants(t, err, fault.Unavailable, wire.CodeHTTPRequestFailed)
		if err != nil && (!strings.Contains(err.Message, x.want) || strings.Contains(err.Message, "127.0.0.1")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTimeoutsTellWhoseTimeEnded(t *testing.T) {
	url := raw(t, hold)
	c := client(t, open(), Options{})
	s := spec(url)
	s.Timeout = 20 * time.Millisecond
	_, err := do(t, c, s, `1`)
	wants(t, err, fault.Timeout, wire.CodeInvocationTimeout)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Do(ctx, spec(url), &Call{Payload: []byte(`1`)})
	wants(t, err, fault.Timeout, wire.CodeTimeout)

	ctx, cancel = context.WithCancel(t.Context())
	arrived := raw(t, func(n net.Conn) { cancel(); hold(n) })
	_, err = c.Do(ctx, spec(arrived), &Call{Payload: []byte(`1`)})
	wants(t, err, fault.Unavailable, wire.CodeInvocationStopped)
	if n := c.Stats().TimedOut; n != 2 {
		t.Errorf("%d calls timed out", n)
	}
}

func TestASlowResolverIsCutByTheTimeout(t *testing.T) {
	c := client(t, open(), Options{Resolver: stuck{}})
	s := spec("http://slow.example")
	s.Timeout = 20 * time.Millisecond
	_, err := do(t, c, s, ``)
	wants(t, err, fault.Timeout, wire.CodeInvocationTimeout)
}

type stuck struct{}

func (stuck) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	defer testkit.Leaks(t)
	var arrived sync.WaitGroup
	arrived.Add(10)
	url := raw(t, func(n net.Conn) { arrived.Done(); hold(n) })
	c := New(open(), Options{})
	results := make(chan *fault.Error, 10)
	for range 10 {
		go func() { // ends with the client
			_, err := c.Do(context.Background(), spec(url), &Call{Payload: []byte(`1`)})
			results <- err
		}()
	}
	arrived.Wait()
	c.Close()
	for range 10 {
		wants(t, <-results, fault.Unavailable, wire.CodeDraining)
	}
	_, err := do(t, c, spec(url), ``)
	wants(t, err, fault.Unavailable, wire.CodeDraining)
	c.Close()
}

func TestAThousandCallsAtOnceAreAnswered(t *testing.T) {
	const calls, hosts = 1000, 4
	var urls [hosts]string
	for i := range urls {
		urls[i] = serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	}
	c := client(t, open(), Options{})
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range calls {
		all.Go(func() {
			<-begin
			want := fmt.Sprintf(`{"n":%d}`, i)
			s := spec(urls[i%hosts])
			s.Timeout = time.Minute
			if got, err := do(t, c, s, want); err != nil || got != want {
				t.Errorf("call %d: got %s, %v", i, got, err)
			}
		})
	}
	close(begin)
	all.Wait()
	st := c.Stats()
	if st.Succeeded != calls || st.Running != 0 || st.Held != 0 {
		t.Errorf("counted %+v", st)
	}
}

func TestOneHostCannotTakeAllPlaces(t *testing.T) {
	const most = 8
	entered, release := make(chan struct{}, most), make(chan struct{})
	slow := serve(t, func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-release })
	quick := serve(t, func(http.ResponseWriter, *http.Request) {})
	p := open()
	p.MaxRunning = most
	c := client(t, p, Options{})
	var all sync.WaitGroup
	for range most / 2 {
		all.Go(func() {
			if _, err := do(t, c, spec(slow), ``); err != nil {
				t.Error(err)
			}
		})
		<-entered
	}
	_, err := do(t, c, spec(slow), ``)
	wants(t, err, fault.Limit, wire.CodeHostOverloaded)
	if _, err := do(t, c, spec(quick), ``); err != nil {
		t.Errorf("another host has no place: %v", err)
	}
	close(release)
	all.Wait()
	if _, err := do(t, c, spec(slow), ``); err != nil {
		t.Errorf("the places did not come back: %v", err)
	}
	if st := c.Stats(); st.Refused != 1 || st.Running != 0 || len(c.seats.hosts) != 0 {
		t.Errorf("counted %+v", st)
	}
}

func TestCallsBeyondTheConnectionsOfAHostWait(t *testing.T) {
	var now, peak atomic.Int64
	url := serve(t, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
		}
		now.Add(-1)
	})
	p := open()
	p.PerHost = 3
	c := client(t, p, Options{})
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			if _, err := do(t, c, spec(url), `1`); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if peak.Load() > 3 {
		t.Errorf("%d calls were at the host at a time", peak.Load())
	}
}

// TestPayloadIsLetGoOf would be found by the race detector: the endpoint answers before it has read the
// payload.
func TestPayloadIsLetGoOf(t *testing.T) {
	over := make(chan struct{})
	url := raw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
		<-over // without reading
	})
	t.Cleanup(func() { close(over) })
	c := client(t, open(), Options{})
	payload := make([]byte, 16<<20)
	for range 3 {
		for i := 0; i < len(payload); i += 512 {
			payload[i]++
		}
		result, err := c.Do(t.Context(), spec(url), &Call{Payload: payload})
		if err != nil || string(result) != "1" {
			t.Errorf("got %q, %v", result, err)
		}
	}
}

func TestNoSecretIsInAnErrorOrALogLine(t *testing.T) {
	canary := testkit.NewCanary(7)
	var logs safe
	echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		_, _ = fmt.Fprintf(w, `{"error":{"code":"%s","message":"you sent %s %s"}}`, strings.Fields(r.Header.Get("X-Key") + " x")[0],
			r.Header.Get("Authorization"), r.Header.Get("X-Key"))
	})
	parrot := raw(t, func(c net.Conn) { _, _ = io.WriteString(c, canary.Value(3)+"\r\n"); hold(c) })
	broken := raw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+canary.Value(3)+"\r\n")
		hold(c)
	})
	short := raw(t, func(c net.Conn) {
		head := "HTTP/1.1 200 OK\r\nX-A: " + canary.Value(3) + "\r\nContent-Length: 99\r\n\r\n"
		_, _ = io.WriteString(c, head+canary.Value(3))
	})
	getenv := env("V", canary.Value(3))
	p := open()
	p.Env = []string{"V"}
	lines := slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := client(t, p, Options{Getenv: getenv, Log: lines})
	var texts strings.Builder
	for _, url := range []string{echo, parrot, broken, short} {
		for _, a := range []Auth{{Type: "bearer", TokenKey: "V"}, {Type: "api_key", Header: "X-Key", ValueKey: "V"},
			{Type: "hmac", SecretKey: "V"}, {Type: "bearer", TokenKey: "PLINTH_V"}} {
			s := spec(url)
			s.Auth = &a
			_, err := do(t, c, s, `1`)
			if err == nil {
				t.Errorf("%s: no error", url)
				continue
			}
			_, _ = fmt.Fprintf(&texts, "%v %+v %#v %v\n", err, *err, *err, err.Err)
		}
	}
	for _, seen := range canary.Find([]byte(texts.String() + logs.String())) {
		t.Errorf("a secret is in an error or a log line: %v\n%s", seen, texts.String())
	}
	if !strings.Contains(texts.String(), "[secret]") || !strings.Contains(logs.String(), "blocked") {
		t.Errorf("the test met no secret: %s, %s", texts.String(), logs.String())
	}
}

func TestLogLinesOfBlockedCallsAreSeldom(t *testing.T) {
	var logs safe
	clock := time.Unix(1700000000, 0)
	now := func() time.Time { return clock }
	c := client(t, Policy{}, Options{Log: slog.New(slog.NewTextHandler(&logs, nil)), Now: now})
	for range 100 {
		_, _ = do(t, c, spec("https://example.org"), ``)
	}
	clock = clock.Add(2 * time.Second)
	_, _ = do(t, c, spec("https://example.org"), ``)
	if n := strings.Count(logs.String(), "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, logs.String())
	}
	if n := c.Stats().Blocked; n != 101 {
		t.Errorf("%d counted", n)
	}
}

func BenchmarkCall(b *testing.B) {
	url := serve(b, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	c := client(b, open(), Options{Getenv: env("V", "s3cret")})
	s := spec(url)
	s.Auth = &Auth{Type: "hmac", SecretKey: "V"}
	call := &Call{Function: "a::b", InvocationID: "1", Payload: []byte(`{"n":1,"text":"some text of a usual length"}`)}
	one := func() {
		if _, err := c.Do(context.Background(), s, call); err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			one()
		}
	})
	b.Run("64 at once", func(b *testing.B) {
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				one()
			}
		})
	})
}

package httpfn

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// open is a policy under which the servers of a test can be called.
func open() Policy { return Policy{Allow: []string{"*"}} }

func client(t testing.TB, p Policy, o Options) *Client {
	t.Helper()
	c := New(p, o)
	t.Cleanup(c.Close)
	return c
}

func serve(t testing.TB, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// serveTLS returns the URL of a server and a policy that trusts it.
func serveTLS(t testing.TB, f http.HandlerFunc) (string, Policy) {
	t.Helper()
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	p := open()
	p.RootCAs = x509.NewCertPool()
	p.RootCAs.AddCert(s.Certificate())
	return s.URL, p
}

// raw serves each connection with f, which gets it after the head of the request was read.
func raw(t testing.TB, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				var head []byte
				one := make([]byte, 1)
				for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
					if _, err := conn.Read(one); err != nil {
						return
					}
					head = append(head, one[0])
				}
				f(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

func spec(url string) *Spec {
	return &Spec{URL: url, Method: http.MethodPost, Timeout: 10 * time.Second}
}

func do(t testing.TB, c *Client, s *Spec, payload string) (string, *fault.Error) {
	t.Helper()
	call := &Call{Function: "a::b"}
	if payload != "" {
		call.Payload = []byte(payload)
	}
	result, err := c.Do(t.Context(), s, call)
	if result == nil {
		return "<none>", err
	}
	return string(result), err
}

// wants fails the test unless err has the code and the kind.
func wants(t testing.TB, err *fault.Error, kind fault.Kind, code string) {
	t.Helper()
	if err == nil || err.Code != code || err.Kind != kind {
		t.Errorf("the error is %v, want %s of kind %v", err, code, kind)
	}
}

// names is a resolver: each lookup of any name takes the next answer, and the last one stays.
type names struct {
	mu      sync.Mutex
	answers [][]netip.Addr
	asked   int
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	a := n.answers[min(n.asked, len(n.answers)-1)]
	n.asked++
	return a, nil
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// port returns the part of a URL from the last colon on.
func port(url string) string { return url[strings.LastIndexByte(url, ':'):] }

// safe is a buffer for logs of several goroutines.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// hold reads until the other side closes.
func hold(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// flood writes b until the other side closes, and says whether it did before most bytes.
func flood(c net.Conn, b []byte, most int) bool {
	for n := 0; n < most; n += len(b) {
		if _, err := c.Write(b); err != nil {
			return true
		}
	}
	return false
}

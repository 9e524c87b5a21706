package worker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

func TestURLs(t *testing.T) {
	for address, want := range map[string]target{
		"ws://localhost": {address: "localhost:80", host: "localhost", path: "/", channel: "/ws/channels/",
			local: true},
		"http://10.0.0.1:49134": {address: "10.0.0.1:49134", host: "10.0.0.1:49134", path: "/",
			channel: "/ws/channels/"},
		"wss://e.example/w/x?a=b%20": {address: "e.example:443", host: "e.example", path: "/w/x?a=b%20",
			channel: "/w/x/ws/channels/", secure: true},
		"https://[::1]:1": {address: "[::1]:1", host: "[::1]:1", path: "/", channel: "/ws/channels/",
			secure: true, local: true},
		"ws://any:wk_secret@e.example/": {address: "e.example:80", host: "e.example", path: "/",
			channel: "/ws/channels/", basic: "Basic YW55OndrX3NlY3JldA=="},
	} {
		if got, err := parseTarget(address); err != nil || got != want {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
	}
}

func TestErrorsOfAURLDoNotShowItsKey(t *testing.T) {
	for _, address := range []string{"127.0.0.1:49134", "ftp://x", "ftp://u:secret@x", "ws://", "ws://u:secret@",
		"ws://secret@x", "ws://secret:@x", "ws://x:secret", "ws://u:sec%ret@x", "ws://u:secret@x:y", "::",
		"ws://x/?a b", "ws://]", "ws://a%20b", "ws://höst", "any:secret@x", "any:secret@x:1", "//any:secret@x", "ws:any:secret@x", "ws:///?secret"} {
		if _, err := parseTarget(address); err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// FuzzTarget: an address is refused, in words that hold nothing of it, or can be dialed and asked for.
func FuzzTarget(f *testing.F) {
	for _, address := range []string{DefaultURL, "wss://any:wk_key@e.example/w?a=b", "https://[::1%25eth0]:1/a b"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		got, err := parseTarget(address)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "worker: ") || errors.Unwrap(err) != nil {
				t.Errorf("%v", err)
			}
			return
		}
		if _, _, err := net.SplitHostPort(got.address); err != nil {
			t.Errorf("address %q: %v", got.address, err)
		}
		if !strings.HasPrefix(got.path, "/") || !strings.HasSuffix(got.channel, "/ws/channels/") ||
			strings.ContainsAny(got.basic, "\r\n") || strings.Contains(got.path, "#") ||
			strings.ContainsFunc(got.host+got.path+got.channel, hidden) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestTokenWinsOverTheKeyInTheURL(t *testing.T) {
	for _, name := range []string{"PLINTH_TOKEN", "III_TOKEN"} {
		t.Setenv(name, "")
	}
	own := map[string][]string{"authorization": {"Digest own"}, "X-A": {"1"}}
	credential := func(address string, o Options) string {
		t.Helper()
		w, err := New(address, o)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for name, values := range w.header() {
			if strings.EqualFold(name, "Authorization") {
				all = append(all, values...)
			}
		}
		return strings.Join(all, ", ")
	}
	const plain, keyed, basic = "ws://x", "ws://any:key@x", "Basic YW55OmtleQ=="
	for _, c := range []struct {
		address string
		options Options
		want    string
	}{
		{plain, Options{}, ""},
		{plain, Options{Header: own}, "Digest own"},
		{keyed, Options{}, basic},
		{keyed, Options{Header: own}, basic},
		{keyed, Options{Token: "t", Header: own}, "Bearer t"},
		{plain, Options{Token: "t"}, "Bearer t"},
	} {
		if got := credential(c.address, c.options); got != c.want {
			t.Errorf("%s with token %q: %q, want %q", c.address, c.options.Token, got, c.want)
		}
	}
	t.Setenv("III_TOKEN", "old")
	if got := credential(keyed, Options{}); got != basic {
		t.Errorf("the key in the URL is for this engine, III_TOKEN for any: %q", got)
	}
	if got := credential(plain, Options{}); got != "Bearer old" {
		t.Errorf("III_TOKEN: %q", got)
	}
	t.Setenv("PLINTH_TOKEN", "new")
	if got := credential(plain, Options{}); got != "Bearer new" {
		t.Errorf("PLINTH_TOKEN: %q", got)
	}
	if len(own) != 2 {
		t.Error("the headers of the caller were changed")
	}
}

func TestEnvironmentFillsWhatOptionsLeaveOpen(t *testing.T) {
	for _, name := range []string{"PLINTH_URL", "III_URL", "PLINTH_TOKEN", "III_TOKEN", "III_NAMESPACE",
		"III_WORKER_NAME"} {
		t.Setenv(name, "")
	}
	address := func() string {
		w, err := New("", Options{})
		if err != nil {
			t.Fatal(err)
		}
		return w.target.address
	}
	if got := address(); got != "127.0.0.1:49134" {
		t.Errorf("default: %s", got)
	}
	t.Setenv("III_URL", "ws://b:2")
	if got := address(); got != "b:2" {
		t.Errorf("III_URL: %s", got)
	}
	t.Setenv("PLINTH_URL", "ws://a:1")
	if got := address(); got != "a:1" {
		t.Errorf("PLINTH_URL: %s", got)
	}
	t.Setenv("III_TOKEN", "token")
	t.Setenv("III_NAMESPACE", "space")
	w, err := New("", Options{Header: map[string][]string{"X-A": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	h := w.header()
	if h["Authorization"][0] != "Bearer token" || h["X-A"][0] != "1" || w.opts.Namespace != "space" {
		t.Errorf("header %v, namespace %s", h, w.opts.Namespace)
	}
	host, _ := os.Hostname()
	if w.Name() == "" || !strings.HasPrefix(w.Name(), host) {
		t.Errorf("name %s", w.Name())
	}
	t.Setenv("III_WORKER_NAME", "env")
	if w, err = New("", Options{}); err != nil || w.Name() != "env" {
		t.Errorf("name %v, %v", w, err)
	}
	if w, err = New("", Options{Name: "own"}); err != nil || w.Name() != "own" {
		t.Errorf("name %v, %v", w, err)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"name":       {Name: strings.Repeat("x", 600)},
		"blank":      {Namespace: "  "},
		"long":       {Namespace: strings.Repeat("x", 200)},
		"calls":      {MaxCalls: maxSlots + 1},
		"negative":   {SendBuffer: -1},
		"factor":     {Reconnect: Reconnect{Factor: 0.5}},
		"jitter":     {Reconnect: Reconnect{Jitter: 2}},
		"max":        {Reconnect: Reconnect{First: time.Minute, Max: time.Second}},
		"attempts":   {Reconnect: Reconnect{MaxAttempts: -1}},
		"concurrent": {Concurrency: -1},
	} {
		if _, err := New("", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDelaysGrowToTheirMaximumWithinTheJitter(t *testing.T) {
	r := Reconnect{First: time.Second, Factor: 2, Max: 30 * time.Second, Jitter: 0.3}
	for failures, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 30, 7: 30, 1000: 30} {
		want *= time.Second
		if d := r.delay(failures, 0.5); d != want {
			t.Errorf("failure %d: %v, want %v", failures, d, want)
		}
		low, high := r.delay(failures, 0), r.delay(failures, 1)
		if low.Round(time.Millisecond) != want*7/10 || high.Round(time.Millisecond) != want*13/10 {
			t.Errorf("failure %d: %v to %v", failures, low, high)
		}
	}
}

func TestErrorsKeepWhatBelongsToTheApplication(t *testing.T) {
	for _, c := range []struct {
		err           error
		code, message string
	}{
		{errors.New("x"), wire.CodeInvocationFailed, "x"},
		{Errorf("mine", "n is %d", 7), "mine", "n is 7"},
		{Errorf(wire.CodeNotFound, "no row"), wire.CodeNotFound, "no row"},
		{Errorf(wire.CodeTimeout, "own timer"), wire.CodeTimeout, "own timer"}, // said on purpose
		{&Error{Code: wire.CodeTimeout, Message: "m", called: true}, wire.CodeInvocationFailed, "TIMEOUT: m"},
		{&Error{Code: "theirs", Message: "m", called: true}, "theirs", "m"},
		{&Error{}, wire.CodeInvocationFailed, ""},
	} {
		if e := wireError(c.err); e.Code != c.code || e.Message != c.message {
			t.Errorf("%#v: got %v", c.err, e)
		}
	}
	if !errors.Is(&Error{Code: wire.CodeInvocationTimeout}, ErrTimeout) || errors.Is(ErrTimeout, ErrNotFound) ||
		errors.Is(ErrTimeout, context.Canceled) {
		t.Error("errors.Is does not go by code")
	}
	if got := (&Error{Code: "x"}).Error(); got != "x" {
		t.Errorf("text %q", got)
	}
}

func TestNamesOfPhases(t *testing.T) {
	want := []string{"idle", "connecting", "connected", "waiting", "draining", "closed", "unknown"}
	for i, name := range want {
		if got := Phase(i).String(); got != name {
			t.Errorf("phase %d is %q, want %q", i, got, name)
		}
	}
}

// TestSecureURLsSpeakTLS checks the certificate too: a worker that does not know the issuer stays away.
func TestSecureURLsSpeakTLS(t *testing.T) {
	cert, roots := selfSigned(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan string, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(served)
				return
			}
			b := make([]byte, 4096)
			n, err := c.Read(b)
			if err != nil {
				c.Close()
				continue
			}
			r, _, err := ws.ParseRequest(b[:n])
			if err != nil {
				t.Error(err)
			}
			_, _ = c.Write(ws.AppendAccept(nil, r.Key))
			served <- r.Header("Authorization")
			c.Close()
		}
	}()
	address := "wss://" + l.Addr().String()
	w, err := New(address, Options{Token: "t0ken", TLS: &tls.Config{RootCAs: roots}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := w.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.fail(nil)
	if got := <-served; got != "Bearer t0ken" {
		t.Errorf("authorization %q", got)
	}
	w, err = New(address, Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var unknown x509.UnknownAuthorityError
	if _, _, err := w.dial(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("an unknown issuer: %v", err)
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

package loop_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/loop"
)

// issue makes a certificate for this machine that signs itself, as PEM texts.
func issue(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// credentials are both sides of a TLS connection: the server's, and those of clients that trust it.
func credentials(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	cert, key := issue(t, "localhost")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	server = &tls.Config{Certificates: []tls.Certificate{pair}}
	return server, &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// all is both, and once more over TLS: what tests dial is then a relay that speaks TLS to the group.
func all(t *testing.T, f func(t *testing.T, cfg loop.Config)) {
	t.Helper()
	both(t, f)
	t.Run("tls", func(t *testing.T) {
		server, _ := credentials(t)
		f(t, loop.Config{Loops: 2, Portable: true, TLS: server})
	})
}

// relay listens until the test ends and carries each connection to addr over TLS, with the end of each
// direction.
func relay(t testing.TB, addr string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		tasks.Wait()
	})
	tasks.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { carry(nc.(*net.TCPConn), addr) })
		}
	})
	return ln.Addr().String()
}

func carry(plain *net.TCPConn, addr string) {
	defer plain.Close()
	secret, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // others look at certificates
	if err != nil {
		return
	}
	defer secret.Close()
	var down sync.WaitGroup
	down.Go(func() {
		_, err := io.Copy(plain, secret)
		if err == nil {
			plain.CloseWrite()
			return
		}
		plain.Close()
	})
	if _, err := io.Copy(secret, plain); err == nil {
		secret.CloseWrite()
	} else {
		secret.NetConn().Close()
	}
	down.Wait()
}

func TestAnEncryptedConnectionSaysSo(t *testing.T) {
	server, client := credentials(t)
	conns := make(chan *loop.Conn, 1)
	g := loop.New(loop.Config{Portable: true, TLS: server})
	accept := func(c *loop.Conn) loop.Handler {
		conns <- c
		return &hooks{data: echo}
	}
	addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", accept)
	if err != nil {
		t.Fatal(err)
	}
	run(t, g)
	nc, err := tls.Dial("tcp", addr.String(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	write(t, nc, "hello")
	expect(t, nc, "hello")
	c := <-conns
	if s := c.TLS(); s == nil || !s.HandshakeComplete || s.Version != tls.VersionTLS13 ||
		s.ServerName != "localhost" {
		t.Errorf("the connection says %+v", s)
	}
	if c.RemoteAddr().String() != nc.LocalAddr().String() {
		t.Errorf("remote address is %v, want %v", c.RemoteAddr(), nc.LocalAddr())
	}
	both(t, func(t *testing.T, cfg loop.Config) {
		plain := make(chan *loop.Conn, 1)
		dial(t, serve(t, loop.New(cfg), func(c *loop.Conn) loop.Handler {
			plain <- c
			return &hooks{}
		}))
		if s := (<-plain).TLS(); s != nil {
			t.Errorf("a plain connection says %+v", s)
		}
	})
}

func TestListenRefusesTLSThatCannotWork(t *testing.T) {
	server, _ := credentials(t)
	bare := loop.New(loop.Config{Portable: true, TLS: new(tls.Config)})
	groups := map[string]*loop.Group{"without a certificate": bare}
	if loop.Native {
		groups["on epoll"] = loop.New(loop.Config{TLS: server})
	}
	for name, g := range groups {
		if addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", always(&hooks{})); err == nil {
			t.Errorf("%s: it listens on %v", name, addr)
		}
	}
}

// hello returns the first bytes that a TLS client sends.
func hello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		tls.Client(theirs, cfg).Handshake() // it cannot end well
		theirs.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := ours.Read(b)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestAHandshakeThatFailsReachesNobody(t *testing.T) {
	server, client := credentials(t)
	g := loop.New(loop.Config{Portable: true, Loops: 2, TLS: server})
	addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", func(*loop.Conn) loop.Handler {
		t.Error("accept was asked")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, g)
	good := hello(t, client)
	strange := client.Clone()
	strange.RootCAs = x509.NewCertPool()
	old := client.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	bytesOf := func(b []byte) func(net.Conn) error {
		return func(nc net.Conn) error {
			if _, err := nc.Write(b); err != nil {
				return err
			}
			if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
				return err
			}
			io.Copy(io.Discard, nc) // an alert, or a reset
			return nil
		}
	}
	var want uint64
	for name, attack := range map[string]func(net.Conn) error{
		"nothing":             bytesOf(nil),
		"plain HTTP":          bytesOf([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
		"zeros":               bytesOf(make([]byte, 100_000)),
		"half a hello":        bytesOf(good[:len(good)/2]),
		"a hello only":        bytesOf(good),
		"a hello twice":       bytesOf(append(good[:len(good):len(good)], good...)),
		"a large record":      bytesOf(append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 0xffff)...)),
		"a large message":     bytesOf(append([]byte{22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...)),
		"an alert":            bytesOf([]byte{21, 3, 1, 0, 2, 2, 40}),
		"data in place of it": bytesOf([]byte{23, 3, 3, 0, 1, 7}),
		"empty records":       bytesOf(bytes.Repeat([]byte{22, 3, 1, 0, 0}, 1000)),
		"an old version":      func(nc net.Conn) error { tls.Client(nc, old).Handshake(); return nil },
		"a client that does not trust us": func(nc net.Conn) error {
			tls.Client(nc, strange).Handshake()
			return nil
		},
	} {
		nc := dial(t, addr.String())
		// The server may have reset the connection before all was sent.
		if err := attack(nc); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) &&
			!errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("%s: %v", name, err)
		}
		nc.Close()
		want++
		until(func() bool { return g.Stats().Handshakes == want })
	}
	if s := g.Stats(); s.Accepted+s.Closed+s.Refused+s.Open+s.Panics != 0 {
		t.Errorf("stats are %+v", s)
	}
}

func TestAHandshakeHasTenSeconds(t *testing.T) {
	server, client := credentials(t)
	first := hello(t, client)
	synctest.Test(t, func(t *testing.T) {
		for name, every := range map[string]time.Duration{"silent": 0, "slow": time.Second} {
			closed := make(chan error, 1)
			nc, c, g := attached(t, loop.Config{TLS: server},
				&hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
			start := time.Now()
			var slow sync.WaitGroup
			if every > 0 {
				slow.Go(func() { // ends with the pipe
					for _, b := range first {
						if _, err := nc.Write([]byte{b}); err != nil {
							return
						}
						<-time.After(every)
					}
				})
			}
			err := <-closed
			if d := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || d != 10*time.Second {
				t.Errorf("%s: Closed with %v after %v", name, err, d)
			}
			if s := g.Stats(); s.Handshakes != 1 || s.Accepted != 1 || s.Closed != 1 || c.TLS() != nil {
				t.Errorf("%s: stats are %+v", name, s)
			}
			slow.Wait()
		}
	})
}

func TestHandshakesUnderWayAreBounded(t *testing.T) {
	server, client := credentials(t)
	synctest.Test(t, func(t *testing.T) {
		_, _, g := attached(t, loop.Config{TLS: server}, &hooks{})
		attach := func() (net.Conn, chan error) {
			ours, theirs := net.Pipe()
			closed := make(chan error, 1)
			h := &hooks{data: echo, closed: func(_ *loop.Conn, err error) { closed <- err }}
			if _, err := g.Attach(theirs, h); err != nil {
				t.Fatal(err)
			}
			return ours, closed
		}
		for range loop.MaxShaking - 1 {
			attach()
		}
		synctest.Wait()
		late, closed := attach()
		if err := <-closed; err == nil || g.Stats().Refused != 1 {
			t.Errorf("one too many: Closed with %v, %d refused", err, g.Stats().Refused)
		}
		if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the one too many read %v", err)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		if n := g.Stats().Handshakes; n != loop.MaxShaking {
			t.Errorf("%d handshakes failed", n)
		}
		again, _ := attach()
		nc := tls.Client(again, client)
		write(t, nc, "hello")
		expect(t, nc, "hello")
	})
}

func TestRunEndsHandshakesUnderWay(t *testing.T) {
	server, _ := credentials(t)
	g := loop.New(loop.Config{Portable: true, TLS: server})
	addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", always(&hooks{closed: func(*loop.Conn, error) {
		t.Error("Closed was called for a connection that was never accepted")
	}}))
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, g)
	dial(t, addr.String())
	until(func() bool { return g.Stats().Batches > 2 })
	stop()
	if s := g.Stats(); s.Accepted+s.Closed+s.Handshakes != 0 {
		t.Errorf("stats are %+v", s)
	}
}

// cutConn tells an end without a farewell from one with: crypto/tls takes both for io.EOF.
type cutConn struct{ net.Conn }

var errCut = errors.New("cut off")

func (c cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	return n, err
}

func TestThePeerIsToldWhereTheStreamEnds(t *testing.T) {
	server, client := credentials(t)
	for name, c := range map[string]struct {
		end  func(c *loop.Conn, nc *tls.Conn, stop func())
		want error // of the peer's Read
	}{
		"Finish":         {func(c *loop.Conn, _ *tls.Conn, _ func()) { c.Finish() }, io.EOF},
		"Close":          {func(c *loop.Conn, _ *tls.Conn, _ func()) { c.Close(nil) }, io.EOF},
		"the group ends": {func(_ *loop.Conn, _ *tls.Conn, stop func()) { stop() }, io.EOF},
		"the peer ended": {func(_ *loop.Conn, nc *tls.Conn, _ func()) { nc.CloseWrite() }, io.EOF},
		"an error":       {func(c *loop.Conn, _ *tls.Conn, _ func()) { c.Close(io.ErrNoProgress) }, errCut},
		"all that's left": {func(c *loop.Conn, nc *tls.Conn, _ func()) {
			if err := send(c, nil, make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
			nc.CloseWrite()
		}, io.EOF},
	} {
		conns := make(chan *loop.Conn, 1)
		g := loop.New(loop.Config{Portable: true, TLS: server})
		addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", func(c *loop.Conn) loop.Handler {
			conns <- c
			return &hooks{}
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, g)
		nc := tls.Client(cutConn{dial(t, addr.String())}, client)
		if err := nc.Handshake(); err != nil {
			t.Fatal(err)
		}
		c.end(<-conns, nc, stop)
		n, err := io.Copy(io.Discard, nc)
		if c.want == io.EOF && err != nil || c.want != io.EOF && !errors.Is(err, c.want) {
			t.Errorf("%s: the peer read %d bytes and %v, want %v", name, n, err, c.want)
		}
		if name == "all that's left" && n != 1<<20 {
			t.Errorf("%s: the peer read %d bytes", name, n)
		}
		stop()
	}
}

// TestAFarewellWaitsForNobody has peers that finish the handshake and read nothing any more.
func TestAFarewellWaitsForNobody(t *testing.T) {
	server, client := credentials(t)
	client.ClientSessionCache = nil
	server.SessionTicketsDisabled = true // a ticket would be the first thing that is not read
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			end  func(c *loop.Conn, stop func())
			want time.Duration
		}{
			"the group ends": {func(_ *loop.Conn, stop func()) { stop() }, 100 * time.Millisecond},
			"Finish":         {func(c *loop.Conn, _ func()) { c.Finish() }, time.Second},
			"Close":          {func(c *loop.Conn, _ func()) { c.Close(nil) }, 100 * time.Millisecond},
		} {
			ours, theirs := net.Pipe()
			g := loop.New(loop.Config{Portable: true, Loops: 1, TLS: server})
			conn, err := g.Attach(theirs, &hooks{})
			if err != nil {
				t.Fatal(err)
			}
			stop := run(t, g)
			if err := tls.Client(ours, client).Handshake(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			start := time.Now()
			c.end(conn, stop)
			one := make([]byte, 1)
			until := time.AfterFunc(time.Minute, func() { ours.Close() })
			synctest.Wait()
			for g.Stats().Open > 0 {
				<-time.After(10 * time.Millisecond)
			}
			stop()
			if d := time.Since(start); d > c.want+100*time.Millisecond {
				t.Errorf("%s: it took %v", name, d)
			}
			until.Stop()
			if n, err := ours.Read(one); n != 0 || err == nil {
				t.Errorf("%s: the pipe is open: %d, %v", name, n, err)
			}
		}
	})
}

func TestBytesQueuedBeforeTheHandshakeLeaveAfterIt(t *testing.T) {
	server, client := credentials(t)
	g := loop.New(loop.Config{Portable: true, TLS: server})
	ours, theirs := net.Pipe()
	defer ours.Close()
	c, err := g.Attach(theirs, &hooks{data: echo})
	if err != nil {
		t.Fatal(err)
	}
	if err := send(c, nil, []byte("early")); err != nil {
		t.Fatal(err)
	}
	run(t, g)
	nc := tls.Client(ours, client)
	expect(t, nc, "early")
	write(t, nc, "hello")
	expect(t, nc, "hello")
}

func TestRunOverTLSLeavesNothing(t *testing.T) {
	server, client := credentials(t)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	for round := range 10 {
		var accepted, closed atomic.Int64
		g := loop.New(loop.Config{Portable: true, Loops: 2, TLS: server})
		addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", func(*loop.Conn) loop.Handler {
			accepted.Add(1)
			return &hooks{data: echo, closed: func(*loop.Conn, error) { closed.Add(1) }}
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				b := make([]byte, 100)
				for n := 0; ; n++ {
					nc, err := net.Dial("tcp", addr.String())
					if err != nil {
						return
					}
					if secret := tls.Client(nc, client); n%3 > 0 && secret.Handshake() == nil {
						if _, err := secret.Write(b); err == nil && n%3 == 1 {
							io.ReadFull(secret, b) // whatever comes
							secret.Close()
						}
					}
					nc.Close()
					if n == round {
						cancel()
					}
				}
			})
		}
		if err := g.Run(ctx); err != nil {
			t.Fatal(err)
		}
		s := g.Stats()
		if accepted.Load() != closed.Load() || s.Open != 0 || s.Accepted != uint64(accepted.Load()) {
			t.Errorf("%d accepted, %d closed, stats are %+v", accepted.Load(), closed.Load(), s)
		}
		clients.Wait()
		cancel()
	}
	until(func() bool { return runtime.NumGoroutine() <= goroutines })
	until(func() bool { return descriptors(t) <= fds })
}

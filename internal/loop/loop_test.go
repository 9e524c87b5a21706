package loop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/plinth-run/plinth/internal/loop"
)

// echo sends back what it gets.
type echo struct{ closed chan error }

func (e *echo) Data(c *loop.Conn, b []byte) int {
	if c.End(c.Loop(), append(c.Begin(), b...)) != nil {
		c.Close(loop.ErrQueueFull)
	}
	return len(b)
}
func (e *echo) Drained(*loop.Conn) {}
func (e *echo) Closed(_ *loop.Conn, err error) {
	if e.closed != nil {
		e.closed <- err
	}
}

// both runs f once on epoll and once on the portable version.
func both(t *testing.T, f func(t *testing.T, cfg loop.Config)) {
	t.Run("native", func(t *testing.T) { f(t, loop.Config{}) })
	t.Run("portable", func(t *testing.T) { f(t, loop.Config{Portable: true}) })
}

// serve runs a group until the test ends and returns its address.
func serve(t testing.TB, g *loop.Group, accept func(*loop.Conn) loop.Handler) string {
	t.Helper()
	addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", accept)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return addr.String()
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func TestEchoComesBackAndTheEndIsTold(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		nc := dial(t, serve(t, g, func(*loop.Conn) loop.Handler { return &echo{closed} }))
		for range 100 {
			if _, err := nc.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 5)
			if _, err := io.ReadFull(nc, b); err != nil || string(b) != "hello" {
				t.Fatalf("got %q, %v", b, err)
			}
		}
		nc.Close()
		if err := <-closed; !errors.Is(err, io.EOF) {
			t.Errorf("Closed with %v", err)
		}
	})
}

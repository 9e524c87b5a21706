package loop_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/loop"
)

// hooks is a handler made of functions; nil ones do nothing.
type hooks struct {
	data    func(c *loop.Conn, b []byte) int
	drained func(c *loop.Conn)
	closed  func(c *loop.Conn, err error)
}

func (h *hooks) Data(c *loop.Conn, b []byte) int {
	if h.data == nil {
		return len(b)
	}
	return h.data(c, b)
}

func (h *hooks) Drained(c *loop.Conn) {
	if h.drained != nil {
		h.drained(c)
	}
}

func (h *hooks) Closed(c *loop.Conn, err error) {
	if h.closed != nil {
		h.closed(c, err)
	}
}

// always accepts with h.
func always(h loop.Handler) func(*loop.Conn) loop.Handler {
	return func(*loop.Conn) loop.Handler { return h }
}

// send queues b as one frame; l is nil off the loops.
func send(c *loop.Conn, l *loop.Loop, b []byte) error { return c.End(l, append(c.Begin(), b...)) }

func echo(c *loop.Conn, b []byte) int {
	if err := send(c, c.Loop(), b); err != nil {
		c.Close(err)
	}
	return len(b)
}

// both runs f once on epoll and once on the portable version, with cfg changed by it.
func both(t *testing.T, f func(t *testing.T, cfg loop.Config)) {
	t.Helper()
	t.Run("native", func(t *testing.T) { f(t, loop.Config{Loops: 2}) })
	t.Run("portable", func(t *testing.T) { f(t, loop.Config{Loops: 2, Portable: true}) })
}

// run runs g until stop is called, or the test ends.
func run(t testing.TB, g *loop.Group) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func listen(t testing.TB, g *loop.Group, accept func(*loop.Conn) loop.Handler) string {
	t.Helper()
	addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", accept)
	if err != nil {
		t.Fatal(err)
	}
	if g.Secure() {
		return relay(t, addr.String())
	}
	return addr.String()
}

// serve listens and runs until the test ends.
func serve(t testing.TB, g *loop.Group, accept func(*loop.Conn) loop.Handler) string {
	t.Helper()
	addr := listen(t, g, accept)
	run(t, g)
	return addr
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc.(*net.TCPConn)
}

func write(t testing.TB, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

// expect reads as much as want is long.
func expect(t testing.TB, r io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
		t.Fatalf("read %.60q, %v; want %.60q", b, err, want)
	}
}

// on runs f on l and waits for it.
func on(l *loop.Loop, f func()) {
	done := make(chan struct{})
	l.Post(func() {
		defer close(done)
		f()
	})
	<-done
}

// until yields till ok holds; a test that waits in vain ends with the timeout of go test.
func until(ok func() bool) {
	for !ok() {
		runtime.Gosched()
	}
}

func TestEchoComesBackAndTheEndIsTold(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		h := &hooks{data: echo, closed: func(_ *loop.Conn, err error) { closed <- err }}
		nc := dial(t, serve(t, g, always(h)))
		for range 100 {
			write(t, nc, "hello")
			expect(t, nc, "hello")
		}
		nc.Close()
		if err := <-closed; !errors.Is(err, io.EOF) {
			t.Errorf("Closed with %v", err)
		}
		s := g.Stats()
		if s.Accepted != 1 || s.Closed != 1 || s.Open != 0 || s.BytesIn != 500 || s.BytesOut != 500 {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestAThousandConnectionsAreServedAtOnce(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		var gone sync.WaitGroup
		gone.Add(1000)
		g := loop.New(cfg)
		addr := serve(t, g, always(&hooks{data: echo, closed: func(*loop.Conn, error) { gone.Done() }}))
		conns := make([]*net.TCPConn, 1000)
		for i := range conns {
			conns[i] = dial(t, addr)
		}
		for range 3 {
			for i, nc := range conns {
				write(t, nc, string([]byte{byte(i), byte(i >> 8)}))
			}
			for i, nc := range conns {
				expect(t, nc, string([]byte{byte(i), byte(i >> 8)}))
			}
		}
		if n := g.Stats().Open; n != 1000 {
			t.Errorf("%d connections are open", n)
		}
		for _, nc := range conns {
			nc.Close()
		}
		gone.Wait()
	})
}

func TestConnectionsAreDealtToAllLoops(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops = 4
		seen := make(chan *loop.Conn, 8)
		g := loop.New(cfg)
		addr := serve(t, g, func(c *loop.Conn) loop.Handler {
			seen <- c
			return &hooks{}
		})
		var count [4]int
		ids := make(map[uint64]bool)
		for range 8 {
			nc := dial(t, addr)
			c := <-seen
			count[c.Loop().Index()]++
			ids[c.ID()] = true
			if c.RemoteAddr().String() != nc.LocalAddr().String() {
				t.Errorf("remote address is %v, want %v", c.RemoteAddr(), nc.LocalAddr())
			}
		}
		if count != [4]int{2, 2, 2, 2} || len(ids) != 8 {
			t.Errorf("loops got %v, %d different ids", count, len(ids))
		}
		for i, l := range g.Loops() {
			if l.Index() != i {
				t.Errorf("loop %d says it is %d", i, l.Index())
			}
		}
	})
}

func TestRefusedConnectionIsClosedWithoutClosed(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		nc := dial(t, serve(t, g, func(*loop.Conn) loop.Handler { return nil }))
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d, %v", n, err)
		}
		if s := g.Stats(); s.Refused != 1 || s.Accepted != 0 || s.Closed != 0 {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestPeerThatEndsItsSideGetsItsAnswerFirst(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		addr := serve(t, g, always(&hooks{data: echo, closed: func(_ *loop.Conn, err error) { closed <- err }}))
		for range 50 {
			nc := dial(t, addr)
			write(t, nc, "question")
			if err := nc.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(nc); string(b) != "question" || err != nil {
				t.Fatalf("read %q, %v", b, err)
			}
			if err := <-closed; !errors.Is(err, io.EOF) {
				t.Fatalf("Closed with %v", err)
			}
		}
	})
}

func TestUnixSocketIsServedAndRemoved(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		path := filepath.Join(t.TempDir(), "s")
		g := loop.New(cfg)
		if _, err := g.Listen(t.Context(), "unix", path, always(&hooks{data: echo})); err != nil {
			t.Fatal(err)
		}
		stop := run(t, g)
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		write(t, nc, "hello")
		expect(t, nc, "hello")
		stop()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket's file is still there: %v", err)
		}
	})
}

func TestListenFailsWhereTheAddressIsTaken(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		addr := serve(t, g, always(&hooks{}))
		if _, err := g.Listen(t.Context(), "tcp", addr, always(&hooks{})); err == nil {
			t.Error("the same address was given twice")
		}
	})
}

func TestListenWhileRunning(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		run(t, g)
		for range 3 {
			nc := dial(t, listen(t, g, always(&hooks{data: echo})))
			write(t, nc, "hello")
			expect(t, nc, "hello")
		}
	})
}

func TestPostedFunctionsRunInOrderOnTheLoop(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		l := g.Loops()[1]
		var got []int
		l.Post(func() { got = append(got, -1) }) // before Run
		run(t, g)
		for i := range 1000 {
			l.Post(func() { got = append(got, i) })
		}
		on(l, func() {})
		if len(got) != 1001 || got[0] != -1 {
			t.Fatalf("%d functions ran", len(got))
		}
		for i, v := range got {
			if v != i-1 {
				t.Fatalf("function %d ran at place %d", v, i)
			}
		}
	})
}

func TestNowStandsStillWithinABatch(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		var clock atomic.Int64
		cfg.Now = func() int64 { return clock.Add(1) }
		g := loop.New(cfg)
		run(t, g)
		l := g.Loops()[0]
		var before, after, later int64
		on(l, func() {
			before = l.Now()
			for range 100 {
				after = l.Now()
			}
		})
		on(l, func() { later = l.Now() })
		if before != after || later <= before {
			t.Errorf("Now was %d, %d and then %d", before, after, later)
		}
	})
}

func TestEveryAndAfterKeepTime(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		l := g.Loops()[1]
		start := time.Now()
		ticks := make(chan time.Duration, 100)
		var order []string
		l.Every(10*time.Millisecond, func() { ticks <- time.Since(start) })
		l.After(25*time.Millisecond, func() { order = append(order, "second") })
		l.After(5*time.Millisecond, func() { order = append(order, "first") })
		done := make(chan struct{})
		l.After(60*time.Millisecond, func() { close(done) })
		run(t, g)
		for i := range 3 {
			if d := <-ticks; d < time.Duration(i+1)*9*time.Millisecond {
				t.Errorf("tick %d came after %v", i, d)
			}
		}
		<-done
		if len(order) != 2 || order[0] != "first" {
			t.Errorf("timers ran as %v", order)
		}
		if d := time.Since(start); d < 59*time.Millisecond {
			t.Errorf("60 ms were over after %v", d)
		}
	})
}

func TestTimersRunWhileTrafficNeverStops(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops = 1
		g := loop.New(cfg)
		nc := dial(t, serve(t, g, always(&hooks{data: echo})))
		stop := make(chan struct{})
		var pump sync.WaitGroup
		pump.Go(func() { _, _ = io.Copy(nc, nc) })
		write(t, nc, "ball")
		g.Loops()[0].Every(time.Millisecond, func() {
			select {
			case stop <- struct{}{}:
			default:
			}
		})
		for range 5 {
			<-stop
		}
		nc.Close()
		pump.Wait()
	})
}

func TestPanicsCloseTheirConnectionAndNothingElse(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops, cfg.WriteQueue = 1, 2
		errs := make(chan error, 3)
		turn := 0
		g := loop.New(cfg)
		addr := serve(t, g, func(*loop.Conn) loop.Handler {
			turn++
			h := &hooks{data: echo, closed: func(_ *loop.Conn, err error) {
				errs <- err
				panic("in Closed")
			}}
			switch turn {
			case 1:
				panic("in accept")
			case 2:
				h.data = func(*loop.Conn, []byte) int { panic("in Data") }
			case 3:
				h.drained = func(*loop.Conn) { panic("in Drained") }
			}
			return h
		})
		for range 3 {
			nc := dial(t, addr)
			_, _ = io.WriteString(nc, "xx")
			_, _ = io.Copy(io.Discard, nc)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, loop.ErrPanic) {
				t.Errorf("Closed with %v", err)
			}
		}
		l := g.Loops()[0]
		l.Post(func() { panic("in a posted function") })
		l.After(0, func() { panic("in a timer") })
		nc := dial(t, addr)
		write(t, nc, "yy")
		expect(t, nc, "yy")
		until(func() bool { return g.Stats().Panics == 7 })
		if s := g.Stats(); s.Accepted != 3 || s.Refused != 1 || s.Open != 1 {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestManyFramesOfABatchLeaveInOneWrite(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		conns := make(chan *loop.Conn, 2)
		g := loop.New(cfg)
		addr := serve(t, g, func(c *loop.Conn) loop.Handler {
			conns <- c
			return &hooks{}
		})
		a, b := dial(t, addr), dial(t, addr)
		ca, cb := <-conns, <-conns
		if ca.RemoteAddr().String() != a.LocalAddr().String() {
			a, b = b, a
		}
		l := ca.Loop()
		on(l, func() {
			for range 100 {
				if send(ca, l, []byte("own")) != nil || send(cb, l, []byte("far")) != nil {
					t.Error("a frame was refused")
				}
			}
		})
		expect(t, a, string(bytes.Repeat([]byte("own"), 100)))
		expect(t, b, string(bytes.Repeat([]byte("far"), 100)))
		until(func() bool { return !ca.Holds() && !cb.Holds() })
		if n := g.Stats().Writes; n != 2 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestWakeUpsOfABusyLoopAreCoalesced(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops = 1
		conns := make(chan *loop.Conn, 1)
		g := loop.New(cfg)
		nc := dial(t, serve(t, g, func(c *loop.Conn) loop.Handler {
			conns <- c
			return &hooks{}
		}))
		c := <-conns
		busy, free := make(chan struct{}), make(chan struct{})
		c.Loop().Post(func() {
			close(busy)
			<-free
		})
		<-busy
		before := g.Stats()
		for range 1000 {
			if err := send(c, nil, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		close(free)
		expect(t, nc, string(bytes.Repeat([]byte("x"), 1000)))
		until(func() bool { return !c.Holds() })
		after := g.Stats()
		if w := after.Wakeups - before.Wakeups; w > 1 {
			t.Errorf("%d wake-ups", w)
		}
		if w := after.Writes - before.Writes; w != 1 {
			t.Errorf("%d writes", w)
		}
	})
}

func TestAnIdleConnectionIsSmall(t *testing.T) {
	if loop.ConnSize > 256 {
		t.Errorf("a connection takes %d bytes", loop.ConnSize)
	}
}

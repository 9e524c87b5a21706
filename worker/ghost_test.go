package worker_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

func TestReattachRetiresTheGhostOfTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		var mu sync.Mutex
		var conns []net.Conn
		// The engine does not notice that the first connection is dead: only the worker's end is closed, and a
		// pipe in between keeps the engine's end open.
		dial := func(ctx context.Context) (net.Conn, error) {
			inner, err := e.Dial(ctx)
			if err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go forward(near, inner)
			go forward(inner, near)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, far)
			return far, nil
		}
		rejected := make(chan worker.Rejection, 4)
		w := e.Worker(t, worker.Options{Name: "w", Dial: dial, Logger: silent(),
			OnRejected: func(r worker.Rejection) { rejected <- r }},
			func(w *worker.Worker) error { return w.Register("echo", echo) })
		mu.Lock()
		conns[0].Close()
		mu.Unlock()
		synctest.Wait()
		if got, err := w.Call(t.Context(), "echo", []byte("1")); err != nil || string(got) != "1" {
			t.Errorf("after the reconnect: %s, %v", got, err)
		}
		select {
		case r := <-rejected:
			t.Errorf("the worker collided with its own ghost: %+v", r)
		default:
		}
		if n := len(e.Workers()); n != 1 {
			t.Errorf("%d workers, the ghost is still there", n)
		}
	})
}

// halves lets a test break either direction of a connection and keeps the engine's end open for ever.
type halves struct {
	engine *workertest.Engine
	mu     sync.Mutex
	conns  []net.Conn // the worker's ends
	mute   func(n int) (in, out bool)
}

func (h *halves) dial(ctx context.Context) (net.Conn, error) {
	inner, err := h.engine.Dial(ctx)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	h.mu.Lock()
	defer h.mu.Unlock()
	in, out := h.mute(len(h.conns))
	h.conns = append(h.conns, far)
	go throttle(near, inner, in)
	go throttle(inner, near, out)
	return far, nil
}

// throttle forwards; if deaf, only the handshake.
func throttle(dst, src net.Conn, deaf bool) {
	b := make([]byte, 4096)
	for n := 0; ; n++ {
		k, err := src.Read(b)
		if err != nil {
			return
		}
		if deaf && n > 0 {
			continue
		}
		if _, err := dst.Write(b[:k]); err != nil {
			return
		}
	}
}

func (h *halves) close(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[n].Close()
}

func TestGhostsThatWeDoNotKnowDelayUsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		// The engine's words on the second connection never arrive, its greeting among them.
		h := &halves{engine: e, mute: func(n int) (in, out bool) { return n == 1, false }}
		w := fresh(t, worker.Options{Name: "w", Dial: h.dial})
		if err := w.Register("echo", echo); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- w.Run(ctx) }()
		if err := w.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		h.close(0)
		<-time.After(5 * time.Second)
		h.close(1)
		<-time.After(20 * time.Second)
		if s := w.State(); s.Phase == worker.Closed || s.Phase == worker.Connected {
			t.Fatalf("a worker whose ghost has its name: %+v", s)
		}
		e.Cut() // the engine finds out
		if got, err := w.Call(ctx, "echo", []byte("1")); err != nil || string(got) != "1" {
			t.Errorf("got %s, %v", got, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNameThatAnotherWorkerKeepsEndsRunInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := fresh(t, worker.Options{Name: "w", Dial: e.Dial})
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.Cut()
		synctest.Wait()
		e.Worker(t, worker.Options{Name: "w", Logger: silent()}, nil) // takes the name meanwhile
		began := time.Now()
		if err := <-ended; !errors.Is(err, worker.ErrWorkerConflict) {
			t.Errorf("Run: %v", err)
		}
		if d := time.Since(began); d < 2*time.Minute || d > 3*time.Minute {
			t.Errorf("Run gave up after %v", d)
		}
	})
}

func TestEveryGhostIsRetiredWhenConnectionsBreakQuickly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		// The engine hears nothing on the second connection, so that the first is not retired by it.
		h := &halves{engine: e, mute: func(n int) (in, out bool) { return false, n == 1 }}
		rejected := make(chan worker.Rejection, 4)
		w := fresh(t, worker.Options{Name: "w", Dial: h.dial,
			OnRejected: func(r worker.Rejection) { rejected <- r }})
		if err := w.Register("echo", echo); err != nil {
			t.Fatal(err)
		}
		run(t, w)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.close(0)
		<-time.After(5 * time.Second)
		h.close(1)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Call(t.Context(), "echo", []byte("1")); err != nil || string(got) != "1" {
			t.Errorf("got %s, %v", got, err)
		}
		if len(rejected) != 0 {
			t.Errorf("the worker collided with its own ghost: %+v", <-rejected)
		}
	})
}

// forward copies until reading fails, and does not tell the other side.
func forward(dst, src net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := src.Read(b)
		if err != nil {
			return
		}
		if _, err := dst.Write(b[:n]); err != nil {
			return
		}
	}
}

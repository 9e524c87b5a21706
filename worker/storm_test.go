package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// quick reconnects without waiting long.
var quick = worker.Reconnect{First: time.Millisecond, Factor: 1.5, Max: 20 * time.Millisecond}

// brittle breaks after a random number of bytes, in the middle of whatever is sent.
type brittle struct {
	net.Conn
	left atomic.Int64
}

func (b *brittle) Write(p []byte) (int, error) {
	left := b.left.Add(-int64(len(p)))
	if left >= 0 {
		return b.Conn.Write(p)
	}
	n := max(len(p)+int(left), 0)
	n, _ = b.Conn.Write(p[:n])
	_ = b.Conn.Close()
	return n, net.ErrClosed
}

// TestEveryCallHasOneOutcomeWhileSocketsBreak makes 10,000 calls over sockets that break all the time, on
// both sides, and counts outcomes and runs: a call that succeeded ran once, one that found no function did
// not run, and none ran twice.
func TestEveryCallHasOneOutcomeWhileSocketsBreak(t *testing.T) {
	const clients, each = 100, 100
	for _, transport := range []string{"pipe", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			e := workertest.New(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			var cuts atomic.Int64
			dial := func(ctx context.Context) (net.Conn, error) {
				var c net.Conn
				var err error
				if transport == "pipe" {
					c, err = e.Dial(ctx)
				} else {
					var url string
					if url, err = e.URL(); err == nil {
						c, err = new(net.Dialer).DialContext(ctx, "tcp", url[len("ws://"):])
					}
				}
				if err != nil {
					return nil, err
				}
				b := &brittle{Conn: c}
				r := rand.New(rand.NewPCG(seed, uint64(cuts.Add(1))))
				b.left.Store(2000 + r.Int64N(60_000))
				return b, nil
			}
			runs := make([]atomic.Int32, clients*each)
			count := func(_ context.Context, n int) (int, error) {
				runs[n].Add(1)
				return n, nil
			}
			host := start(t, "", worker.Options{Name: "host", Dial: dial, Reconnect: quick},
				func(w *worker.Worker) error { return worker.Handle(w, "count", count) })
			caller := start(t, "", worker.Options{Name: "caller", Dial: dial, Reconnect: quick}, nil)
			var ok, unknown, stopped, missing atomic.Int64
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					for k := range each {
						n := i*each + k
						got, err := worker.CallAs[int](t.Context(), caller, "count", n)
						switch {
						case err == nil && got == n:
							ok.Add(1)
							if r := runs[n].Load(); r != 1 {
								t.Errorf("call %d succeeded and ran %d times", n, r)
							}
						case errors.Is(err, worker.ErrOutcomeUnknown):
							unknown.Add(1)
						case errors.Is(err, worker.ErrStopped):
							stopped.Add(1)
						case errors.Is(err, worker.ErrNotFound): // the host is away
							missing.Add(1)
							if r := runs[n].Load(); r != 0 {
								t.Errorf("call %d found no function and ran %d times", n, r)
							}
						default:
							t.Errorf("call %d: got %d, %v", n, got, err)
						}
					}
				})
			}
			all.Wait()
			if sum := ok.Load() + unknown.Load() + stopped.Load() + missing.Load(); sum != clients*each {
				t.Errorf("%d outcomes", sum)
			}
			for n := range runs {
				if r := runs[n].Load(); r > 1 {
					t.Errorf("call %d ran %d times", n, r)
				}
			}
			if ok.Load() == 0 || cuts.Load() < 5 {
				t.Errorf("nothing was tried: %d calls succeeded, %d connections", ok.Load(), cuts.Load())
			}
			if p := caller.Stats().Pending; p != 0 {
				t.Errorf("%d calls still wait", p)
			}
			t.Logf("%d ok, %d unknown, %d stopped, %d missing, %d connections, %d of the host", ok.Load(),
				unknown.Load(), stopped.Load(), missing.Load(), cuts.Load(), host.Stats().Connects)
		})
	}
}

// TestManyGoroutinesUseOneWorker mixes all kinds of calls, cancels some, and registers all the time.
func TestManyGoroutinesUseOneWorker(t *testing.T) {
	_, host, caller := pair(t, func(w *worker.Worker) error {
		return errors.Join(w.Register("echo", echo), wait(w, "slow", time.Millisecond))
	})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for k := range 100 {
				switch (i + k) % 5 {
				case 0:
					want := fmt.Sprint(i*1000 + k)
					if got, err := caller.Call(t.Context(), "echo", []byte(want)); err != nil || string(got) != want {
						t.Errorf("got %s, %v, want %s", got, err, want)
					}
				case 1:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(k)*20*time.Microsecond)
					if _, err := caller.Call(ctx, "slow", nil); err != nil && !errors.Is(err, worker.ErrTimeout) {
						t.Error(err)
					}
					cancel()
				case 2:
					_, err := caller.CallWith(t.Context(), "slow", nil, worker.CallTimeout(time.Millisecond))
					if err != nil && !errors.Is(err, worker.ErrTimeout) {
						t.Error(err)
					}
				case 3:
					if err := caller.Void(t.Context(), "echo", nil); err != nil {
						t.Error(err)
					}
				case 4:
					name := fmt.Sprintf("f%d", i)
					if err := host.Register(name, echo); err != nil {
						t.Error(err)
					}
					if _, err := host.Call(t.Context(), name, nil); err != nil {
						t.Error(err)
					}
					host.Unregister(name)
				}
			}
		})
	}
	all.Wait()
	if s := caller.Stats(); s.Pending != 0 || s.Connects != 1 {
		t.Errorf("stats %+v", s)
	}
}

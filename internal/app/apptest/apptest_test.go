package apptest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/app/apptest"
	"github.com/plinth-run/plinth/worker"
)

func TestAGoWorkerIsCalledFromAnotherOne(t *testing.T) {
	h := apptest.Start(t, nil)
	type input struct {
		Name string `json:"name"`
	}
	h.Worker(worker.Options{Name: "greeter"}, func(w *worker.Worker) {
		if err := worker.Handle(w, "hello::greet", func(_ context.Context, in input) (string, error) {
			return "Hello, " + in.Name, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	caller, _ := h.Worker(worker.Options{Name: "caller"}, nil)
	got, err := worker.CallAs[string](t.Context(), caller, "hello::greet", input{"Ann"})
	if err != nil || got != "Hello, Ann" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = caller.Call(t.Context(), "no::such", nil)
	var e *worker.Error
	if !errors.As(err, &e) || e.Code != "function_not_found" {
		t.Errorf("got %v", err)
	}
}

func TestTheAdminDoorTellsHowItIs(t *testing.T) {
	h := apptest.Start(t, nil)
	for path, want := range map[string]string{"/livez": "ok", "/healthz": "ok", "/readyz": "ok",
		"/metrics": "plinth_memory_limit_bytes"} {
		resp, err := http.Get(h.Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// TestEveryCallHasExactlyOneOutcome makes 50,000 calls over real sockets while the workers that host the
// function die at random, without a word, and come back. Every call must end exactly once: with its own
// answer, or with an error that says what is known.
func TestEveryCallHasExactlyOneOutcome(t *testing.T) {
	const hosts, callers, each = 4, 20, 2500
	h := apptest.Start(t, nil)
	for i := range hosts {
		runMortal(t, h, i)
	}
	// The callers have two connections of their own, which live.
	var workers [2]*worker.Worker
	for i := range workers {
		workers[i], _ = h.Worker(worker.Options{Name: fmt.Sprint("caller", i), Timeout: 20 * time.Second}, nil)
	}
	var answered, total atomic.Int64
	codes := sync.Map{}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			w := workers[c%len(workers)]
			for i := range each {
				want := fmt.Sprintf(`"%d-%d"`, c, i)
				got, err := w.Call(t.Context(), fmt.Sprint("mortal::echo", i%hosts), []byte(want))
				total.Add(1)
				var e *worker.Error
				switch {
				case err == nil && string(got) == want:
					answered.Add(1)
				case err == nil:
					t.Errorf("call %s got the answer of another: %s", want, got)
				case errors.As(err, &e):
					n, _ := codes.LoadOrStore(e.Code, new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
				default:
					t.Errorf("call %s: an error without a code: %v", want, err)
				}
			}
		})
	}
	all.Wait()
	var told []string
	codes.Range(func(k, v any) bool {
		told = append(told, fmt.Sprintf("%s %d", k, v.(*atomic.Int64).Load()))
		switch k {
		case "invocation_stopped", "function_not_found", "channel_send_failed":
		default:
			t.Errorf("unexpected outcome: %s", k)
		}
		return true
	})
	t.Logf("%d calls: %d answered, %s", total.Load(), answered.Load(), strings.Join(told, ", "))
	if total.Load() != callers*each || answered.Load() == 0 {
		t.Errorf("%d calls ended, want %d", total.Load(), callers*each)
	}
	for _, w := range workers {
		if s := w.Stats(); s.Pending != 0 {
			t.Errorf("%s still waits for %d calls", w.Name(), s.Pending)
		}
	}
}

// runMortal runs a host whose connection is cut after a random number of calls, again and again.
func runMortal(t *testing.T, h *apptest.House, i int) {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	var mu sync.Mutex
	var conn net.Conn
	var left atomic.Int64
	left.Store(500)
	dialer := func(ctx context.Context) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(h.URL, "ws://"))
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		conn = nc
		left.Store(100 + r.Int64N(900))
		return nc, nil
	}
	h.Worker(worker.Options{Name: fmt.Sprint("mortal", i), Dial: dialer,
		Reconnect: worker.Reconnect{First: time.Millisecond, Max: 10 * time.Millisecond}}, func(w *worker.Worker) {
		err := w.Register(fmt.Sprint("mortal::echo", i), func(_ context.Context, p []byte) ([]byte, error) {
			if left.Add(-1) == 0 {
				mu.Lock()
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
				mu.Unlock()
			}
			return append([]byte(nil), p...), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestAGoWorkerLosesNothingWhenPlinthRestarts stops a whole Plinth and starts another on the same port.
func TestAGoWorkerLosesNothingWhenPlinthRestarts(t *testing.T) {
	h := apptest.Start(t, nil)
	address := strings.TrimPrefix(h.URL, "ws://")
	opts := func(name string) worker.Options {
		return worker.Options{Name: name, Reconnect: worker.Reconnect{First: time.Millisecond,
			Max: 5 * time.Millisecond}}
	}
	h.Worker(opts("host"), func(w *worker.Worker) {
		for i := range 20 {
			w.Register(fmt.Sprint("keep::f", i), func(context.Context, []byte) ([]byte, error) {
				return []byte("1"), nil
			})
		}
	})
	caller, _ := h.Worker(opts("caller"), nil)
	for range 3 {
		h.Stop()
		h = apptest.Start(t, map[string]string{"engine.listen": address})
		for i := range 20 {
			name := fmt.Sprint("keep::f", i)
			for { // until the host is back
				got, err := caller.Call(t.Context(), name, nil)
				var e *worker.Error
				if err == nil && string(got) == "1" {
					break
				}
				// A call that was on its way when Plinth went may have run: its outcome is not known.
				if !errors.As(err, &e) || !e.Retryable() && e.Code != "function_not_found" &&
					e.Code != "OUTCOME_UNKNOWN" {
					t.Fatalf("%s: %q, %v", name, got, err)
				}
			}
		}
	}
}

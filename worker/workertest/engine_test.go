package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

func echo(_ context.Context, payload []byte) ([]byte, error) { return payload, nil }

func hostEcho(w *worker.Worker) error { return w.Register("echo", echo) }

// quick reconnects at once.
var quick = worker.Reconnect{First: time.Millisecond, Max: time.Millisecond}

func TestWorkersOfATestCallEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		e.Worker(t, worker.Options{Name: "b"}, hostEcho)
		w := e.Worker(t, worker.Options{Name: "a"}, nil)
		if got := e.Workers(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("workers %v", got)
		}
		if !e.Hosts("", "echo") || !e.Hosts("default", "echo") || e.Hosts("other", "echo") {
			t.Error("Hosts does not tell who hosts what")
		}
		if got, err := w.Call(t.Context(), "echo", []byte("1")); err != nil || string(got) != "1" {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

func TestLoopbackPortServesTheSameEngine(t *testing.T) {
	e := workertest.New(t)
	url, err := e.URL()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.URL(); err != nil || again != url {
		t.Errorf("a second URL: %s, %v", again, err)
	}
	e.Worker(t, worker.Options{Name: "inside"}, hostEcho)
	w, err := worker.New(url, worker.Options{Name: "outside"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if got, err := w.Call(ctx, "echo", []byte("2")); err != nil || string(got) != "2" {
		t.Errorf("got %s, %v", got, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFunctionsOfTheEngineAreTheTestsOwn(t *testing.T) {
	e := workertest.New(t)
	e.Handle("engine::workers::list", func(context.Context, []byte) ([]byte, error) {
		return []byte(`[1]`), nil
	})
	e.Handle("engine::fails", func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no") })
	e.Handle("engine::fails-with", func(context.Context, []byte) ([]byte, error) {
		return nil, worker.Errorf("NOT_FOUND", "no such worker")
	})
	w := e.Worker(t, worker.Options{}, nil)
	if got, err := w.Call(t.Context(), "engine::workers::list", nil); err != nil || string(got) != "[1]" {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := w.Call(t.Context(), "engine::fails", nil); !errors.Is(err, worker.ErrFailed) {
		t.Errorf("got %v", err)
	}
	_, err := w.Call(t.Context(), "engine::fails-with", nil)
	if !errors.Is(err, &worker.Error{Code: "NOT_FOUND"}) {
		t.Errorf("got %v", err)
	}
	if err := w.Void(t.Context(), "engine::fails", nil); err != nil {
		t.Error(err)
	}
}

func TestInterceptorSeesDropsAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		e.Worker(t, worker.Options{Name: "host", Reconnect: quick, Logger: quiet()}, hostEcho)
		w := e.Worker(t, worker.Options{Name: "caller", Reconnect: quick, Logger: quiet()}, nil)
		var results atomic.Int64
		verdict := func(v workertest.Verdict, worker string, toWorker bool, typ wire.Type) {
			e.Intercept(func(m workertest.Message) workertest.Verdict {
				if m.Type == wire.TypeInvocationResult && m.Invocation != "" && len(m.Text) > 0 {
					results.Add(1)
				}
				if m.Worker == worker && m.ToWorker == toWorker && m.Type == typ && m.Function == "echo" {
					return v
				}
				return workertest.Pass
			})
		}
		for _, c := range []struct {
			name     string
			verdict  workertest.Verdict
			worker   string
			toWorker bool
			typ      wire.Type
			want     error
		}{
			{"pass", workertest.Pass, "host", true, wire.TypeInvokeFunction, nil},
			{"the call is lost", workertest.Drop, "caller", false, wire.TypeInvokeFunction, worker.ErrTimeout},
			{"the result is lost", workertest.Drop, "caller", true, wire.TypeInvocationResult, worker.ErrTimeout},
			{"the host breaks", workertest.Cut, "host", true, wire.TypeInvokeFunction, worker.ErrStopped},
			{"the host breaks later", workertest.Cut, "host", false, wire.TypeInvocationResult, worker.ErrStopped},
			{"the caller breaks", workertest.Cut, "caller", false, wire.TypeInvokeFunction, worker.ErrOutcomeUnknown},
		} {
			verdict(c.verdict, c.worker, c.toWorker, c.typ)
			if _, err := w.Call(t.Context(), "echo", nil); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
			e.Intercept(nil)
			<-time.After(time.Second) // the reconnects
			if _, err := w.Call(t.Context(), "echo", nil); err != nil {
				t.Errorf("after %s: %v", c.name, err)
			}
		}
		if results.Load() == 0 {
			t.Error("the interceptor saw no result")
		}
	})
}

func TestDelayHoldsBackWhatTheEngineSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := e.Worker(t, worker.Options{}, hostEcho)
		e.Delay(time.Second)
		began := time.Now()
		if _, err := w.Call(t.Context(), "echo", nil); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v, want 1 s to the host and 1 s back", err, time.Since(began))
		}
		go func() { _, _ = w.Call(t.Context(), "echo", nil) }()
		synctest.Wait()
		e.Cut() // a delayed connection ends at once
	})
}

func TestConnectionsAreCutAndRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := e.Worker(t, worker.Options{Name: "w", Reconnect: quick, Logger: quiet()}, hostEcho)
		if e.CutWorker("nobody") || !e.CutWorker("w") {
			t.Error("CutWorker does not tell whether it found the worker")
		}
		if _, err := w.Call(t.Context(), "echo", nil); err != nil {
			t.Error(err)
		}
		e.Refuse(true)
		if n := e.Cut(); n != 1 {
			t.Errorf("%d connections", n)
		}
		<-time.After(time.Second)
		if s := w.State(); s.Phase == worker.Connected {
			t.Errorf("state %+v", s)
		}
		e.Refuse(false)
		if err := w.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if e.Send("nobody", []byte("{}")) {
			t.Error("sent a frame to nobody")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Dial(ctx); err == nil {
			t.Error("dialed with a context that has ended")
		}
	})
}

func TestClosedEngineRefuses(t *testing.T) {
	e := workertest.Open()
	url, err := e.URL()
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	if _, err := e.Dial(t.Context()); err == nil {
		t.Error("a closed engine answers on its pipe")
	}
	if c, err := net.Dial("tcp", url[len("ws://"):]); err == nil {
		c.Close()
		t.Error("a closed engine answers on its port")
	}
}

func TestPlainRequestsAreRefused(t *testing.T) {
	e := workertest.New(t)
	c, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, err := c.Read(b)
	if err != nil || string(b[:12]) != "HTTP/1.1 400" {
		t.Errorf("answer %q, %v", b[:n], err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

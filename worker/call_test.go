package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// socket is what rooms of the house ask of whatever runs functions. A worker must fit.
type socket interface {
	Register(name string, h func(ctx context.Context, payload []byte) ([]byte, error)) error
	Call(ctx context.Context, name string, payload []byte) ([]byte, error)
}

var _ socket = (*worker.Worker)(nil)

// pair runs a host and a caller on an engine in memory.
func pair(
	t *testing.T, setup func(w *worker.Worker) error,
) (e *workertest.Engine, host, caller *worker.Worker) {
	t.Helper()
	e = workertest.New(t)
	host = e.Worker(t, worker.Options{Name: "host", Logger: silent()}, setup)
	caller = e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
	return e, host, caller
}

func echo(_ context.Context, payload []byte) ([]byte, error) { return payload, nil }

// hostEcho registers echo.
func hostEcho(w *worker.Worker) error { return w.Register("echo", echo) }

// always makes a handler with one result; none if it is empty.
func always(result string) worker.Handler {
	return func(context.Context, []byte) ([]byte, error) {
		if result == "" {
			return nil, nil
		}
		return []byte(result), nil
	}
}

func code(err error) string {
	var e *worker.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func TestCallReachesTheHandlerAndItsResultTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, host, caller := pair(t, func(w *worker.Worker) error {
			return w.Register("math::double", func(_ context.Context, p []byte) ([]byte, error) {
				return append(append([]byte(`[`), p...), `,2]`...), nil
			})
		})
		got, err := caller.Call(t.Context(), "math::double", []byte(`{"n":21}`))
		if err != nil || string(got) != `[{"n":21},2]` {
			t.Fatalf("got %s, %v", got, err)
		}
		if s := host.Stats(); s.Served != 1 || s.Failed != 0 || s.Functions != 1 {
			t.Errorf("host stats %+v", s)
		}
		if s := caller.Stats(); s.Made != 1 || s.Pending != 0 || s.Connects != 1 || s.Phase != worker.Connected {
			t.Errorf("caller stats %+v", s)
		}
	})
}

func TestAbsentAndNullStayDifferent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, caller := pair(t, func(w *worker.Worker) error {
			if err := w.Register("kind", func(_ context.Context, p []byte) ([]byte, error) {
				if p == nil {
					return []byte(`"absent"`), nil
				}
				return json.Marshal("given " + string(p))
			}); err != nil {
				return err
			}
			if err := w.Register("nothing", always("")); err != nil {
				return err
			}
			return w.Register("null", always("null"))
		})
		for payload, want := range map[string]string{"": `"absent"`, "null": `"given null"`} {
			var p []byte
			if payload != "" {
				p = []byte(payload)
			}
			if got, err := caller.Call(t.Context(), "kind", p); err != nil || string(got) != want {
				t.Errorf("payload %q: got %s, %v, want %s", payload, got, err, want)
			}
		}
		if got, err := caller.Call(t.Context(), "nothing", nil); err != nil || got != nil {
			t.Errorf("absent result: got %q, %v", got, err)
		}
		if got, err := caller.Call(t.Context(), "null", nil); err != nil || string(got) != "null" {
			t.Errorf("null result: got %q, %v", got, err)
		}
	})
}

func TestErrorsReachTheCallerWithTheirCode(t *testing.T) {
	inner := "outer::calls-missing"
	_, _, caller := pair(t, func(w *worker.Worker) error {
		handlers := map[string]worker.Handler{
			"plain": func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no money") },
			"coded": func(context.Context, []byte) ([]byte, error) {
				e := &worker.Error{Code: "card_declined", Message: "try another", Stack: "at x"}
				return nil, fmt.Errorf("charging: %w", e)
			},
			"nojson": func(context.Context, []byte) ([]byte, error) { return []byte("{oops"), nil },
			"noutf8": func(context.Context, []byte) ([]byte, error) { return []byte("\"\xff\""), nil },
			inner: func(ctx context.Context, _ []byte) ([]byte, error) {
				return w.Call(ctx, "no::such", nil)
			},
			"outer::passes-on": func(ctx context.Context, _ []byte) ([]byte, error) {
				return w.Call(ctx, "coded", nil)
			},
		}
		for name, h := range handlers {
			if err := w.Register(name, h); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range []struct{ name, code, text string }{
		{"plain", wire.CodeInvocationFailed, "no money"},
		{"coded", "card_declined", "try another"},
		{"nojson", wire.CodeInvocationFailed, "no JSON"},
		{"noutf8", wire.CodeInvocationFailed, "no JSON"},
		{"no::such", wire.CodeFunctionNotFound, "no::such"},
		{inner, wire.CodeInvocationFailed, "function_not_found"}, // not the outer function that is missing
		{"outer::passes-on", "card_declined", "try another"},
	} {
		_, err := caller.Call(t.Context(), c.name, nil)
		if code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want code %s with %q", c.name, err, c.code, c.text)
		}
	}
	_, err := caller.Call(t.Context(), "no::such", nil)
	if !errors.Is(err, worker.ErrNotFound) || errors.Is(err, worker.ErrTimeout) {
		t.Errorf("errors.Is does not go by code: %v", err)
	}
	var e *worker.Error
	if _, err = caller.Call(t.Context(), "coded", nil); !errors.As(err, &e) || e.Stack != "at x" {
		t.Errorf("the remote stack is lost: %#v", err)
	}
}

func TestPanicFailsItsCallAndTheWorkerLivesOn(t *testing.T) {
	_, host, caller := pair(t, func(w *worker.Worker) error {
		panics := func(context.Context, []byte) ([]byte, error) { panic("on purpose") }
		exits := func(context.Context, []byte) ([]byte, error) {
			runtime.Goexit()
			return nil, nil
		}
		return errors.Join(w.Register("panics", panics), w.Register("exits", exits), w.Register("echo", echo))
	})
	for range 3 {
		_, err := caller.Call(t.Context(), "panics", nil)
		var e *worker.Error
		if !errors.As(err, &e) || !errors.Is(err, worker.ErrFailed) || e.Message != "on purpose" || e.Stack == "" {
			t.Fatalf("panic: got %v", err)
		}
		if _, err := caller.Call(t.Context(), "exits", nil); !errors.Is(err, worker.ErrFailed) {
			t.Fatalf("exit of the goroutine: got %v", err)
		}
		if got, err := caller.Call(t.Context(), "echo", []byte("1")); err != nil || string(got) != "1" {
			t.Fatalf("after it: got %s, %v", got, err)
		}
	}
	if s := host.Stats(); s.Panics != 3 || s.Failed != 6 || s.Served != 9 || s.Connects != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestVoidDoesNotWaitAndEnqueueGivesTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan string, 4)
		_, host, caller := pair(t, func(w *worker.Worker) error {
			return w.Register("log", func(ctx context.Context, p []byte) ([]byte, error) {
				inv, _ := worker.Current(ctx)
				ran <- inv.ID() + string(p)
				return []byte(`"nobody reads this"`), nil
			})
		})
		if err := caller.Void(t.Context(), "log", []byte("1")); err != nil {
			t.Fatal(err)
		}
		if got := <-ran; got != "1" {
			t.Errorf("void call: ran as %q, want no id", got)
		}
		if err := caller.Void(t.Context(), "no::such", nil); err != nil {
			t.Errorf("void call of a missing function: %v", err)
		}
		receipt, err := caller.Enqueue(t.Context(), "mail", "log", []byte("2"))
		if err != nil || !strings.HasPrefix(receipt, "receipt-") {
			t.Errorf("receipt %q, %v", receipt, err)
		}
		if got := <-ran; got != "2" {
			t.Errorf("queued call: ran as %q", got)
		}
		synctest.Wait()
		if s := host.Stats(); s.Served != 2 || s.Lost != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestWhatMustNotTravelIsRefusedHere(t *testing.T) {
	e, _, caller := pair(t, func(w *worker.Worker) error { return w.Register("echo", echo) })
	var mu sync.Mutex
	calls := 0
	e.Intercept(func(m workertest.Message) workertest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if m.Type == wire.TypeInvokeFunction {
			calls++
		}
		return workertest.Pass
	})
	ctx := t.Context()
	for _, p := range []string{`{`, `1,"function_id":"x"`, `{"a":1}}`, "", " ", "\"\xff\"", "{\"\xff\":1}",
		"nul"} {
		if _, err := caller.Call(ctx, "echo", []byte(p)); code(err) != worker.CodeInvalidJSON {
			t.Errorf("payload %q: got %v", p, err)
		}
		if err := caller.Void(ctx, "echo", []byte(p)); code(err) != worker.CodeInvalidJSON {
			t.Errorf("void payload %q: got %v", p, err)
		}
	}
	for want, do := range map[string]func() error{
		worker.CodeInvalidJSON: func() error {
			_, err := caller.CallWith(ctx, "echo", nil, worker.CallMetadata([]byte("{")))
			return err
		},
		wire.CodeInvalidArguments: func() error {
			_, err := caller.Call(ctx, strings.Repeat("x", 513), nil)
			return err
		},
		wire.CodeInvalidNamespace: func() error {
			_, err := caller.CallWith(ctx, "echo", nil, worker.CallNamespace(" "))
			return err
		},
		wire.CodeSerializationError: func() error {
			_, err := worker.CallAs[int](ctx, caller, "echo", func() {})
			return err
		},
	} {
		if err := do(); code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if calls != 0 {
		t.Errorf("%d calls reached the engine", calls)
	}
}

func TestOversizedMessagesFailOnlyTheirCall(t *testing.T) {
	const most = 64 << 10
	e := workertest.New(t)
	big := []byte(`"` + strings.Repeat("x", 2*most) + `"`)
	host := e.Worker(t, worker.Options{Name: "host", MaxMessage: most, Logger: silent()},
		func(w *worker.Worker) error {
			return errors.Join(w.Register("echo", echo), w.Register("swell", always(string(big))))
		})
	large := e.Worker(t, worker.Options{Name: "large", Logger: silent()}, func(w *worker.Worker) error {
		return w.Register("large::swell", always(string(big)))
	})
	small := e.Worker(t, worker.Options{Name: "small", MaxMessage: most, Logger: silent()}, nil)

	var others sync.WaitGroup
	for range 50 { // calls around the large ones are not hurt
		others.Go(func() {
			if got, err := small.Call(t.Context(), "echo", []byte("7")); err != nil || string(got) != "7" {
				t.Errorf("another call: %s, %v", got, err)
			}
		})
	}
	for name, do := range map[string]func() error{
		"payload too large for the sender": func() error {
			_, err := small.Call(t.Context(), "echo", big)
			return err
		},
		"payload just too large with its frame": func() error {
			_, err := small.Call(t.Context(), "echo", []byte(`"`+strings.Repeat("x", most-12)+`"`))
			return err
		},
		"payload too large for the host": func() error {
			_, err := large.Call(t.Context(), "echo", big)
			return err
		},
		"result too large for the host": func() error {
			_, err := large.Call(t.Context(), "swell", nil)
			return err
		},
		"result too large for the caller": func() error {
			_, err := small.Call(t.Context(), "large::swell", nil)
			return err
		},
	} {
		if err := do(); !errors.Is(err, worker.ErrTooLarge) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	others.Wait()
	for _, w := range []*worker.Worker{host, large, small} {
		if s := w.Stats(); s.Connects != 1 || s.Pending != 0 {
			t.Errorf("%s: %+v", w.Name(), s)
		}
	}
	if host.Stats().Oversized != 1 || small.Stats().Oversized != 1 {
		t.Errorf("oversized: host %d, small %d", host.Stats().Oversized, small.Stats().Oversized)
	}
}

func TestLargeMessagesArriveWhole(t *testing.T) {
	_, _, caller := pair(t, func(w *worker.Worker) error { return w.Register("echo", echo) })
	for _, n := range []int{100, 16<<10 - 100, 16 << 10, 64 << 10, 70_000, 1 << 20} {
		p := []byte(`"` + strings.Repeat("a", n) + `"`)
		if got, err := caller.Call(t.Context(), "echo", p); err != nil || string(got) != string(p) {
			t.Errorf("%d bytes: got %d bytes, %v", n, len(got), err)
		}
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceAndBaggageGoThroughHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type seen struct {
			traceparent, baggage string
			caller               worker.Caller
		}
		got := make(chan seen, 1)
		_, _, caller := pair(t, func(w *worker.Worker) error {
			if err := w.Register("inner", func(ctx context.Context, _ []byte) ([]byte, error) {
				v, _ := worker.Current(ctx)
				got <- seen{v.Traceparent(), v.Baggage(), v.Caller()}
				return nil, nil
			}); err != nil {
				return err
			}
			return w.Register("outer", func(ctx context.Context, p []byte) ([]byte, error) {
				if p != nil {
					ctx = worker.WithTrace(ctx, "", "b=2")
				}
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return w.Call(ctx, "inner", nil)
			})
		})
		ctx := worker.WithTrace(t.Context(), parent, "a=1")
		if _, err := caller.Call(ctx, "outer", nil); err != nil {
			t.Fatal(err)
		}
		s := <-got
		if s.traceparent != parent || s.baggage != "a=1" || s.caller.FunctionID != "outer" ||
			s.caller.WorkerName != "host" || s.caller.InvocationID == "" || s.caller.WorkerID == "" {
			t.Errorf("inner saw %+v", s)
		}
		if _, err := caller.Call(ctx, "outer", []byte("1")); err != nil {
			t.Fatal(err)
		}
		if s := <-got; s.traceparent != "" || s.baggage != "b=2" || s.caller.FunctionID != "outer" {
			t.Errorf("with a trace of its own inner saw %+v", s)
		}
		if _, ok := worker.Current(ctx); ok {
			t.Error("a context outside of handlers has an invocation")
		}
	})
}

func TestInvocationMayBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := make(chan *worker.Invocation, 100)
		_, _, caller := pair(t, func(w *worker.Worker) error {
			return w.Register("keep", func(ctx context.Context, _ []byte) ([]byte, error) {
				v, _ := worker.Current(ctx)
				kept <- v
				return nil, nil
			})
		})
		long := strings.Repeat("m", 300) // longer than what lies inline
		for i := range 100 {
			m := fmt.Appendf(nil, `{"n":%d,"long":"%s"}`, i, long[:i*3])
			if _, err := caller.CallWith(t.Context(), "keep", nil, worker.CallMetadata(m)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			v := <-kept
			if want := fmt.Sprintf(`{"n":%d,"long":"%s"}`, i, long[:i*3]); string(v.Metadata()) != want {
				t.Fatalf("call %d: metadata %s", i, v.Metadata())
			}
			if v.Function() != "keep" || v.Caller().WorkerName != "caller" || v.Caller().FunctionID != "" {
				t.Fatalf("call %d: %s by %+v", i, v.Function(), v.Caller())
			}
		}
	})
}

func TestCallsGoToTheNamespaceOfTheWorkerUnlessToldOtherwise(t *testing.T) {
	e := workertest.New(t)
	where := func(space string) func(w *worker.Worker) error {
		return func(w *worker.Worker) error {
			return w.Register("where", always(`"`+space+`"`))
		}
	}
	e.Worker(t, worker.Options{Name: "a", Logger: silent()}, where("default"))
	w := e.Worker(t, worker.Options{Name: "b", Namespace: "billing", Logger: silent()}, where("billing"))
	e.Handle("engine::ping", func(context.Context, []byte) ([]byte, error) { return []byte(`"engine"`), nil })
	if !e.Hosts("billing", "where") || !e.Hosts("", "where") {
		t.Fatal("the functions are not where they belong")
	}
	for _, c := range []struct {
		name, want string
		opts       []worker.CallOption
	}{
		{"where", "billing", nil},
		{"where", "default", []worker.CallOption{worker.CallNamespace("default")}},
		{"engine::ping", "engine", nil},
	} {
		if got, err := worker.CallAs[string](t.Context(), w, c.name, nil, c.opts...); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	_, err := w.CallWith(t.Context(), "where", nil, worker.CallNamespace("other"))
	if !errors.Is(err, worker.ErrNotFound) {
		t.Errorf("no fallback to another namespace: got %v", err)
	}
}

func TestUnregisteredFunctionIsGone(t *testing.T) {
	_, host, caller := pair(t, func(w *worker.Worker) error { return w.Register("echo", echo) })
	if !host.Unregister("echo") || host.Unregister("echo") {
		t.Error("Unregister does not tell whether there was one")
	}
	// The frame of a later call of the same worker is behind the one that unregisters.
	if _, err := host.Call(t.Context(), "echo", nil); !errors.Is(err, worker.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if err := host.Register("echo", echo); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Call(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	if _, err := caller.Call(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
}

func TestBadRegistrationsAreRefused(t *testing.T) {
	w, err := worker.New("", worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	large := []byte(`"` + strings.Repeat("x", 256<<10) + `"`)
	if err := w.Register("echo", echo); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"the same name again": w.Register("echo", echo),
		"empty name":          w.Register("", echo),
		"blank name":          w.Register("  ", echo),
		"long name":           w.Register(strings.Repeat("x", 513), echo),
		"no UTF-8":            w.Register("\xff", echo),
		"engine's prefix":     w.Register("engine::x", echo),
		"no handler":          w.Register("x", nil),
		"no typed handler":    worker.Handle[int, int](w, "x", nil),
		"metadata":            w.RegisterWith("x", echo, worker.Metadata(func() {})),
		"metadata, replicas":  w.RegisterWith("x", echo, worker.Metadata(1), worker.Replicas()),
		"format":              w.RegisterWith("x", echo, worker.Formats([]byte("{"), nil)),
		"large format":        w.RegisterWith("x", echo, worker.Formats(nil, large)),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if n := w.Stats().Functions; n != 1 {
		t.Errorf("%d functions", n)
	}
}

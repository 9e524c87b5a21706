package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// hang registers a handler that waits for release, and tells how many ran at most at a time.
func hang(w *worker.Worker, release chan struct{}, running, most *atomic.Int64) error {
	return w.Register("hang", func(_ context.Context, p []byte) ([]byte, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-release
		return p, nil
	})
}

func TestCallsTimeOutByTheirOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var running, most atomic.Int64
		_, _, caller := pair(t, func(w *worker.Worker) error { return hang(w, release, &running, &most) })
		type result struct {
			after time.Duration
			err   error
		}
		call := func(ctx context.Context, opts ...worker.CallOption) chan result {
			c := make(chan result, 1)
			began := time.Now()
			go func() {
				_, err := caller.CallWith(ctx, "hang", nil, opts...)
				c <- result{time.Since(began), err}
			}()
			return c
		}
		soon, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		late, stop2 := context.WithTimeout(t.Context(), time.Minute)
		defer stop2()
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		for _, c := range []struct {
			name   string
			result chan result
			after  time.Duration
			is     []error
		}{
			{"the default", call(t.Context()), 30 * time.Second, []error{worker.ErrTimeout}},
			{"of the call", call(t.Context(), worker.CallTimeout(time.Second/2)), time.Second / 2,
				[]error{worker.ErrTimeout}},
			{"of the context", call(soon), 3 * time.Second,
				[]error{worker.ErrTimeout, context.DeadlineExceeded}},
			{"of the context, over the default", call(late), time.Minute, []error{worker.ErrTimeout}},
			{"of the call, with a context", call(late, worker.CallTimeout(5*time.Second)), 5 * time.Second,
				[]error{worker.ErrTimeout}},
			{"of the context, before that of the call", call(soon, worker.CallTimeout(5*time.Second)), 3 * time.Second,
				[]error{worker.ErrTimeout}},
			{"canceled", call(canceled), 7 * time.Second, []error{worker.ErrCanceled, context.Canceled}},
		} {
			r := <-c.result
			if r.after < c.after || r.after > c.after+10*time.Millisecond {
				t.Errorf("%s: after %v, want %v", c.name, r.after, c.after)
			}
			for _, is := range c.is {
				if !errors.Is(r.err, is) {
					t.Errorf("%s: %v is not %v", c.name, r.err, is)
				}
			}
		}
		if s := caller.Stats(); s.Pending != 0 || s.Late != 0 {
			t.Errorf("before the answers: %+v", s)
		}
		close(release)
		synctest.Wait()
		if s := caller.Stats(); s.Late != 7 {
			t.Errorf("%d late results, want 7", s.Late)
		}
		if _, err := caller.Call(t.Context(), "hang", nil); err != nil {
			t.Errorf("after the late ones: %v", err)
		}
	})
}

func TestNegativeTimeoutIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := e.Worker(t, worker.Options{Timeout: -1, Logger: silent()}, func(w *worker.Worker) error {
			return w.Register("slow", func(context.Context, []byte) ([]byte, error) {
				<-time.After(24 * time.Hour)
				return nil, nil
			})
		})
		if _, err := w.Call(t.Context(), "slow", nil); err != nil {
			t.Error(err)
		}
	})
}

func TestRepeatedAndForeignResultsAreCountedAndHurtNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, caller := pair(t, func(w *worker.Worker) error { return w.Register("echo", echo) })
		var mu sync.Mutex
		var answers [][]byte
		e.Intercept(func(m workertest.Message) workertest.Verdict {
			if m.ToWorker && m.Type == wire.TypeInvocationResult {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, append([]byte(nil), m.Text...))
			}
			return workertest.Pass
		})
		for i := range 5 {
			want := fmt.Sprint(i)
			if got, err := caller.Call(t.Context(), "echo", []byte(want)); err != nil || string(got) != want {
				t.Errorf("call %d: %s, %v", i, got, err)
			}
			mu.Lock()
			for _, a := range answers { // all answers so far, once more
				e.Send("caller", a)
			}
			mu.Unlock()
			e.Send("caller", []byte(`{"type":"invocationresult","invocation_id":"7d6f0000-0000-4000","result":1}`))
			synctest.Wait()
		}
		if s := caller.Stats(); s.Late != 1+2+3+4+5+5 || s.Pending != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestConcurrencyIsBoundedAndOverloadIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		release := make(chan struct{})
		var running, most atomic.Int64
		host := e.Worker(t, worker.Options{Name: "host", Concurrency: 4, Waiting: 6, Logger: silent()},
			func(w *worker.Worker) error { return hang(w, release, &running, &most) })
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		results := make(chan error, 15)
		for range 15 {
			go func() {
				_, err := caller.Call(t.Context(), "hang", nil)
				results <- err
			}()
		}
		synctest.Wait()
		if s := host.Stats(); s.Running != 4 || s.Waiting != 6 || s.Refused != 5 {
			t.Errorf("with 15 calls: %+v", s)
		}
		for range 5 {
			err := <-results
			var e1 *worker.Error
			if !errors.As(err, &e1) || !errors.Is(err, worker.ErrHostOverloaded) || !e1.Retryable() {
				t.Errorf("over the bound: %v", err)
			}
		}
		close(release)
		for range 10 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if most.Load() != 4 {
			t.Errorf("%d handlers ran at a time, want 4", most.Load())
		}
	})
}

func TestBytesOfWaitingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		release := make(chan struct{})
		var running, most atomic.Int64
		host := e.Worker(t, worker.Options{Name: "host", Concurrency: 1, WaitingBytes: 5000, Logger: silent()},
			func(w *worker.Worker) error { return hang(w, release, &running, &most) })
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		payload := []byte(`"` + strings.Repeat("x", 2000) + `"`)
		results := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := caller.Call(t.Context(), "hang", payload)
				results <- err
			}()
			synctest.Wait()
		}
		if s := host.Stats(); s.Running != 1 || s.Waiting != 2 || s.Refused != 7 {
			t.Errorf("stats %+v", s)
		}
		close(release)
		ok := 0
		for range 10 {
			if err := <-results; err == nil {
				ok++
			} else if !errors.Is(err, worker.ErrHostOverloaded) {
				t.Error(err)
			}
		}
		if ok != 3 {
			t.Errorf("%d calls ran, want 3", ok)
		}
	})
}

func TestOfflineCallsAreBoundedAndAbandonedOnesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := fresh(t, worker.Options{Name: "w", Dial: e.Dial, SendBuffer: 10_000})
		if err := w.Register("echo", echo); err != nil {
			t.Fatal(err)
		}
		payload := []byte(`"` + strings.Repeat("x", 900) + `"`)
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 30)
		call := func(ctx context.Context) {
			go func() {
				got, err := w.Call(ctx, "echo", payload)
				if err == nil && string(got) != string(payload) {
					err = fmt.Errorf("got %d bytes", len(got))
				}
				results <- err
			}()
			synctest.Wait()
		}
		for range 12 {
			call(ctx)
		}
		refused := len(results)
		if refused == 0 || refused > 4 {
			t.Fatalf("%d of 12 calls were refused", refused)
		}
		for range refused {
			if err := <-results; !errors.Is(err, worker.ErrCallerOverloaded) {
				t.Errorf("over the bound: %v", err)
			}
		}
		cancel()
		synctest.Wait()
		for range 12 - refused {
			if err := <-results; !errors.Is(err, worker.ErrCanceled) {
				t.Errorf("canceled: %v", err)
			}
		}
		for range 8 {
			call(t.Context())
		}
		if n := len(results); n != 0 {
			t.Fatalf("%d calls found no room in a queue of calls nobody waits for: %v", n, <-results)
		}
		run(t, w)
		for range 8 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if s := w.Stats(); s.Served != 8 {
			t.Errorf("%d calls ran, want 8", s.Served)
		}
	})
}

func TestACallLargerThanTheSendBufferGoesAlone(t *testing.T) {
	e := workertest.New(t)
	w := e.Worker(t, worker.Options{SendBuffer: 1000, Logger: silent()}, hostEcho)
	payload := []byte(`"` + strings.Repeat("x", 100_000) + `"`)
	if got, err := w.Call(t.Context(), "echo", payload); err != nil || len(got) != len(payload) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestResultsWaitForRoomWhenTheEngineDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		var mu sync.Mutex
		var gate *stuckConn
		dial := func(ctx context.Context) (net.Conn, error) {
			c, err := e.Dial(ctx)
			mu.Lock()
			defer mu.Unlock()
			gate = &stuckConn{Conn: c}
			return gate, err
		}
		host := e.Worker(t, worker.Options{Name: "host", SendBuffer: 5000, Logger: silent(), Dial: dial}, hostEcho)
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		open := make(chan struct{})
		gate.mu.Lock()
		gate.stuck = open
		gate.mu.Unlock()
		payload := []byte(`"` + strings.Repeat("x", 1000) + `"`)
		results := make(chan error, 50)
		for range 50 {
			go func() {
				_, err := caller.Call(t.Context(), "echo", payload)
				results <- err
			}()
		}
		synctest.Wait()
		if s := host.Stats(); s.Queued > 5000 || s.Running < 40 || s.Lost != 0 {
			t.Errorf("while the engine does not read: %+v", s)
		}
		// The connection breaks: the results have nowhere to go and are counted.
		gate.Conn.Close()
		close(open)
		for range 50 {
			if err := <-results; !errors.Is(err, worker.ErrStopped) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if s := host.Stats(); s.Lost != 50 || s.Running != 0 {
			t.Errorf("after the break: %+v", s)
		}
	})
}

func TestCallsWithoutAnOutcomeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		release := make(chan struct{})
		var running, most atomic.Int64
		w := e.Worker(t, worker.Options{MaxCalls: 3, Logger: silent()},
			func(w *worker.Worker) error { return hang(w, release, &running, &most) })
		results := make(chan error, 4)
		for range 4 {
			go func() {
				_, err := w.Call(t.Context(), "hang", nil)
				results <- err
			}()
		}
		synctest.Wait()
		if err := <-results; !errors.Is(err, worker.ErrCallerOverloaded) {
			t.Errorf("the fourth: %v", err)
		}
		close(release)
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// countConn counts the writes of a worker.
type countConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestCallsMadeTogetherLeaveTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 500
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		var writes atomic.Int64
		counted := func(name string, setup func(*worker.Worker) error) *worker.Worker {
			dial := func(ctx context.Context) (net.Conn, error) {
				c, err := e.Dial(ctx)
				return countConn{c, &writes}, err
			}
			return e.Worker(t, worker.Options{Name: name, Logger: silent(), Dial: dial}, setup)
		}
		counted("host", func(w *worker.Worker) error { return w.Register("echo", echo) })
		caller := counted("caller", nil)
		synctest.Wait()
		writes.Store(0)
		start := make(chan struct{})
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				<-start
				if _, err := caller.Call(t.Context(), "echo", []byte("1")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(start)
		all.Wait()
		// 500 calls and 500 results; measured: 9 to 20.
		if w := writes.Load(); w > n/5 {
			t.Errorf("%d writes for %d calls that were made together", w, n)
		}
		writes.Store(0)
		for range 10 {
			if _, err := caller.Call(t.Context(), "echo", []byte("1")); err != nil {
				t.Error(err)
			}
		}
		if w := writes.Load(); w != 20 {
			t.Errorf("%d writes for ten calls one after the other and their results, want 20", w)
		}
	})
}

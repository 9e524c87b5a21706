package worker_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// wait registers a handler that takes d of time, or less if its context ends.
func wait(w *worker.Worker, name string, d time.Duration, opts ...worker.FunctionOption) error {
	return w.RegisterWith(name, func(ctx context.Context, _ []byte) ([]byte, error) {
		select {
		case <-time.After(d):
			return []byte(`"done"`), nil
		case <-ctx.Done():
			return nil, worker.Errorf("gave_up", "%v", ctx.Err())
		}
	}, opts...)
}

func TestDrainFinishesWhatRunsAndTakesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		var seen states
		host := fresh(t, worker.Options{Name: "host", Dial: e.Dial, OnState: seen.add, Concurrency: 1})
		if err := wait(host, "work", 2*time.Second); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		for range 2 { // one runs, one waits for a handler: both were taken
			go func() {
				_, err := caller.Call(t.Context(), "work", nil)
				results <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		_, err := caller.Call(t.Context(), "work", nil)
		var e1 *worker.Error
		if !errors.As(err, &e1) || !errors.Is(err, worker.ErrDraining) || !e1.Retryable() {
			t.Errorf("new call: %v", err)
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("a call that was taken: %v", err)
			}
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("Run took %v to end, want the 4 s of the two calls", d)
		}
		if got := seen.phases(); got != "connecting connected draining closed" {
			t.Errorf("phases: %s", got)
		}
		if err := host.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
		if err := host.Register("late", echo); !errors.Is(err, worker.ErrClosed) {
			t.Errorf("Register after Run: %v", err)
		}
	})
}

func TestHandlersMayCallWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		helper := e.Worker(t, worker.Options{Name: "helper", Logger: silent()},
			func(w *worker.Worker) error { return w.Register("help", echo) })
		host := fresh(t, worker.Options{Name: "host", Dial: e.Dial})
		if err := host.Register("work", func(ctx context.Context, _ []byte) ([]byte, error) {
			<-time.After(time.Second)
			return host.Call(ctx, "help", []byte("5"))
		}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Millisecond, func() { _ = stop() })
		if got, err := helper.Call(t.Context(), "work", nil); err != nil || string(got) != "5" {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

func TestGraceTimeIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		host := fresh(t, worker.Options{Name: "host", Dial: e.Dial, Grace: 3 * time.Second})
		release := make(chan struct{})
		deaf1 := func(context.Context, []byte) ([]byte, error) {
			<-release
			return nil, nil
		}
		if err := errors.Join(wait(host, "polite", time.Hour), host.Register("deaf", deaf1)); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		polite, deaf := make(chan error, 1), make(chan error, 1)
		go func() { _, err := caller.Call(t.Context(), "polite", nil); polite <- err }()
		go func() { _, err := caller.Call(t.Context(), "deaf", nil); deaf <- err }()
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d < 3*time.Second || d > 6*time.Second {
			t.Errorf("Run took %v to end", d)
		}
		if err := <-polite; code(err) != "gave_up" {
			t.Errorf("a handler that heeds its context still answers: %v", err)
		}
		if err := <-deaf; !errors.Is(err, worker.ErrStopped) {
			t.Errorf("a handler that does not is stopped: %v", err)
		}
		close(release)
	})
}

func TestDrainingReplicaLeavesItsCallsToTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		host := fresh(t, worker.Options{Name: "host", Dial: e.Dial})
		if err := errors.Join(wait(host, "shared", time.Second, worker.Replicas()),
			wait(host, "own", time.Second)); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = host.Call(t.Context(), "own", nil) }()
		synctest.Wait()
		time.AfterFunc(0, func() { _ = stop() })
		<-time.After(time.Millisecond)
		synctest.Wait()
		if e.Hosts("", "shared") || !e.Hosts("", "own") {
			t.Error("only the function with replicas is to be taken back")
		}
	})
}

func TestDrainWithoutAConnectionWaitsForHandlersToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		host := fresh(t, worker.Options{Name: "host", Dial: e.Dial})
		finished := make(chan struct{})
		if err := host.Register("work", func(context.Context, []byte) ([]byte, error) {
			<-time.After(2 * time.Second)
			close(finished)
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = host.Call(t.Context(), "work", nil) }()
		synctest.Wait()
		e.Refuse(true)
		e.Cut()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		select {
		case <-finished:
		default:
			t.Error("Run returned before the handler")
		}
		if s := host.Stats(); s.Lost != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestCallsThatWaitWhenRunEndsHaveAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, other := pair(t, func(w *worker.Worker) error { return wait(w, "slow", time.Hour) })
		_ = other
		caller := fresh(t, worker.Options{Name: "third", Dial: e.Dial})
		stop := run(t, caller)
		if err := caller.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { _, err := caller.Call(t.Context(), "slow", nil); result <- err }()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, worker.ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
	})
}

func TestVoidCallsLeaveBeforeTheWorkerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan struct{}, 1000)
		e, _, _ := pair(t, func(w *worker.Worker) error {
			return w.Register("log", func(context.Context, []byte) ([]byte, error) {
				ran <- struct{}{}
				return nil, nil
			})
		})
		w := fresh(t, worker.Options{Name: "short", Dial: e.Dial})
		for range 500 {
			if err := w.Void(t.Context(), "log", []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
		stop := run(t, w)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			if err := w.Void(t.Context(), "log", []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(ran); n != 1000 {
			t.Errorf("%d of 1000 void calls arrived", n)
		}
	})
}

// slowConn takes its time for each write.
type slowConn struct{ net.Conn }

func (s slowConn) Write(b []byte) (int, error) {
	if len(b) > 10_000 {
		<-time.After(5 * time.Second)
	}
	return s.Conn.Write(b)
}

func TestSlowConnectionHasTheGraceTimeToTakeTheLastResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		host := fresh(t, worker.Options{Name: "host", Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := e.Dial(ctx)
			return slowConn{c}, err
		}})
		if err := host.Register("large", always(`"`+strings.Repeat("x", 20_000)+`"`)); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() {
			_, err := caller.Call(t.Context(), "large", nil)
			result <- err
		}()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := <-result; err != nil {
			t.Errorf("the last result: %v", err)
		}
	})
}

func TestDeadlineOfAFunctionEndsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, caller := pair(t, func(w *worker.Worker) error {
			return wait(w, "work", time.Hour, worker.Deadline(time.Second))
		})
		began := time.Now()
		if _, err := caller.Call(t.Context(), "work", nil); code(err) != "gave_up" {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("after %v", d)
		}
	})
}

func TestRunSurvivesAnyOrderOfStartAndStop(t *testing.T) {
	e := workertest.New(t)
	host := e.Worker(t, worker.Options{Name: "host", Logger: silent()}, hostEcho)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	w := fresh(t, worker.Options{Dial: e.Dial})
	if err := w.Run(canceled); err != nil {
		t.Errorf("Run of a context that has ended: %v", err)
	}
	for range 10 {
		ended := make(chan error, 50)
		for i := range 50 {
			w := fresh(t, worker.Options{Dial: e.Dial})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- w.Run(ctx) }()
			go func() {
				if i%3 == 0 {
					_, _ = w.Call(ctx, "echo", nil)
				}
				if i%3 == 1 {
					_ = w.Ready(ctx)
				}
				cancel()
				cancel()
			}()
		}
		for range 50 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := host.Call(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
}

func TestRunEndsWhileItConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t, worker.Options{Dial: func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		stop := run(t, w)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

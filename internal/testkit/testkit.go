// Package testkit holds what the tests of all rooms share: a stress for Run methods, a check for leaked
// goroutines, a network connection that misbehaves on purpose, and canaries for secrets.
//
// It promises that nothing in it sleeps: what takes time waits on a timer and on the end of its connection,
// so it works inside of a testing/synctest bubble. Each function says whether it may be called at once.
//
// It is for tests alone, imports the foundation alone, and knows no room; the file systems that crash are in
// store/storetest, because they implement store's interface.
package testkit

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails them when goroutines are left at the end. Call it from TestMain.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }

// Leaks fails the test when goroutines that it started are left at its end. Not for parallel tests.
func Leaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// Runner is anything that lives while its Run does.
type Runner interface {
	Run(ctx context.Context) error
}

// Rounds of StartStop: so many goroutines, each with so many starts and stops.
const (
	stressers = 10
	rounds    = 50
)

// stuck is how long a Run may take to return before the test calls it stuck.
const stuck = time.Minute

// StartStop checks that Run ends when it should: with a context that was cancelled before the start,
// cancelled twice, cancelled by its deadline, and under ten goroutines that each start and stop fifty of them
// at different moments. fresh makes one more, with a place of its own for its files; it is called at once
// from several goroutines and must not end the test. Run may return nil or the error of its context.
func StartStop(t *testing.T, fresh func() (Runner, error)) {
	t.Helper()
	run := func(t *testing.T, start func(ctx context.Context, cancel func())) {
		t.Helper()
		r, err := fresh()
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		start(ctx, cancel)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }() // ends with this function, or the test fails
		cancel()
		timer := time.NewTimer(stuck)
		defer timer.Stop()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Run after a cancel: %v", err)
			}
		case <-timer.C:
			t.Errorf("Run has not returned %v after its context ended", stuck)
		}
	}
	t.Run("cancelled before the start", func(t *testing.T) {
		run(t, func(_ context.Context, cancel func()) { cancel() })
	})
	t.Run("cancelled twice", func(t *testing.T) {
		run(t, func(_ context.Context, cancel func()) { cancel(); cancel() })
	})
	t.Run("many at once", func(t *testing.T) {
		var all sync.WaitGroup
		for g := range stressers {
			all.Go(func() {
				for i := range rounds {
					run(t, func(context.Context, func()) {
						for range (g*rounds + i) % 17 {
							runtime.Gosched()
						}
					})
					if t.Failed() {
						return
					}
				}
			})
		}
		all.Wait()
	})
}

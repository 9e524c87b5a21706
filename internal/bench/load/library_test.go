package load

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stub is a client library whose calls take a fixed time.
type stub struct {
	took   time.Duration
	code   func(n int64) string
	hang   func(n int64) bool
	calls  atomic.Int64
	closed atomic.Bool
}

func (s *stub) Call(ctx context.Context, _, _ int, _ []byte) string {
	n := s.calls.Add(1)
	if s.hang != nil && s.hang(n) {
		<-ctx.Done()
		return "CANCELLED"
	}
	if err := pause(ctx, s.took); err != nil {
		return "CANCELLED"
	}
	if s.code != nil {
		return s.code(n)
	}
	return ""
}

func (s *stub) Close() { s.closed.Store(true) }

func connectNothing(context.Context, *Job) (Session, error) {
	return &stub{took: time.Microsecond}, nil
}

// library runs a job against a stub in a bubble.
func library(t *testing.T, s *stub, job *Job) (results []*Result, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		job.Dialect = "stub"
		p := Protocols{Library: map[string]Connect{
			"stub": func(context.Context, *Job) (Session, error) { return s, nil },
		}}
		results, _, err = do(t.Context(), job, p)
	})
	if !s.closed.Load() {
		t.Error("the session was not closed")
	}
	return results, err
}

func TestALibraryIsDrivenByOneGoroutineForEachCall(t *testing.T) {
	s := &stub{took: 10 * time.Millisecond}
	job := &Job{Callers: 2, Hosts: 2, Payload: 64}
	job.Steps = []Step{
		{Name: "8", InFlight: 8, Warm: 100 * time.Millisecond, Measure: time.Second},
		{Name: "20", InFlight: 20, Measure: 2 * time.Second},
	}
	results, err := library(t, s, job)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{800, 4000} {
		r := results[i]
		check(t, r)
		// A call that ends in the same instant as the window may count on either side.
		if n := int64(r.Step.InFlight); r.Calls < want-n || r.Calls > want+n {
			t.Errorf("step %s: %d calls, want %d", r.Step.Name, r.Calls, want)
		}
		if r.P50 < 10*time.Millisecond || r.Max > 10100*time.Microsecond {
			t.Errorf("step %s: calls that take 10 ms took %v to %v", r.Step.Name, r.P50, r.Max)
		}
	}
}

func TestFailuresOfALibraryAreCountedUnderTheirCode(t *testing.T) {
	s := &stub{took: time.Millisecond, code: func(n int64) string {
		if n > 1 && n%4 == 0 {
			return "LIMIT_EXCEEDED"
		}
		return ""
	}}
	job := &Job{Callers: 1, Hosts: 1, Steps: []Step{{Name: "a", InFlight: 4, Measure: time.Second}}}
	results, err := library(t, s, job)
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	if n := r.Errors["LIMIT_EXCEEDED"]; n < 990 || n > 1010 || len(r.Errors) != 1 {
		t.Errorf("errors %v, want 1,000 of one kind", r.Errors)
	}
}

func TestACallThatALibraryNeverEndsIsLost(t *testing.T) {
	s := &stub{took: time.Millisecond, hang: func(n int64) bool { return n == 10 || n == 20 }}
	job := &Job{Callers: 1, Hosts: 1, Steps: []Step{{Name: "a", InFlight: 8, Measure: time.Second}}}
	results, err := library(t, s, job)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Lost != 2 || len(r.Errors) != 0 {
		t.Errorf("%d lost, errors %v; want 2 and none", r.Lost, r.Errors)
	}
}

func TestALibraryThatNeverAnswersFailsTheJob(t *testing.T) {
	s := &stub{code: func(int64) string { return "function_not_found" }}
	job := &Job{Callers: 1, Hosts: 1, Steps: []Step{{Name: "a", InFlight: 1, Measure: time.Second}}}
	if _, err := library(t, s, job); err == nil {
		t.Fatal("no error")
	}
}

func TestALibraryIsNotDrivenOpenLoop(t *testing.T) {
	for _, step := range []Step{{Rate: 5}, {Workers: 3}, {}} {
		p := Protocols{Library: map[string]Connect{"stub": connectNothing}}
		job := &Job{Dialect: "stub", Callers: 1, Hosts: 1, Steps: []Step{step}}
		if _, _, err := do(t.Context(), job, p); err == nil {
			t.Errorf("%+v: no error", step)
		}
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/proc"
)

func TestEachRoundOfACaseRunsOnAServerOfItsOwn(t *testing.T) {
	p, left := program(t, roleRelay)
	q, other := program(t, roleRelay)
	var seen []string
	r, err := RunCases(t.Context(), []Case{small("a", p, 1, 4), small("b", q, 4)}, session(2), func(p Progress) {
		if p.Result != nil {
			seen = append(seen, fmt.Sprintf("%d %s %s %d/%d", p.Round, p.Case, p.Step, p.Done, p.Steps))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 calls a 1 1/6", "1 calls a 4 2/6", "1 calls b 4 3/6",
		"2 calls a 1 4/6", "2 calls a 4 5/6", "2 calls b 4 6/6",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("steps ended in the order %q, want %q", seen, want)
	}
	if r.Partial || len(r.Cases) != 2 || len(r.Cases[0].Steps) != 2 {
		t.Fatalf("partial %v (%s), %d cases", r.Partial, r.Reason, len(r.Cases))
	}
	for _, s := range r.Cases[0].Steps {
		if len(s.Trials) != 2 || s.Trials[0].Round != 0 || s.Trials[1].Round != 1 || s.Lost+s.Stray != 0 {
			t.Errorf("step %s: %+v", s.Name, s)
		}
		if f, ok := s.Figure(CPU); runtime.GOOS == "linux" && ok && f.Median <= 0 {
			t.Errorf("step %s: a call costs %v", s.Name, f.Median)
		}
		if runtime.GOOS == "linux" && (s.Trials[0].RSSEnd == 0 || s.Trials[0].Descriptors == 0) {
			t.Errorf("step %s: the server was not looked at: %+v", s.Name, s.Trials[0])
		}
	}
	gone(t, left)
	gone(t, other)
}

func TestCasesTakeTurnsInAnotherOrderEachRound(t *testing.T) {
	first := map[int]int{}
	for round := range 4 {
		at := order(4, round)
		first[at[0]]++
		slices.Sort(at)
		if !slices.Equal(at, []int{0, 1, 2, 3}) {
			t.Errorf("round %d runs %v", round, at)
		}
	}
	if slices.Equal(order(3, 0), order(3, 1)) || len(first) < 2 {
		t.Errorf("the order stays the same: first ones %v", first)
	}
	if len(order(0, 3)) != 0 {
		t.Error("no cases have an order")
	}
}

func TestASessionThatIsInterruptedReportsWhatIsThere(t *testing.T) {
	p, left := program(t, roleRelay)
	ctx, cancel := context.WithCancel(t.Context())
	c := small("a", p, 1, 2)
	c.Job.Steps[1].Measure = time.Hour
	r, err := RunCases(ctx, []Case{c}, session(3), func(p Progress) {
		if p.Step == "2" && !p.Warming {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	steps := r.Cases[0].Steps
	if !r.Partial || len(steps[0].Trials) != 1 || len(steps[1].Trials) != 0 {
		t.Fatalf("partial %v, %d and %d trials; want one whole step",
			r.Partial, len(steps[0].Trials), len(steps[1].Trials))
	}
	if r.Reason != "it was interrupted" || len(r.Cases[0].Failures) != 1 || r.Cases[0].Failures[0].Step != "2" {
		t.Errorf("%q, %+v", r.Reason, r.Cases[0].Failures)
	}
	gone(t, left)
}

func TestASessionThatIsInterruptedBeforeItBeginsIsPartial(t *testing.T) {
	p, _ := program(t, roleRelay)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := RunCases(ctx, []Case{small("a", p, 1)}, session(1), nil)
	if err != nil || !r.Partial || len(r.Cases) != 1 || len(r.Cases[0].Steps[0].Trials) != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
}

func TestServersThatDoNotStartAreReportedAndTheOthersGoOn(t *testing.T) {
	good, _ := program(t, roleRelay)
	bad, _ := program(t, roleFail)
	missing := Program{Name: "missing", Path: "./no-such-program"}
	cases := []Case{small("missing", missing, 1), small("bad", bad, 1), small("good", good, 1)}
	r, err := RunCases(t.Context(), cases, session(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"no-such-program", "the port is taken", ""} {
		f := r.Cases[i].Failures
		if want == "" && (len(f) != 0 || len(r.Cases[i].Steps[0].Trials) != 1) {
			t.Errorf("%s: %+v", r.Cases[i].Name, f)
		}
		if want != "" && (len(f) != 1 || !strings.Contains(f[0].Error, want) || f[0].Step != "1") {
			t.Errorf("%s: %+v, want one failure with %q", r.Cases[i].Name, f, want)
		}
	}
	if !r.Partial {
		t.Error("the report is not marked")
	}
}

func TestLoadsThatGoWrongAreReportedAndLeaveNoServer(t *testing.T) {
	for role, want := range map[string]string{
		roleDumb:  "no tongue",
		roleLiar:  "step 7 of 2",
		roleDeath: "it broke",
	} {
		p, left := program(t, roleRelay)
		s := Session{Rounds: 1, Load: []string{os.Args[0], role}}
		r, err := RunCases(t.Context(), []Case{small("a", p, 1, 2)}, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Cases[0].Failures; len(f) != 1 || !strings.Contains(f[0].Error, want) {
			t.Errorf("%s: %+v, want one failure with %q", role, f, want)
		}
		if role == roleDeath && len(r.Cases[0].Steps[0].Trials) != 1 {
			t.Errorf("%s: the step before the failure is gone", role)
		}
		gone(t, left)
	}
	p, left := program(t, roleRelay)
	r, err := RunCases(t.Context(), []Case{small("a", p, 1)}, Session{Load: []string{"./no-such-load"}}, nil)
	if err != nil || len(r.Cases[0].Failures) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	gone(t, left)
}

func TestASessionNeedsALoad(t *testing.T) {
	if _, err := RunCases(t.Context(), nil, Session{}, nil); err == nil {
		t.Fatal("no error")
	}
}

func TestACaseMayHaveFewerRounds(t *testing.T) {
	p, _ := program(t, roleRelay)
	a, b := small("a", p, 1), small("b", p, 1)
	b.Rounds = 1
	r, err := RunCases(t.Context(), []Case{a, b}, session(2), nil)
	if err != nil || len(r.Cases[0].Steps[0].Trials) != 2 || len(r.Cases[1].Steps[0].Trials) != 1 {
		t.Fatalf("%v, %+v", err, r.Cases)
	}
}

func TestAServerThatDoesNotSayWhereItListensIsEnded(t *testing.T) {
	p, left := program(t, roleMute)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // until it is there, and then no longer
		for {
			if _, err := os.Stat(left); err == nil {
				cancel()
				return
			}
			runtime.Gosched()
		}
	}()
	if _, err := launch(ctx, p, nil, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	gone(t, left)
}

func TestAServerRunsInAFolderOfItsOwnWithoutSettingsOfOthers(t *testing.T) {
	t.Setenv("PLINTH_ODD", "setting")
	p, left := program(t, roleRelay)
	s, err := launch(t.Context(), p, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	if parts := strings.Split(string(b), " "); parts[1] != s.folder || parts[2] != "" {
		t.Errorf("the server has %q, want the folder %s and no variable", b, s.folder)
	}
	s.stop()
	s.stop() // again: nothing to do
	gone(t, left)
}

func TestARunningServerIsDrivenAndNotTouched(t *testing.T) {
	p, left := program(t, roleRelay)
	s, err := launch(t.Context(), p, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	target := Program{Name: "there", Target: "ws://" + s.address}
	r, err := RunCases(t.Context(), []Case{small("a", target, 2)}, session(1), nil)
	if err != nil || r.Partial {
		t.Fatalf("%v, %+v", err, r)
	}
	step := r.Cases[0].Steps[0]
	if _, ok := step.Figure(CPU); ok || len(step.Trials) != 1 || step.Trials[0].RSSEnd != 0 {
		t.Errorf("the cost of a server that is not ours is known: %+v", step)
	}
	if len(r.Cases[0].Notes) == 0 {
		t.Error("nothing says that its cost is unknown")
	}
	select {
	case <-s.child.Done():
		t.Error("the server was ended")
	default:
	}
	s.stop()
	gone(t, left)
}

func TestAServerOverItsCapIsLabelled(t *testing.T) {
	p, left := program(t, roleHog)
	c := small("hog", p, 4)
	c.Profile = Profile{CPUs: 1, Memory: 64 << 20}
	c.Job.Steps[0].Measure = time.Minute
	r, err := RunCases(t.Context(), []Case{c}, session(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Cases[0].Failures
	if len(f) == 1 && strings.Contains(f[0].Error, proc.ErrUnsupported.Error()) {
		t.Skip(f[0].Error)
	}
	if len(f) != 1 || !f[0].Killed || !strings.Contains(f[0].Error, "64 MiB") {
		t.Fatalf("failures %+v, want one that says the kernel stopped it", f)
	}
	gone(t, left)
}

func TestWithoutAControlGroupTheProgramCapsItself(t *testing.T) {
	var note string
	c := proc.Command{Path: os.Args[0], Args: []string{roleFail}, Memory: 1} // too little for any program
	child, err := startCapped(c, "", &note)
	if err == nil {
		child.Stop(0)
		t.Skip("a control group takes even this")
	}
	if !isUnsupported(err) {
		t.Skip(err)
	}
	child, err = startCapped(c, "--memory", &note)
	if err != nil || note == "" {
		t.Fatalf("%v, note %q", err, note)
	}
	child.Stop(0)
}

func TestIdleWorkersAreMeasuredWhileTheyAreConnected(t *testing.T) {
	p, _ := program(t, roleRelay)
	c := Case{Scenario: "memory", Name: "a", Program: p}
	c.Job = load.Job{Dialect: DialectFrames, Steps: []load.Step{
		{Name: "0", Measure: time.Millisecond},
		{Name: "40", Workers: 40, Measure: time.Millisecond},
	}}
	r, err := RunCases(t.Context(), []Case{c}, session(1), nil)
	if err != nil || r.Partial {
		t.Fatalf("%v, %+v", err, r)
	}
	steps := r.Cases[0].Steps
	none, all := steps[0].Trials[0], steps[1].Trials[0]
	if runtime.GOOS == "linux" && all.Descriptors-none.Descriptors != 40 {
		t.Errorf("the server holds %d descriptors with 40 workers and %d without",
			all.Descriptors, none.Descriptors)
	}
	if runtime.GOOS == "linux" && (r.Cases[0].Memory == nil || r.Cases[0].Memory.Most != 40) {
		t.Errorf("memory %+v", r.Cases[0].Memory)
	}
}

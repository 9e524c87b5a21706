package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench"
	"github.com/plinth-run/plinth/internal/bench/load"
)

func TestAVerdictComparesWhatIsShown(t *testing.T) {
	for _, c := range []struct {
		need need
		v    float64
		want string
	}{
		{atMost(3.5, "µs"), 3.5, "ok"},
		{atMost(3.5, "µs"), 3.504, "ok"},
		{atMost(3.5, "µs"), 7, "short by 2.00x"},
		{atLeast(2, times), 2.4, "ok"},
		{atLeast(2, times), 1.6, "short by 1.25x"},
		{need{}, 99, ""},
	} {
		if got := c.need.verdict(c.v); got != c.want {
			t.Errorf("%v against %v: %q, want %q", c.v, c.need, got, c.want)
		}
	}
}

// all returns every case of the session.
func all(t *testing.T, quick bool) []bench.Case {
	t.Helper()
	cs, err := cases(servers{plinth: bench.Program{Name: "p"}}, quick, "")
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// filled returns a report in which every case has two rounds, and every figure of round r is r+1.
func filled(t *testing.T) *bench.Report {
	t.Helper()
	r := &bench.Report{}
	for _, c := range all(t, false) {
		report := bench.CaseReport{Scenario: c.Scenario, Name: c.Name, MemoryCap: c.Profile.Memory}
		for _, s := range c.Job.Steps {
			step := bench.StepReport{Name: s.Name, InFlight: s.InFlight}
			for round := range 2 {
				trial := bench.Trial{Round: round, RSSEnd: int64(round+1) << 20}
				trial.Result = load.Result{
					Step: s, Seconds: 1, Calls: int64(round+1) * 1000, Sessions: s.Workers,
					Server: time.Duration(round+1) * time.Millisecond, P50: time.Duration(round+1) * time.Microsecond,
				}
				step.Trials = append(step.Trials, trial)
			}
			for _, name := range []string{bench.Calls, bench.CPU, bench.RSSEnd} {
				step.Figures = append(step.Figures, bench.Figure{Name: name, Median: 1.5, Values: []float64{1, 2}})
			}
			report.Steps = append(report.Steps, step)
		}
		if c.Scenario == overload {
			report.Overload = []bench.OverloadResult{
				{P99: time.Second, Bound: 2 * time.Second, Refused: 5, RSSPeak: 1 << 20},
				{P99: time.Second, Bound: 2 * time.Second, Refused: 5, RSSPeak: 1 << 20, Recovery: time.Second},
			}
		}
		r.Cases = append(r.Cases, report)
	}
	return r
}

func TestEveryRequirementFindsItsFiguresInTheCases(t *testing.T) {
	table := judge(filled(t))
	const overloadLines = 4
	if want := len(rows()) + overloadLines; len(table.Rows) != want {
		t.Fatalf("%d lines, want %d: a requirement has no case that measures it", len(table.Rows), want)
	}
	for _, line := range table.Rows {
		if len(line) != len(table.Head) {
			t.Errorf("line %q has %d cells, want %d", line[0], len(line), len(table.Head))
		}
		if strings.HasPrefix(line[0], "...") && line[1] == "-" && line[5] != "" {
			t.Errorf("line %q has a verdict without a requirement", line[0])
		}
	}
	var b bytes.Buffer
	if err := table.WriteMarkdown(&b); err != nil || b.Len() == 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
}

func TestAnEmptyReportMakesAnEmptyTable(t *testing.T) {
	if table := judge(&bench.Report{Partial: true, Reason: "stopped"}); len(table.Rows) != 0 ||
		!strings.Contains(strings.Join(table.Notes, " "), "PARTIAL: stopped") {
		t.Errorf("%+v", table)
	}
}

func TestTheWorstRoundOfAnOverloadCounts(t *testing.T) {
	verdicts := func(o ...bench.OverloadResult) (all string) {
		r := &bench.Report{Cases: []bench.CaseReport{
			{Scenario: overload, Name: engine, MemoryCap: 100, Overload: o},
		}}
		for _, line := range overloadRows(&book{r}) {
			all += line[5] + ","
		}
		return all
	}
	good := bench.OverloadResult{P99: 1, Bound: 2, Refused: 1, RSSPeak: 50, Recovery: time.Second}
	if got := verdicts(good, good); got != "ok,ok,ok,ok," {
		t.Errorf("good rounds: %s", got)
	}
	for want, bad := range map[string]bench.OverloadResult{
		"short,ok,ok,ok,": {P99: 3, Bound: 2, Refused: 1},
		"ok,short,ok,ok,": {P99: 1, Bound: 2, Refused: 1, Lost: 1},
		"ok,ok,short,ok,": {P99: 1, Bound: 2, Refused: 1, RSSPeak: 100},
		"ok,ok,ok,short,": {P99: 1, Bound: 2, Refused: 1, Recovery: -1},
	} {
		if got := verdicts(good, bad, good); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := verdicts(bad, good); got != want {
			t.Errorf("the bad round first: got %s, want %s", got, want)
		}
	}
	if got := verdicts(bench.OverloadResult{P99: 1, Bound: 2}); !strings.HasPrefix(got, "ok,short,") {
		t.Errorf("an overload that refused nothing was none: %s", got)
	}
}

func TestTheFullSessionFitsItsTime(t *testing.T) {
	for quick, limit := range map[bool]time.Duration{true: 4 * time.Minute, false: 40 * time.Minute} {
		rounds := 9
		if quick {
			rounds = 3
		}
		var sum time.Duration
		for _, c := range all(t, quick) {
			n := rounds
			if c.Rounds > 0 {
				n = min(n, c.Rounds)
			}
			each := 500 * time.Millisecond // to start and stop
			for _, s := range c.Job.Steps {
				each += s.Warm + s.Measure
			}
			sum += time.Duration(n) * each
		}
		if sum > limit {
			t.Errorf("quick %v: %v, want at most %v", quick, sum, limit)
		}
	}
}

func TestScenariosArePickedByName(t *testing.T) {
	cs, err := cases(servers{}, true, "memory, plain clients")
	if err != nil || len(cs) != 3 || cs[0].Scenario != memory {
		t.Fatalf("%v, %d cases", err, len(cs))
	}
	if !cs[1].Job.Plain || !cs[2].Job.Plain {
		t.Error("plain clients do not write one frame at a time")
	}
	if _, err := cases(servers{}, true, "lunch"); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("got %v, want an error with the names there are", err)
	}
}

func TestEveryDialectOfTheCasesIsSpoken(t *testing.T) {
	p := protocols()
	for _, c := range all(t, true) {
		if p.Loop[c.Job.Dialect] == nil && p.Library[c.Job.Dialect] == nil {
			t.Errorf("%s, %s: nobody speaks %q", c.Scenario, c.Name, c.Job.Dialect)
		}
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Session is how cases are run.
type Session struct {
	Rounds  int
	Load    []string // command line of a load process, which serves package load's Serve
	Command []string // to be quoted in the report
	Version string
	Commit  string
}

// Progress is where a session stands.
type Progress struct {
	Round, Rounds int // from 1
	Case          string
	Step          string
	Done, Steps   int           // steps of all rounds
	Left          time.Duration // of all rounds, as it looks now
	Warming       bool          // the window of the step has not begun
	Point         *load.Point   // nil but in a window
	Result        *load.Result  // nil but at the end of a step
	Note          string        // something the reader should know
}

// RunCases runs each case once a round, on a server of its own, and reports them all. The cases of a
// round follow each other in another order each time. A case that fails is reported with its
// failure, and the others go on. When ctx ends RunCases returns what there is, marked as partial.
func RunCases(ctx context.Context, cases []Case, s Session, progress func(Progress)) (*Report, error) {
	if len(s.Load) == 0 {
		return nil, errors.New("a session needs the command line of a load process")
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	s.Rounds = max(1, s.Rounds)
	r := &Report{
		Schema: Schema, Command: s.Command, Begin: time.Now(), Rounds: s.Rounds,
		Environment: environment(s.Version, s.Commit),
	}
	t := &tracker{progress: progress, rounds: s.Rounds, begin: time.Now()}
	for i := range cases {
		r.Cases = append(r.Cases, newCaseReport(&cases[i]))
		t.add(&cases[i], s.Rounds)
	}
	for round := range s.Rounds {
		for _, i := range order(len(cases), round) {
			c := &cases[i]
			if ctx.Err() != nil {
				break
			}
			if c.Rounds > 0 && round >= c.Rounds {
				continue
			}
			t.enter(round, c)
			r.Cases[i].add(runOne(ctx, c, s.Load, round, t))
		}
	}
	r.finish(ctx)
	return r, nil
}

// order rotates n cases by the number of the round, so that none is always first and none always
// follows the same one in time of day alone.
func order(n, round int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = (i + round) % n
		if round%2 == 1 {
			at[i] = (n - 1 - i + round) % n
		}
	}
	return at
}

func newCaseReport(c *Case) CaseReport {
	r := CaseReport{
		Scenario: c.Scenario, Name: c.Name, Profile: c.Profile.String(), Program: c.Program, Job: c.Job,
		ServerCPUs: proc.FormatCPUs(c.ServerCPUs), LoadCPUs: proc.FormatCPUs(c.LoadCPUs),
		MemoryCap: c.Profile.Memory, Notes: append([]string(nil), c.Notes...),
	}
	for _, s := range c.Job.Steps {
		r.Steps = append(r.Steps, StepReport{Name: s.Name, InFlight: s.InFlight, Rate: s.Rate, Workers: s.Workers})
	}
	return r
}

// outcome is one round of one case.
type outcome struct {
	runs    []Trial // of the first steps; all of them if failure is nil
	notes   []string
	failure *Failure
}

// add files the outcome of a round.
func (c *CaseReport) add(o outcome) {
	for i, run := range o.runs {
		c.Steps[i].Trials = append(c.Steps[i].Trials, run)
	}
	for _, note := range o.notes {
		if note != "" && !contains(c.Notes, note) {
			c.Notes = append(c.Notes, note)
		}
	}
	if o.failure != nil {
		c.Failures = append(c.Failures, *o.failure)
	}
	if c.Scenario == "overload" {
		if result, ok := judgeOverload(o.runs, &c.Job); ok {
			c.Overload = append(c.Overload, result)
		}
	}
}

func contains(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}

// finish computes what follows from all rounds.
func (r *Report) finish(ctx context.Context) {
	r.End = time.Now()
	for i := range r.Cases {
		c := &r.Cases[i]
		for j := range c.Steps {
			c.Steps[j].summarize()
		}
		if c.Scenario == "memory" {
			c.Memory = judgeMemory(c)
		}
		if len(c.Failures) > 0 && !r.Partial {
			r.Partial, r.Reason = true, "a round did not come to its end: "+c.Failures[0].Error
		}
	}
	r.Asked = judgeAsked(r)
	if ctx.Err() != nil {
		r.Partial, r.Reason = true, "it was interrupted"
	}
}

// runOne runs a case once.
func runOne(ctx context.Context, c *Case, command []string, round int, t *tracker) (o outcome) {
	d := &drive{c: c, round: round, t: t, began: time.Now()}
	defer func() {
		o.runs = d.runs
		t.leave(len(c.Job.Steps) - len(d.runs))
	}()
	srv, err := launch(ctx, c.Program, c.ServerCPUs, c.Profile.Memory)
	if err != nil {
		o.failure = d.failed(err, false)
		return o
	}
	defer srv.stop()
	d.server = srv
	err = d.load(ctx, command)
	o.notes = append(d.notes, srv.note)
	if err != nil {
		srv.stop()
		o.failure = d.failed(err, srv.child != nil && srv.child.Killed())
	}
	return o
}

// failed describes why the steps after the ones that are done are missing.
func (d *drive) failed(err error, killed bool) *Failure {
	f := &Failure{Round: d.round, Killed: killed, Error: err.Error()}
	if n := len(d.runs); n < len(d.c.Job.Steps) {
		f.Step = d.c.Job.Steps[n].Name
	}
	if killed {
		f.Error = fmt.Sprintf("the kernel stopped the server over its %d MiB", d.c.Profile.Memory>>20)
	}
	return f
}

// tracker turns what happens into Progress. It belongs to the goroutine of RunCases.
type tracker struct {
	progress    func(Progress)
	rounds      int
	begin       time.Time
	at          Progress
	total, past time.Duration // of windows and warm-ups
}

func (t *tracker) add(c *Case, rounds int) {
	if c.Rounds > 0 {
		rounds = min(rounds, c.Rounds)
	}
	for _, s := range c.Job.Steps {
		t.at.Steps += rounds
		t.total += time.Duration(rounds) * (s.Warm + s.Measure)
	}
}

func (t *tracker) enter(round int, c *Case) {
	t.at.Round, t.at.Rounds = round+1, t.rounds
	t.at.Case = c.Scenario + " " + c.Name
	if p := c.Profile.String(); p != "" {
		t.at.Case += " " + p
	}
}

// leave skips the steps that a case did not come to.
func (t *tracker) leave(missed int) { t.at.Done += missed }

// tell reports one event of a step.
func (t *tracker) tell(s load.Step, warming bool, p *load.Point, r *load.Result) {
	if r != nil {
		t.at.Done++
		t.past += s.Warm + s.Measure
	}
	at := t.at
	at.Step, at.Warming, at.Point, at.Result = s.Name, warming, p, r
	at.Left = t.total - t.past
	if t.past > 0 { // starting programs takes time, too
		at.Left = time.Duration(float64(at.Left) * float64(time.Since(t.begin)) / float64(t.past))
	}
	t.progress(at)
}

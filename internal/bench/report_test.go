package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -update and read the difference\n%s", path, got)
	}
}

// trial is one round with plausible numbers.
func trial(round int, calls int64, cpu time.Duration) Trial {
	return Trial{
		Round: round, RSSPeak: 15 << 20, RSSEnd: 14 << 20, Threads: 7, Descriptors: 14,
		Samples: []Sample{{At: time.Second, Cores: 0.5, RSS: 13 << 20, Threads: 7}},
		Result: load.Result{
			Step:    load.Step{Name: "8", InFlight: 8, Measure: 2 * time.Second},
			Begin:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Seconds: 2, Calls: calls, Server: cpu, Own: 1500 * time.Millisecond, OwnCPUs: 1, Writes: calls / 4,
			P50: 300 * time.Microsecond, P90: 400 * time.Microsecond, P99: 1500 * time.Microsecond,
			Max:    2 * time.Second,
			Series: []load.Point{{At: 250 * time.Millisecond, Calls: calls, P50: 1000, P99: 2000}},
		},
	}
}

// sample is a report with a bit of everything.
func sample() *Report {
	engine, control := Program{Name: "plinth", Path: "plinth"}, Program{Name: "plinth (control)", Path: "plinth"}
	job := load.Job{Dialect: DialectFrames, Callers: 2, Hosts: 2, Payload: 64}
	job.Steps = []load.Step{{Name: "8", InFlight: 8, Measure: 2 * time.Second}}
	c := Case{Scenario: "calls", Name: "plinth", Program: engine, Job: job}
	c.ServerCPUs, c.LoadCPUs = []int{0}, []int{1}
	d := c
	d.Name, d.Program = control.Name, control
	a, b := newCaseReport(&c), newCaseReport(&d)
	a.Steps[0].Trials = []Trial{
		trial(0, 20_000, 100*time.Millisecond), trial(1, 22_000, 121*time.Millisecond),
		trial(2, 21_000, 84*time.Millisecond),
	}
	b.Steps[0].Trials = []Trial{trial(0, 20_000, 110*time.Millisecond), trial(1, 22_000, 121*time.Millisecond)}
	b.Steps[0].Trials[1].Errors = map[string]int64{"HOST_OVERLOADED": 3, "": 1}
	b.Steps[0].Trials[1].Lost = 2
	b.Steps[0].Trials[0].Own, b.Steps[0].Trials[1].Own = 2*time.Second, 1990*time.Millisecond
	b.Failures = []Failure{{Round: 2, Step: "8", Error: "the load ended without a word"}}

	m := Case{Scenario: "memory", Name: "plinth", Program: engine, Profile: Profile{CPUs: 1, Memory: 512 << 20}}
	m.Job = load.Job{Dialect: DialectFrames, Steps: MemorySteps([]int{0, 1000, 5000}, true)}
	memory := newCaseReport(&m)
	for i, rss := range []int64{12 << 20, 15 << 20} {
		r := Trial{RSSEnd: rss, RSSPeak: rss + 1<<20, Threads: 6, Descriptors: 14 + 1000*i}
		r.Step, r.Sessions, r.Seconds = m.Job.Steps[i], m.Job.Steps[i].Workers, 1
		memory.Steps[i].Trials = []Trial{r}
	}
	memory.Failures = []Failure{{Step: "5000", Killed: true, Error: "the kernel stopped it over its 512 MiB"}}

	o := Case{Scenario: "overload", Name: "plinth", Program: engine, ServerCPUs: []int{0}, LoadCPUs: []int{0}}
	o.Notes = []string{"server and load share a processor"}
	o.Job = job
	Overload(&o.Job, true)
	over := newCaseReport(&o)
	over.Overload = []OverloadResult{{
		Offered: 24000, Served: 7990, Refused: 96000, Normal: 2 * time.Millisecond, P99: 1030 * time.Millisecond,
		Bound: 1282 * time.Millisecond, RSSPeak: 40 << 20, Recovery: -1, Back: 5 * time.Millisecond,
	}}
	begin := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	r := &Report{
		Schema: Schema, Command: []string{"plinth", "bench", "--quick"}, Begin: begin, End: begin.Add(time.Minute),
		Rounds: 3, Cases: []CaseReport{a, b, memory, over},
		Environment: Environment{
			Date: begin, OS: "linux/amd64", Kernel: "6.1", CPU: "Some | CPU", CPUs: "0-1", Memory: 8 << 30,
			Hypervisor: true, Load: "0.1 0.2 0.3", Go: "go1.26", Version: "v1", Commit: "abc",
		},
	}
	end := r.End
	r.finish(context.Background())
	r.End = end
	return r
}

func TestTheJSONOfAReportIsStable(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", b.Bytes())
	var back Report
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&back); err != nil {
		t.Fatalf("the report does not read back: %v", err)
	}
	if back.Cases[0].Steps[0].Trials[0].Calls != 20_000 || back.Cases[0].Steps[0].Trials[0].Step.InFlight != 8 {
		t.Errorf("a trial read back as %+v", back.Cases[0].Steps[0].Trials[0])
	}
}

func TestTheTablesOfAReportAreStable(t *testing.T) {
	r := sample()
	var text, markdown bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, table := range r.Tables() {
		if err := table.WriteMarkdown(&markdown); err != nil {
			t.Fatal(err)
		}
		markdown.WriteByte('\n')
	}
	golden(t, "report.txt", text.Bytes())
	golden(t, "report.md", markdown.Bytes())
}

func TestFiguresAreExact(t *testing.T) {
	r := sample()
	s := r.Case("calls", "plinth").Step("8")
	for _, want := range []Figure{
		{Calls, "1/s", 10_500, 1000.0 / 10_500, []float64{10_000, 11_000, 10_500}},
		{P50, "µs", 300, 0, []float64{300, 300, 300}},
		{P99, "µs", 1500, 0, []float64{1500, 1500, 1500}},
		{CPU, "µs", 5, 0.3, []float64{5, 5.5, 4}},
		{Cores, "", 0.05, (0.0605 - 0.042) / 0.05, []float64{0.05, 0.0605, 0.042}},
		{Generator, "", 0.75, 0, []float64{0.75, 0.75, 0.75}},
		{RSSPeak, "MiB", 15, 0, []float64{15, 15, 15}},
		{RSSEnd, "MiB", 14, 0, []float64{14, 14, 14}},
		{Threads, "", 7, 0, []float64{7, 7, 7}},
	} {
		f, ok := s.Figure(want.Name)
		if !ok || f.Unit != want.Unit || !near(f.Median, want.Median) || !near(f.Spread, want.Spread) {
			t.Errorf("%s: %+v, want %+v", want.Name, f, want)
		}
		if !slices.EqualFunc(f.Values, want.Values, near) {
			t.Errorf("%s: values %v, want %v", want.Name, f.Values, want.Values)
		}
	}
	if s.Saturated || !s.Noisy {
		t.Errorf("saturated %v, noisy %v; want only noisy: 30 %% between rounds", s.Saturated, s.Noisy)
	}
	c := r.Case("calls", "plinth (control)").Step("8")
	if !c.Saturated || c.Lost != 2 || c.Errors["HOST_OVERLOADED"] != 3 {
		t.Errorf("%+v, want it saturated, with 2 lost and 3 refused", c)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(1, math.Abs(b)) }

func TestPairsAreOfTheSameRound(t *testing.T) {
	r := sample()
	a, b := r.Case("calls", "plinth").Step("8"), r.Case("calls", "plinth (control)").Step("8")
	// In the second round the control had 22,004 answers, four of them bad ones.
	want := []float64{5.5 / 5, (121000.0 / 22004) / 5.5}
	if got := Paired(b, a, CPU); !slices.EqualFunc(got, want, near) {
		t.Errorf("ratios %v, want %v", got, want)
	}
	b.Trials[0].Round = 9
	if got := Paired(b, a, CPU); len(got) != 1 {
		t.Errorf("ratios %v of one common round", got)
	}
	if got := Paired(nil, a, CPU); got != nil {
		t.Errorf("ratios %v of nothing", got)
	}
	if r.Case("calls", "nobody").Step("8") != nil || r.Case("calls", "plinth").Step("9") != nil {
		t.Error("what is not there was found")
	}
}

func TestAStepThatCannotBeReadHasNoFigures(t *testing.T) {
	s := StepReport{Trials: []Trial{{Result: load.Result{Seconds: 1}}}}
	s.summarize()
	if len(s.Figures) != 0 || s.Noisy || s.Saturated {
		t.Errorf("%+v", s)
	}
	if c := cell(&s, CPU); c != "-" {
		t.Errorf("cell %q", c)
	}
}

func TestMemoryIsALineThroughAllRounds(t *testing.T) {
	m := sample().Case("memory", "plinth").Memory
	want := Memory{Rest: 12 << 20, Slope: 3 << 20 / 1000.0, Each: 3 << 20 / 1000.0, Most: 1000, Stop: "5000"}
	want.Fit = 166_666 // (512 - 12) MiB over 3 MiB per thousand
	if m == nil || !near(m.Slope, want.Slope) || !near(m.Each, want.Each) {
		t.Fatalf("got %+v, want %+v", m, want)
	}
	m.Slope, m.Each = want.Slope, want.Each
	if *m != want {
		t.Errorf("got %+v, want %+v", *m, want)
	}
	if judgeMemory(&CaseReport{}) != nil {
		t.Error("no steps have a memory")
	}
}

func TestNumbersAreWrittenToThreeDigits(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "µs", "0 µs"}, {1.234, "µs", "1.23 µs"}, {12.34, "µs", "12.3 µs"}, {999.4, "µs", "999 µs"},
		{1000, "µs", "1 ms"}, {1234567, "µs", "1.23 s"},
		{0, "1/s", "0"}, {999, "1/s", "999"}, {1000, "1/s", "1,000"}, {1234567.8, "1/s", "1,234,568"},
		{3, "MiB", "3 MiB"}, {10.04, "KiB", "10 KiB"}, {250, "", "250"}, {0.5, "", "0.5"},
	} {
		if got := Format(c.v, c.unit); got != c.want {
			t.Errorf("Format(%v, %q) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestStepsOfAllCasesHaveALine(t *testing.T) {
	a := CaseReport{Steps: []StepReport{{Name: "1", InFlight: 1}, {Name: "512", InFlight: 512}}}
	b := CaseReport{Steps: []StepReport{{Name: "64", InFlight: 64}, {Name: "512", InFlight: 512}}}
	if got := steps([]*CaseReport{&a, &b}); strings.Join(got, " ") != "1 64 512" {
		t.Errorf("lines %q", got)
	}
	// Steps of a story stay in its order.
	c := CaseReport{Steps: []StepReport{
		{Name: stepNormal, Rate: 5}, {Name: stepOver, Rate: 9}, {Name: stepRecovery, Rate: 5},
	}}
	if got := steps([]*CaseReport{&c}); !slices.Equal(got, []string{stepNormal, stepOver, stepRecovery}) {
		t.Errorf("lines %q", got)
	}
}

package bench

import (
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/stat"
)

// Schema is the version of the report's JSON. Members are only added under the same number.
const Schema = 1

// Report is what a session measured.
type Report struct {
	Schema      int          `json:"schema"`
	Command     []string     `json:"command,omitempty"`
	Begin       time.Time    `json:"begin"`
	End         time.Time    `json:"end"`
	Rounds      int          `json:"rounds"` // asked for
	Partial     bool         `json:"partial"`
	Reason      string       `json:"reason,omitempty"` // why it is partial
	Environment Environment  `json:"environment"`
	Cases       []CaseReport `json:"cases"`
	Asked       []Asked      `json:"asked,omitempty"` // what the scenarios ask for
}

// CaseReport is what one case measured.
type CaseReport struct {
	Scenario   string           `json:"scenario"`
	Name       string           `json:"name"`
	Profile    string           `json:"profile,omitempty"`
	Program    Program          `json:"program"`
	Job        load.Job         `json:"job"`
	ServerCPUs string           `json:"server_cpus"`
	LoadCPUs   string           `json:"load_cpus"`
	MemoryCap  int64            `json:"memory_cap,omitempty"`
	Notes      []string         `json:"notes,omitempty"`
	Steps      []StepReport     `json:"steps"`
	Memory     *Memory          `json:"memory,omitempty"`   // of the scenario memory
	Overload   []OverloadResult `json:"overload,omitempty"` // of the scenario overload, a round each
	Failures   []Failure        `json:"failures,omitempty"` // rounds that did not come to their end
}

// Failure is why a round was cut short.
type Failure struct {
	Round  int    `json:"round"` // from 0
	Step   string `json:"step"`  // the first one without a result
	Killed bool   `json:"killed,omitempty"`
	Error  string `json:"error"`
}

// Memory is what the scenario memory says.
type Memory struct {
	Rest  float64 `json:"rest"`           // bytes with no worker; median
	Slope float64 `json:"slope"`          // bytes a worker: the least-squares line through all rounds
	Each  float64 `json:"each"`           // bytes a worker: the last step less the first, by its workers
	Fit   int     `json:"fits,omitempty"` // idle workers under the cap
	Most  int     `json:"most"`           // that were connected
	Stop  string  `json:"stop,omitempty"` // the step at which the kernel stopped the engine
}

// StepReport is one step over all rounds.
type StepReport struct {
	Name      string           `json:"name"`
	InFlight  int              `json:"in_flight,omitempty"`
	Rate      float64          `json:"rate,omitempty"`
	Workers   int              `json:"workers,omitempty"`
	Figures   []Figure         `json:"figures"`
	Errors    map[string]int64 `json:"errors,omitempty"` // sums
	Lost      int64            `json:"lost,omitempty"`
	Stray     int64            `json:"stray,omitempty"`
	Saturated bool             `json:"generator_saturated,omitempty"` // in most rounds
	Noisy     bool             `json:"noisy,omitempty"`               // rounds differ by more than a tenth
	Trials    []Trial          `json:"trials"`
}

// Figure is one number with the values that it comes from, one for each round.
type Figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Spread float64   `json:"spread"` // range over median
	Values []float64 `json:"values"`
}

// Trial is one step of one round.
type Trial struct {
	Round int `json:"round"` // from 0
	load.Result
	RSSPeak     int64    `json:"rss_peak,omitempty"` // bytes, from the end of the step before to this one's
	RSSEnd      int64    `json:"rss_end,omitempty"`  // counted page by page
	Threads     int      `json:"threads,omitempty"`
	Descriptors int      `json:"descriptors,omitempty"`
	Samples     []Sample `json:"samples,omitempty"`
}

// Sample is what the server used and held at one moment.
type Sample struct {
	At      time.Duration `json:"at"`    // from the start of the server
	Cores   float64       `json:"cores"` // used since the sample before
	RSS     int64         `json:"rss"`
	Threads int           `json:"threads"`
}

// Names of figures.
const (
	Calls       = "calls"
	P50         = "p50"
	P99         = "p99"
	Max         = "max"
	CPU         = "cpu per call"
	Cores       = "cores"
	Generator   = "generator cores"
	RSSPeak     = "rss peak"
	RSSEnd      = "rss"
	Threads     = "threads"
	Descriptors = "descriptors"
	Throughput  = "throughput"
	Deviation   = "deviation"
)

// figure is how a name is read off a run; ok is false when the run cannot say.
type figure struct {
	name, unit string
	of         func(r *Trial) (v float64, ok bool)
}

// figures returns the table of all figures, in the order of the report.
func figures() []figure {
	calling := func(of func(r *Trial) float64) func(*Trial) (float64, bool) {
		return func(r *Trial) (float64, bool) { return of(r), r.Calls > 0 }
	}
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	mib := func(n int64) (float64, bool) { return float64(n) / (1 << 20), n > 0 }
	count := func(n int) (float64, bool) { return float64(n), n > 0 }
	return []figure{
		{Calls, "1/s", calling(func(r *Trial) float64 { return float64(r.Calls) / r.Seconds })},
		{P50, "µs", calling(func(r *Trial) float64 { return micros(r.P50) })},
		{P99, "µs", calling(func(r *Trial) float64 { return micros(r.P99) })},
		{Max, "µs", calling(func(r *Trial) float64 { return micros(r.Max) })},
		{CPU, "µs", func(r *Trial) (float64, bool) {
			n := r.Answered()
			return micros(r.Server) / max(float64(n), 1), n > 0 && r.Server > 0
		}},
		{Cores, "", func(r *Trial) (float64, bool) { return r.Server.Seconds() / r.Seconds, r.Server > 0 }},
		{Generator, "", func(r *Trial) (float64, bool) { return r.Own.Seconds() / r.Seconds, r.Own > 0 }},
		{RSSPeak, "MiB", func(r *Trial) (float64, bool) { return mib(r.RSSPeak) }},
		{RSSEnd, "MiB", func(r *Trial) (float64, bool) { return mib(r.RSSEnd) }},
		{Threads, "", func(r *Trial) (float64, bool) { return count(r.Threads) }},
		{Descriptors, "", func(r *Trial) (float64, bool) { return count(r.Descriptors) }},
		{Throughput, "MiB/s", func(r *Trial) (float64, bool) {
			return float64(r.Bytes) / (1 << 20) / max(r.Seconds, 1e-9), r.Bytes > 0
		}},
		{Deviation, "%", func(r *Trial) (float64, bool) {
			return deviation(r.Shares), len(r.Shares) > 1 && r.Calls > 0
		}},
	}
}

// deviation is how far the host that is farthest from an even share is from it, in percent of that share.
func deviation(shares []int64) (worst float64) {
	var sum int64
	for _, n := range shares {
		sum += n
	}
	even := float64(sum) / float64(max(len(shares), 1))
	for _, n := range shares {
		worst = max(worst, math.Abs(float64(n)-even)/max(even, 1)*100)
	}
	return worst
}

// Bounds of what a report remarks on.
const (
	saturated = 0.95 // of the generator's processors
	noisy     = 0.10 // of the median
)

// summarize fills everything of a step that follows from its runs.
func (s *StepReport) summarize() {
	s.Figures, s.Errors, s.Lost, s.Stray, s.Noisy = nil, nil, 0, 0, false
	for _, f := range figures() {
		var values []float64
		for i := range s.Trials {
			if v, ok := f.of(&s.Trials[i]); ok {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		fig := Figure{
			Name: f.name, Unit: f.unit, Median: stat.Median(values), Spread: stat.Spread(values), Values: values,
		}
		s.Figures = append(s.Figures, fig)
		if fig.Spread > noisy && (f.name == Calls || f.name == CPU) {
			s.Noisy = true
		}
	}
	full := 0
	for i := range s.Trials {
		r := &s.Trials[i]
		for code, n := range r.Errors {
			if s.Errors == nil {
				s.Errors = map[string]int64{}
			}
			s.Errors[code] += n
		}
		s.Lost += r.Lost
		s.Stray += r.Stray
		if r.Own.Seconds() >= saturated*r.Seconds*float64(max(r.OwnCPUs, 1)) {
			full++
		}
	}
	s.Saturated = full > len(s.Trials)/2
}

// Figure returns a figure by name; ok is false when no run could say.
func (s *StepReport) Figure(name string) (f Figure, ok bool) {
	for _, f := range s.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

// Case returns the report of a case by scenario and name, in any profile; nil if there is none.
func (r *Report) Case(scenario, name string) *CaseReport {
	for i := range r.Cases {
		if c := &r.Cases[i]; c.Scenario == scenario && c.Name == name {
			return c
		}
	}
	return nil
}

// Step returns a step by name; nil if there is none or c is nil.
func (c *CaseReport) Step(name string) *StepReport {
	if c == nil {
		return nil
	}
	for i := range c.Steps {
		if c.Steps[i].Name == name {
			return &c.Steps[i]
		}
	}
	return nil
}

// Paired returns, for each round that both steps have a figure of, a's value over b's.
func Paired(a, b *StepReport, name string) []float64 {
	if a == nil || b == nil {
		return nil
	}
	var of func(r *Trial) (float64, bool)
	for _, f := range figures() {
		if f.name == name {
			of = f.of
		}
	}
	var left, right []float64
	for i := range a.Trials {
		for j := range b.Trials {
			if a.Trials[i].Round != b.Trials[j].Round {
				continue
			}
			v, okV := of(&a.Trials[i])
			w, okW := of(&b.Trials[j])
			if okV && okW {
				left, right = append(left, v), append(right, w)
			}
		}
	}
	return stat.Ratio(left, right)
}

// WriteJSON writes the report as one indented JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

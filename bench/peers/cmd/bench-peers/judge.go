package main

import (
	"fmt"
	"math"
	"time"

	"github.com/plinth-run/plinth/internal/bench"
	"github.com/plinth-run/plinth/internal/bench/stat"
)

// need is what a figure must be.
type need struct {
	limit float64
	unit  string
	least bool // at least the limit, else at most
}

func atMost(limit float64, unit string) need  { return need{limit: limit, unit: unit} }
func atLeast(limit float64, unit string) need { return need{limit: limit, unit: unit, least: true} }

func (n need) String() string {
	switch {
	case n.unit == "":
		return "-"
	case n.least:
		return "at least " + write1(n.limit, n.unit)
	}
	return "at most " + write1(n.limit, n.unit)
}

// verdict compares a value with what it must be.
func (n need) verdict(v float64) string {
	v = math.Round(v*100) / 100 // as it is shown
	short := v / n.limit
	if n.least {
		short = n.limit / v
	}
	switch {
	case n.unit == "":
		return ""
	case short <= 1:
		return "ok"
	}
	return fmt.Sprintf("short by %.2fx", short)
}

const times = "times"

func write1(v float64, unit string) string {
	if unit == times {
		return fmt.Sprintf("%.2f", v)
	}
	return bench.Format(v, unit)
}

// row is one line of the table: values of all rounds, and what their median must be.
type row struct {
	what string
	need need
	of   func(b *book) (values []float64)
}

// judge makes the table.
func judge(r *bench.Report) bench.Table {
	t := bench.Table{
		Title: "Plinth's engine against its peers",
		Head:  []string{"what", "must reach", "measured", "range over median", "rounds", "verdict"},
	}
	b := &book{r}
	for _, row := range rows() {
		values := row.of(b)
		if len(values) == 0 {
			continue
		}
		v := stat.Median(values)
		t.Rows = append(t.Rows, []string{
			row.what, row.need.String(), write1(v, row.need.unitOr(times)),
			fmt.Sprintf("%.0f%%", 100*stat.Spread(values)), fmt.Sprint(len(values)), row.need.verdict(v),
		})
	}
	t.Rows = append(t.Rows, overloadRows(b)...)
	t.Notes = b.notes()
	return t
}

func (n need) unitOr(unit string) string {
	if n.unit == "" {
		return unit
	}
	return n.unit
}

// rows are the requirements, each with the comparisons that put it in its light: those have no need.
func rows() []row {
	return []row{
		{"engine CPU per call, 512 in flight, 2+2 connections", atMost(3.5, "µs"),
			figure(four, engine, "512", bench.CPU)},
		{"... against NATS's server, which nats.go drives", atMost(0.3, times),
			ratio(four, engine, natsGo, "512", bench.CPU)},
		{"... against NATS's server under the same generator", need{},
			ratio(four, engine, natsRaw, "512", bench.CPU)},
		{"... under the Go SDK against NATS's under nats.go", need{}, ratio(four, goSDK, natsGo, "512", bench.CPU)},
		{"... against the minimal relay", atMost(2.2, times), ratio(four, engine, relay, "512", bench.CPU)},
		{"... against itself: the control", need{}, ratio(four, control, engine, "512", bench.CPU)},
		{"calls/s, Go SDK against nats.go, 64 in flight", atLeast(2, times),
			ratio(four, goSDK, natsGo, "64", bench.Calls)},
		{"calls/s, Go SDK against nats.go, 512 in flight", atLeast(2, times),
			ratio(four, goSDK, natsGo, "512", bench.Calls)},
		{"engine CPU per call, plain clients, 512 in flight, against the relay", atMost(1.15, times),
			ratio(plain, engine, relay, "512", bench.CPU)},
		{"engine CPU per call, 64 in flight over 32+32 connections, against NATS under nats.go", atMost(0.6, times),
			ratio(sixty, engine, natsGo, "64", bench.CPU)},
		{"... against NATS under the same generator", need{}, ratio(sixty, engine, natsRaw, "64", bench.CPU)},
		{"p50 at 1 in flight against NATS under the same generator", atMost(1, times),
			ratio(four, engine, natsRaw, "1", bench.P50)},
		{"... against NATS under nats.go", need{}, ratio(four, engine, natsGo, "1", bench.P50)},
		{"calls/s at 2,048 in flight against its own peak", atLeast(0.95, times), peak},
		{"CPU per call, two engine cores against one, 20,000 calls/s", atMost(1.25, times), twoCores},
		{"memory per idle worker with two functions, 10,000 of them", atMost(3, "KiB"), perWorker},
		{"RSS of the engine at rest", atMost(14, "MiB"), figure(memory, engine, "0", bench.RSSEnd)},
	}
}

// book finds figures in a report.
type book struct{ *bench.Report }

func (b *book) step(scenario, name, step string) *bench.StepReport {
	return b.Case(scenario, name).Step(step)
}

func figure(scenario, name, step, figure string) func(*book) []float64 {
	return func(b *book) []float64 {
		s := b.step(scenario, name, step)
		if s == nil {
			return nil
		}
		f, _ := s.Figure(figure)
		return f.Values
	}
}

// ratio pairs two cases round by round.
func ratio(scenario, name, other, step, figure string) func(*book) []float64 {
	return func(b *book) []float64 {
		return bench.Paired(b.step(scenario, name, step), b.step(scenario, other, step), figure)
	}
}

// peak compares medians: the best of several noisy values is above what it stands for.
func peak(b *book) []float64 {
	c := b.Case(four, engine)
	if c == nil {
		return nil
	}
	var best, last float64
	for i := range c.Steps {
		f, ok := c.Steps[i].Figure(bench.Calls)
		if !ok {
			continue
		}
		best = max(best, f.Median)
		if c.Steps[i].InFlight == 2048 {
			last = f.Median
		}
	}
	if last == 0 {
		return nil
	}
	return []float64{last / best}
}

func twoCores(b *book) []float64 {
	name := bench.RateStep(offered, time.Second).Name
	return bench.Paired(b.step(rate, twoCore, name), b.step(rate, oneCore, name), bench.CPU)
}

func perWorker(b *book) []float64 {
	c := b.Case(memory, engine)
	none, all := c.Step("0"), c.Step("10000")
	if none == nil || all == nil {
		return nil
	}
	var values []float64
	for i := range min(len(none.Trials), len(all.Trials)) {
		more := all.Trials[i].RSSEnd - none.Trials[i].RSSEnd
		values = append(values, float64(more)/float64(max(all.Trials[i].Sessions, 1))/(1<<10))
	}
	return values
}

// overloadRows says whether the engine stood the overload in every round: the worst of them counts.
func overloadRows(b *book) [][]string {
	c := b.Case(overload, engine)
	if c == nil || len(c.Overload) == 0 {
		return nil
	}
	const limit = 10 * time.Second
	worst := c.Overload[0]
	for _, o := range c.Overload[1:] {
		if o.P99 > worst.P99 {
			worst.P99, worst.Bound = o.P99, o.Bound
		}
		worst.Untyped += o.Untyped
		worst.Lost += o.Lost
		worst.Refused = min(worst.Refused, o.Refused)
		worst.RSSPeak = max(worst.RSSPeak, o.RSSPeak)
		if o.Recovery < 0 || worst.Recovery >= 0 && o.Recovery > worst.Recovery {
			worst.Recovery = o.Recovery
		}
	}
	rounds := fmt.Sprint(len(c.Overload))
	line := func(what, must, measured string, ok bool) []string {
		verdict := "ok"
		if !ok {
			verdict = "short"
		}
		return []string{"overload, three times what the hosts serve: " + what, must, measured, "", rounds, verdict}
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	back := "not seen"
	if worst.Recovery >= 0 {
		back = ms(worst.Recovery)
	}
	mib := func(n int64) string { return bench.Format(float64(n)/(1<<20), "MiB") }
	return [][]string{
		line("p99 of accepted calls", "at most "+ms(worst.Bound)+", the queue limit", ms(worst.P99),
			worst.P99 <= worst.Bound),
		line("refused calls without a typed error, and lost ones", "0", fmt.Sprint(worst.Untyped+worst.Lost),
			worst.Untyped+worst.Lost == 0 && worst.Refused > 0),
		line("RSS at its peak", "under its cap of "+mib(c.MemoryCap), mib(worst.RSSPeak),
			worst.RSSPeak < c.MemoryCap),
		line("back to normal", "within "+limit.String(), back,
			worst.Recovery >= 0 && worst.Recovery <= limit),
	}
}

// notes say what a reader must know: where, when, and what went wrong.
func (b *book) notes() []string {
	e := &b.Environment
	notes := []string{
		fmt.Sprintf("%s, processors %s, %s %s, %s, commit %s, load average before %s, %s",
			e.CPU, e.CPUs, e.OS, e.Kernel, e.Go, e.Commit, e.Load, b.Begin.UTC().Format(time.DateOnly)),
		"ratios are medians of pairs measured in the same round; CPU is the server's own, by the scheduler's clock",
		"a line without a requirement shows the same comparison in another light",
	}
	if b.Partial {
		notes = append(notes, "PARTIAL: "+b.Reason)
	}
	for i := range b.Cases {
		c := &b.Cases[i]
		for _, f := range c.Failures {
			notes = append(notes, fmt.Sprintf("%s, %s: round %d ended at step %s: %s",
				c.Scenario, c.Name, f.Round+1, f.Step, f.Error))
		}
		for j := range c.Steps {
			s := &c.Steps[j]
			if c.Scenario != overload && (len(s.Errors) > 0 || s.Lost > 0 || s.Stray > 0) {
				notes = append(notes, fmt.Sprintf("%s, %s, %s: failed %v, lost %d, stray %d",
					c.Scenario, c.Name, s.Name, s.Errors, s.Lost, s.Stray))
			}
		}
	}
	return notes
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/cmd/plinth/screen"
	"github.com/plinth-run/plinth/internal/bench"
	"github.com/plinth-run/plinth/internal/bench/proc"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// benchFlags are the flags of `plinth bench` in the form they are typed.
type benchFlags struct {
	options             bench.Options
	profile, url        string
	serverCPUs, loadCPU string
	against             []string
	out                 string
	markdown, list      bool
}

// newBench makes `plinth bench`.
func newBench(p *program) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "bench [SCENARIO ...]", Short: "Measure an engine that is started for it", GroupID: groupLook,
		Long: "Starts a fresh engine for each scenario, drives it from processes of its own on other processors, and prints what\n" +
			"it did and what that cost: the median of the rounds and, in brackets, their range over it. Without a scenario it\n" +
			"runs calls and memory. Ctrl-C ends it early; what was measured by then is reported and marked as partial.",
		Example: "  plinth bench --quick\n" +
			"  plinth bench calls --in-flight 64,512 --rounds 9 --out calls.json\n" +
			"  plinth bench memory --profile 1x512,2x1024\n" +
			"  plinth bench calls --quick --against ./plinth-before",
		ValidArgs: bench.Scenarios(),
		Args:      cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return p.listScenarios()
			}
			o, err := f.fill(args)
			if err != nil {
				return err
			}
			return p.bench(cmd.Context(), o, &f)
		},
	}
	flags, o := cmd.Flags(), &f.options
	flags.BoolVar(&o.Quick, "quick", false, "windows of 2 s and one round")
	flags.IntVar(&o.Rounds, "rounds", 0, "rounds; 0 is 3, or 1 with --quick")
	flags.DurationVar(&o.Step, "step", 0, "length of a window; 0 is 10s, or 2s with --quick")
	flags.IntSliceVar(&o.InFlight, "in-flight", nil, "calls in flight, a step each (default 1,8,32,128,512,2048)")
	flags.Float64Var(&o.Rate, "rate", 0, "calls a second, sent when due, in place of --in-flight")
	flags.IntVar(&o.Payload, "payload", 64, "bytes of JSON of a call")
	flags.IntVar(&o.Connections, "connections", 4, "connections; half of them call, half of them answer")
	flags.BoolVar(&o.Plain, "plain-client", false, "one frame a write, as simple clients do")
	flags.BoolVar(&o.SDK, "sdk", false, "the Go SDK at both ends in place of the generator")
	flags.IntSliceVar(&o.Workers, "workers", nil, "idle workers of memory, a step each (default 0,100,1000,5000,10000)")
	flags.StringVar(&f.profile, "profile", "", "sizes to run in: processors x MiB, such as 1x512,2x1024")
	flags.StringVar(&f.serverCPUs, "server-cpus", "", "processors of the engine, such as 0-1; default is half of them")
	flags.StringVar(&f.loadCPU, "load-cpus", "", "processors of the load; default is the other half")
	flags.StringSliceVar(&f.against, "against", nil, "another plinth executable to compare with; a control runs beside it")
	flags.StringVar(&f.url, "url", "", "measure a running engine; what it costs is not known then")
	flags.StringVar(&f.out, "out", "plinth-bench.json", "file for the report as JSON; empty for none")
	flags.BoolVar(&f.markdown, "markdown", false, "print the tables as Markdown")
	flags.BoolVar(&f.list, "list", false, "list the scenarios")
	cmd.AddCommand(newBenchLoad(p), newBenchCopy(p))
	return p.prints(cmd, formObject, bench.Report{})
}

// newBenchLoad makes the process that makes the load. It is started by `plinth bench` and by nobody else.
func newBenchLoad(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "load", Short: "Make load, told on the standard input", Hidden: true, Example: "  plinth bench load",
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.Load(cmd.Context(), p.in, p.out) },
	}
	return p.prints(cmd, formText, nil)
}

// newBenchCopy makes the process that a channel is measured against. It is started by `plinth bench` alone.
func newBenchCopy(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "copy", Short: "Join two sockets", Hidden: true, Example: "  plinth bench copy",
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.Copy(cmd.Context(), p.out) },
	}
	return p.prints(cmd, formText, nil)
}

// scenario is a row of `plinth bench --list --json`.
type scenario struct {
	Name string `json:"name"`
}

func (p *program) listScenarios() error {
	rows := []scenario{}
	for _, name := range bench.Scenarios() {
		rows = append(rows, scenario{name})
	}
	if p.wantJSON() {
		return printRows(p, rows)
	}
	return p.print(strings.Join(bench.Scenarios(), "\n") + "\n")
}

// fill reads the flags that need reading.
func (f *benchFlags) fill(scenarios []string) (o bench.Options, err error) {
	o = f.options
	o.Scenarios = scenarios
	for _, name := range scenarios {
		if near := house.Nearest(name, bench.Scenarios()); !slices.Contains(bench.Scenarios(), name) {
			return o, usage("there is no scenario "+name, "plinth bench --list lists them", near...)
		}
	}
	if f.profile != "" {
		if o.Profiles, err = bench.ParseProfiles(f.profile); err != nil {
			return o, usage(err.Error(), "")
		}
	}
	for text, into := range map[string]*[]int{f.serverCPUs: &o.ServerCPUs, f.loadCPU: &o.LoadCPUs} {
		if text == "" {
			continue
		}
		if *into, err = proc.ParseCPUs(text); err != nil {
			return o, usage(err.Error(), "write processors as 0-1,3")
		}
	}
	for _, path := range f.against {
		if path, err = filepath.Abs(path); err != nil {
			return o, fmt.Errorf("find %s: %w", path, err)
		}
		other := bench.Engine(path)
		other.Name = filepath.Base(path)
		o.Against = append(o.Against, other)
	}
	if f.url != "" {
		o.Engine = bench.Program{Name: "plinth", Target: f.url}
	}
	b := readBuild(debug.ReadBuildInfo)
	o.Command, o.Version, o.Commit = os.Args, b.Version, b.short()
	return o, nil
}

// bench measures, prints the report and keeps it.
func (p *program) bench(ctx context.Context, o bench.Options, f *benchFlags) error {
	mode, err := screen.ProgressMode(p.progress, p.errFacts)
	if err != nil {
		return usage(err.Error(), "")
	}
	bars := &benchProgress{screen: screen.NewProgress(p.err, mode, p.errFacts.Width), note: p.note}
	report, err := bench.Run(ctx, o, bars.tell)
	bars.screen.Close()
	if err != nil { // what fails while measuring stands in the report: this is about the options
		return usage(err.Error(), "see plinth bench --help")
	}
	if err := p.printReport(report, f); err != nil {
		return err
	}
	return p.judgeReport(ctx, report)
}

func (p *program) printReport(report *bench.Report, f *benchFlags) error {
	if p.wantJSON() {
		return p.printJSON(report)
	}
	for i, t := range report.Tables() {
		if i > 0 {
			if err := p.print("\n"); err != nil {
				return err
			}
		}
		write := t.WriteText
		if f.markdown {
			write = t.WriteMarkdown
		}
		if err := write(p.out); err != nil {
			return wrote(err)
		}
	}
	if f.out == "" {
		return nil
	}
	file, err := os.Create(f.out)
	if err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	if err := errors.Join(report.WriteJSON(file), file.Close()); err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	p.note("report: %s", f.out)
	return nil
}

// judgeReport makes the exit code: a partial report is 8, or 130 after a signal.
func (p *program) judgeReport(ctx context.Context, report *bench.Report) error {
	failures := 0
	for _, c := range report.Cases {
		failures += len(c.Failures)
	}
	switch signal := (house.Interrupted{}); {
	case errors.As(context.Cause(ctx), &signal):
		return &house.Problem{Kind: fault.Unavailable, Code: codeInterrupted, What: "the report is partial",
			Why: signal.Error(), Err: signal}
	case report.Partial || failures > 0:
		return &house.Problem{Code: codePartly, What: "the report is partial",
			Why: strings.TrimSpace(fmt.Sprintf("%d rounds failed. %s", failures, report.Reason))}
	}
	return nil
}

// benchProgress shows where a session stands: a step of ours for each step of each round.
type benchProgress struct {
	screen *screen.Progress
	note   func(format string, args ...any)
	step   string
	calls  int64
}

func (b *benchProgress) tell(at bench.Progress) {
	if at.Note != "" {
		b.note("%s", at.Note)
	}
	number := at.Done + 1
	if at.Result != nil {
		number = at.Done // the step that just ended
	}
	name := fmt.Sprintf("%s, %s", at.Case, at.Step)
	if at.Rounds > 1 {
		name += fmt.Sprintf(", round %d of %d", at.Round, at.Rounds)
	}
	if step := fmt.Sprintf("%d %s", number, name); step != b.step {
		b.step, b.calls = step, 0
		if at.Left > 0 {
			name += ", " + at.Left.Round(time.Second).String() + " to go"
		}
		b.screen.Step(number, at.Steps, name, 0, "calls")
	}
	if at.Point != nil {
		b.calls += at.Point.Calls
		b.screen.Update(b.calls)
	}
}

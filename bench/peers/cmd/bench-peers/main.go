// Command bench-peers measures Plinth's engine against its peers, all taking turns, and prints what must
// be reached beside what was: the table of the README.
//
// It builds the engine and the peers, starts each anew for every round on one half of the processors,
// and drives it from the other half. See docs/guides/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plinth-run/plinth/bench/peers/nats"
	"github.com/plinth-run/plinth/internal/bench"
	"github.com/plinth-run/plinth/internal/bench/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == "load" {
		err = load.Serve(ctx, os.Stdin, os.Stdout, protocols())
	} else {
		err = run(ctx, os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-peers:", err)
		os.Exit(1)
	}
}

// Dialects that speak to a NATS server.
const (
	dialectRaw    = "nats"
	dialectClient = "nats.go"
)

func protocols() load.Protocols {
	p := bench.Protocols()
	p.Loop[dialectRaw] = nats.DialRaw
	p.Library[dialectClient] = nats.Connect
	return p
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench-peers", flag.ContinueOnError)
	rounds := flags.Int("rounds", 0, "rounds of each scenario (default 9, or 3 with -quick)")
	quick := flags.Bool("quick", false, "windows of 2 s in place of 10 s")
	only := flags.String("only", "", "scenarios to run, separated by commas (default all)")
	out := flags.String("out", ".", "folder for bench-peers.json and bench-peers.md")
	engine := flags.String("engine", "", "a plinth executable (default: one is built)")
	verbose := flags.Bool("v", false, "print the figures of every case, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	if *rounds <= 0 {
		*rounds = 9
		if *quick {
			*rounds = 3
		}
	}
	folder, err := os.MkdirTemp("", "bench-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	s, err := build(ctx, folder, *engine)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cases, err := cases(s, *quick, *only)
	if err != nil {
		return err
	}
	report, err := bench.RunCases(ctx, cases, bench.Session{
		Rounds: *rounds, Load: []string{self, "load"}, Command: append([]string{"bench-peers"}, args...),
		Version: s.version, Commit: s.commit,
	}, progress(os.Stderr))
	if err != nil {
		return err
	}
	return write(report, *out, *verbose)
}

// servers are the programs to measure.
type servers struct {
	plinth, relay, nats bench.Program
	version, commit     string
}

// build compiles the engine and the peers from this checkout into folder.
func build(ctx context.Context, folder, engine string) (s servers, err error) {
	root, err := output(ctx, ".", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return s, err
	}
	house := filepath.Join(root, "..", "..")
	if engine == "" {
		engine = filepath.Join(folder, "plinth")
		if _, err := output(ctx, house, "go", "build", "-o", engine, "./cmd/plinth"); err != nil {
			return s, err
		}
	}
	for _, name := range []string{"relay", "natsd"} {
		to := filepath.Join(folder, name)
		if _, err := output(ctx, root, "go", "build", "-o", to, "./cmd/"+name); err != nil {
			return s, err
		}
	}
	s.plinth = bench.Engine(engine)
	s.relay = bench.Program{Name: "relay", Path: filepath.Join(folder, "relay")}
	s.nats = bench.Program{Name: "nats", Path: filepath.Join(folder, "natsd")}
	s.commit, _ = output(ctx, house, "git", "describe", "--always", "--dirty", "--exclude=*") // "" outside of a repository
	return s, nil
}

// output runs a command and returns what it printed.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w", name, args, err)
	}
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return string(b), nil
}

// progress prints one line for each step.
func progress(w io.Writer) func(bench.Progress) {
	return func(p bench.Progress) {
		if p.Result == nil {
			return
		}
		r := p.Result
		fmt.Fprintf(w, "[%d/%d] round %d of %d, %s, %s: %.0f/s, p99 %v, %v left\n",
			p.Done, p.Steps, p.Round, p.Rounds, p.Case, p.Step,
			float64(r.Calls)/r.Seconds, r.P99.Round(time.Microsecond), p.Left.Round(time.Second))
	}
}

// write prints the table and writes the files.
func write(report *bench.Report, out string, verbose bool) error {
	table := judge(report)
	if verbose {
		if err := report.WriteText(os.Stdout); err != nil {
			return err
		}
		fmt.Println()
	}
	if err := table.WriteText(os.Stdout); err != nil {
		return err
	}
	var failed error
	for name, to := range map[string]func(io.Writer) error{
		"bench-peers.json": report.WriteJSON,
		"bench-peers.md":   table.WriteMarkdown,
	} {
		f, err := os.Create(filepath.Join(out, name))
		if err == nil {
			err = errors.Join(to(f), f.Close())
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

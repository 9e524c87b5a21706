// Package bench measures a Plinth engine from outside: it starts one for each scenario, drives it from
// a process of its own, reads what it cost, and makes a report.
//
// It promises that server and load run on different processors where the machine has them and says so
// where not; that scenarios which are compared take turns, in another order each round; that every
// number in a report comes with the values of its rounds, their median and their spread; that a run
// which is cut short still returns the rounds that were whole, marked as partial; and that no
// process it started outlives it. One Run at a time on one machine gives sense; the package keeps no
// state. It knows no engine from inside: whatever speaks a protocol of package load can be measured.
// It draws nothing: the command line does.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Options say what to measure. The zero Options run the scenarios calls and memory as users of the
// public page know them.
type Options struct {
	Scenarios   []string      // of Scenarios; none: calls and memory
	Quick       bool          // short steps and one round
	Rounds      int           // 0: 3, or 1 with Quick
	Step        time.Duration // length of a window; 0: 10 s, or 2 s with Quick
	InFlight    []int         // of calls; none: 1, 8, 32, 128, 512, 2048
	Rate        float64       // of calls, in calls a second: an open loop in place of InFlight
	Payload     int           // bytes of JSON; 0: 64
	Connections int           // half of them call, half of them answer; 0: 4
	Plain       bool          // one write a frame
	SDK         bool          // the Go SDK at both ends in place of the generator
	Workers     []int         // of memory; none: 0, 100, 1000, 5000, 10000
	Profiles    []Profile     // sizes to run in; none: the machine as it is
	Engine      Program       // none: this executable
	Against     []Program     // to be compared with; each comparison has a control beside it
	ServerCPUs  []int         // none: half of what this process may use
	LoadCPUs    []int         // none: the other half
	Portable    bool          // goroutines in place of the generator's event loop
	Load        []string      // command line of a load process; none: this executable, "bench load"
	Copy        []string      // command line of a program that serves Copy; none: this executable, "bench copy"
	Command     []string      // to be quoted in the report
	Version     string        // of this build, to be quoted
	Commit      string
}

// Scenarios returns the names that Options.Scenarios may hold.
func Scenarios() []string {
	return []string{"calls", "memory", "overload", EngineReplicas, EngineKeys, EngineChannels, EngineLogins}
}

// Protocols returns what a load process of this package can speak.
func Protocols() load.Protocols {
	return load.Protocols{
		Loop:    map[string]load.Dial{DialectFrames: load.DialFrames, DialectReplicas: load.DialReplicas},
		Library: map[string]load.Connect{DialectSDK: load.ConnectSDK},
		Pipes:   map[string]load.Plumb{DialectCopy: load.PlumbCopy, DialectChannel: load.PlumbChannel},
	}
}

// Dialects of package load that speak to an engine.
const (
	DialectFrames   = "frames"   // the generator's own
	DialectReplicas = "replicas" // the same, with one function that all hosts have
	DialectSDK      = "sdk"      // the Go SDK's
	DialectChannel  = "channel"  // bytes through a channel between two workers of the Go SDK
	DialectCopy     = "copy"     // bytes through a program that serves Copy: no engine
)

// Load is the main function of a load process: see load.Serve.
func Load(ctx context.Context, in io.Reader, out io.Writer) error {
	return load.Serve(ctx, in, out, Protocols())
}

// Copy serves what a channel is measured against: it joins two sockets by io.Copy. It tells its address on
// out, as an engine does, and ends with ctx.
func Copy(ctx context.Context, out io.Writer) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	if _, err := fmt.Fprintf(out, "{\"workers\":%q}\n", l.Addr()); err != nil {
		return fmt.Errorf("tell the address: %w", err)
	}
	return load.Copier(l)
}

// Run measures what the options ask for and tells progress on its way; progress may be nil. When ctx
// ends it returns what there is, marked as partial, and no error.
func Run(ctx context.Context, o Options, progress func(Progress)) (*Report, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	cases, err := o.cases()
	if err != nil {
		return nil, err
	}
	return RunCases(ctx, cases, Session{
		Rounds: o.Rounds, Load: o.Load, Command: o.Command, Version: o.Version, Commit: o.Commit,
	}, progress)
}

// filled returns the options with their defaults.
func (o Options) filled() (Options, error) {
	pick := func(quick, full int) int {
		if o.Quick {
			return quick
		}
		return full
	}
	if o.Rounds <= 0 {
		o.Rounds = pick(1, 3)
	}
	if o.Step <= 0 {
		o.Step = time.Duration(pick(2, 10)) * time.Second
	}
	if o.Payload <= 0 {
		o.Payload = 64
	}
	if o.Connections <= 0 {
		o.Connections = 4
	}
	if len(o.Scenarios) == 0 {
		o.Scenarios = []string{"calls", "memory"}
	}
	if len(o.InFlight) == 0 {
		o.InFlight = []int{1, 8, 32, 128, 512, 2048}
	}
	if len(o.Workers) == 0 {
		o.Workers = []int{0, 100, 1000, 5000, 10000}
	}
	if len(o.Profiles) == 0 {
		o.Profiles = []Profile{{}}
	}
	slices.Sort(o.Workers)
	for _, s := range o.Scenarios {
		if !slices.Contains(Scenarios(), s) {
			return o, fmt.Errorf("no scenario is called %q; there are %v", s, Scenarios())
		}
	}
	if o.Connections < 2 || o.Payload < 2 || o.Rate < 0 || o.InFlight[0] < 1 {
		return o, errors.New("connections and payload must be at least 2, " +
			"calls in flight at least 1, and a rate not negative")
	}
	if o.SDK && (o.Rate > 0 || o.Plain) {
		return o, errors.New("the SDK decides itself when a call is sent: no rate and no plain client with it")
	}
	self, err := os.Executable()
	if err != nil {
		return o, fmt.Errorf("find this executable: %w", err)
	}
	if o.Engine.Path == "" && o.Engine.Target == "" {
		o.Engine = Engine(self)
	}
	if len(o.Load) == 0 {
		o.Load = []string{self, "bench", "load"}
	}
	if len(o.Copy) == 0 {
		o.Copy = []string{self, "bench", "copy"}
	}
	return o, o.place()
}

// place decides which processors are whose.
func (o *Options) place() error {
	cpus, err := proc.CPUs()
	if err != nil {
		return err
	}
	server, rest, _ := proc.Split(cpus, 0)
	switch {
	case len(o.ServerCPUs) == 0 && len(o.LoadCPUs) == 0:
		o.ServerCPUs, o.LoadCPUs = server, rest
	case len(o.ServerCPUs) == 0:
		o.ServerCPUs = without(cpus, o.LoadCPUs)
	case len(o.LoadCPUs) == 0:
		o.LoadCPUs = without(cpus, o.ServerCPUs)
	}
	return nil
}

// without returns the processors that are not in some; all of them if that leaves none.
func without(cpus, some []int) []int {
	rest := slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return slices.Contains(some, cpu) })
	if len(rest) == 0 {
		return cpus
	}
	return rest
}

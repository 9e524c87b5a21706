package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Case is one thing to measure: a program, started anew for each round, under one job. Cases of the
// same Scenario and Profile are compared with the first of them, step by step.
type Case struct {
	Scenario   string
	Name       string // within the scenario
	Profile    Profile
	Program    Program
	Job        load.Job // Target and PID are filled in
	ServerCPUs []int
	LoadCPUs   []int
	Rounds     int      // at most; 0: as many as the session has
	Setup      Setup    // nil: the load connects to the server as it starts
	Notes      []string // for the report
}

// Setup makes a server that has started ready for a case: it may change the job, which has the server's
// address by then.
type Setup func(ctx context.Context, at Site, job *load.Job) (Beside, error)

// Beside runs while the load does, until its context ends, and returns remarks for the report; nil does not.
type Beside func(ctx context.Context) (notes []string)

// Site is where a server can be reached. What the server did not tell is empty.
type Site struct {
	Workers string // host:port
	Admin   string // host:port
	Free    string // host:port; what "{free}" in its environment stood for
	Folder  string // its data
}

// cases turns options into cases: for each scenario and profile the engine, its control if there is
// something to compare, and the others.
func (o Options) cases() ([]Case, error) {
	programs := []Program{o.Engine}
	if len(o.Against) > 0 {
		control := o.Engine
		control.Name += " (control)"
		programs = append(append(programs, control), o.Against...)
	}
	var cases []Case
	for _, scenario := range o.Scenarios {
		for _, profile := range o.Profiles {
			for _, p := range programs {
				c, err := o.newCase(scenario, profile, p)
				if err != nil {
					return nil, err
				}
				variants, err := o.variants(c)
				if err != nil {
					return nil, err
				}
				cases = append(cases, variants...)
			}
		}
	}
	return cases, nil
}

func (o Options) newCase(scenario string, profile Profile, p Program) (Case, error) {
	c := Case{Scenario: scenario, Name: p.Name, Profile: profile, Program: p}
	c.ServerCPUs, c.LoadCPUs = o.ServerCPUs, o.LoadCPUs
	if profile.CPUs > 0 {
		cpus := slices.Concat(o.ServerCPUs, without(o.LoadCPUs, o.ServerCPUs))
		cpus = slices.Compact(cpus)
		if len(cpus) < profile.CPUs {
			note := fmt.Sprintf("only %d of %d processors are here", len(cpus), profile.CPUs)
			c.Notes = append(c.Notes, note)
		}
		c.ServerCPUs, c.LoadCPUs, _ = proc.Split(cpus, profile.CPUs)
	}
	if shared(c.ServerCPUs, c.LoadCPUs) {
		c.Notes = append(c.Notes, "server and load share a processor: "+
			"throughput and latency are those of both together")
	}
	c.Job = load.Job{
		Dialect:  p.Dialect,
		Callers:  o.Connections / 2,
		Hosts:    o.Connections - o.Connections/2,
		Payload:  o.Payload,
		Plain:    o.Plain,
		Portable: o.Portable,
	}
	if c.Job.Dialect == "" {
		c.Job.Dialect = DialectFrames
		if o.SDK {
			c.Job.Dialect = DialectSDK
		}
	}
	switch scenario {
	case "calls":
		c.Job.Steps = o.callSteps()
	case "memory":
		c.Job = load.Job{Dialect: DialectFrames, Portable: o.Portable, Steps: MemorySteps(o.Workers, o.Quick)}
	case "overload":
		c.Job.Dialect = DialectFrames
		Overload(&c.Job, o.Quick)
	}
	return c, nil
}

// variants makes the cases that a scenario compares of the one that newCase made.
func (o Options) variants(c Case) ([]Case, error) {
	var all []Case
	switch c.Scenario {
	case EngineReplicas:
		all = []Case{o.replicas(c)}
	case EngineKeys:
		all = o.keys(c)
	case EngineChannels:
		all = o.channels(c)
	case EngineLogins:
		all = o.logins(c)
	default:
		return []Case{c}, nil
	}
	for i := range all {
		if all[i].Setup != nil && c.Program.Target != "" {
			return nil, fmt.Errorf("%s needs an engine of its own: it makes accounts there", c.Scenario)
		}
		if len(o.Against) > 0 {
			all[i].Name = c.Name + ", " + all[i].Name
		}
	}
	return all, nil
}

// shared tells whether two sets of processors have one in common.
func shared(a, b []int) bool {
	return slices.ContainsFunc(a, func(cpu int) bool { return slices.Contains(b, cpu) })
}

func (o Options) callSteps() []load.Step {
	if o.Rate > 0 {
		return []load.Step{RateStep(o.Rate, o.Step)}
	}
	var steps []load.Step
	for _, n := range o.InFlight {
		steps = append(steps, CallStep(n, o.Step))
	}
	return steps
}

// CallStep is a closed loop of n calls in flight with a warm-up of up to a second.
func CallStep(n int, window time.Duration) load.Step {
	return load.Step{Name: fmt.Sprint(n), InFlight: n, Warm: warm(window), Measure: window}
}

// RateStep is an open loop of so many calls a second.
func RateStep(rate float64, window time.Duration) load.Step {
	return load.Step{Name: fmt.Sprintf("%.0f/s", rate), Rate: rate, Warm: warm(window), Measure: window}
}

func warm(window time.Duration) time.Duration { return min(time.Second, window/4) }

// MemorySteps connects idle workers up to each of the numbers, which must rise.
func MemorySteps(workers []int, quick bool) []load.Step {
	still := 3 * time.Second
	if quick {
		still = time.Second
	}
	var steps []load.Step
	for _, n := range workers {
		steps = append(steps, load.Step{Name: fmt.Sprint(n), Workers: n, Warm: still, Measure: time.Second})
	}
	return steps
}

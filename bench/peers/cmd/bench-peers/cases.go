package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/bench"
	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Scenarios of this program.
const (
	four     = "calls"          // 2+2 connections
	plain    = "plain clients"  // one frame a write
	sixty    = "64 connections" // 32+32
	rate     = "the same rate"  // on one core and on two
	memory   = "memory"
	overload = "overload"
)

// Cases within them.
const (
	engine  = "plinth"
	control = "plinth (control)"
	goSDK   = "plinth, Go SDK"
	relay   = "relay"
	natsRaw = "nats, same generator"
	natsGo  = "nats, nats.go"
	oneCore = "one core"
	twoCore = "two cores"
)

// What the two-core comparison offers, in calls a second: less than one core can do with plain clients.
const offered = 20_000

// overloadCap is what the engine may hold during an overload, in bytes.
const overloadCap = 256 << 20

const payload = 64

// fewer is how often scenarios run whose outcome hardly varies, or that take long.
const fewer = 3

// cases lists everything to be measured.
func cases(s servers, quick bool, only string) ([]bench.Case, error) {
	cpus, err := proc.CPUs()
	if err != nil {
		return nil, err
	}
	window := 10 * time.Second
	if quick {
		window = 2 * time.Second
	}
	p := plan{window: window, cpus: cpus}
	p.calls(four, engine, s.plinth, bench.DialectFrames, 2, 1, 128, 512, 2048)
	p.calls(four, control, s.plinth, bench.DialectFrames, 2, 512)
	p.calls(four, relay, s.relay, bench.DialectFrames, 2, 512)
	p.calls(four, natsRaw, s.nats, dialectRaw, 2, 1, 512)
	p.calls(four, natsGo, s.nats, dialectClient, 2, 1, 64, 512)
	p.calls(four, goSDK, s.plinth, bench.DialectSDK, 2, 64, 512)
	p.calls(plain, engine, s.plinth, bench.DialectFrames, 2, 512)
	p.calls(plain, relay, s.relay, bench.DialectFrames, 2, 512)
	p.calls(sixty, engine, s.plinth, bench.DialectFrames, 32, 64)
	p.calls(sixty, natsRaw, s.nats, dialectRaw, 32, 64)
	p.calls(sixty, natsGo, s.nats, dialectClient, 32, 64)
	p.cores(s.plinth)
	rounds := fewer
	if quick {
		rounds = 1
	}
	p.add(bench.Case{
		Scenario: memory, Name: engine, Program: s.plinth, Rounds: rounds,
		Job: load.Job{Dialect: bench.DialectFrames, Steps: bench.MemorySteps([]int{0, 10_000}, quick)},
	}, 1)
	over := bench.Case{Scenario: overload, Name: engine, Program: s.plinth, Rounds: rounds}
	over.Profile = bench.Profile{CPUs: 1, Memory: overloadCap}
	over.Job = load.Job{Dialect: bench.DialectFrames, Callers: 2, Hosts: 2, Payload: payload}
	bench.Overload(&over.Job, quick)
	p.add(over, 1)
	return p.pick(only)
}

// plan collects cases.
type plan struct {
	window time.Duration
	cpus   []int
	cases  []bench.Case
}

// add puts the server of a case on n processors and the load on the others.
func (p *plan) add(c bench.Case, n int) {
	var shared bool
	c.ServerCPUs, c.LoadCPUs, shared = proc.Split(p.cpus, n)
	if shared {
		c.Notes = append(c.Notes, "server and load share a processor")
	}
	p.cases = append(p.cases, c)
}

// calls adds a closed loop over so many callers and as many hosts.
func (p *plan) calls(scenario, name string, s bench.Program, dialect string, each int, inFlight ...int) {
	job := load.Job{Dialect: dialect, Callers: each, Hosts: each, Payload: payload, Plain: scenario == plain}
	for _, n := range inFlight {
		job.Steps = append(job.Steps, bench.CallStep(n, p.window))
	}
	p.add(bench.Case{Scenario: scenario, Name: name, Program: s, Job: job}, 1)
}

// cores adds the same open loop against one core and against two.
func (p *plan) cores(s bench.Program) {
	for i, name := range []string{oneCore, twoCore} {
		job := load.Job{Dialect: bench.DialectFrames, Callers: 2, Hosts: 2, Payload: payload}
		job.Steps = []load.Step{bench.RateStep(offered, p.window)}
		p.add(bench.Case{Scenario: rate, Name: name, Program: s, Job: job}, i+1)
	}
}

// pick leaves the scenarios that a list names; "" is all.
func (p *plan) pick(only string) ([]bench.Case, error) {
	if only == "" {
		return p.cases, nil
	}
	var picked []bench.Case
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		n := len(picked)
		for _, c := range p.cases {
			if c.Scenario == name {
				picked = append(picked, c)
			}
		}
		if len(picked) == n {
			return nil, fmt.Errorf("no scenario is called %q; there are %s", name, strings.Join(p.names(), ", "))
		}
	}
	return picked, nil
}

func (p *plan) names() []string {
	var names []string
	for _, c := range p.cases {
		if !slices.Contains(names, c.Scenario) {
			names = append(names, c.Scenario)
		}
	}
	return names
}

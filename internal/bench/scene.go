package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
)

// The scenarios of what the engine has beside bare calls. Each asks for something: see Report.Asked.
const (
	EngineReplicas = "engine-replicas" // how evenly calls are dealt to the hosts of one function
	EngineKeys     = "engine-keys"     // what keys and rules cost a call
	EngineChannels = "engine-channels" // how fast bytes go through a channel
	EngineLogins   = "engine-logins"   // what logins do to calls
)

// What they are made of.
const (
	replicaHosts  = 4
	replicaCalls  = 100_000
	loginsAMinute = 1000
	loginCalls    = 2000 // calls a second beside the logins
	keyCalls      = 128  // in flight
)

// Names of cases.
const (
	caseOpen    = "no accounts"
	caseKeys    = "keys and rules"
	caseCopy    = "bare io.Copy"
	caseChannel = "channel"
	caseQuiet   = "no logins"
	caseLogins  = "1,000 logins a minute"
	control     = " (control)"
)

// replicas calls one function that several hosts have.
func (o Options) replicas(c Case) Case {
	c.Name = strconv.Itoa(replicaHosts) + " hosts"
	c.Job.Dialect, c.Job.Hosts = DialectReplicas, replicaHosts
	// The window ends with the last of the calls; a minute is for engines that have trouble.
	c.Job.Steps = []load.Step{
		{Name: "64", InFlight: 64, Calls: replicaCalls, Warm: warm(o.Step), Measure: time.Minute},
	}
	return c
}

// keys calls once as a fresh engine allows it, and once with a key for each side, the callers through a
// listener with rules: each call is held against the scopes of its key and against a rule.
func (o Options) keys(c Case) []Case {
	c.Job.Dialect = DialectFrames
	c.Job.Steps = []load.Step{CallStep(keyCalls, o.Step)}
	open, again, keyed := c, c, c
	open.Name, again.Name, keyed.Name = caseOpen, caseOpen+control, caseKeys
	const listener = "PLINTH_ENGINE_LISTENERS_BENCH_"
	keyed.Program.Env = append(keyed.Program.Env[:len(keyed.Program.Env):len(keyed.Program.Env)],
		listener+"LISTEN={free}", listener+`EXPOSE=match("bench::*")`)
	keyed.Setup = func(ctx context.Context, at Site, job *load.Job) (Beside, error) {
		d, err := newDoor(ctx, at)
		if err != nil {
			return nil, err
		}
		hosts, err := d.key(ctx, "hosts", "engine:register:bench::")
		if err != nil {
			return nil, err
		}
		callers, err := d.key(ctx, "callers", "engine:call:bench::")
		if err != nil {
			return nil, err
		}
		job.Target, job.CallAt = withKey(at.Workers, hosts), withKey(at.Free, callers)
		return nil, nil
	}
	return []Case{open, again, keyed}
}

// channels sends bytes through a channel, and through a program that does nothing but io.Copy.
func (o Options) channels(c Case) []Case {
	size, name := int64(1<<30), "1 GiB"
	if o.Quick {
		size, name = 256<<20, "256 MiB"
	}
	c.Job = load.Job{Dialect: DialectChannel, Steps: []load.Step{{Name: name, Bytes: size}}}
	bare, channel := c, c
	bare.Name, channel.Name = caseCopy, caseChannel
	bare.Program = Program{Name: caseCopy, Path: o.Copy[0], Args: o.Copy[1:], Dialect: DialectCopy}
	bare.Job.Dialect = DialectCopy
	return []Case{bare, channel}
}

// logins calls at a steady rate, with and without people who log in meanwhile.
func (o Options) logins(c Case) []Case {
	c.Job.Dialect = DialectFrames
	c.Job.Steps = []load.Step{RateStep(loginCalls, o.Step)}
	quiet, again, busy := c, c, c
	quiet.Name, again.Name, busy.Name = caseQuiet, caseQuiet+control, caseLogins
	setup := func(people bool) Setup {
		return func(ctx context.Context, at Site, job *load.Job) (Beside, error) {
			d, err := newDoor(ctx, at)
			if err != nil {
				return nil, err
			}
			key, err := d.key(ctx, "workers", "engine:*")
			if err != nil {
				return nil, err
			}
			job.Target = withKey(at.Workers, key)
			if !people {
				return nil, nil
			}
			return func(ctx context.Context) []string {
				l := d.visit(ctx, time.Minute/loginsAMinute)
				return []string{fmt.Sprintf("%d logins, %d refused, the slowest took %v", l.done, l.refused,
					l.slowest.Round(time.Millisecond))}
			}, nil
		}
	}
	quiet.Setup, again.Setup, busy.Setup = setup(false), setup(false), setup(true)
	return []Case{quiet, again, busy}
}

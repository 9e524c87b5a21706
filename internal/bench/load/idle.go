package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Idle workers are opened in batches, between which the loop answers what has come in.
const batch = 64

// spareFiles is what a process needs beside its connections.
const spareFiles = 64

// settle bounds how long the server may take to read what the workers of a step have sent.
const settle = 60 * time.Second

// doIdle connects idle workers step by step, and holds still in each window.
func doIdle(ctx context.Context, job *Job, dial Dial, tell func(Event)) error {
	most := 0
	for _, s := range job.Steps {
		most = max(most, s.Workers)
	}
	if limit, err := proc.Raise(most + spareFiles); err != nil || limit < most+spareFiles {
		return fmt.Errorf("%d idle workers need %d open descriptors, and the limit is %d (see ulimit -n): %w",
			most, most+spareFiles, limit, errOr(err, ErrDescriptors))
	}
	all := *job
	all.Callers, all.Hosts = 0, 0
	g, err := newGenerator(ctx, &all, dial)
	if err != nil {
		return err
	}
	defer g.wires.close()
	tell(Event{Kind: KindReady})
	var conns []*Conn
	for i, step := range job.Steps {
		if conns, err = g.gather(ctx, dial, conns, step.Workers); err != nil {
			return fmt.Errorf("step %s: %d of %d workers connected: %w", step.Name, len(conns), step.Workers, err)
		}
		if err := g.spin(ctx, g.clock()+int64(step.Warm), nil); err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
		tell(Event{Kind: KindWindow, Step: i})
		g.rec.reset(g.now)
		m := startMeter(job.PID)
		if err := g.spin(ctx, g.now+int64(step.Measure), nil); err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
		m.stop()
		res := g.rec.result(step, g.now)
		res.Series, res.Sessions = nil, len(conns)
		m.fill(res)
		tell(Event{Kind: KindResult, Step: i, Result: res})
	}
	return nil
}

// ErrDescriptors says that this process may not open as many connections as it should.
var ErrDescriptors = errors.New("too few open descriptors allowed")

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// gather connects idle workers until there are n, waits until the server has read all they sent, and
// calls the first and the last of them, so that a server which only seems to register them is found out.
func (g *Generator) gather(ctx context.Context, dial Dial, conns []*Conn, n int) ([]*Conn, error) {
	first := len(conns)
	for len(conns) < n {
		for range min(batch, n-len(conns)) {
			c, err := g.connect(ctx, dial, Idle, len(conns))
			if err != nil {
				return conns, err
			}
			conns = append(conns, c)
		}
		if err := g.spin(ctx, g.clock(), nil); err != nil {
			return conns, err
		}
	}
	if first == n {
		return conns, nil
	}
	at := first
	synced := func() bool {
		for at < n && conns[at].mark {
			at++
		}
		return at == n
	}
	if err := g.spin(ctx, g.clock()+int64(settle), synced); err != nil {
		return conns, err
	}
	if !synced() {
		return conns, fmt.Errorf("the server has not read what worker %d sent within %v", at, settle)
	}
	g.callers, g.hosts = conns[n-1:n], conns[:n]
	defer func() { g.callers, g.hosts = nil, nil }()
	return conns, g.probeEach(ctx, []int{0, n - 1})
}

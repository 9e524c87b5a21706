package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Seen is the byte that a load process waits for on its standard input after each result, so that
// whoever reads it can look at the server before the load changes or the connections close.
const Seen = '.'

// Serve is the main function of a load process: it reads one Job from in, does it, and writes Events
// to out, one JSON document a line. After each result it waits for Seen. It stops when ctx ends or in
// does, which it does when the process that started this one is gone.
func Serve(ctx context.Context, in io.Reader, out io.Writer, p Protocols) error {
	var job Job
	d := json.NewDecoder(in)
	if err := d.Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan struct{})
	go func() { // ends with in, at the latest with this process
		defer cancel()
		for r := bufio.NewReader(io.MultiReader(d.Buffered(), in)); ; {
			b, err := r.ReadByte()
			if err != nil {
				return
			}
			if b != Seen {
				continue
			}
			select {
			case seen <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	e := json.NewEncoder(out)
	var broken error
	tell := func(ev Event) {
		if err := e.Encode(ev); err != nil && broken == nil {
			broken = fmt.Errorf("tell the result: %w", err)
			cancel()
		}
		if ev.Kind == KindResult {
			select {
			case <-seen:
			case <-ctx.Done():
			}
		}
	}
	err := Do(ctx, &job, p, tell)
	if err != nil {
		tell(Event{Kind: KindFailed, Error: err.Error()})
		return errors.Join(err, broken)
	}
	tell(Event{Kind: KindDone})
	return broken
}

// Do does a job and tells what it sees; tell is called from one goroutine.
func Do(ctx context.Context, job *Job, p Protocols, tell func(Event)) error {
	if connect, ok := p.Library[job.Dialect]; ok {
		return doLibrary(ctx, job, connect, tell)
	}
	if plumb, ok := p.Pipes[job.Dialect]; ok {
		return doPipes(ctx, job, plumb, tell)
	}
	dial, ok := p.Loop[job.Dialect]
	if !ok {
		return fmt.Errorf("no protocol is called %q", job.Dialect)
	}
	if job.Callers == 0 && job.Hosts == 0 && !slices.ContainsFunc(job.Steps, Step.calls) {
		return doIdle(ctx, job, dial, tell)
	}
	if job.Callers < 1 || job.Hosts < 1 {
		return errNoCallers
	}
	// The loop blocks in system calls; on a thread of its own it disturbs nobody.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, err := newGenerator(ctx, job, dial)
	if err != nil {
		return err
	}
	defer g.wires.close()
	if err := g.probe(ctx); err != nil {
		return err
	}
	tell(Event{Kind: KindReady})
	for i, step := range job.Steps {
		if err := g.step(ctx, i, step, tell); err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
	}
	return nil
}

// step runs one step of a load.
func (g *Generator) step(ctx context.Context, i int, step Step, tell func(Event)) error {
	g.start(step)
	if err := g.spin(ctx, g.now+int64(step.Warm), nil); err != nil {
		return err
	}
	g.rec.reset(g.now)
	g.writes, g.late, g.stray = 0, 0, 0
	for _, h := range g.hosts {
		h.asked = 0
	}
	m := startMeter(g.job.PID)
	tell(Event{Kind: KindWindow, Step: i})
	end := g.now + int64(step.Measure)
	enough := func() bool { return step.Calls > 0 && g.rec.calls+g.rec.failed >= step.Calls }
	for g.now < end && !enough() {
		if err := g.spin(ctx, min(end, g.rec.cut), enough); err != nil {
			return err
		}
		if p, ok := g.rec.roll(g.now); ok {
			tell(Event{Kind: KindPoint, Step: i, Point: &p})
		}
	}
	m.stop()
	res := g.rec.result(step, g.now)
	m.fill(res)
	res.Writes, res.Late = g.writes, time.Duration(g.late)
	for _, h := range g.hosts {
		res.Shares = append(res.Shares, h.asked)
	}
	if !step.Keep {
		lost, err := g.drain(ctx)
		if err != nil {
			return err
		}
		res.Lost = lost
	}
	res.Stray = g.stray
	tell(Event{Kind: KindResult, Step: i, Result: res})
	return nil
}

// start sets the load of a step going.
func (g *Generator) start(step Step) {
	g.now = g.clock()
	if step.Rate > 0 {
		g.mode, g.gap, g.due = paced, 1e9/step.Rate, float64(g.now)
		g.free = g.free[:0]
		for i := range g.slots {
			if !g.slots[i].busy {
				g.free = append(g.free, uint32(i))
			}
		}
		return
	}
	g.mode, g.target = closed, step.InFlight
	for len(g.slots) < g.target {
		g.slots = append(g.slots, slot{})
	}
	for i := range g.target {
		if !g.slots[i].busy {
			g.next(uint32(i), g.now)
		}
	}
}

// drain lets the calls in flight end, and gives up those that do not.
func (g *Generator) drain(ctx context.Context) (lost int64, err error) {
	g.mode = draining
	if err := g.spin(ctx, g.now+int64(drainTime), func() bool { return g.open == 0 }); err != nil {
		return 0, err
	}
	for i := range g.slots {
		if s := &g.slots[i]; s.busy {
			s.busy = false
			s.caller.open--
			g.open--
			lost++
		}
	}
	return lost, nil
}

// How long functions may take to become callable, and how often a probe asks again.
const (
	probeTime = 20 * time.Second
	probeGap  = 5 * time.Millisecond
)

// probe calls every function from every caller until each has answered once, so that no load begins
// before the server knows all functions.
func (g *Generator) probe(ctx context.Context) error {
	functions := make([]int, len(g.hosts))
	for i := range functions {
		functions[i] = i
	}
	return g.probeEach(ctx, functions)
}

func (g *Generator) probeEach(ctx context.Context, functions []int) error {
	g.mode = probing
	g.now = g.clock()
	all := len(g.callers) * len(functions)
	g.left = all
	g.slots = make([]slot, all)
	for i, c := range g.callers {
		for j, f := range functions {
			g.issue(uint32(i*len(functions)+j), c, f, g.now)
		}
	}
	for until := g.now + int64(probeTime); g.left > 0; {
		err := g.spin(ctx, min(until, g.now+int64(probeGap)), func() bool { return g.left == 0 })
		if err != nil {
			return err
		}
		if g.now >= until {
			return fmt.Errorf("%d of %d probes got no good answer within %v", g.left, all, probeTime)
		}
		again := g.again
		g.again = nil
		for _, i := range again {
			g.issue(i, g.slots[i].caller, g.slots[i].function, g.now)
		}
	}
	g.mode = draining
	g.slots = nil
	return nil
}

// probed takes the answer to a probe. Whatever went wrong may be better a moment later.
func (g *Generator) probed(i uint32, code []byte) {
	if len(code) > 0 {
		g.again = append(g.again, i)
		return
	}
	g.left--
}

// meter reads what a window cost in processor time.
type meter struct {
	pid, self   int
	began       time.Time
	server, own time.Duration
}

func startMeter(pid int) *meter {
	m := &meter{pid: pid, self: os.Getpid(), began: time.Now()}
	m.server, m.own = m.read()
	return m
}

// read gives 0 for what cannot be read: the report then says that it is unknown.
func (m *meter) read() (server, own time.Duration) {
	if m.pid > 0 {
		server, _ = proc.CPU(m.pid)
	}
	own, _ = proc.CPU(m.self)
	return server, own
}

func (m *meter) stop() {
	server, own := m.read()
	m.server, m.own = server-m.server, own-m.own
}

func (m *meter) fill(r *Result) {
	r.Begin, r.Server, r.Own, r.OwnCPUs = m.began, m.server, m.own, runtime.GOMAXPROCS(0)
}

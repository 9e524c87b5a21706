package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// doLibrary drives a client library: one goroutine for each call in flight, as its users would. Open
// loops are not offered, for the library would decide when a call is sent.
func doLibrary(ctx context.Context, job *Job, connect Connect, tell func(Event)) error {
	if job.Callers < 1 || job.Hosts < 1 {
		return errNoCallers
	}
	for _, s := range job.Steps {
		if s.InFlight < 1 || s.Rate > 0 || s.Workers > 0 {
			return fmt.Errorf("step %s: a client library is driven with a number of calls in flight only", s.Name)
		}
	}
	session, err := connect(ctx, job)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", job.Target, err)
	}
	defer session.Close()
	d := &driver{job: job, session: session, payload: Payload(job.Payload), epoch: time.Now()}
	if err := d.probe(ctx); err != nil {
		return err
	}
	tell(Event{Kind: KindReady})
	for i, step := range job.Steps {
		if err := d.step(ctx, i, step, tell); err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
	}
	return nil
}

// shards keep the goroutines of a load from waiting for each other to count.
const shards = 8

// driver runs the goroutines of a library load. They belong to step, which waits for them.
type driver struct {
	job     *Job
	session Session
	payload []byte
	epoch   time.Time
	stop    atomic.Bool
	rec     [shards]struct {
		mu sync.Mutex
		recorder
	}
}

func (d *driver) clock() int64 { return int64(time.Since(d.epoch)) }

// probe repeats one call a pair of connections until it is answered.
func (d *driver) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	tick := time.NewTicker(probeGap)
	defer tick.Stop()
	for c := range d.job.Callers {
		for f := range d.job.Hosts {
			for {
				code := d.session.Call(ctx, c, f, d.payload)
				if code == "" {
					break
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return fmt.Errorf("caller %d got no good answer from function %d, last: %s", c, f, code)
				}
			}
		}
	}
	return nil
}

func (d *driver) step(ctx context.Context, i int, step Step, tell func(Event)) error {
	d.stop.Store(false)
	d.reset()
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	var busy sync.WaitGroup
	for n := range step.InFlight {
		busy.Go(func() { d.call(calling, n) })
	}
	idle := make(chan struct{})
	go func() { busy.Wait(); close(idle) }() // ends with the goroutines above
	defer func() { <-idle }()
	defer cancel()
	if err := pause(ctx, step.Warm); err != nil {
		return err
	}
	d.reset()
	m := startMeter(d.job.PID)
	began := d.clock()
	tell(Event{Kind: KindWindow, Step: i})
	var points []Point
	for left := step.Measure; left > 0; left -= slice {
		if err := pause(ctx, min(left, slice)); err != nil {
			return err
		}
		if left > slice {
			points = append(points, d.roll(began))
			tell(Event{Kind: KindPoint, Step: i, Point: &points[len(points)-1]})
		}
	}
	m.stop()
	res := d.result(step, points)
	m.fill(res)
	tell(Event{Kind: KindPoint, Step: i, Point: &res.Series[len(res.Series)-1]})
	d.stop.Store(true)
	lost, err := d.drain(ctx, idle, cancel)
	if err != nil {
		return err
	}
	res.Lost = lost
	tell(Event{Kind: KindResult, Step: i, Result: res})
	return nil
}

// drain waits until the last calls have ended; those that have to be cancelled are lost.
func (d *driver) drain(ctx context.Context, idle <-chan struct{}, cancel func()) (lost int64, err error) {
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-idle:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-timer.C:
	}
	d.reset()
	cancel()
	<-idle
	for i := range d.rec {
		lost += d.rec[i].failed
	}
	return lost, nil
}

// call is one user of the library: it calls, waits, and calls again.
func (d *driver) call(ctx context.Context, n int) {
	rec := &d.rec[n%shards]
	for turn := n; !d.stop.Load() && ctx.Err() == nil; turn++ {
		start := d.clock()
		code := d.session.Call(ctx, n%d.job.Callers, turn%d.job.Hosts, d.payload)
		took := d.clock() - start
		rec.mu.Lock()
		if code == "" {
			rec.ok(took)
		} else {
			rec.fail([]byte(code))
		}
		rec.mu.Unlock()
	}
}

func (d *driver) reset() {
	now := d.clock()
	for i := range d.rec {
		r := &d.rec[i]
		r.mu.Lock()
		if r.total == nil {
			r.recorder = *newRecorder()
		}
		r.recorder.reset(now)
		r.mu.Unlock()
	}
}

// roll closes a slice of all shards. Its quantiles are those of the shards together.
func (d *driver) roll(began int64) Point {
	now := d.clock()
	all := newRecorder()
	all.begin = began
	for i := range d.rec {
		r := &d.rec[i]
		r.mu.Lock()
		all.part.Merge(r.part)
		p := r.close(now)
		r.mu.Unlock()
		all.calls += p.Calls
		all.failed += p.Failed
	}
	return all.close(now)
}

// result ends the window; what came after the last of its points is one more.
func (d *driver) result(step Step, points []Point) *Result {
	now := d.clock()
	all := newRecorder()
	for i := range d.rec {
		r := &d.rec[i]
		r.mu.Lock()
		all.begin = r.begin
		all.join(&r.recorder)
		r.mu.Unlock()
	}
	all.points = points
	for _, p := range points {
		all.toldCalls += p.Calls
		all.toldFailed += p.Failed
	}
	all.close(now)
	return all.result(step, now)
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

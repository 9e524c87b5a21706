package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/proc"
)

// drive is one round of one case under way. It belongs to one goroutine, but for its sampler.
type drive struct {
	c       *Case
	round   int
	t       *tracker
	began   time.Time
	server  *server
	runs    []Trial
	notes   []string
	sampler *sampler
}

// load starts the load process, hands it the job and takes its results.
func (d *drive) load(ctx context.Context, command []string) error {
	job := d.c.Job
	job.Target, job.PID = d.server.address, d.server.pid()
	if d.c.Setup != nil {
		beside, err := d.c.Setup(ctx, d.server.site(), &job)
		if err != nil {
			return fmt.Errorf("set up the server: %w", err)
		}
		if beside != nil {
			defer d.beside(ctx, beside)()
		}
	}
	in, feed, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the load: %w", err)
	}
	defer feed.Close() // the load ends with its standard input
	tell, out, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return fmt.Errorf("start the load: %w", err)
	}
	defer tell.Close()
	stderr := &tail{}
	child, err := proc.Start(proc.Command{
		Path: command[0], Args: command[1:], CPUs: d.c.LoadCPUs, Stdin: in, Stdout: out, Stderr: stderr,
	})
	_, _ = in.Close(), out.Close() // the child has its own
	if err != nil {
		return fmt.Errorf("start the load: %w", err)
	}
	defer child.Stop(0)
	stop := context.AfterFunc(ctx, func() { child.Stop(graceTime) })
	defer stop()
	if err := json.NewEncoder(feed).Encode(job); err != nil {
		return fmt.Errorf("hand over the job: %w%s", err, stderr.quote())
	}
	d.sampler = startSampler(d.server.pid(), d.began)
	defer d.sampler.stop()
	err = d.follow(tell, feed)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		child.Stop(graceTime)
		return fmt.Errorf("the load ended without a word: %w%s", errors.Join(child.Err(), err), stderr.quote())
	}
	return err
}

// beside runs something while the load does. What it returns ends that and keeps the remarks.
func (d *drive) beside(ctx context.Context, run Beside) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan []string, 1)
	go func() { told <- run(ctx) }() // ends with ctx
	return func() {
		cancel()
		for _, note := range <-told {
			d.notes = append(d.notes, fmt.Sprintf("round %d: %s", d.round+1, note))
		}
	}
}

// follow reads events until the last one, and lets the load go on after each result.
func (d *drive) follow(r io.Reader, feed io.Writer) error {
	for events := json.NewDecoder(r); ; {
		var ev load.Event
		if err := events.Decode(&ev); err != nil {
			return err
		}
		if ev.Step < 0 || ev.Step >= len(d.c.Job.Steps) {
			return fmt.Errorf("the load tells of step %d of %d", ev.Step, len(d.c.Job.Steps))
		}
		step := d.c.Job.Steps[ev.Step]
		switch ev.Kind {
		case load.KindReady:
			d.t.tell(step, true, nil, nil)
		case load.KindWindow:
			d.t.tell(step, false, nil, nil)
		case load.KindPoint:
			d.t.tell(step, false, ev.Point, nil)
		case load.KindResult:
			if ev.Result == nil || ev.Step != len(d.runs) {
				return fmt.Errorf("the load tells the result of step %d after %d results", ev.Step, len(d.runs))
			}
			d.runs = append(d.runs, d.run(ev.Result))
			d.t.tell(step, false, nil, ev.Result)
			if _, err := feed.Write([]byte{load.Seen}); err != nil {
				return fmt.Errorf("let the load go on: %w", err)
			}
		case load.KindFailed:
			return errors.New(ev.Error)
		case load.KindDone:
			if len(d.runs) < len(d.c.Job.Steps) {
				return fmt.Errorf("the load ended after %d of %d steps", len(d.runs), len(d.c.Job.Steps))
			}
			return nil
		}
	}
}

// run adds to a result what is to be seen of the server from outside. What cannot be read stays 0,
// which the report leaves out.
func (d *drive) run(r *load.Result) Trial {
	run := Trial{Round: d.round, Result: *r}
	pid := d.server.pid()
	if pid == 0 {
		return run
	}
	run.RSSEnd, _ = proc.RSS(pid)
	run.Descriptors, _ = proc.Descriptors(pid)
	run.Samples = d.sampler.take(r.Begin, time.Duration(r.Seconds*float64(time.Second)), &run)
	run.RSSPeak = max(run.RSSPeak, run.RSSEnd)
	return run
}

// period is how often the sampler looks.
const period = 250 * time.Millisecond

// sampler reads a process at intervals. Its goroutine ends with stop.
type sampler struct {
	began time.Time
	quit  chan struct{}
	done  chan struct{}

	mu      sync.Mutex
	samples []Sample // since the last take
}

func startSampler(pid int, began time.Time) *sampler {
	s := &sampler{began: began, quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if pid > 0 {
			s.run(pid)
		}
	}()
	return s
}

func (s *sampler) run(pid int) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	last, at := time.Duration(0), time.Now()
	if cpu, err := proc.CPU(pid); err == nil {
		last = cpu
	}
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		cpu, err := proc.CPU(pid)
		u, errU := proc.Read(pid)
		if err != nil || errU != nil {
			return // it has ended, or this platform does not say
		}
		now := time.Now()
		sample := Sample{
			At:    now.Sub(s.began),
			Cores: (cpu - last).Seconds() / max(now.Sub(at).Seconds(), 1e-9),
			RSS:   u.RSS, Threads: u.Threads,
		}
		last, at = cpu, now
		s.mu.Lock()
		s.samples = append(s.samples, sample)
		s.mu.Unlock()
	}
}

// take returns the samples of a window and forgets them and all before; what they peak at goes to run.
func (s *sampler) take(begin time.Time, length time.Duration, run *Trial) (window []Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := begin.Sub(s.began)
	for _, sample := range s.samples {
		run.RSSPeak = max(run.RSSPeak, sample.RSS)
		run.Threads = max(run.Threads, sample.Threads)
		if sample.At >= from && sample.At <= from+length {
			window = append(window, sample)
		}
	}
	s.samples = s.samples[:0]
	return window
}

func (s *sampler) stop() {
	close(s.quit)
	<-s.done
}

// isUnsupported tells whether this platform or this place cannot do something.
func isUnsupported(err error) bool { return errors.Is(err, proc.ErrUnsupported) }

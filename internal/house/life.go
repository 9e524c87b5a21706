package house

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
)

// A Part is one thing that lives as long as the program: a room, a door, a loop. Run returns when ctx
// ends, after it has finished or given up what was in flight, or when it cannot go on.
type Part struct {
	Name string
	Run  func(ctx context.Context) error
}

// A State is where the program is in its life.
type State int32

// The states, in order.
const (
	Starting State = iota
	Serving
	Draining
	Stopped
)

// String is the state in one word.
func (s State) String() string {
	return [...]string{"starting", "serving", "draining", "stopped"}[s]
}

// Life runs the parts of a program.
type Life struct {
	Grace time.Duration // from the wish to stop until parts that still run are left behind
	Log   *slog.Logger

	state atomic.Int32
}

// State may be asked at any time, by any goroutine.
func (l *Life) State() State { return State(l.state.Load()) }

// Run starts the parts in order and waits until ctx ends or the first part returns. Then it ends the
// parts one by one, the last started first, each only after the one before it has returned; all of
// them together have the grace. The answer is the failure of the part that ended first, else the
// failures met while stopping, else a *Problem that names the parts which did not stop in time. A part that
// returns nil before it was told to is a failure too.
func (l *Life) Run(ctx context.Context, parts ...Part) error {
	runs := make([]*run, len(parts))
	ended := make(chan *run, len(parts))
	for i, p := range parts {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		runs[i] = &run{part: p, cancel: cancel, done: make(chan struct{})}
		go runs[i].start(own, ended) // ends with its context; Run waits for it, up to the grace
	}
	l.state.Store(int32(Serving))
	var first error
	select {
	case <-ctx.Done():
	case r := <-ended:
		first = r.err
		if first == nil {
			first = fmt.Errorf("%s ended by itself", r.part.Name)
		}
	}
	l.state.Store(int32(Draining))
	l.Log.Info("draining", "grace", l.Grace.String())
	late := stop(runs, l.Grace)
	l.state.Store(int32(Stopped))
	if first != nil {
		return first
	}
	for _, r := range runs {
		select {
		case <-r.done:
			if r.err != nil && first == nil {
				first = r.err
			}
		default:
		}
	}
	if first == nil && len(late) > 0 {
		return &Problem{Kind: fault.Timeout, Code: CodeNotStopped,
			What: "stopped before everything had ended",
			Why:  strings.Join(late, ", ") + " did not end within " + l.Grace.String(),
			Do:   "allow more time with --drain-grace"}
	}
	return first
}

// lastCall is what the parts have that were not even told to stop when the grace was over: a part that
// hangs must not keep the store beneath it from closing its files.
const lastCall = time.Second

// stop ends the runs in reverse, each after the one before, and names those that did not end in time.
func stop(runs []*run, grace time.Duration) (late []string) {
	over := time.NewTimer(grace)
	defer over.Stop()
	for i := len(runs) - 1; i >= 0; i-- {
		runs[i].cancel()
		if runs[i].wait(over.C) {
			continue
		}
		late = append(late, runs[i].part.Name)
		last := time.NewTimer(lastCall)
		defer last.Stop()
		for _, r := range runs[:i] {
			r.cancel()
		}
		for _, r := range runs[:i] {
			if !r.wait(last.C) {
				late = append(late, r.part.Name)
				last.Reset(0)
			}
		}
		break
	}
	return late
}

// run is one part under way. err belongs to the goroutine of start until done is closed.
type run struct {
	part   Part
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (r *run) start(ctx context.Context, ended chan<- *run) {
	defer func() {
		close(r.done)
		ended <- r
	}()
	if err := r.part.Run(ctx); err != nil && ctx.Err() == nil {
		r.err = fmt.Errorf("%s: %w", r.part.Name, err)
	} else if err != nil && !isEnd(err) {
		r.err = fmt.Errorf("%s: stop: %w", r.part.Name, err)
	}
}

// wait says whether the part ended before the timer did.
func (r *run) wait(over <-chan time.Time) bool {
	select {
	case <-r.done:
		return true
	case <-over:
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

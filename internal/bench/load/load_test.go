package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load/loadtest"
)

// relay starts a server on a real socket.
func relay(t *testing.T, r *loadtest.Relay) (target string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { r.Serve(l); close(done) }()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// pipes is a listener in memory: connections block in ways that a synctest bubble understands.
type pipes struct {
	came chan net.Conn
	quit chan struct{}
	once sync.Once
}

func newPipes() *pipes { return &pipes{came: make(chan net.Conn), quit: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.came:
		return c, nil
	case <-p.quit:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.quit) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial is DialFrames over a pipe.
func (p *pipes) dial(_ context.Context, _ string, role Role, index int) (Link, error) {
	here, there := net.Pipe()
	p.came <- there
	return openFrames(here, address{host: "pipe", path: "/"}, newFrames(role, index))
}

// bubble runs test with a relay in memory, in a bubble whose clock stands still while anyone works.
func bubble(t *testing.T, r *loadtest.Relay, test func(t *testing.T, p Protocols)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		done := make(chan struct{})
		go func() { r.Serve(p); close(done) }()
		test(t, Protocols{Loop: map[string]Dial{"pipe": p.dial}})
		p.Close()
		<-done
	})
}

// do runs a job and returns what it told.
func do(ctx context.Context, job *Job, p Protocols) (results []*Result, kinds []Kind, err error) {
	err = Do(ctx, job, p, func(ev Event) {
		kinds = append(kinds, ev.Kind)
		if ev.Result != nil {
			results = append(results, ev.Result)
		}
	})
	return results, kinds, err
}

var sockets = Protocols{Loop: map[string]Dial{"frames": DialFrames}}

func quick(name string, inFlight int) Step {
	return Step{Name: name, InFlight: inFlight, Warm: 20 * time.Millisecond, Measure: 60 * time.Millisecond}
}

// check holds every invariant of a result in which nothing went wrong.
func check(t *testing.T, r *Result) {
	t.Helper()
	if r.Lost != 0 || r.Stray != 0 || len(r.Errors) != 0 {
		t.Errorf("%s: %d calls, %d lost, %d stray, errors %v", r.Step.Name, r.Calls, r.Lost, r.Stray, r.Errors)
	}
	if r.Calls > 0 && r.P50 <= 0 || r.P50 > r.P90 || r.P90 > r.P99 || r.P99 > r.Max {
		t.Errorf("%s: latencies %v %v %v %v do not rise", r.Step.Name, r.P50, r.P90, r.P99, r.Max)
	}
	if r.Seconds < r.Step.Measure.Seconds() {
		t.Errorf("%s: a window of %v s, want at least %v", r.Step.Name, r.Seconds, r.Step.Measure)
	}
	var sum int64
	for _, p := range r.Series {
		sum += p.Calls
	}
	if sum != r.Calls {
		t.Errorf("%s: the series has %d calls, the window %d", r.Step.Name, sum, r.Calls)
	}
}

func TestEveryCallEndsExactlyOnceOverEachTransport(t *testing.T) {
	for _, c := range []Job{
		{Callers: 2, Hosts: 2, Payload: 64},
		{Callers: 2, Hosts: 2, Payload: 64, Plain: true},
		{Callers: 2, Hosts: 2, Payload: 64, Portable: true},
		{Callers: 1, Hosts: 3, Payload: 64, Portable: true, Plain: true},
		{Callers: 4, Hosts: 1, Payload: 2},
		{Callers: 2, Hosts: 2, Payload: 100_000}, // neither fits one read nor one write
	} {
		t.Run(fmt.Sprintf("plain=%v,portable=%v,payload=%d", c.Plain, c.Portable, c.Payload), func(t *testing.T) {
			server := &loadtest.Relay{Late: 3}
			job := c
			job.Target, job.Dialect = relay(t, server), "frames"
			g, err := newGenerator(t.Context(), &job, DialFrames)
			if err != nil {
				t.Fatal(err)
			}
			defer g.wires.close()
			if err := g.probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			before, probes := server.Calls(), g.started
			if want := int64(c.Callers * c.Hosts); before != want {
				t.Errorf("%d probes were answered, want %d", before, want)
			}
			steps := []int{1, 8, 48, 3}
			if c.Payload > 1000 { // slow under the race detector
				steps = []int{1, 12, 3}
			}
			for i, n := range steps {
				started := g.started
				step := quick(fmt.Sprint(n), n)
				if c.Payload > 1000 {
					step.Measure *= 10
				}
				err := g.step(t.Context(), i, step, func(ev Event) {
					if ev.Result != nil {
						check(t, ev.Result)
						if all := g.started - started; ev.Result.Calls > all {
							t.Errorf("%d calls ended, and %d were made", ev.Result.Calls, all)
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			var least int64 // each call in flight is made once, however slow this machine is
			for _, n := range steps {
				least += int64(n)
			}
			if g.started-probes < least {
				t.Errorf("%d calls were made, want %d at least", g.started-probes, least)
			}
			if g.open != 0 || server.Calls()-before != g.started-probes {
				t.Errorf("%d calls open, %d made, %d seen by the server",
					g.open, g.started-probes, server.Calls()-before)
			}
		})
	}
}

func TestEventsComeInTheOrderThatIsPromised(t *testing.T) {
	job := &Job{Dialect: "frames", Target: relay(t, &loadtest.Relay{}), Callers: 1, Hosts: 1, Payload: 16}
	job.Steps = []Step{quick("a", 1), quick("b", 2)}
	job.Steps[0].Measure = 2*slice + slice/2
	_, kinds, err := do(t.Context(), job, sockets)
	want := "[ready window point point result window result]"
	if got := fmt.Sprint(kinds); err != nil || got != want {
		t.Fatalf("told %v, %v; want %v", got, err, want)
	}
}

func TestFailuresAreCountedUnderTheirCode(t *testing.T) {
	const probes = 4
	server := &loadtest.Relay{Fault: func(n int64) loadtest.Fault {
		switch {
		case n <= probes:
			return loadtest.Fault{}
		case n%5 == 0:
			return loadtest.Fault{Code: "HOST_OVERLOADED"}
		case n%7 == 0:
			return loadtest.Fault{Alter: true}
		case n%11 == 0:
			return loadtest.Fault{Twice: true}
		}
		return loadtest.Fault{}
	}}
	job := &Job{Dialect: "frames", Target: relay(t, server), Callers: 2, Hosts: 2, Payload: 64}
	step := Step{Name: "faults", InFlight: 16, Measure: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g, err := newGenerator(ctx, job, DialFrames)
	if err != nil {
		t.Fatal(err)
	}
	defer g.wires.close()
	if err := g.probe(ctx); err != nil {
		t.Fatal(err)
	}
	g.start(step)
	g.rec.reset(g.now)
	// However slow this machine is: until each fault was seen.
	seen := func() bool {
		return g.rec.calls > 0 && g.stray > 0 &&
			g.rec.codes["HOST_OVERLOADED"] != nil && g.rec.codes[CodeDiffers] != nil
	}
	if err := g.spin(ctx, g.now+int64(time.Hour), seen); err != nil {
		t.Fatal(err)
	}
	r := g.rec.result(step, g.now)
	if r.Lost, err = g.drain(ctx); err != nil {
		t.Fatal(err)
	}
	if len(r.Errors) != 2 || r.Lost != 0 {
		t.Fatalf("errors %v, %d lost", r.Errors, r.Lost)
	}
	if want := r.Calls + r.Errors["HOST_OVERLOADED"] + r.Errors[CodeDiffers]; r.Answered() != want {
		t.Fatalf("%d answered, want %d", r.Answered(), want)
	}
}

func TestACallWithoutAnAnswerIsLost(t *testing.T) {
	server := &loadtest.Relay{Fault: func(n int64) loadtest.Fault {
		return loadtest.Fault{Swallow: n == 3 || n == 5}
	}}
	bubble(t, server, func(t *testing.T, p Protocols) {
		job := &Job{Dialect: "pipe", Callers: 1, Hosts: 1, Payload: 64, Portable: true, Service: time.Millisecond}
		job.Steps = []Step{{Name: "lossy", InFlight: 3, Measure: 100 * time.Millisecond}}
		results, _, err := do(t.Context(), job, p)
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; r.Lost != 2 || r.Stray != 0 {
			t.Fatalf("%d lost, %d stray; want 2 and 0", r.Lost, r.Stray)
		}
	})
}

func TestALostConnectionEndsTheJobWithItsName(t *testing.T) {
	server := &loadtest.Relay{Fault: func(n int64) loadtest.Fault { return loadtest.Fault{Close: n == 50} }}
	job := &Job{Dialect: "frames", Target: relay(t, server), Callers: 1, Hosts: 1, Payload: 64}
	job.Steps = []Step{quick("a", 4), {Name: "b", InFlight: 4, Measure: time.Hour}}
	_, _, err := do(t.Context(), job, sockets)
	if err == nil || !strings.Contains(err.Error(), "caller 0") {
		t.Fatalf("got %v, want one that names caller 0", err)
	}
}

func TestAFunctionThatNeverAnswersFailsTheJob(t *testing.T) {
	bubble(t, &loadtest.Relay{Late: 1 << 40}, func(t *testing.T, p Protocols) {
		job := &Job{Dialect: "pipe", Callers: 1, Hosts: 2, Payload: 64, Portable: true}
		_, kinds, err := do(t.Context(), job, p)
		if err == nil || !strings.Contains(err.Error(), "2 of 2 probes") || len(kinds) != 0 {
			t.Fatalf("got %v after %v", err, kinds)
		}
	})
}

func TestCancelEndsTheJobWithinAStep(t *testing.T) {
	for name, p := range map[string]Protocols{
		"loop":    sockets,
		"library": {Library: map[string]Connect{"frames": connectNothing}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			job := &Job{Dialect: "frames", Target: relay(t, &loadtest.Relay{}), Callers: 1, Hosts: 1, Payload: 64}
			job.Steps = []Step{{Name: "long", InFlight: 1, Measure: time.Hour}}
			err := Do(ctx, job, p, func(ev Event) {
				if ev.Kind == KindWindow {
					cancel()
				}
				if ev.Kind == KindResult {
					t.Error("a step that was cut short has a result")
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v, want context.Canceled", err)
			}
		})
	}
}

func TestJobsThatMakeNoSenseAreRefused(t *testing.T) {
	target := relay(t, &loadtest.Relay{})
	for name, job := range map[string]*Job{
		"no such dialect": {Dialect: "morse", Target: target, Callers: 1, Hosts: 1},
		"no hosts":        {Dialect: "frames", Target: target, Callers: 1},
		"no callers":      {Dialect: "frames", Target: target, Hosts: 1},
		"nobody there":    {Dialect: "frames", Target: "127.0.0.1:1", Callers: 1, Hosts: 1},
		"wrong scheme":    {Dialect: "frames", Target: "https://127.0.0.1:1", Callers: 1, Hosts: 1},
	} {
		if _, _, err := do(t.Context(), job, sockets); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestIdleWorkersRegisterTwoFunctionsEachAndIntroduceThemselves(t *testing.T) {
	server := &loadtest.Relay{}
	job := &Job{Dialect: "frames", Target: relay(t, server), Payload: 16}
	for _, n := range []int{0, 1, 150} {
		job.Steps = append(job.Steps, Step{Name: fmt.Sprint(n), Workers: n, Measure: time.Millisecond})
	}
	// A first step without workers must not make this a load.
	results, _, err := do(t.Context(), job, sockets)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{0, 1, 150} {
		if results[i].Sessions != n {
			t.Errorf("step %d holds %d workers, want %d", i, results[i].Sessions, n)
		}
	}
	if server.Functions() != 300 || server.Workers() != 150 {
		t.Errorf("%d functions of %d workers, want 300 of 150", server.Functions(), server.Workers())
	}
}

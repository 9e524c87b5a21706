package load

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/bench/load/loadtest"
)

// copier starts a Copier on a real socket.
func copier(t *testing.T) (target string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Copier(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// plumber opens pipes that a test makes.
type plumber func() (Pipe, error)

func (p plumber) Pipe(context.Context) (Pipe, error) { return p() }
func (plumber) Close()                               {}

func piped(p Plumber) Protocols {
	open := func(context.Context, *Job) (Plumber, error) { return p, nil }
	return Protocols{Pipes: map[string]Plumb{"pipe": open}}
}

func TestBytesGoThroughACopier(t *testing.T) {
	job := &Job{Dialect: "copy", Target: copier(t)}
	job.Steps = []Step{{Name: "a", Bytes: 1}, {Name: "b", Bytes: blockSize}, {Name: "c", Bytes: 5<<20 + 7}}
	results, kinds, err := do(t.Context(), job, Protocols{Pipes: map[string]Plumb{"copy": PlumbCopy}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if want := job.Steps[i].Bytes; r.Bytes != want || r.Seconds <= 0 {
			t.Errorf("step %s: %d bytes in %v s, want %d", r.Step.Name, r.Bytes, r.Seconds, want)
		}
	}
	if len(results) != 3 || kinds[0] != KindReady || kinds[1] != KindWindow {
		t.Errorf("%d results, %v", len(results), kinds)
	}
}

func TestACopierSurvivesConnectionsThatSayNothing(t *testing.T) {
	target := copier(t)
	silent, err := net.Dial("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	silent.Close()
	job := &Job{Dialect: "copy", Target: target, Steps: []Step{{Name: "a", Bytes: 10}}}
	if _, _, err := do(t.Context(), job, Protocols{Pipes: map[string]Plumb{"copy": PlumbCopy}}); err != nil {
		t.Error(err)
	}
}

func TestPipesThatFailFailTheJob(t *testing.T) {
	whole := func() []byte {
		var b bytes.Buffer
		w := struct{ io.WriteCloser }{closer{&b}}
		if err := fill(w, 100); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}()
	other := bytes.Clone(whole)
	other[0]++
	for name, c := range map[string]struct {
		open  func() (Pipe, error)
		steps []Step
		want  string
	}{
		"no pipe":     {func() (Pipe, error) { return Pipe{}, errors.New("no pipe here") }, nil, "no pipe here"},
		"too few":     {func() (Pipe, error) { return ends(io.Discard, bytes.NewReader(whole[:99])), nil }, nil, "99 of 100"},
		"other bytes": {func() (Pipe, error) { return ends(io.Discard, bytes.NewReader(other)), nil }, nil, ErrCorrupt.Error()},
		"no bytes asked for": {func() (Pipe, error) { return ends(io.Discard, bytes.NewReader(whole)), nil },
			[]Step{{Name: "a"}}, "number of bytes"},
		"a writer that breaks": {func() (Pipe, error) { return ends(broken{}, bytes.NewReader(whole)), nil }, nil, "write: "},
		"a reader that breaks": {func() (Pipe, error) { return ends(io.Discard, broken{}), nil }, nil, "read: "},
	} {
		job := &Job{Dialect: "pipe", Steps: c.steps}
		if job.Steps == nil {
			job.Steps = []Step{{Name: "a", Bytes: 100}}
		}
		_, _, err := do(t.Context(), job, piped(plumber(c.open)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestATransferEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	job := &Job{Dialect: "pipe", Steps: []Step{{Name: "a", Bytes: 1 << 40}}}
	_, _, err := do(ctx, job, piped(plumber(func() (Pipe, error) {
		r, w := io.Pipe()
		cancel() // nobody writes what the reader waits for
		return Pipe{Writer: closer{io.Discard}, Reader: struct {
			io.Reader
			io.Closer
		}{r, closers{r, w}}}, nil
	})))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestKeysOfTargetsGoIntoTheHandshakeAndNowhereElse(t *testing.T) {
	const target = "ws://any:wk_secret@127.0.0.1:1/a"
	at, err := parseTarget(target)
	if err != nil || at.host != "127.0.0.1:1" || at.path != "/a" || at.key != "wk_secret" {
		t.Fatalf("%+v, %v", at, err)
	}
	// The password of Basic is what engines look at.
	if h := at.header()["Authorization"]; len(h) != 1 || h[0] != "Basic YW55OndrX3NlY3JldA==" {
		t.Errorf("header %q", h)
	}
	if at.url() != "ws://127.0.0.1:1/a" || strings.Contains(plain(target), "secret") || plain("a:1") != "a:1" {
		t.Errorf("%q and %q", at.url(), plain(target))
	}
	job := &Job{Dialect: "frames", Target: target, Callers: 1, Hosts: 1, Steps: []Step{{Name: "a", InFlight: 1}}}
	protocols := Protocols{Loop: map[string]Dial{"frames": DialFrames}}
	if _, _, err := do(t.Context(), job, protocols); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error of a connection that fails: %v", err)
	}
	if _, err := parseTarget("wss://any:wk_secret@a"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error of a target that cannot be driven: %v", err)
	}
}

func TestCallersMayConnectElsewhere(t *testing.T) {
	job := &Job{Target: "a", CallAt: "b"}
	if job.target(Host) != "a" || job.target(Caller) != "b" || (&Job{Target: "a"}).target(Caller) != "a" {
		t.Error("a role goes to the wrong place")
	}
}

func TestAWindowEndsWithTheLastOfItsCalls(t *testing.T) {
	target := relay(t, &loadtest.Relay{})
	job := &Job{Dialect: "frames", Target: target, Callers: 1, Hosts: 1, Payload: 16}
	job.Steps = []Step{{Name: "a", InFlight: 4, Calls: 200, Measure: drainTime}}
	results, _, err := do(t.Context(), job, Protocols{Loop: map[string]Dial{"frames": DialFrames}})
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	if r.Calls < 200 || r.Seconds > drainTime.Seconds()/2 || len(r.Shares) != 1 || r.Shares[0] < 200 {
		t.Errorf("%d calls in %v s, shares %v", r.Calls, r.Seconds, r.Shares)
	}
}

func TestReplicasHaveOneNameAndSaySo(t *testing.T) {
	f := newFrames(Host, 3)
	f.replica = true
	greeting := messages(t, f.greet())[0]
	if !strings.Contains(greeting, `"id":"bench::echo"`) ||
		!strings.Contains(greeting, `"metadata":{"replicas":true}`) {
		t.Errorf("a replica registers with %s", greeting)
	}
	if call := messages(t, f.Call(nil, 7, 1, []byte("1")))[0]; !strings.Contains(call, `"bench::echo"`) {
		t.Errorf("a replica is called with %s", call)
	}
}

// ends makes a pipe of a writer and a reader that know nothing of each other.
func ends(w io.Writer, r io.Reader) Pipe { return Pipe{Writer: closer{w}, Reader: io.NopCloser(r)} }

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

type closers []io.Closer

func (c closers) Close() error {
	for _, one := range c {
		one.Close()
	}
	return nil
}

// broken fails at both ends.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }
func (broken) Read([]byte) (int, error)  { return 0, errors.New("broken") }

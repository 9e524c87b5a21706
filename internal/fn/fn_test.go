package fn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// echo is a target that finishes at once.
var echo = fn.Quick(func(c *fn.Call) fn.Outcome { return fn.Outcome{Result: c.Payload} })

// outcomes collects what a completer is told.
type outcomes struct {
	mu   sync.Mutex
	tags []string
	errs []*fault.Error
	ress [][]byte
}

func (o *outcomes) Complete(c *fn.Call, out fn.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tags = append(o.tags, string(c.Tag()))
	o.errs = append(o.errs, out.Error())
	o.ress = append(o.ress, bytes.Clone(out.Result))
}

// codes lists what was told so far as tag=code.
func (o *outcomes) codes() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, tag := range o.tags {
		all = append(all, tag+"="+codeOf(o.errs[i]))
	}
	return all
}

func (o *outcomes) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.tags)
}

// parker is a target that parks every call for a peer and remembers the ids.
type parker struct {
	peer *fn.Peer
	mu   sync.Mutex
	ids  []uint64
}

func (p *parker) Invoke(c *fn.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := c.Park(p.peer, nil); ok {
		p.ids = append(p.ids, id)
	}
}

func (p *parker) last() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[len(p.ids)-1]
}

func add(t testing.TB, r *fn.Registry, p *fn.Peer, name string, target fn.Target) *fn.Function {
	t.Helper()
	f, err := r.Add(p, fn.Spec{Name: name, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func invoke(r *fn.Registry, f *fn.Function, from *fn.Peer, tag string, done fn.Completer) {
	c := r.Acquire()
	c.Function, c.Caller, c.Done = f, from, done
	c.SetTag([]byte(tag))
	r.Invoke(c)
}

func codeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return fmt.Sprint(err)
}

func TestCallRunsAHandlerOnTheCallersGoroutine(t *testing.T) {
	r := fn.New(fn.Config{})
	if err := r.Register("math::add", func(_ context.Context, p []byte) ([]byte, error) {
		return append([]byte("got "), p...), nil
	}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Call(t.Context(), "math::add", []byte(`1`))
	if err != nil || string(got) != "got 1" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestAbsentAndNullStayApart(t *testing.T) {
	r := fn.New(fn.Config{})
	p := r.Room("room")
	var saw []byte
	add(t, r, p, "a::absent", fn.Func(func(_ context.Context, b []byte) ([]byte, error) {
		saw = b
		return nil,
			nil
	}))
	add(t, r, p, "a::null", fn.Func(func(context.Context, []byte) ([]byte, error) {
		return []byte("null"),
			nil
	}))
	if got, err := r.Call(t.Context(), "a::absent", nil); got != nil || saw != nil || err != nil {
		t.Errorf("absent: got %q, handler saw %q, %v", got, saw, err)
	}
	if got, err := r.Call(t.Context(), "a::null", nil); string(got) != "null" || err != nil {
		t.Errorf("null: got %q, %v", got, err)
	}
}

func TestNotFoundNamesTheNamespacesThatHaveTheName(t *testing.T) {
	r := fn.New(fn.Config{})
	p := r.Room("room")
	for _, space := range []string{"orders", "billing"} {
		if _, err := r.Add(p, fn.Spec{Namespace: space, Name: "x::y", Target: echo}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.Call(t.Context(), "x::y", nil)
	want := "Function x::y not found in namespace default. It exists in: billing, orders."
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.NotFound || f.Code != wire.CodeFunctionNotFound ||
		f.Message != want {
		t.Errorf("got %+v", err)
	}
	r.RemoveAll(p)
	if in := r.Spaces("x::y"); in != nil {
		t.Errorf("after removal it is still in %v", in)
	}
}

func TestANameHasOneOwner(t *testing.T) {
	r := fn.New(fn.Config{})
	a, b := r.Room("a"), r.Room("b")
	first := add(t, r, a, "x::y", echo)
	_, err := r.Add(b, fn.Spec{Name: "x::y", Target: echo})
	var c *fn.Conflict
	if !errors.As(err, &c) || c.Owner != a || fault.KindOf(err) != fault.Conflict {
		t.Fatalf("got %v", err)
	}
	second := add(t, r, a, "x::y", echo)
	if got := r.Lookup(nil, []byte("x::y")); got != second || got == first {
		t.Error("registering again by the owner must replace")
	}
	if n := len(r.Functions(a)); n != 1 {
		t.Errorf("owner has %d functions, want 1", n)
	}
	r.Leave(nil, a)
	if _, err := r.Add(b, fn.Spec{Name: "x::y", Target: echo}); err != nil {
		t.Errorf("a name whose owner has left is free: %v", err)
	}
}

func TestReservedPrefixes(t *testing.T) {
	r := fn.New(fn.Config{})
	worker, engine := r.Room("worker"), r.Room("engine", "engine::")
	for _, name := range append(fn.Reserved(), "stream::set") {
		if _, err := r.Add(worker, fn.Spec{Name: name + "x",
			Target: echo}); codeOf(err) != wire.CodeReservedPrefix {
			t.Errorf("%sx: got %v", name, err)
		}
	}
	for _, ok := range []struct {
		peer        *fn.Peer
		space, name string
	}{{worker, "", "stream::get(chat)"}, {worker, "", "engineer::x"}, {engine, "", "engine::x"}} {
		if _, err := r.Add(ok.peer, fn.Spec{Namespace: ok.space, Name: ok.name, Target: echo}); err != nil {
			t.Errorf("%s: %v", ok.name, err)
		}
	}
	if _, err := r.Add(engine, fn.Spec{Namespace: "other", Name: "engine::x", Target: echo}); err == nil {
		t.Error("engine::x outside the default namespace must be refused")
	}
}

func TestAPrivateFunctionServesItsOwnerOnly(t *testing.T) {
	r := fn.New(fn.Config{})
	a, b := r.Room("a"), r.Room("b")
	f, err := r.Add(a, fn.Spec{Name: "x::y", Target: echo, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	var o outcomes
	invoke(r, f, a, "1", &o)
	invoke(r, f, b, "2", &o)
	if o.errs[0] != nil || o.errs[1] == nil || o.errs[1].Code != wire.CodeForbidden {
		t.Errorf("got %v", o.errs)
	}
}

func TestAnEventsOutcomeIsItsInput(t *testing.T) {
	r := fn.New(fn.Config{})
	add(t, r, r.Room("site", "site::"), "site::on-x", nil)
	got, err := r.Call(t.Context(), "site::on-x", []byte(`{"a":1}`))
	if err != nil || string(got) != `{"a":1}` {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAParkedCallHasOneOutcomeFromItsOwnHost(t *testing.T) {
	r := fn.New(fn.Config{})
	host, other, caller := r.Room("host"), r.Room("other"), r.Room("caller")
	p := &parker{peer: host}
	f := add(t, r, host, "x::y", p)
	var o outcomes
	invoke(r, f, caller, "tag-1", &o)
	id := p.last()
	if r.Complete(nil, id, other, fn.Outcome{Result: []byte("forged")}) {
		t.Error("another peer could answer")
	}
	if r.Complete(nil, id+1<<32, host, fn.Outcome{}) || r.Complete(nil, id+1, host, fn.Outcome{}) {
		t.Error("a made-up id was taken")
	}
	if !r.Complete(nil, id, host, fn.Outcome{Result: []byte("7")}) {
		t.Fatal("the answer was not taken")
	}
	if r.Complete(nil, id, host, fn.Outcome{Result: []byte("8")}) {
		t.Error("a second answer was taken")
	}
	if len(o.tags) != 1 || o.tags[0] != "tag-1" || string(o.ress[0]) != "7" {
		t.Errorf("got %q %q", o.tags, o.ress)
	}
	if s := r.Stats(); s.Late != 4 || s.InFlight != 0 || s.Calls != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestAHostsErrorKeepsItsCodeAndStack(t *testing.T) {
	r := fn.New(fn.Config{})
	host := r.Room("host")
	p := &parker{peer: host}
	f := add(t, r, host, "x::y", p)
	var o outcomes
	invoke(r, f, r.Room("caller"), "1", &o)
	r.Complete(nil, p.last(), host, fn.Outcome{Fail: []byte(`{"code":"TIMEOUT","message":"m","stacktrace":"s"}`)})
	if e := o.errs[0]; e == nil || e.Code != "TIMEOUT" || e.Kind != fault.Timeout || e.Message != "m" ||
		e.Stack != "s" {
		t.Errorf("got %+v", o.errs[0])
	}
}

func TestLeaveFailsWhatAPeerHostsAndDropsWhatItMade(t *testing.T) {
	r := fn.New(fn.Config{})
	host, caller := r.Room("host"), r.Room("caller")
	p := &parker{peer: host}
	f := add(t, r, host, "x::y", p)
	var theirs, own outcomes
	for i := range 3 {
		invoke(r, f, caller, fmt.Sprint(i), &theirs)
	}
	invoke(r, f, host, "self", &own)
	if h, m := r.Under(host); h != 4 || m != 1 {
		t.Fatalf("host has %d hosted, %d made", h, m)
	}
	r.Leave(nil, host)
	if len(theirs.errs) != 3 || theirs.errs[0].Code != wire.CodeInvocationStopped {
		t.Errorf("callers were told %v", theirs.errs)
	}
	if own.size() != 0 {
		t.Error("a peer that left must not be told")
	}
	if r.Lookup(nil, []byte("x::y")) != nil || r.Stats().InFlight != 0 {
		t.Error("something of the peer stayed")
	}
	invoke(r, f, caller, "late", &theirs) // a call that had found the function before
	if got := theirs.errs[3]; got == nil || got.Code != wire.CodeInvocationStopped {
		t.Errorf("late call: %v", got)
	}
	r.Leave(nil, host)

	p2 := &parker{peer: caller}
	g := add(t, r, caller, "x::z", p2)
	guest := r.Room("guest")
	var dropped outcomes
	invoke(r, g, guest, "1", &dropped)
	r.Leave(nil, guest)
	if r.Complete(nil, p2.last(), caller, fn.Outcome{}) || dropped.size() != 0 {
		t.Error("the call of a peer that left must be dropped")
	}
}

func TestPeersAreBounded(t *testing.T) {
	r := fn.New(fn.Config{MaxInFlight: 2, MaxMade: 3})
	a, b, caller := r.Room("a"), r.Room("b"), r.Room("caller")
	fa, fb := add(t, r, a, "x::a", &parker{peer: a}), add(t, r, b, "x::b", &parker{peer: b})
	var o outcomes
	for range 3 {
		invoke(r, fa, caller, "", &o) // the third is over a's bound
	}
	invoke(r, fb, caller, "", &o)
	invoke(r, fb, caller, "", &o) // over the caller's
	if len(o.errs) != 2 || o.errs[0].Code != wire.CodeHostOverloaded ||
		o.errs[1].Code != wire.CodeCallerOverloaded {
		t.Errorf("got %v", o.errs)
	}
	if s := r.Stats(); s.Refused != 2 || s.InFlight != 3 {
		t.Errorf("stats %+v", s)
	}
}

func TestDeadlinesAreKeptWithoutATimerForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := fn.New(fn.Config{Ceiling: time.Minute})
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		host, caller := r.Room("host"), r.Room("caller")
		f := add(t, r, host, "x::y", &parker{peer: host})
		var o outcomes
		c := r.Acquire()
		c.Function, c.Caller, c.Done, c.Deadline = f, caller, &o, telemetry.Now()+int64(time.Second)
		c.SetTag([]byte("short"))
		r.Invoke(c)
		invoke(r, f, caller, "ceiling", &o)
		<-time.After(2 * time.Second)
		if got := o.codes(); !slices.Equal(got, []string{"short=INVOCATION_TIMEOUT"}) {
			t.Errorf("after 2 s: %q", got)
		}
		<-time.After(time.Minute)
		if got := o.codes(); len(got) != 2 || got[1] != "ceiling=INVOCATION_TIMEOUT" {
			t.Errorf("after 62 s: %q", got)
		}
		invoke(r, f, caller, "drained", &o)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := o.codes(); len(got) != 3 || got[2] != "drained=DRAINING" {
			t.Errorf("after Run: %q", got)
		}
	})
}

func TestACallThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	r := fn.New(fn.Config{})
	host := r.Room("host")
	p := &parker{peer: host}
	add(t, r, host, "x::y", p)
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() { _, err := r.Call(ctx, "x::y", nil); got <- err }()
	for r.Stats().InFlight == 0 {
		runtime.Gosched()
	}
	stop()
	if err := <-got; codeOf(err) != wire.CodeOutcomeUnknown || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if r.Complete(nil, p.last(), host, fn.Outcome{Result: []byte("late")}) || r.Stats().InFlight != 0 {
		t.Error("the call is still there")
	}
}

func TestAPanicFailsOneCallAndIsCounted(t *testing.T) {
	r := fn.New(fn.Config{})
	p := r.Room("room")
	add(t, r, p, "a::b", fn.Func(func(context.Context, []byte) ([]byte, error) { panic("secret") }))
	add(t, r, p, "a::c", fn.Quick(func(*fn.Call) fn.Outcome { panic("secret") }))
	for _, name := range []string{"a::b", "a::c"} {
		_, err := r.Call(t.Context(), name, nil)
		if codeOf(err) != wire.CodeInvocationFailed || bytes.Contains([]byte(err.Error()), []byte("secret")) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if r.Stats().Panics != 2 {
		t.Error("not counted")
	}
}

// TestAHandlerFromALoopRunsOnItsOwn calls a blocking handler the way an event loop does.
func TestAHandlerFromALoopRunsOnItsOwn(t *testing.T) {
	r := fn.New(fn.Config{MaxRunning: 1})
	room, caller := r.Room("room"), r.Room("caller")
	gate, began := make(chan struct{}), make(chan string, 2)
	f := add(t, r, room, "a::slow", fn.Func(func(ctx context.Context, b []byte) ([]byte, error) {
		i, _ := fn.Current(ctx)
		began <- string(b) + i.Principal.Name
		<-gate
		<-ctx.Done()
		return b, ctx.Err()
	}))
	var o outcomes
	payload := []byte("lent")
	c := r.Acquire()
	c.Function, c.Caller, c.Done, c.Payload = f, caller, &o, payload
	r.Invoke(c)
	copy(payload, "XXXX") // Invoke has returned: the bytes are ours again
	if got := <-began; got != "lentcaller" {
		t.Errorf("handler saw %q", got)
	}
	invoke(r, f, caller, "2", &o)
	if o.size() != 1 || o.errs[0].Code != wire.CodeHostOverloaded {
		t.Errorf("second call: %v", o.errs)
	}
	close(gate)
	r.Leave(nil, caller) // drops the call, which ends the handler's context
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Run(ctx); err != nil { // returns only when the handler has
		t.Error(err)
	}
	if n := r.Stats().Running; n != 0 || o.size() != 1 {
		t.Errorf("%d handlers run, %d outcomes", n, o.size())
	}
}

func TestACallInsideAHandlerCarriesTheTraceOn(t *testing.T) {
	spans := telemetry.NewSpans(1 << 20)
	names := telemetry.NewNames()
	r := fn.New(fn.Config{Spans: spans, Names: names})
	var inner, outer telemetry.Context
	r.Register("a::inner", func(ctx context.Context, _ []byte) ([]byte, error) {
		i, _ := fn.Current(ctx)
		inner = i.Trace
		return nil, nil
	})
	r.Register("a::outer", func(ctx context.Context, _ []byte) ([]byte, error) {
		i, _ := fn.Current(ctx)
		outer = i.Trace
		return r.Call(ctx, "a::inner", nil)
	})
	if _, err := r.Call(t.Context(), "a::outer", nil); err != nil {
		t.Fatal(err)
	}
	if inner.TraceID != outer.TraceID || inner.SpanID == outer.SpanID || !outer.Valid() {
		t.Errorf("inner %v, outer %v", inner, outer)
	}
	if s := spans.Stats(); s.Recorded != 2 {
		t.Errorf("%d spans, want 2", s.Recorded)
	}
}

// TestEveryCallHasExactlyOneOutcome makes 50,000 calls while hosts come and go, callers give up and
// answers come twice.
func TestEveryCallHasExactlyOneOutcome(t *testing.T) {
	const callers, each = 8, 6250
	r := fn.New(fn.Config{MaxInFlight: 64})
	var answered, failed atomic.Int64
	stop := make(chan struct{})
	var hosts, all sync.WaitGroup
	hosts.Add(1)
	go func() {
		defer hosts.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			host := r.Room(fmt.Sprint("host", i))
			p := &parker{peer: host}
			if _, err := r.Add(host, fn.Spec{Name: "x::y", Target: p}); err != nil {
				t.Error(err)
				return
			}
			for range 200 {
				p.mu.Lock()
				ids := p.ids
				p.ids = nil
				p.mu.Unlock()
				for _, id := range ids {
					r.Complete(nil, id, host, fn.Outcome{Result: []byte("1")})
					r.Complete(nil, id, host, fn.Outcome{Result: []byte("2")})
				}
			}
			r.Leave(nil, host)
		}
	}()
	for k := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				if i%16 == k {
					go cancel()
				}
				got, err := r.CallFrom(ctx, nil, fn.Default, "x::y", []byte("{}"))
				cancel()
				switch {
				case err == nil && string(got) == "1":
					answered.Add(1)
				case err != nil:
					failed.Add(1)
				default:
					t.Errorf("got %q", got)
				}
			}
		}()
	}
	all.Wait()
	close(stop)
	hosts.Wait()
	if n := answered.Load() + failed.Load(); n != callers*each || answered.Load() == 0 {
		t.Errorf("%d outcomes (%d answered) for %d calls", n, answered.Load(), callers*each)
	}
	if n := r.Stats().InFlight; n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

func TestInvokeDoesNotAllocate(t *testing.T) {
	r := fn.New(fn.Config{})
	room, host := r.Room("room"), r.Room("host")
	f := add(t, r, room, "a::b", echo)
	p := &answerer{r: r, peer: host}
	g := add(t, r, host, "a::c", p)
	name := []byte("a::b")
	var o sink
	payload := []byte(`{"a":1}`)
	if n := testing.AllocsPerRun(1000, func() {
		c := r.Acquire()
		c.Function, c.Caller, c.Done, c.Payload = r.Lookup(nil, name), room, &o, payload
		r.Invoke(c)
	}); n != 0 || f == nil {
		t.Errorf("a quick call allocates %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		c := r.Acquire()
		c.Function, c.Caller, c.Done, c.Payload = g, room, &o, payload
		r.Invoke(c)
	}); n != 0 {
		t.Errorf("a parked call allocates %v times", n)
	}
}

// answerer parks and answers at once.
type answerer struct {
	r    *fn.Registry
	peer *fn.Peer
}

func (a *answerer) Invoke(c *fn.Call) {
	if id, ok := c.Park(a.peer, nil); ok {
		a.r.Complete(nil, id, a.peer, fn.Outcome{Result: one})
	}
}

var one = []byte("1")

type sink struct{ n int }

func (s *sink) Complete(*fn.Call, fn.Outcome) { s.n++ }

package load

import (
	"bytes"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// sink is a peer that keeps what was sent.
type sink struct {
	sent   []byte
	writes int
}

func (s *sink) send(c *Conn) {
	s.writes++
	s.sent = append(s.sent, c.out...)
	c.out = c.out[:0]
}

// offline is a generator with one caller and one host that are connected to nothing.
func offline(plain bool) (g *Generator, caller, host *sink) {
	g = &Generator{job: &Job{Plain: plain}, payload: Payload(64), rec: newRecorder()}
	g.rec.reset(0)
	caller, host = &sink{}, &sink{}
	g.callers = []*Conn{{gen: g, role: Caller, speaker: newFrames(Caller, 0), peer: caller}}
	g.hosts = []*Conn{{gen: g, role: Host, speaker: newFrames(Host, 0), peer: host}}
	return g, caller, host
}

// messages decodes what a client has sent.
func messages(t *testing.T, b []byte) (all []string) {
	t.Helper()
	var d ws.Decoder
	cfg := &ws.Config{Role: ws.Server}
	for len(b) > 0 {
		ev, n, err := d.Next(cfg, b)
		if err != nil || n == 0 {
			t.Fatalf("after %q: %v, %d bytes left", all, err, len(b))
		}
		all = append(all, string(ev.Payload))
		b = b[n:]
	}
	return all
}

// server encodes what a server would send.
func server(texts ...string) (b []byte) {
	for _, s := range texts {
		b = ws.AppendFrame(b, ws.Text, []byte(s))
	}
	return b
}

func TestIDsHaveTheShapeOfUUIDsAndComeBack(t *testing.T) {
	f := newFrames(Caller, 0)
	for _, id := range []uint64{0, 1, 1 << 32, 0xdeadbeef_00c0ffee, ^uint64(0)} {
		text := f.write(id)
		for _, at := range []int{8, 13, 18, 23} {
			if text[at] != '-' {
				t.Fatalf("%s is no UUID", text)
			}
		}
		if got, ok := readID(text); !ok || got != id {
			t.Errorf("%x was written as %s and read as %x, %v", id, text, got, ok)
		}
	}
	for _, text := range []string{"", "7", strings.Repeat("x", 36), "0000000g-0000-4000-8000-000000000000"} {
		if id, ok := readID([]byte(text)); ok {
			t.Errorf("%q reads as %x", text, id)
		}
	}
}

func TestAWorkerGreetsAsAnSDKDoes(t *testing.T) {
	for _, c := range []struct {
		role Role
		want []string
	}{
		{Caller, []string{"engine::workers::register"}},
		{Host, []string{`"id":"bench::echo7"`, "engine::workers::register"}},
		{Idle, []string{
			`"id":"idle::w7::first"`, `"id":"idle::w7::second"`, "engine::workers::register", syncMark,
		}},
	} {
		got := messages(t, newFrames(c.role, 7).greet())
		if len(got) != len(c.want) {
			t.Fatalf("%v: %q, want %d messages", c.role, got, len(c.want))
		}
		for i, part := range c.want {
			if !strings.Contains(got[i], part) {
				t.Errorf("%v: message %d is %s, want one with %s", c.role, i, got[i], part)
			}
		}
		for _, m := range got {
			var f wire.Frame
			if strings.HasPrefix(m, "{") && f.Scan([]byte(m)) != nil {
				t.Errorf("%v: %s is no frame", c.role, m)
			}
			if action, _ := wire.ParseAction(f.Action); f.Type == wire.TypeInvokeFunction &&
				(action != wire.ActionVoid || !bytes.Contains(f.Data, []byte(`"pid":`))) {
				t.Errorf("%v: %s wants an answer or has no pid", c.role, m)
			}
		}
	}
}

func TestACallTravelsThroughBothEnds(t *testing.T) {
	g, caller, host := offline(false)
	g.mode, g.slots, g.target = closed, make([]slot, 1), 0
	g.next(0, 0)
	g.flush()
	call := messages(t, caller.sent)
	if len(call) != 1 || !strings.Contains(call[0], `"function_id":"bench::echo0"`) {
		t.Fatalf("sent %q", call)
	}
	if err := g.hosts[0].receive(server(call...)); err != nil {
		t.Fatal(err)
	}
	g.flush()
	answer := messages(t, host.sent)
	g.now = 5000
	if err := g.callers[0].receive(server(answer...)); err != nil {
		t.Fatal(err)
	}
	r := g.rec.result(Step{}, 10000)
	if r.Calls != 1 || r.Max < 5000 || r.Max > 5100 || g.open != 0 || g.stray != 0 {
		t.Fatalf("%d calls at %v, %d open, %d stray", r.Calls, r.Max, g.open, g.stray)
	}
	// The same answer again is nobody's.
	if err := g.callers[0].receive(server(answer...)); err != nil || g.stray != 1 {
		t.Fatalf("%v, %d strays", err, g.stray)
	}
}

func TestFramesOfOneReadLeaveInOneWriteButForPlainClients(t *testing.T) {
	for plain, want := range map[bool]int{false: 1, true: 10} {
		g, _, host := offline(plain)
		call := `{"type":"invokefunction","invocation_id":"a","function_id":"bench::echo0","data":1}`
		in := bytes.Repeat(server(call), 10)
		if err := g.hosts[0].receive(in); err != nil {
			t.Fatal(err)
		}
		g.flush()
		if host.writes != want || len(messages(t, host.sent)) != 10 {
			t.Errorf("plain %v: 10 answers in %d writes, want %d", plain, host.writes, want)
		}
	}
}

func TestBytesMayComeOneByOne(t *testing.T) {
	g, _, host := offline(false)
	in := server(`{"type":"workerregistered","worker_id":"w"}`, `{"type":"ping"}`,
		`{"type":"invokefunction","invocation_id":"a","function_id":"bench::echo0","data":"x"}`)
	in = ws.AppendFrame(in, ws.Ping, []byte("p"))
	for _, b := range in {
		if err := g.hosts[0].receive([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	g.flush()
	got := messages(t, host.sent)
	want := []string{
		`{"type":"pong"}`,
		`{"type":"invocationresult","invocation_id":"a","function_id":"bench::echo0","result":"x"}`,
		"p",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("answered %q, want %q", got, want)
	}
}

func TestACallThatWantsNoAnswerGetsNone(t *testing.T) {
	g, _, host := offline(false)
	err := g.hosts[0].receive(server(`{"type":"invokefunction","function_id":"bench::echo0","data":1}`))
	g.flush()
	if err != nil || host.writes != 0 {
		t.Fatalf("%v, %q", err, host.sent)
	}
}

func TestRefusalsByTheServerAreErrors(t *testing.T) {
	for _, b := range [][]byte{
		server(`{"type":"registrationrejected","code":"FUNCTION_NAMESPACE_CONFLICT","function_id":"bench::echo0"}`),
		server(`{"type":"error","error":{"code":"AUTH_ERROR","message":"no"}}`),
		server(`nonsense`),
		ws.AppendClose(nil, 1001, "bye"),
		{0xff, 0xff},
	} {
		g, _, _ := offline(false)
		if err := g.hosts[0].receive(b); err == nil {
			t.Errorf("%q is taken", b)
		}
	}
}

func TestTargetsAreHostAndPortOrAWebSocketURL(t *testing.T) {
	for _, c := range []struct{ target, host, path string }{
		{"127.0.0.1:49134", "127.0.0.1:49134", "/"},
		{"localhost:1", "localhost:1", "/"},
		{"ws://localhost:1", "localhost:1", "/"},
		{"ws://[::1]:1/a?b=c", "[::1]:1", "/a?b=c"},
		{"ws://example.com", "example.com:80", "/"},
	} {
		at, err := parseTarget(c.target)
		if err != nil || at.host != c.host || at.path != c.path || at.key != "" || at.header() != nil {
			t.Errorf("%s: %+v, %v; want %q, %q", c.target, at, err, c.host, c.path)
		}
	}
	if _, err := parseTarget("wss://example.com"); err == nil {
		t.Error("wss is taken, and cannot be spoken")
	}
}

func FuzzFeed(f *testing.F) {
	f.Add(server(`{"type":"invokefunction","invocation_id":"a","function_id":"bench::echo0","data":"x"}`), 3)
	const id = `"invocation_id":"00000001-0000-4000-8000-000000000000"`
	f.Add(server(`{"type":"invocationresult",`+id+`,"result":1}`), 1)
	f.Add(ws.AppendFrame(nil, ws.Ping, []byte("p")), 2)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		step = max(1, min(step, 1<<10))
		g, _, _ := offline(false)
		g.mode, g.slots = draining, make([]slot, 1)
		g.issue(0, g.callers[0], 0, 0)
		for _, c := range []*Conn{g.callers[0], g.hosts[0]} {
			for rest := bytes.Clone(b); len(rest) > 0; {
				n := min(step, len(rest))
				if c.receive(rest[:n:n]) != nil {
					break
				}
				rest = rest[n:]
			}
		}
		g.flush()
		if g.open < 0 || g.open > 1 {
			t.Fatalf("%d calls open of one", g.open)
		}
	})
}

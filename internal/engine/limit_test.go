package engine_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// probe tries a bound at n, which must pass, and at n+1, which must not.
type probe struct {
	// set lowers the bound; nil leaves the default.
	set func(b *wire.Bounds)
	try func(t *testing.T, r *rig)
}

func sized(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// registers reports how the registration of one function ended: "" or the code of its refusal.
func registers(c *client, id, more string) string {
	c.send(`{"type":"registerfunction","id":%q%s}`, id, more)
	probe := c.ask("no::such", "")
	for {
		f, err := c.read()
		if err != nil {
			return err.Error()
		}
		if f.str("type") == "registrationrejected" {
			c.result(probe)
			return f.str("code")
		}
		if f.str("invocation_id") == probe {
			return ""
		}
	}
}

// probes has one entry for every row of wire.Limits.
var probes = map[string]probe{
	"max_message_bytes": {func(b *wire.Bounds) { b.MaxMessageBytes = 2048 }, func(t *testing.T, r *rig) {
		c := r.dial()
		frame := func(n int) string {
			head := `{"type":"invokefunction","invocation_id":"m","function_id":"no::such","data":""}`
			return head[:len(head)-2] + strings.Repeat("x", n-len(head)) + `"}`
		}
		c.raw(text(frame(2048)))
		expect(t, "at the bound", c.result("m").code(), wire.CodeFunctionNotFound)
		c.raw(text(frame(2049)))
		expect(t, "past it", c.result("m").code(), wire.CodeMessageTooLarge)
	}},
	"hard_message_bytes": {func(b *wire.Bounds) { b.MaxMessageBytes, b.HardMessageBytes = 1024, 4096 }, func(t *testing.T, r *rig) {
		c := r.dial()
		pad := func(n int) []byte {
			head := `{"type":"invokefunction","invocation_id":"m","function_id":"no::such","data":""}`
			return text(head[:len(head)-2] + strings.Repeat("x", n-len(head)) + `"}`)
		}
		c.raw(pad(4096))
		expect(t, "at the bound", c.result("m").code(), wire.CodeMessageTooLarge)
		c.raw(pad(4097))
		_, err := c.read()
		expect(t, "past it", strings.Contains(fmt.Sprint(err), "1009"), true)
	}},
	"max_depth": {nil, func(t *testing.T, r *rig) {
		c := r.dial()
		at := wire.MaxDepth - 1 // the message is the first level
		for _, row := range []struct {
			n    int
			want string
		}{{at, wire.CodeFunctionNotFound}, {at + 1, wire.CodeLimit}} {
			c.raw(text(`{"type":"invokefunction","invocation_id":"d","function_id":"no::such","data":` +
				strings.Repeat("[", row.n) + strings.Repeat("]", row.n) + `}`))
			expect(t, fmt.Sprint(row.n), c.result("d").code(), row.want)
		}
	}},
	"max_id_bytes": {func(b *wire.Bounds) { b.MaxIDBytes = 40 }, func(t *testing.T, r *rig) {
		c := r.worker("w")
		expect(t, "at the bound", registers(c, strings.Repeat("i", 40), ""), "")
		expect(t, "past it", registers(c, strings.Repeat("i", 41), ""), wire.CodeLimit)
		expect(t, "call at the bound", c.call(strings.Repeat("j", 40), "").code(), wire.CodeFunctionNotFound)
		expect(t, "call past it", c.call(strings.Repeat("j", 41), "").code(), wire.CodeLimit)
	}},
	"max_invocation_id_bytes": {func(b *wire.Bounds) { b.MaxInvocationIDBytes = 64 }, func(t *testing.T, r *rig) {
		c := r.dial()
		for n, want := range map[int]string{64: wire.CodeFunctionNotFound, 65: wire.CodeLimit} {
			id := strings.Repeat("a", n)
			c.send(`{"type":"invokefunction","invocation_id":%q,"function_id":"no::such"}`, id)
			expect(t, fmt.Sprint(n), c.result(id).code(), want)
		}
	}},
	"max_namespace_bytes": {func(b *wire.Bounds) { b.MaxNamespaceBytes = 16 }, func(t *testing.T, r *rig) {
		for n, want := range map[int]string{16: "", 17: wire.CodeInvalidNamespace} {
			out := r.dial().announce("w", fmt.Sprintf(`,"namespace":%q`, strings.Repeat("n", n)))
			expect(t, fmt.Sprint(n), out.code(), want)
		}
	}},
	"max_description_bytes": {func(b *wire.Bounds) { b.MaxDescriptionBytes = 32 }, func(t *testing.T, r *rig) {
		c := r.worker("w")
		registers(c, "d::one", fmt.Sprintf(`,"description":%q`, strings.Repeat("d", 33)))
		out := c.call("engine::functions::info", `{"function_id":"d::one"}`)
		got, _ := out["result"].(map[string]any)["description"].(string)
		expect(t, "it is cut to", len(got), 32)
	}},
	"max_schema_bytes": {func(b *wire.Bounds) { b.MaxSchemaBytes = 100 }, func(t *testing.T, r *rig) {
		c := r.worker("w")
		for _, field := range []string{"request_format", "response_format"} {
			expect(t, field+" at the bound", registers(c, "s::a", `,"`+field+`":`+sized(100)), "")
			expect(t, field+" past it", registers(c, "s::b", `,"`+field+`":`+sized(101)), wire.CodeLimit)
		}
	}},
	"max_metadata_bytes": {func(b *wire.Bounds) { b.MaxMetadataBytes = 100 }, func(t *testing.T, r *rig) {
		c := r.worker("w")
		expect(t, "at the bound", registers(c, "m::a", `,"metadata":`+sized(100)), "")
		expect(t, "past it", registers(c, "m::b", `,"metadata":`+sized(101)), wire.CodeLimit)
		for n, want := range map[int]string{100: wire.CodeFunctionNotFound, 101: wire.CodeLimit} {
			c.send(`{"type":"invokefunction","invocation_id":"m","function_id":"no::such","metadata":%s}`, sized(n))
			expect(t, fmt.Sprint("call ", n), c.result("m").code(), want)
		}
	}},
	"max_baggage_bytes": {func(b *wire.Bounds) { b.MaxBaggageBytes = 64 }, func(t *testing.T, r *rig) {
		host, c := r.worker("w", "b::x"), r.dial()
		for n, kept := range map[int]bool{64: true, 65: false} {
			c.send(`{"type":"invokefunction","invocation_id":"b","function_id":"b::x","baggage":%q}`, "k="+strings.Repeat("v", n-2))
			in := host.answer("1")
			expect(t, fmt.Sprint(n), strings.HasPrefix(in.str("baggage"), "k="), kept)
			c.result("b")
		}
	}},
	"max_functions_per_worker": {func(b *wire.Bounds) { b.MaxFunctionsPerWorker = 3 }, func(t *testing.T, r *rig) {
		c := r.worker("w", "f::1", "f::2")
		expect(t, "at the bound", registers(c, "f::3", ""), "")
		expect(t, "one that is there", registers(c, "f::3", ""), "")
		expect(t, "past it", registers(c, "f::4", ""), wire.CodeLimit)
	}},
	"max_in_flight_per_worker": {func(b *wire.Bounds) { b.MaxInFlightPerWorker = 3 }, func(t *testing.T, r *rig) {
		host, c := r.worker("w", "i::x"), r.dial()
		first := c.ask("i::x", "1")
		c.ask("i::x", "2")
		c.ask("i::x", "3")
		expect(t, "past the bound", c.call("i::x", "4").code(), wire.CodeHostOverloaded)
		host.answer("1")
		expect(t, "one of those at the bound", c.result(first).code(), "")
		id := c.ask("i::x", "5")
		for range 3 {
			host.answer("1")
		}
		expect(t, "with room again", c.result(id).code(), "")
	}},
	"max_calls_per_worker": {func(b *wire.Bounds) { b.MaxCallsPerWorker = 2 }, func(t *testing.T, r *rig) {
		host, c := r.worker("w", "i::x"), r.dial()
		first := c.ask("i::x", "1")
		c.ask("i::x", "2")
		expect(t, "past the bound", c.call("i::x", "3").code(), wire.CodeCallerOverloaded)
		host.answer("1")
		expect(t, "one of those at the bound", c.result(first).code(), "")
	}},
	"max_held_frames": {func(b *wire.Bounds) { b.MaxHeldFrames = 3; b.NamespaceGrace = time.Hour }, func(t *testing.T, r *rig) {
		c, other := r.dial(), r.dial()
		for i := range 3 {
			c.send(`{"type":"registerfunction","id":"h::%d"}`, i)
		}
		c.send(`{"type":"ping"}`)
		c.want("pong")
		expect(t, "at the bound they wait", other.call("h::0", "").code(), wire.CodeFunctionNotFound)
		c.send(`{"type":"registerfunction","id":"h::3"}`)
		c.send(`{"type":"ping"}`)
		c.want("pong")
		id := other.ask("h::0", "")
		c.answer("1")
		expect(t, "past it they are applied", other.result(id).code(), "")
	}},
	"max_held_bytes": {func(b *wire.Bounds) { b.MaxHeldBytes = 4096; b.NamespaceGrace = time.Hour }, func(t *testing.T, r *rig) {
		c, other := r.dial(), r.dial()
		c.send(`{"type":"registerfunction","id":"h::0","description":%q}`, strings.Repeat("d", 3500))
		c.send(`{"type":"ping"}`)
		c.want("pong")
		expect(t, "at the bound they wait", other.call("h::0", "").code(), wire.CodeFunctionNotFound)
		c.send(`{"type":"registerfunction","id":"h::1","description":%q}`, strings.Repeat("d", 3500))
		c.send(`{"type":"ping"}`)
		c.want("pong")
		id := other.ask("h::0", "")
		c.answer("1")
		expect(t, "past it they are applied", other.result(id).code(), "")
	}},
	"write_queue_bytes": {func(b *wire.Bounds) { b.WriteQueueBytes = 64 << 10 }, func(t *testing.T, r *rig) {
		// At and past the bound with a peer that reads nothing: TestAFullWriteQueueFailsOnlyTheCallsThatWereForIt.
		host, c := r.worker("w", "q::x"), r.dial()
		id := c.ask("q::x", sized(300<<10)) // one message larger than the bound passes an empty queue
		host.answer("1")
		expect(t, "a message larger than the queue", c.result(id).code(), "")
	}},
	"handshake_bytes": {nil, func(t *testing.T, r *rig) {
		for n, want := range map[int]string{wire.MaxHeadBytes: "101", wire.MaxHeadBytes + 1: "431"} {
			head := "GET / HTTP/1.1\r\nHost: " + r.addr + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nX-Pad: "
			head += strings.Repeat("p", n-len(head)-4) + "\r\n\r\n"
			expect(t, fmt.Sprint(n), status(t, r, head), want)
		}
	}},
	"handshake_timeout_ms": {func(b *wire.Bounds) { b.HandshakeTimeout = 100 * time.Millisecond }, func(t *testing.T, r *rig) {
		expect(t, "a head that never ends", status(t, r, "GET / HTTP/1.1\r\n"), "408")
	}},
	"namespace_grace_ms": {func(b *wire.Bounds) { b.NamespaceGrace = 100 * time.Millisecond }, func(t *testing.T, r *rig) {
		c := r.dial()
		c.send(`{"type":"registerfunction","id":"g::x"}`)
		id := c.ask("g::x", "")
		c.answer("1")
		expect(t, "after the grace", c.result(id).code(), "")
	}},
	"ping_after_ms": {func(b *wire.Bounds) { b.PingAfter = 100 * time.Millisecond }, func(t *testing.T, r *rig) {
		c := r.dial()
		for {
			ev, err := c.event()
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == ws.KindPing {
				return
			}
		}
	}},
	"drop_after_ms": {func(b *wire.Bounds) { b.PingAfter, b.DropAfter = 100*time.Millisecond, 200*time.Millisecond }, func(t *testing.T, r *rig) {
		c := r.dial()
		for {
			if _, err := c.event(); err != nil {
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Error("the silent connection was not dropped")
				}
				return
			}
		}
	}},
	"max_invocation_ms": {func(b *wire.Bounds) { b.MaxInvocation = 100 * time.Millisecond }, func(t *testing.T, r *rig) {
		host, c := r.worker("w", "t::x"), r.dial()
		id := c.ask("t::x", "")
		in := host.want("invokefunction")
		expect(t, "past the ceiling", c.result(id).code(), wire.CodeInvocationTimeout)
		host.send(`{"type":"invocationresult","invocation_id":%q,"function_id":"t::x","result":1}`, in.str("invocation_id"))
		id = c.ask("t::x", "")
		host.answer("2")
		out := c.result(id)
		expect(t, "the late answer is for nobody", out["result"], any(2.0))
	}},
	"max_connections": {func(b *wire.Bounds) { b.MaxConnections = 2 }, func(t *testing.T, r *rig) {
		r.dial()
		second := r.dial()
		expect(t, "past the bound", status(t, r, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "503")
		second.nc.Close()
		for status(t, r, "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n") == "503" { // until the close has arrived
		}
	}},
	"max_triggers_per_worker": {func(b *wire.Bounds) { b.MaxTriggersPerWorker = 2 }, func(t *testing.T, r *rig) {
		c := r.worker("w")
		for i := range 3 {
			c.send(`{"type":"registertrigger","id":"t-%d","trigger_type":"hook","function_id":"x::y"}`, i)
		}
		f := c.want("triggerregistrationresult")
		expect(t, "past it", f.str("id")+" "+f.code(), "t-2 "+wire.CodeLimit)
		c.send(`{"type":"registertriggertype","id":"mine","description":""}`)
		expect(t, "types count as well", c.want("triggerregistrationresult").code(), wire.CodeLimit)
	}},
	"max_channels_per_worker": {func(b *wire.Bounds) { b.MaxChannelsPerWorker = 1 }, func(t *testing.T, r *rig) {
		a, b := r.worker("a"), r.worker("b")
		expect(t, "at the bound", a.call("engine::channels::create", "").code(), "")
		expect(t, "past it", a.call("engine::channels::create", "").code(), wire.CodeLimit)
		expect(t, "another worker", b.call("engine::channels::create", "").code(), "")
	}},
	"max_channels": {func(b *wire.Bounds) { b.MaxChannels = 1 }, func(t *testing.T, r *rig) {
		a, b := r.worker("a"), r.worker("b")
		expect(t, "at the bound", a.call("engine::channels::create", "").code(), "")
		expect(t, "past it", b.call("engine::channels::create", "").code(), wire.CodeLimit)
	}},
	"channel_buffer_bytes": {func(b *wire.Bounds) { b.ChannelBufferBytes = 64 << 10 }, func(t *testing.T, r *rig) {
		writer, _ := r.channel(r.worker("w"))
		part := ws.AppendMaskedFrame(nil, ws.Binary, make([]byte, 32<<10), 1)
		for range 8 {
			writer.raw(part) // the kernels hold what the engine does not read
		}
		for r.metric("plinth_channel_pauses_total") == "0" {
		}
	}},
	"channel_untaken_ms": {func(b *wire.Bounds) { b.ChannelUntaken = 100 * time.Millisecond }, func(t *testing.T, r *rig) {
		w := r.worker("w")
		w.call("engine::channels::create", "")
		for r.metric("plinth_channels_swept_total") != "1" {
		}
		expect(t, "channels left", r.metric("plinth_channels"), "0")
	}},
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// status sends a request head and returns the status of the answer, "" when there is none.
func status(t *testing.T, r *rig, head string) string {
	t.Helper()
	return statusAt(t, r.addr, head)
}

// statusAt is status at another listener.
func statusAt(t *testing.T, addr, head string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	if _, err := nc.Write([]byte(head)); err != nil {
		return ""
	}
	b := make([]byte, 4096)
	n, _ := nc.Read(b)
	parts := strings.SplitN(string(b[:n]), " ", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// TestEveryLimitHoldsAtItsBound runs the probe of every row of the one table of limits. A new row
// without a probe fails.
func TestEveryLimitHoldsAtItsBound(t *testing.T) {
	for _, l := range wire.Limits() {
		t.Run(l.Name, func(t *testing.T) {
			p, ok := probes[l.Name]
			if !ok {
				t.Fatal("this limit has no probe")
			}
			r := start(t, func(c *engine.Config) {
				if p.set != nil {
					p.set(&c.Bounds)
				}
			})
			p.try(t, r)
		})
	}
}

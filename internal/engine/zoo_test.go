package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// herd makes n calls between two well-behaved workers and returns the median of their times. Every call
// must succeed.
func herd(t *testing.T, caller *client, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range n {
		began := time.Now()
		if out := caller.call("herd::echo", `"moo"`); out["result"] != "moo" {
			t.Fatalf("call %d of the others: %v", i, out)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2]
}

// beast misbehaves until stop is closed.
type beast struct {
	name string
	do   func(r *rig, stop <-chan struct{})
}

// bite dials without a test's help: a beast may be cut off at any time.
func (r *rig) bite() (*client, error) {
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		return nil, err
	}
	nc.SetDeadline(time.Now().Add(patience))
	rest, err := ws.ClientHandshake(nc, r.addr, "/", nil)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &client{t: r.t, nc: nc, buf: rest}, nil
}

func text(s string) []byte { return ws.AppendMaskedFrame(nil, ws.Text, []byte(s), 0x01020304) }

// each writes on one connection after another until stop is closed.
func each(b func() []byte) func(*rig, <-chan struct{}) {
	return func(r *rig, stop <-chan struct{}) {
		for !over(stop) {
			c, err := r.bite()
			if err != nil {
				return
			}
			free := closeOn(stop, c)
			for err == nil {
				_, err = c.nc.Write(b())
			}
			free()
		}
	}
}

func over(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// closeOn closes c when stop is, which also ends a write or a read that is under way, or when the
// returned function is called.
func closeOn(stop <-chan struct{}, c *client) (free func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-stop:
		case <-done:
		}
		c.nc.Close()
	}()
	return func() { close(done) }
}

func constant(b []byte) func() []byte { return func() []byte { return b } }

var beasts = []beast{
	{"slow: never reads", func(r *rig, stop <-chan struct{}) {
		c, err := r.bite()
		if err != nil {
			return
		}
		defer c.nc.Close()
		big := text(`{"type":"invokefunction","invocation_id":"s","function_id":"herd::echo","data":"` + strings.Repeat("x", 60_000) + `"}`)
		for range 400 {
			c.nc.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := c.nc.Write(big); err != nil {
				break
			}
		}
		<-stop
	}},
	{"mute: takes calls, answers none", func(r *rig, stop <-chan struct{}) {
		c, err := r.bite()
		if err != nil {
			return
		}
		defer closeOn(stop, c)()
		c.nc.Write(text(`{"type":"registerfunction","id":"zoo::mute"}`))
		c.nc.Write(text(`{"type":"invokefunction","function_id":"engine::workers::register","data":{"name":"mute","pid":1}}`))
		for i := 0; !over(stop); i++ {
			if _, err := c.nc.Write(text(fmt.Sprintf(`{"type":"invokefunction","invocation_id":"m%d","function_id":"zoo::mute"}`, i))); err != nil {
				return
			}
			if i%100 == 0 {
				c.nc.SetReadDeadline(time.Now().Add(time.Millisecond))
				c.nc.Read(make([]byte, 1<<20))
			}
		}
	}},
	{"flooding with pings", each(constant(bytes.Repeat(text(`{"type":"ping"}`), 1000)))},
	{"flooding with control pings", each(constant(bytes.Repeat(ws.AppendMaskedFrame(nil, ws.Ping, []byte("x"), 9), 1000)))},
	{"flooding with unknown frames", each(constant(bytes.Repeat(text(`{"type":"nonsense","a":[1,2,3]}`), 1000)))},
	{"flooding with broken JSON", each(constant(bytes.Repeat(text(`{"type":"invokefunction","invocation_id":"1",`), 500)))},
	{"flooding with calls of nothing", each(constant(bytes.Repeat(text(`{"type":"invokefunction","invocation_id":"1","function_id":"no::such"}`), 500)))},
	{"flooding with registrations", func(r *rig, stop <-chan struct{}) {
		i := 0
		each(func() []byte {
			i++
			return text(fmt.Sprintf(`{"type":"registerfunction","id":"zoo::f%d","description":"%s"}`, i, strings.Repeat("d", 500)))
		})(r, stop)
	}},
	{"lying about ids", func(r *rig, stop <-chan struct{}) {
		each(func() []byte {
			return text(fmt.Sprintf(`{"type":"invocationresult","invocation_id":"%x","function_id":"herd::echo","result":"forged"}`,
				rand.Uint64N(1<<33)))
		})(r, stop)
	}},
	{"deeply nested", each(constant(text(`{"type":"invokefunction","invocation_id":"1","function_id":"herd::echo","data":` + strings.Repeat("[", 100_000) + `}`)))},
	{"breaking the framing", each(constant([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))},
	{"sending unmasked", each(constant(ws.AppendFrame(nil, ws.Text, []byte(`{"type":"ping"}`))))},
	{"claiming 256 MiB and stopping", each(constant([]byte{0x81, 0xff, 0, 0, 0, 0, 0x0f, 0xff, 0xff, 0xff, 1, 2, 3, 4, 'x'}))},
	{"dying in mid frame", func(r *rig, stop <-chan struct{}) {
		half := text(`{"type":"registerfunction","id":"zoo::half"}`)
		for !over(stop) {
			if c, err := r.bite(); err == nil {
				c.nc.Write(half[:len(half)/2])
				c.nc.Close()
			}
		}
	}},
	{"reconnecting at once", func(r *rig, stop <-chan struct{}) {
		for !over(stop) {
			if c, err := r.bite(); err == nil {
				c.nc.Write(text(`{"type":"registerfunction","id":"zoo::again"}`))
				c.nc.Write(text(`{"type":"invokefunction","function_id":"engine::workers::register","data":{"name":"again","pid":1}}`))
				c.nc.Close()
			}
		}
	}},
	{"never finishing a handshake", func(r *rig, stop <-chan struct{}) {
		var all []net.Conn
		for range 200 {
			if nc, err := net.Dial("tcp", r.addr); err == nil {
				nc.Write([]byte("GET / HTTP/1.1\r\nHost: "))
				all = append(all, nc)
			}
		}
		<-stop
		for _, nc := range all {
			nc.Close()
		}
	}},
	{"speaking something else", func(r *rig, stop <-chan struct{}) {
		for !over(stop) {
			if nc, err := net.Dial("tcp", r.addr); err == nil {
				nc.SetDeadline(time.Now().Add(time.Second))
				nc.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03SSH-2.0\r\n\r\n"))
				nc.Read(make([]byte, 512))
				nc.Close()
			}
		}
	}},
	{"answering twice", func(r *rig, stop <-chan struct{}) {
		c, err := r.bite()
		if err != nil {
			return
		}
		defer closeOn(stop, c)()
		c.nc.Write(text(`{"type":"registerfunction","id":"zoo::twice"}`))
		c.nc.Write(text(`{"type":"invokefunction","function_id":"engine::workers::register","data":{"name":"twice","pid":1}}`))
		c.nc.Write(text(`{"type":"invokefunction","invocation_id":"t","function_id":"zoo::twice"}`))
		for !over(stop) {
			f, err := c.read()
			if err != nil {
				return
			}
			switch f.str("type") {
			case "invokefunction":
				b := text(fmt.Sprintf(`{"type":"invocationresult","invocation_id":%q,"function_id":"zoo::twice","result":1}`, f.str("invocation_id")))
				c.nc.Write(append(slices.Clone(b), b...))
			case "invocationresult":
				c.nc.Write(text(`{"type":"invokefunction","invocation_id":"t","function_id":"zoo::twice"}`))
			}
		}
	}},
}

// TestABadWorkerHarmsOnlyItself lets each beast loose beside two well-behaved workers, whose calls must
// all succeed. The median time of a call is printed with and without the beast.
func TestABadWorkerHarmsOnlyItself(t *testing.T) {
	for _, b := range beasts {
		t.Run(b.name, func(t *testing.T) {
			r := start(t, func(c *engine.Config) {
				c.Bounds.WriteQueueBytes = 1 << 20
				c.Bounds.NamespaceGrace = 50 * time.Millisecond
			})
			host := r.worker("herd", "herd::echo")
			host.serve()
			caller := r.dial()
			alone := herd(t, caller, 60)
			stop := make(chan struct{})
			var wild sync.WaitGroup
			wild.Go(func() { b.do(r, stop) })
			beside := herd(t, caller, 100)
			close(stop)
			wild.Wait()
			t.Logf("p50 of the others: %v alone, %v beside it", alone, beside)
			if p := r.metric("plinth_panics_total"); p != "0" {
				t.Errorf("%s panics", p)
			}
		})
	}
}

func TestAnOversizedMessageCostsOneCall(t *testing.T) {
	r := start(t,
		func(c *engine.Config) { c.Bounds.MaxMessageBytes = 64 << 10; c.Bounds.HardMessageBytes = 256 << 10 })
	host, caller := r.worker("host", "x::y"), r.dial()
	big := strings.Repeat("z", 100<<10)
	id := caller.ask("x::y", `"`+big+`"`)
	if out := caller.result(id); out.code() != wire.CodeMessageTooLarge {
		t.Errorf("oversized call: %v", out)
	}
	caller.send(`{"data":%q,"invocation_id":"late-id","function_id":"x::y","type":"invokefunction"}`, big)
	if out := caller.result("late-id"); out.code() != wire.CodeMessageTooLarge {
		t.Errorf("with its id behind the payload: %v", out)
	}
	id = caller.ask("x::y", "1")
	in := host.want("invokefunction")
	host.send(`{"type":"invocationresult","invocation_id":%q,"function_id":"x::y","result":%q}`, in.str("invocation_id"), big)
	if out := caller.result(id); out.code() != wire.CodeMessageTooLarge {
		t.Errorf("oversized answer: %v", out)
	}
	id = caller.ask("x::y", "1")
	host.answer("2") // both connections live on
	if out := caller.result(id); out["result"] != 2.0 {
		t.Errorf("the next call: %v", out)
	}
	caller.raw(append([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 4, 0, 1, 1, 2, 3, 4}, "x"...)) // past the ceiling
	if f, err := caller.read(); err == nil || !strings.Contains(err.Error(), "1009") {
		t.Errorf("past the hard ceiling: %v %v, want a close with 1009", f, err)
	}
}

func TestAMalformedMessageCostsOneCall(t *testing.T) {
	r := start(t)
	host, caller := r.worker("host", "x::y"), r.dial()
	for bad, want := range map[string]string{
		`{"type":"invokefunction","invocation_id":"bad","function_id":"x::y","data":{"a":}}`:                                                      wire.CodeMalformedFrame,
		`{"type":"invokefunction","invocation_id":"bad","function_id":"x::y","data":"` + "\xff\xfe" + `"}`:                                        wire.CodeMalformedFrame,
		`{"type":"invokefunction","invocation_id":"bad","function_id":"x::y","data":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`: wire.CodeLimit,
		`{"type":"invokefunction","invocation_id":"bad","function_id":"x::y"} trailing`:                                                           wire.CodeMalformedFrame,
	} {
		caller.raw(text(bad))
		if out := caller.result("bad"); out.code() != want {
			t.Errorf("%.90s: %v", bad, out)
		}
	}
	id := caller.ask("x::y", "1")
	in := host.want("invokefunction")
	host.raw(text(fmt.Sprintf(`{"type":"invocationresult","invocation_id":%q,"function_id":"x::y","result":tru}`, in.str("invocation_id"))))
	if out := caller.result(id); out.code() != wire.CodeMalformedFrame {
		t.Errorf("malformed answer: %v", out)
	}
	id = caller.ask("x::y", "1")
	host.answer("2")
	if out := caller.result(id); out["result"] != 2.0 {
		t.Errorf("the next call: %v", out)
	}
}

func TestAFullWriteQueueFailsOnlyTheCallsThatWereForIt(t *testing.T) {
	r := start(t, func(c *engine.Config) { c.Bounds.WriteQueueBytes = 256 << 10 })
	deaf := r.worker("deaf", "zoo::deaf")
	host := r.worker("herd", "herd::echo")
	host.serve()
	caller := r.dial()
	payload := `"` + strings.Repeat("x", 100_000) + `"`
	const n = 200
	for range n {
		caller.ask("zoo::deaf", payload) // deaf never reads
	}
	refused := 0
	var last string
	for range n {
		c := make(chan frame, 1)
		go func() { f, _ := caller.read(); c <- f }()
		select {
		case f := <-c:
			if f.code() != wire.CodeHostOverloaded {
				t.Fatalf("got %v", f)
			}
			refused++
			last = f.message()
			continue
		case <-time.After(300 * time.Millisecond):
			caller.nc.SetReadDeadline(time.Now())
			<-c
		}
		break
	}
	if refused == 0 || refused == n || !strings.Contains(last, "deaf") {
		t.Errorf("%d of %d refused, last: %s", refused, n, last)
	}
	other := r.dial()
	herd(t, other, 20)
	deaf.nc.Close()
}

func TestLargeAnswersToOneCallerAllArrive(t *testing.T) {
	r := start(t)
	host, caller := r.worker("host", "x::y"), r.dial()
	const n, size = 4, 2_500_000
	big := strings.Repeat("z", size)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = caller.ask("x::y", "1")
	}
	for range n { // more than the write queue of calls, and the caller has not read a byte
		in := host.want("invokefunction")
		host.raw(text(fmt.Sprintf(`{"type":"invocationresult","invocation_id":%q,"function_id":"x::y","result":"%s"}`,
			in.str("invocation_id"), big)))
	}
	for _, id := range ids {
		if out := caller.result(id); len(out.str("result")) != size {
			t.Errorf("%s: %s %d bytes", id, out.code(), len(out.str("result")))
		}
	}
}

func TestAnswersThatNobodyReadsAreBoundedAndCounted(t *testing.T) {
	r := start(t, func(c *engine.Config) {
		c.Bounds.MaxMessageBytes, c.Bounds.HardMessageBytes, c.Bounds.WriteQueueBytes = 64<<10, 256<<10, 64<<10
	})
	host, deaf := r.worker("host", "x::y"), r.dial()
	const calls = 240 // more than the buffers of the two kernels hold
	for range calls {
		deaf.ask("x::y", "1")
	}
	for range calls {
		host.answer(`"` + strings.Repeat("z", 60<<10) + `"`)
	}
	lost := 0
	for {
		f, err := deaf.read()
		if err != nil {
			break // what fitted, then errors in the place of answers; with so few of these it stays open
		}
		if f.code() == wire.CodeCallerOverloaded {
			lost++
		}
		if f.str("invocation_id") == fmt.Sprint("call-", calls) {
			break
		}
	}
	if lost == 0 {
		t.Error("answers beyond the bound were queued")
	}
	if got := r.metric("plinth_engine_answers_lost_total"); got == "0" {
		t.Error("lost answers are not counted")
	}
}

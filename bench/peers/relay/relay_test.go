package relay

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// start runs a relay until the test ends.
func start(t *testing.T) (target string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the relay stands on epoll")
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	target = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return target
}

func TestEveryCallThroughTheRelayIsAnswered(t *testing.T) {
	target := start(t)
	for _, job := range []load.Job{
		{Callers: 2, Hosts: 2, Payload: 64},
		{Callers: 1, Hosts: 3, Payload: 64, Plain: true},
		{Callers: 2, Hosts: 1, Payload: 200_000},
	} {
		job.Dialect, job.Target = "frames", target
		job.Steps = []load.Step{
			{Name: "1", InFlight: 1, Measure: 50 * time.Millisecond},
			{Name: "20", InFlight: 20, Measure: 100 * time.Millisecond},
		}
		p := load.Protocols{Loop: map[string]load.Dial{"frames": load.DialFrames}}
		err := load.Do(t.Context(), &job, p, func(ev load.Event) {
			if r := ev.Result; r != nil && (r.Lost != 0 || r.Stray != 0 || len(r.Errors) != 0) {
				t.Errorf("%d bytes, %s in flight: lost %d, stray %d, errors %v",
					job.Payload, r.Step.Name, r.Lost, r.Stray, r.Errors)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// client is a worker that waits for one frame at a time.
type client struct {
	t    *testing.T
	conn net.Conn
	in   []byte
	d    ws.Decoder
}

func dial(t *testing.T, target string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	rest, err := ws.ClientHandshake(conn, target, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn, in: rest}
	if f := c.next(); f.Type != wire.TypeWorkerRegistered || len(f.WorkerID) == 0 {
		t.Fatalf("greeted with %v", f.Type)
	}
	return c
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := c.conn.Write(ws.AppendMaskedFrame(nil, ws.Text, []byte(text), 7)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) next() (f wire.Frame) {
	c.t.Helper()
	buf := make([]byte, 4096)
	for {
		ev, n, err := c.d.Next(&ws.Config{Role: ws.Client}, c.in)
		if err != nil {
			c.t.Fatal(err)
		}
		if ev.Kind == ws.KindMessage {
			if err := f.Scan(append([]byte(nil), ev.Payload...)); err != nil {
				c.t.Fatal(err)
			}
			c.in = c.in[n:]
			return f
		}
		c.in = c.in[n:]
		if n > 0 {
			continue
		}
		n, err = c.conn.Read(buf)
		if err != nil {
			c.t.Fatal(err)
		}
		c.in = append(c.in, buf[:n]...)
	}
}

func TestIDsOfBothHopsAreApartAndPayloadsUntouched(t *testing.T) {
	target := start(t)
	host, caller := dial(t, target), dial(t, target)
	host.send(`{"type":"registerfunction","id":"a::b"}`)
	host.send(`{"type":"ping"}`)
	if f := host.next(); f.Type != wire.TypePong {
		t.Fatalf("a ping was answered with %v", f.Type)
	}
	caller.send(`{"type":"invokefunction","invocation_id":"mine","function_id":"a::b","data":{"x": [1, null]}}`)
	f := host.next()
	if string(f.InvocationID) == "mine" || string(f.Data) != `{"x": [1, null]}` {
		t.Fatalf("the host was asked %s with %s", f.InvocationID, f.Data)
	}
	id := string(f.InvocationID)
	host.send(`{"type":"invocationresult","invocation_id":"` + id + `","function_id":"a::b","result":"done"}`)
	if f = caller.next(); string(f.InvocationID) != "mine" || string(f.Result) != `"done"` {
		t.Fatalf("the caller got %s for %s", f.Result, f.InvocationID)
	}
}

func TestAFunctionOfAWorkerThatLeftIsNotFound(t *testing.T) {
	target := start(t)
	caller := dial(t, target)
	host := dial(t, target)
	host.send(`{"type":"registerfunction","id":"a::b"}`)
	host.send(`{"type":"ping"}`)
	host.next()
	host.conn.Close()
	for { // until the relay has seen it leave
		caller.send(`{"type":"invokefunction","invocation_id":"1","function_id":"a::b"}`)
		caller.send(`{"type":"invokefunction","invocation_id":"2","function_id":"no::such"}`)
		f := caller.next()
		code := wire.ParseError(f.Error).Code
		if string(f.InvocationID) == "2" {
			if code != wire.CodeFunctionNotFound {
				t.Fatalf("a function that never was: %q", code)
			}
			continue
		}
		if code != wire.CodeFunctionNotFound {
			t.Fatalf("a function that is gone: %q", code)
		}
		return
	}
}

func TestNonsenseEndsOneConnectionOnly(t *testing.T) {
	target := start(t)
	good, bad := dial(t, target), dial(t, target)
	bad.send("no json")
	if _, err := bad.conn.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if _, err := bad.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection that broke the rules goes on")
	}
	good.send(`{"type":"ping"}`)
	if f := good.next(); f.Type != wire.TypePong {
		t.Errorf("the other one got %v", f.Type)
	}
}

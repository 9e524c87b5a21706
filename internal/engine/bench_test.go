package engine

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire/ws"
)

// quiet makes an engine that serves nobody.
func quiet(b *testing.B) *Engine {
	b.Helper()
	e, err := New(Config{Functions: fn.New(fn.Config{}), Listener: Listener{Listen: "127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkRegistrationChurn has workers announce themselves and leave, by the hundred and the thousand.
// Functions: package fn.
func BenchmarkRegistrationChurn(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint("workers_register_unregister/", n), func(b *testing.B) {
			e := quiet(b)
			defer e.Close()
			all := make([]*conn, n)
			cards := make([]card, n)
			for i := range cards {
				cards[i] = card{name: fmt.Sprint("worker-", i), runtime: "go", version: "1", pid: int64(i + 1)}
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range all {
					all[i] = &conn{engine: e, space: fn.Default}
					e.enroll(all[i])
					e.name(all[i], &cards[i])
				}
				for _, k := range all {
					e.dismiss(nil, k)
				}
			}
		})
	}
}

// BenchmarkWebSocketRoundTrip is one call from a worker, through the engine, to another worker and back,
// over real sockets.
func BenchmarkWebSocketRoundTrip(b *testing.B) {
	b.Run("invoke_echo", func(b *testing.B) {
		e := quiet(b)
		doors, err := e.Listen(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		host, caller := wired(b, doors[0].String()), wired(b, doors[0].String())
		host.say(b, `{"type":"registerfunction","id":"bench::echo"}`)
		host.say(b, `{"type":"invokefunction","invocation_id":"r","function_id":"engine::workers::register","data":{"name":"h","pid":1}}`)
		host.hear(b)
		go func() { // ends with its connection
			for {
				msg, err := host.next()
				if err != nil {
					return
				}
				id := between(msg, `"invocation_id":"`)
				out := fmt.Appendf(nil, `{"type":"invocationresult","invocation_id":"%s","function_id":"bench::echo","result":1}`, id)
				if _, err := host.nc.Write(ws.AppendMaskedFrame(nil, ws.Text, out, 1)); err != nil {
					return
				}
			}
		}()
		for b.Loop() {
			caller.say(b, `{"type":"invokefunction","invocation_id":"00000000-0000-4000-8000-000000000000","function_id":"bench::echo","data":1}`)
			caller.hear(b)
		}
		host.nc.Close()
		caller.nc.Close()
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
}

// line is a bare client connection.
type line struct {
	nc    net.Conn
	codec ws.Decoder
	buf   []byte
	room  [64 << 10]byte
}

func wired(b *testing.B, addr string) *line {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	rest, err := ws.ClientHandshake(nc, addr, "/", nil)
	if err != nil {
		b.Fatal(err)
	}
	l := &line{nc: nc, buf: rest}
	l.hear(b) // workerregistered
	return l
}

var reader = &ws.Config{Role: ws.Client, MaxMessage: 64 << 20, HardMessage: 256 << 20}

func (l *line) next() ([]byte, error) {
	for {
		ev, n, err := l.codec.Next(reader, l.buf)
		if err != nil {
			return nil, err
		}
		l.buf = l.buf[n:]
		if ev.Kind == ws.KindMessage {
			return ev.Payload, nil
		}
		if ev.Kind != ws.KindNone {
			continue
		}
		n, err = l.nc.Read(l.room[:])
		if err != nil {
			return nil, err
		}
		l.buf = append(l.buf[:0:0], l.room[:n]...)
	}
}

func (l *line) say(b *testing.B, s string) {
	if _, err := l.nc.Write(ws.AppendMaskedFrame(nil, ws.Text, []byte(s), 1)); err != nil {
		b.Fatal(err)
	}
}

func (l *line) hear(b *testing.B) []byte {
	msg, err := l.next()
	if err != nil {
		b.Fatal(err)
	}
	return msg
}

func between(msg []byte, before string) []byte {
	for i := 0; i+len(before) < len(msg); i++ {
		if string(msg[i:i+len(before)]) == before {
			for j := i + len(before); j < len(msg); j++ {
				if msg[j] == '"' {
					return msg[i+len(before) : j]
				}
			}
		}
	}
	return nil
}

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// patience bounds every wait of a test: it fails then, it never passes by it.
const patience = 20 * time.Second

// rig is an engine that serves for one test.
type rig struct {
	*engine.Engine
	t       testing.TB
	reg     *fn.Registry
	addr    string
	public  string // of the second listener
	spans   *telemetry.Spans
	logs    *telemetry.Logs
	names   *telemetry.Names
	metrics *telemetry.Metrics
	stop    func() error
}

// start runs an engine until the test ends.
func start(t testing.TB, change ...func(*engine.Config)) *rig {
	t.Helper()
	r := &rig{t: t, spans: telemetry.NewSpans(4 << 20), logs: telemetry.NewLogs(1 << 20),
		names: telemetry.NewNames(), metrics: telemetry.NewMetrics()}
	cfg := engine.Config{Listener: engine.Listener{Listen: "127.0.0.1:0"}, Loops: 2, Grace: time.Second,
		Version: "test",
		Bounds:  wire.DefaultBounds(), Spans: r.spans, Logs: r.logs, Names: r.names, Metrics: r.metrics}
	if os.Getenv("PLINTH_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for _, f := range change {
		f(&cfg)
	}
	if cfg.Functions == nil {
		cfg.Functions = fn.New(fn.Config{Spans: r.spans, Names: r.names,
			MaxInFlight: cfg.Bounds.MaxInFlightPerWorker, MaxMade: cfg.Bounds.MaxCallsPerWorker,
			Ceiling: cfg.Bounds.MaxInvocation})
	}
	r.reg = cfg.Functions
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a, err := e.Listen(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r.Engine, r.addr = e, a[0].String()
	if len(a) > 1 {
		r.public = a[1].String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- e.Run(ctx) }()
	core, end := context.WithCancel(context.Background())
	go func() { done <- r.reg.Run(core) }()
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-done
		end()
		return errors.Join(err, <-done)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("engine: %v", err)
		}
	})
	return r
}

// client is a bare connection to the engine: tests see every frame.
type client struct {
	t     testing.TB
	nc    net.Conn
	codec ws.Decoder
	buf   []byte
	id    string
	token string
	next  int
}

var clientConfig = &ws.Config{Role: ws.Client, MaxMessage: 256 << 20, HardMessage: 1 << 30}

// dial connects and reads workerregistered.
func (r *rig) dial() *client {
	r.t.Helper()
	c := r.open("/")
	f := c.want("workerregistered")
	c.id, c.token = f.str("worker_id"), f.str("reattach_token")
	return c
}

// open connects to a path, with header lines if there are any.
func (r *rig) open(path string, header ...string) *client {
	r.t.Helper()
	return r.openAt(r.addr, path, header...)
}

// openAt is open at another listener.
func (r *rig) openAt(addr, path string, header ...string) *client {
	r.t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(patience))
	head := map[string][]string{}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		head[name] = append(head[name], value)
	}
	rest, err := ws.ClientHandshake(nc, addr, path, head)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &client{t: r.t, nc: nc, buf: rest}
	r.t.Cleanup(func() { nc.Close() })
	return c
}

// worker connects, registers ids and introduces itself; it returns when the functions can be called.
func (r *rig) worker(name string, ids ...string) *client {
	r.t.Helper()
	c := r.dial()
	for _, id := range ids {
		c.send(`{"type":"registerfunction","id":%q}`, id)
	}
	c.announce(name, "")
	return c
}

func (c *client) announce(name, more string) frame {
	c.t.Helper()
	return c.call("engine::workers::register", fmt.Sprintf(`{"runtime":"test","version":"1","name":%q,"pid":1%s}`, name, more))
}

// raw writes bytes as they are.
func (c *client) raw(b []byte) {
	c.t.Helper()
	c.nc.SetDeadline(time.Now().Add(patience))
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// send writes one text message.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	c.raw(ws.AppendMaskedFrame(nil, ws.Text, []byte(text), 0x12345678))
}

// say writes one text message as it is.
func (c *client) say(message string) {
	c.t.Helper()
	c.raw(ws.AppendMaskedFrame(nil, ws.Text, []byte(message), 0x12345678))
}

// event reads the next codec event; err tells that the connection is over.
func (c *client) event() (ws.Event, error) {
	c.nc.SetDeadline(time.Now().Add(patience))
	for {
		ev, n, err := c.codec.Next(clientConfig, c.buf)
		if err != nil {
			return ev, err
		}
		c.buf = c.buf[n:]
		if ev.Kind != ws.KindNone {
			return ev, nil
		}
		room := make([]byte, 64<<10)
		n, err = c.nc.Read(room)
		if err != nil {
			return ws.Event{}, err
		}
		c.buf = append(c.buf, room[:n]...)
	}
}

// frame is a decoded frame.
type frame map[string]any

func (f frame) str(key string) string { s, _ := f[key].(string); return s }

// code returns the code of a failed result, "" for a success.
func (f frame) code() string {
	e, _ := f["error"].(map[string]any)
	s, _ := e["code"].(string)
	return s
}

func (f frame) message() string {
	e, _ := f["error"].(map[string]any)
	s, _ := e["message"].(string)
	return s
}

// read returns the next frame that is no control frame.
func (c *client) read() (frame, error) {
	for {
		ev, err := c.event()
		if err != nil {
			return nil, err
		}
		switch ev.Kind {
		case ws.KindMessage:
			var f frame
			if err := json.Unmarshal(ev.Payload, &f); err != nil {
				return nil, fmt.Errorf("engine sent %q: %w", ev.Payload, err)
			}
			return f, nil
		case ws.KindPing:
			c.raw(ws.AppendMaskedFrame(nil, ws.Pong, ev.Payload, 1))
		case ws.KindClose:
			return nil, fmt.Errorf("closed %d %s", ev.Code, ev.Payload)
		}
	}
}

// want reads frames until one of the type comes.
func (c *client) want(kind string) frame {
	c.t.Helper()
	for {
		f, err := c.read()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", kind, err)
		}
		if f.str("type") == kind {
			return f
		}
	}
}

// ask sends a call and returns its id.
func (c *client) ask(function, data string) string {
	c.t.Helper()
	c.next++
	id := fmt.Sprintf("call-%d", c.next)
	if data != "" {
		data = `,"data":` + data
	}
	c.send(`{"type":"invokefunction","invocation_id":%q,"function_id":%q%s}`, id, function, strings.ReplaceAll(data, "%", "%%"))
	return id
}

// call makes a call and waits for its result.
func (c *client) call(function, data string) frame {
	c.t.Helper()
	return c.result(c.ask(function, data))
}

// result waits for the result of one call.
func (c *client) result(id string) frame {
	c.t.Helper()
	for {
		if f := c.want("invocationresult"); f.str("invocation_id") == id {
			return f
		}
	}
}

// answer serves the next call with a result.
func (c *client) answer(result string) frame {
	c.t.Helper()
	f := c.want("invokefunction")
	if result != "" {
		result = `,"result":` + result
	}
	c.send(`{"type":"invocationresult","invocation_id":%q,"function_id":%s%s}`, f.str("invocation_id"),
		wire.AppendString(nil, f.str("function_id")), result)
	return f
}

// serve answers every call with its own payload until the connection ends. Its owner is the test, whose
// end closes the connection.
func (c *client) serve() {
	go func() {
		for {
			f, err := c.read()
			if err != nil {
				return
			}
			if f.str("type") != "invokefunction" {
				continue
			}
			data, _ := json.Marshal(f["data"])
			out := fmt.Appendf(nil, `{"type":"invocationresult","invocation_id":%q,"function_id":%q,"result":%s}`,
				f.str("invocation_id"), f.str("function_id"), data)
			if _, err := c.nc.Write(ws.AppendMaskedFrame(nil, ws.Text, out, 7)); err != nil {
				return
			}
		}
	}()
}

// metric reads one figure from the metrics page.
func (r *rig) metric(name string) string {
	var b strings.Builder
	r.metrics.WritePrometheus(&b)
	for line := range strings.Lines(b.String()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

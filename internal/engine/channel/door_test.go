package channel_test

import (
	"context"
	"net"
	"net/url"
	"runtime"
	"sync"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

// door is what the engine does for channel sockets: it answers the upgrade and hands the rest on.
type door struct {
	hub   *channel.Hub
	group *loop.Group
	end   *channel.End
	tell  func(*channel.End)
}

func (d *door) Data(c *loop.Conn, b []byte) int {
	if d.end != nil {
		return d.end.Data(c, b)
	}
	r, n, err := ws.ParseRequest(b)
	if err != nil || n == 0 {
		if err != nil {
			c.Close(err)
		}
		return n
	}
	q, _ := url.ParseQuery(r.Query)
	end, status := d.hub.Take(r.Path[1:], q.Get("key"), q.Get("dir"), c, d.group)
	if status == channel.Unknown {
		_ = c.End(c.Loop(), ws.AppendRefusal(c.Begin(), 404, "no such channel"))
		c.Finish()
		return len(b)
	}
	out := ws.AppendAccept(c.Begin(), r.Key)
	if status == channel.Taken {
		out = ws.AppendClose(out, ws.ClosePolicy, "taken")
	}
	_ = c.End(c.Loop(), out)
	if status == channel.Taken {
		c.Finish()
		return len(b)
	}
	d.end = end
	if d.tell != nil {
		d.tell(end)
	}
	end.Open()
	return n + end.Data(c, b[n:])
}

func (d *door) Drained(c *loop.Conn) {
	if d.end != nil {
		d.end.Drained(c)
	}
}

func (d *door) Closed(c *loop.Conn, err error) {
	if d.end != nil {
		d.end.Closed(c, err)
	}
}

// house is a hub with a listener in front.
type house struct {
	*channel.Hub
	group *loop.Group
	addr  string
}

// open runs a group of loops with a door to the hub.
func open(t testing.TB, h *channel.Hub, cfg loop.Config, tell func(*channel.End)) *house {
	t.Helper()
	g := loop.New(cfg)
	addr, err := g.Listen(t.Context(), "tcp", "127.0.0.1:0", func(*loop.Conn) loop.Handler {
		return &door{hub: h, group: g, tell: tell}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }() // owner: the test
	t.Cleanup(sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}))
	return &house{h, g, addr.String()}
}

// pair makes a channel.
func (h *house) pair(t testing.TB, owner any, messages int) (w, r channel.Ref) {
	t.Helper()
	w, r, err := h.Create(owner, messages)
	if err != nil {
		t.Fatal(err)
	}
	return w, r
}

// client is a worker's socket of a channel.
type client struct {
	nc    *net.TCPConn
	codec ws.Decoder
	buf   []byte
	out   []byte
	key   uint32
}

// dial opens one end; the error is that of the handshake.
func dial(t testing.TB, addr string, ref channel.Ref) (*client, error) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &client{nc: nc.(*net.TCPConn), key: 0x9e3779b9}
	path := "/" + ref.ChannelID + "?key=" + ref.AccessKey + "&dir=" + ref.Direction
	rest, err := ws.ClientHandshake(nc, addr, path, nil)
	c.buf = append(c.buf, rest...)
	return c, err
}

func (h *house) dial(t testing.TB, ref channel.Ref) *client {
	t.Helper()
	c, err := dial(t, h.addr, ref)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// send writes one whole message.
func (c *client) send(op ws.Opcode, payload []byte) error {
	c.key = c.key*1664525 + 1013904223
	c.out = ws.AppendMaskedFrame(c.out[:0], op, payload, c.key)
	_, err := c.nc.Write(c.out)
	return err
}

func (c *client) mustSend(t testing.TB, op ws.Opcode, payload string) {
	t.Helper()
	if err := c.send(op, []byte(payload)); err != nil {
		t.Fatal(err)
	}
}

func (c *client) close(t testing.TB, code uint16, reason string) {
	t.Helper()
	if _, err := c.nc.Write(ws.AppendMaskedClose(nil, code, reason, 7)); err != nil {
		t.Fatal(err)
	}
}

// event is what a client got: a message, or how the connection ended.
type event struct {
	kind ws.Kind
	op   ws.Opcode
	code uint16
	text string
}

var reading = ws.Config{Role: ws.Client}

// next returns the next message or close frame. Without one, as the connection ended, the kind is None.
func (c *client) next(t testing.TB) event {
	t.Helper()
	for {
		ev, n, err := c.codec.Next(&reading, c.buf)
		if err != nil {
			t.Fatalf("the hub broke the protocol: %v", err)
		}
		got := event{ev.Kind, ev.Op, ev.Code, string(ev.Payload)}
		c.buf = c.buf[n:]
		switch {
		case ev.Kind == ws.KindMessage, ev.Kind == ws.KindClose:
			return got
		case ev.Kind == ws.KindPing:
			if err := c.send(ws.Pong, []byte(got.text)); err != nil {
				return event{}
			}
			continue
		case ev.Kind != ws.KindNone, n > 0:
			continue
		}
		more := make([]byte, 64<<10)
		m, err := c.nc.Read(more)
		if m == 0 && err != nil {
			return event{}
		}
		c.buf = append(c.buf, more[:m]...)
	}
}

func (c *client) wantMessage(t testing.TB, op ws.Opcode, text string) {
	t.Helper()
	if got := c.next(t); got.kind != ws.KindMessage || got.op != op || got.text != text {
		t.Fatalf("got %d %v %d %.80q, want %v %.80q", got.kind, got.op, got.code, got.text, op, text)
	}
}

func (c *client) wantClose(t testing.TB, code uint16, reason string) {
	t.Helper()
	got := c.next(t)
	if got.kind != ws.KindClose || got.code != code || reason != "*" && got.text != reason {
		t.Fatalf("got %d %v %d %.80q, want close %d %q", got.kind, got.op, got.code, got.text, code, reason)
	}
}

// until yields till ok holds; a test that waits in vain ends with the timeout of go test.
func until(ok func() bool) {
	for !ok() {
		runtime.Gosched()
	}
}

// both runs f on epoll and on the portable loops.
func both(t *testing.T, f func(t *testing.T, cfg loop.Config)) {
	t.Run("native", func(t *testing.T) { f(t, loop.Config{Loops: 2}) })
	t.Run("portable", func(t *testing.T) { f(t, loop.Config{Loops: 2, Portable: true}) })
}

// on runs f on l and waits for it.
func on(l *loop.Loop, f func()) {
	done := make(chan struct{})
	l.Post(func() {
		defer close(done)
		f()
	})
	<-done
}

package channel_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

// still is a house whose clock stands, and that tells of its ends.
func still(t *testing.T, o channel.Options) (*house, chan *channel.End) {
	ends := make(chan *channel.End, 2)
	return open(t, channel.New(o), loop.Config{Loops: 1, Now: func() int64 { return 1 }},
		func(e *channel.End) { ends <- e }), ends
}

// beat lets d pass for one end.
func (h *house) beat(e *channel.End, d time.Duration) {
	on(h.group.Loops()[0], func() { e.Beat(int64(d)) })
}

func TestSilentEndIsPingedThenDropped(t *testing.T) {
	h, ends := still(t, channel.Options{PingAfter: 10 * time.Second, DropAfter: 30 * time.Second})
	wr, rr := h.pair(t, nil, 0)
	w := h.dial(t, wr)
	we := <-ends
	r := h.dial(t, rr)
	<-ends
	h.beat(we, 9*time.Second)
	h.beat(we, 11*time.Second)
	h.beat(we, 12*time.Second)
	if b := w.raw(t, 2); !bytes.Equal(b, []byte{0x89, 0}) {
		t.Fatalf("got % x, want a ping", b)
	}
	h.beat(we, 31*time.Second)
	if got := w.next(t); got.kind != ws.KindNone {
		t.Fatalf("got %+v, want the end of the connection and no second ping", got)
	}
	r.wantClose(t, ws.CloseInternal, "the connection of the writer broke")
}

// raw reads n bytes as they are.
func (c *client) raw(t *testing.T, n int) []byte {
	t.Helper()
	for len(c.buf) < n {
		more := make([]byte, n-len(c.buf))
		m, err := c.nc.Read(more)
		if err != nil {
			t.Fatal(err)
		}
		c.buf = append(c.buf, more[:m]...)
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

// TestEndThatCannotAnswerIsNotDropped: a writer that we do not read, and a reader with messages to take
// before our ping, may be silent.
func TestEndThatCannotAnswerIsNotDropped(t *testing.T) {
	h, ends := still(t, channel.Options{DropAfter: 30 * time.Second})
	wr, rr := h.pair(t, nil, 1)
	w := h.dial(t, wr)
	we := <-ends
	w.mustSend(t, ws.Text, "one")
	w.mustSend(t, ws.Text, "two")
	until(func() bool { return h.Stats().Held == 1 })
	h.beat(we, time.Hour)
	r := h.dial(t, rr)
	re := <-ends
	until(func() bool { return h.Stats().MessagesOut == 2 })
	h.beat(re, time.Hour)
	r.wantMessage(t, ws.Text, "one")
	r.wantMessage(t, ws.Text, "two")
	w.mustSend(t, ws.Text, "three")
	r.wantMessage(t, ws.Text, "three")
}

// TestReaderIsLeftToTakeTheRest: a slow reader of a stream that is complete has as long as it needs while
// it goes on, and is dropped when it stops.
func TestReaderIsLeftToTakeTheRest(t *testing.T) {
	h, ends := still(t, channel.Options{Untaken: time.Minute, BufferBytes: 16 << 20})
	wr, rr := h.pair(t, nil, 0)
	r := h.dial(t, rr)
	re := <-ends
	_ = r.nc.SetReadBuffer(16 << 10)
	w := h.dial(t, wr)
	const many = 250 // more than the kernel takes, less than the window
	go func() {      // ends with the close frame
		for range many {
			_ = w.send(ws.Binary, make([]byte, 32<<10))
		}
		_, _ = w.nc.Write(ws.AppendMaskedClose(nil, ws.CloseNormal, "stream_complete", 1))
	}()
	until(func() bool { return h.Stats().Finished == 1 })
	h.beat(re, time.Hour)
	h.beat(re, time.Hour+59*time.Second)
	if h.Stats().Open != 1 {
		t.Fatal("dropped too early")
	}
	r.next(t)
	h.beat(re, time.Hour+61*time.Second)
	for got := r.next(t); got.kind == ws.KindMessage; got = r.next(t) {
	}
	until(func() bool { h.beat(re, 3*time.Hour); return h.Stats().Open == 0 })
}

func TestReaderThatSendsIsAnsweredOrIgnored(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, rr := h.pair(t, nil, 0)
	w, r := h.dial(t, wr), h.dial(t, rr)
	r.mustSend(t, ws.Text, "nobody wants this")
	r.mustSend(t, ws.Binary, string(make([]byte, 100_000)))
	r.mustSend(t, ws.Ping, "are you there")
	if got := r.raw(t, 15); string(got) != "\x8a\x0dare you there" {
		t.Fatalf("got %q, want a pong", got)
	}
	w.mustSend(t, ws.Ping, "")
	if got := w.raw(t, 2); string(got) != "\x8a\x00" {
		t.Fatalf("got %q, want a pong", got)
	}
	if s := h.Stats(); s.BytesIn+s.BytesOut != 0 {
		t.Fatalf("stats %+v", s)
	}
}

// TestPeerThatDoesNotTakeItsPongsIsBounded floods with pings and reads nothing.
func TestPeerThatDoesNotTakeItsPongsIsBounded(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, _ := h.pair(t, nil, 0)
	w := h.dial(t, wr)
	_ = w.nc.SetReadBuffer(16 << 10)
	var flood []byte
	for range 1000 {
		flood = ws.AppendMaskedFrame(flood, ws.Ping, make([]byte, 125), 5)
	}
	for h.Stats().Unanswered == 0 {
		if _, err := w.nc.Write(flood); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFloodOfEmptyMessagesIsPassedOn has more frames in one read than are handled at a time.
func TestFloodOfEmptyMessagesIsPassedOn(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		cfg.ReadBytes = 256 << 10
		h := open(t, channel.New(channel.Options{}), cfg, nil)
		wr, rr := h.pair(t, nil, 0)
		w, r := h.dial(t, wr), h.dial(t, rr)
		const many = 100_000
		var out []byte
		for range many {
			out = ws.AppendMaskedFrame(out, ws.Text, nil, 1)
		}
		out = ws.AppendMaskedClose(out, ws.CloseNormal, "stream_complete", 1)
		go func() { _, _ = w.nc.Write(out) }() // ends when all is taken
		for range many {
			r.wantMessage(t, ws.Text, "")
		}
		r.wantClose(t, ws.CloseNormal, "stream_complete")
	})
}

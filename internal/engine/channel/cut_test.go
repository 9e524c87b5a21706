package channel_test

import (
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

// TestOnlyAWholeStreamEndsWell ends the writer in every way, with the reader there and before it comes.
func TestOnlyAWholeStreamEndsWell(t *testing.T) {
	raw := func(t *testing.T, w *client, b ...byte) {
		t.Helper()
		if _, err := w.nc.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	begun := ws.AppendMaskedFrame(nil, ws.Binary, []byte("half"), 3)
	begun[0] &^= 0x80
	for _, c := range []struct {
		name   string
		end    func(t *testing.T, w *client)
		code   uint16
		reason string
		back   uint16 // the code that the writer is closed with; 0 for none
	}{
		{"complete", func(t *testing.T, w *client) { w.close(t, 1000, "stream_complete") },
			1000, "stream_complete", 1000},
		{"closed", func(t *testing.T, w *client) { w.close(t, 1000, "channel_close") },
			1000, "channel_close", 1000},
		{"closed without a code", func(t *testing.T, w *client) { w.close(t, ws.CloseNoStatus, "") },
			1000, "", 1005},
		{"going away", func(t *testing.T, w *client) { w.close(t, 1001, "bye") },
			1011, "the writer closed with 1001 bye", 1001},
		{"own code", func(t *testing.T, w *client) { w.close(t, 4000, "") },
			1011, "the writer closed with 4000", 4000},
		{"end without a close frame", func(t *testing.T, w *client) { _ = w.nc.CloseWrite() },
			1011, "the connection of the writer broke", 0},
		{"reset", func(t *testing.T, w *client) { _ = w.nc.SetLinger(0); w.nc.Close() },
			1011, "the connection of the writer broke", 0},
		{"closed in a message", func(t *testing.T, w *client) {
			raw(t, w, begun...)
			w.close(t, 1000, "x")
		}, 1011, "the writer closed within a message", 1000},
		{"broken in a message", func(t *testing.T, w *client) {
			raw(t, w, begun...)
			_ = w.nc.CloseWrite()
		}, 1011, "the connection of the writer broke", 0},
		{"broken in a frame", func(t *testing.T, w *client) { raw(t, w, begun[:7]...); _ = w.nc.CloseWrite() },
			1011, "the connection of the writer broke", 0},
		{"no mask", func(t *testing.T, w *client) { raw(t, w, 0x82, 1, 'x') },
			1011, "*", 1002},
		{"too large", func(t *testing.T, w *client) { _ = w.send(ws.Binary, make([]byte, 100_001)) },
			1011, "*", 1009},
		{"no text", func(t *testing.T, w *client) { w.mustSend(t, ws.Text, "\xff") },
			1011, "*", 1007},
		{"no text in the end", func(t *testing.T, w *client) {
			w.mustSend(t, ws.Text, strings.Repeat("x", 50_000)+"\xe2\x82")
		}, 1011, "*", 1007},
	} {
		for _, early := range []bool{true, false} {
			when := map[bool]string{true: ", reader there", false: ", reader late"}[early]
			t.Run(c.name+when, func(t *testing.T) {
				h := open(t, channel.New(channel.Options{MaxMessage: 100_000}), loop.Config{}, nil)
				wr, rr := h.pair(t, nil, 0)
				var r *client
				if early {
					r = h.dial(t, rr)
				}
				w := h.dial(t, wr)
				w.mustSend(t, ws.Text, "first")
				w.mustSend(t, ws.Binary, "\x00\xff")
				c.end(t, w)
				if c.back != 0 {
					w.wantClose(t, c.back, "*")
				}
				if !early {
					until(func() bool { s := h.Stats(); return s.Finished+s.Broken == 1 })
					r = h.dial(t, rr)
				}
				r.wantMessage(t, ws.Text, "first")
				r.wantMessage(t, ws.Binary, "\x00\xff")
				r.wantClose(t, c.code, c.reason)
				r.close(t, c.code, "")
				r.nc.Close()
				until(func() bool { return h.Stats().Open == 0 })
				s, whole := h.Stats(), c.code == 1000
				if s.MessagesLost != 0 || s.Finished+s.Broken != 1 || (s.Finished == 1) != whole {
					t.Errorf("stats %+v", s)
				}
			})
		}
	}
}

// TestReaderThatGoesEndsTheWriter ends the reader in every way, with a writer that sends, is silent, and
// is held back.
func TestReaderThatGoesEndsTheWriter(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *client){
		"close":          func(t *testing.T, r *client) { r.close(t, 1000, "channel_close") },
		"end":            func(_ *testing.T, r *client) { _ = r.nc.CloseWrite() },
		"reset":          func(_ *testing.T, r *client) { _ = r.nc.SetLinger(0); r.nc.Close() },
		"protocol error": func(_ *testing.T, r *client) { _, _ = r.nc.Write([]byte{0x82, 1, 'x'}) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, cfg loop.Config) {
				for _, stuck := range []bool{false, true} {
					h := open(t, channel.New(channel.Options{BufferBytes: 64 << 10}), cfg, nil)
					wr, rr := h.pair(t, nil, 0)
					w, r := h.dial(t, wr), h.dial(t, rr)
					if stuck {
						done := make(chan struct{})
						go func() { // ends with the connection
							defer close(done)
							for w.send(ws.Binary, make([]byte, 64<<10)) == nil {
							}
						}()
						until(func() bool { return h.Stats().Held == 1 })
						end(t, r)
						until(func() bool { return h.Stats().Open == 0 })
						w.nc.Close()
						<-done
					} else {
						w.mustSend(t, ws.Text, "hello")
						r.wantMessage(t, ws.Text, "hello")
						end(t, r)
						w.wantClose(t, ws.CloseGoingAway, "the reader went away")
						until(func() bool { return h.Stats().Open == 0 })
					}
					if s := h.Stats(); s.Held != 0 || s.Broken != 1 || s.Finished != 0 {
						t.Fatalf("stuck %v: stats %+v", stuck, s)
					}
				}
			})
		})
	}
}

func TestReaderThatLeavesFirstTakesTheChannelAlong(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, rr := h.pair(t, nil, 0)
	h.dial(t, rr).nc.Close()
	until(func() bool { return h.Stats().Open == 0 })
	if _, err := dial(t, h.addr, wr); err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("the writer got %v, want 404", err)
	}
}

func TestChannelsGoWithTheirOwner(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, rr := h.pair(t, "worker", 0)
	w, r := h.dial(t, wr), h.dial(t, rr)
	alone, never := h.pair(t, "worker", 0)
	waits := h.dial(t, alone)
	waits.mustSend(t, ws.Binary, "12345")
	until(func() bool { return h.Stats().BytesIn == 5 })
	kr, kw := h.pair(t, "another", 0)
	h.Leave("worker")
	h.Leave("worker")
	for _, c := range []*client{w, r, waits} {
		c.wantClose(t, ws.CloseGoingAway, "the owner of the channel left")
	}
	if _, err := dial(t, h.addr, never); err == nil {
		t.Error("a channel outlived its owner")
	}
	if s := h.Stats(); s.Open != 1 || s.MessagesLost != 1 || s.BytesLost != 5 || s.Broken != 2 {
		t.Fatalf("stats %+v", s)
	}
	a, b := h.dial(t, kr), h.dial(t, kw)
	a.mustSend(t, ws.Text, "unharmed")
	b.wantMessage(t, ws.Text, "unharmed")
}

// TestReaderOfAWholeStreamOutlivesTheOwner: a worker that wrote all and exits must not cut its own stream.
func TestReaderOfAWholeStreamOutlivesTheOwner(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, rr := h.pair(t, "worker", 0)
	r := h.dial(t, rr)
	w := h.dial(t, wr)
	whole := strings.Repeat("z", 300_000)
	w.mustSend(t, ws.Binary, whole)
	w.close(t, ws.CloseNormal, "stream_complete")
	w.wantClose(t, ws.CloseNormal, "")
	h.Leave("worker")
	h.Close()
	r.wantMessage(t, ws.Binary, whole)
	r.wantClose(t, ws.CloseNormal, "stream_complete")
	r.nc.Close()
	until(func() bool { return h.Stats().Open == 0 })
}

func TestHubThatClosesSaysThatTheStreamIsNotWhole(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, rr := h.pair(t, nil, 0)
	w, r := h.dial(t, wr), h.dial(t, rr)
	h.Close()
	w.wantClose(t, ws.CloseGoingAway, "plinth is stopping")
	r.wantClose(t, ws.CloseGoingAway, "plinth is stopping")
}

package channel_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// mix makes messages of both kinds and all sizes that matter to the codec and the loops.
func mix(rnd *rand.Rand, n int) []event {
	sizes := []int{0, 1, 125, 126, 1000, 16<<10 - 1, 16 << 10, 64 << 10, 200_000}
	all := make([]event, n)
	for i := range all {
		size := sizes[rnd.IntN(len(sizes))]
		if rnd.IntN(2) == 0 {
			size = rnd.IntN(size + 1)
		}
		b := make([]byte, size)
		op := ws.Text
		for j := range b {
			b[j] = 'a' + byte(rnd.IntN(26))
		}
		if rnd.IntN(2) == 0 {
			op = ws.Binary
			for j := range b {
				b[j] |= 0x80
			}
		}
		all[i] = event{kind: ws.KindMessage, op: op, text: string(b)}
	}
	return all
}

// fragments encodes a message in frames of random sizes, with pings between.
func fragments(rnd *rand.Rand, m event) (out []byte) {
	op, rest := m.op, []byte(m.text)
	for {
		part := rest
		if rnd.IntN(3) == 0 {
			part = rest[:rnd.IntN(len(rest)+1)]
		}
		rest = rest[len(part):]
		start := len(out)
		out = ws.AppendMaskedFrame(out, op, part, rnd.Uint32())
		if len(rest) == 0 {
			return out
		}
		out[start] &^= 0x80
		op = ws.Continuation
		if rnd.IntN(4) == 0 {
			out = ws.AppendMaskedFrame(out, ws.Ping, []byte("between"), rnd.Uint32())
		}
	}
}

func TestMessagesAndBytesKeepTheirOrder(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		cfg.ReadBytes = 256 << 10
		h := open(t, channel.New(channel.Options{BufferBytes: 128 << 10}), cfg, nil)
		wr, rr := h.pair(t, "owner", 0)
		w, r := h.dial(t, wr), h.dial(t, rr)
		compare(t, h, w, r)
	})
}

func TestEndsOfTwoGroupsOfLoopsAreJoined(t *testing.T) {
	hub := channel.New(channel.Options{BufferBytes: 64 << 10})
	one := open(t, hub, loop.Config{Loops: 1}, nil)
	two := open(t, hub, loop.Config{Loops: 1, Portable: true}, nil)
	wr, rr := one.pair(t, nil, 0)
	compare(t, one, one.dial(t, wr), two.dial(t, rr))
	wr, rr = one.pair(t, nil, 0)
	compare(t, one, two.dial(t, wr), one.dial(t, rr))
}

// compare sends a mix from w, reads it from r, and sees the channel end well.
func compare(t *testing.T, h *house, w, r *client) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	all := mix(rnd, 300)
	sent := make(chan error, 1)
	go func() { // ends with the last message
		var err error
		for _, m := range all {
			if _, err = w.nc.Write(fragments(rnd, m)); err != nil {
				break
			}
		}
		if err == nil {
			_, err = w.nc.Write(ws.AppendMaskedClose(nil, ws.CloseNormal, "stream_complete", 1))
		}
		sent <- err
	}()
	for i, want := range all {
		if got := r.next(t); got != want {
			t.Fatalf("message %d: got %v %v of %d bytes, want %v of %d", i, got.kind, got.op, len(got.text),
				want.op, len(want.text))
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	r.wantClose(t, ws.CloseNormal, "stream_complete")
	r.close(t, ws.CloseNormal, "")
	r.nc.Close()
	w.wantClose(t, ws.CloseNormal, "")
	until(func() bool { return h.Stats().Open == 0 })
	if s := h.Stats(); s.BytesIn != s.BytesOut || s.MessagesIn != s.MessagesOut || s.BytesLost+s.Held != 0 {
		t.Fatalf("stats %+v", s)
	}
}

func TestReaderThatComesLateGetsWhatWaited(t *testing.T) {
	for _, c := range []struct {
		name           string
		messages, size int
		buffer         int
	}{
		{"bounded by messages", 8, 10, 0},
		{"bounded by bytes", 1024, 4096, 64 << 10},
		{"message larger than the buffer", 4, 300 << 10, 64 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			var held atomic.Int64
			h := open(t, channel.New(channel.Options{BufferBytes: c.buffer,
				Take: func(n int64) bool { held.Add(n); return true },
				Give: func(n int64) { held.Add(-n) }}), loop.Config{}, nil)
			wr, rr := h.pair(t, nil, c.messages)
			w := h.dial(t, wr)
			const many = 100
			sent := make(chan error, 1)
			go func() { // ends with the last message
				var err error
				for i := range many {
					if err == nil {
						err = w.send(ws.Binary, bytes.Repeat([]byte{byte(i)}, c.size))
					}
				}
				sent <- err
			}()
			until(func() bool { return h.Stats().Held == 1 })
			s := h.Stats()
			if s.MessagesIn > uint64(c.messages) || s.BytesIn > 1<<20 || c.buffer > 0 && s.BytesIn > 192<<10 {
				t.Fatalf("before the reader came: %+v", s)
			}
			if held.Load() < int64(s.BytesIn) {
				t.Fatalf("%d bytes wait, %d are paid for", s.BytesIn, held.Load())
			}
			r := h.dial(t, rr)
			for i := range many {
				r.wantMessage(t, ws.Binary, strings.Repeat(string([]byte{byte(i)}), c.size))
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if held.Load() != 0 {
				t.Fatalf("%d bytes are kept of the budget", held.Load())
			}
		})
	}
}

// TestSlowReaderHoldsTheWriterBack has a reader that does not read: what the channel holds for it stays
// within the bound, and all of it comes in the end.
func TestSlowReaderHoldsTheWriterBack(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		var held, most atomic.Int64
		cfg.Take = func(n int64) bool {
			for now := held.Add(n); ; {
				old := most.Load()
				if now <= old || most.CompareAndSwap(old, now) {
					return true
				}
			}
		}
		cfg.Give = func(n int64) { held.Add(-n) }
		h := open(t, channel.New(channel.Options{BufferBytes: 256 << 10}), cfg, nil)
		wr, rr := h.pair(t, nil, 0)
		r := h.dial(t, rr)
		_ = r.nc.SetReadBuffer(64 << 10)
		w := h.dial(t, wr)
		const many = 1024
		sent := make(chan error, 1)
		go func() { // ends with the last message
			var err error
			for range many {
				if err == nil {
					err = w.send(ws.Binary, make([]byte, 64<<10))
				}
			}
			if err == nil {
				_, err = w.nc.Write(ws.AppendMaskedClose(nil, ws.CloseNormal, "channel_close", 1))
			}
			sent <- err
		}()
		until(func() bool { return h.Stats().Held == 1 })
		for range many {
			if got := r.next(t); got.kind != ws.KindMessage || len(got.text) != 64<<10 {
				t.Fatalf("got %v of %d bytes", got.kind, len(got.text))
			}
		}
		r.wantClose(t, ws.CloseNormal, "channel_close")
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		// The budget is asked in doubling steps: at most twice of what is queued.
		if bound := int64(2 * (128<<10 + 64<<10 + 100)); most.Load() > bound {
			t.Errorf("up to %d bytes were held, the bound is %d", most.Load(), bound)
		}
		if s := h.Stats(); s.Held != 0 || s.Paused == 0 || s.BytesOut != many*64<<10 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestShortMemoryDelaysAndLosesNothing refuses memory again and again, to the channel and to the queues.
func TestShortMemoryDelaysAndLosesNothing(t *testing.T) {
	var asked, held atomic.Int64
	var short atomic.Bool
	take := func(n int64) bool {
		if short.Load() && asked.Add(1)%3 != 0 {
			return false
		}
		held.Add(n)
		return true
	}
	give := func(n int64) { held.Add(-n) }
	h := open(t, channel.New(channel.Options{BufferBytes: 64 << 10, Take: take, Give: give}),
		loop.Config{Take: take, Give: give}, nil)
	wr, rr := h.pair(t, nil, 1024)
	w := h.dial(t, wr)
	short.Store(true)
	const many = 50
	sent := make(chan error, 1)
	go func() { // ends with the last message
		var err error
		for i := range many {
			if err == nil {
				err = w.send(ws.Binary, bytes.Repeat([]byte{byte(i)}, 20_000))
			}
		}
		if err == nil {
			_, err = w.nc.Write(ws.AppendMaskedClose(nil, ws.CloseNormal, "stream_complete", 1))
		}
		sent <- err
	}()
	until(func() bool { return h.Stats().Held == 1 })
	short.Store(false) // the answer to the upgrade needs memory too
	r := h.dial(t, rr)
	short.Store(true)
	for i := range many {
		r.wantMessage(t, ws.Binary, strings.Repeat(string([]byte{byte(i)}), 20_000))
	}
	r.wantClose(t, ws.CloseNormal, "stream_complete")
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if asked.Load() < 10 {
		t.Fatalf("memory was asked for %d times: nothing was tried", asked.Load())
	}
	until(func() bool { return held.Load() == 0 })
}

func TestEachKeyOpensOneDirectionOnce(t *testing.T) {
	h := open(t, channel.New(channel.Options{}), loop.Config{}, nil)
	wr, rr := h.pair(t, nil, 0)
	with := func(r channel.Ref, f func(r *channel.Ref)) channel.Ref { f(&r); return r }
	for name, ref := range map[string]channel.Ref{
		"unknown channel":      with(wr, func(r *channel.Ref) { r.ChannelID = rr.AccessKey }),
		"no key":               with(wr, func(r *channel.Ref) { r.AccessKey = "" }),
		"wrong key":            with(wr, func(r *channel.Ref) { r.AccessKey = wr.ChannelID }),
		"key of the other end": with(wr, func(r *channel.Ref) { r.AccessKey = rr.AccessKey }),
		"reader as writer":     with(rr, func(r *channel.Ref) { r.Direction = "write" }),
		"no direction":         with(wr, func(r *channel.Ref) { r.Direction = "" }),
		"strange direction":    with(wr, func(r *channel.Ref) { r.Direction = "WRITE" }),
	} {
		if _, err := dial(t, h.addr, ref); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s: %v, want 404", name, err)
		}
	}
	w, r := h.dial(t, wr), h.dial(t, rr)
	h.dial(t, wr).wantClose(t, ws.ClosePolicy, "taken")
	h.dial(t, rr).wantClose(t, ws.ClosePolicy, "taken")
	w.mustSend(t, ws.Text, "still here")
	r.wantMessage(t, ws.Text, "still here")
}

func TestChannelsAreBounded(t *testing.T) {
	h := channel.New(channel.Options{PerOwner: 2, Total: 3})
	make := func(owner any, messages int, code string) {
		t.Helper()
		_, _, err := h.Create(owner, messages)
		if err == nil && code != "" || err != nil && err.Code != code {
			t.Fatalf("Create(%v, %d) = %v, want %q", owner, messages, err, code)
		}
	}
	make("a", -1, wire.CodeInvalidArguments)
	make("a", 1, "")
	make("a", 5000, "")
	make("a", 0, wire.CodeLimit)
	make("b", 0, "")
	make("c", 0, wire.CodeLimit)
	h.Leave("a")
	make("c", 0, "")
	if s := h.Stats(); s.Open != 2 || s.Created != 4 || s.Refused != 2 {
		t.Fatalf("stats %+v", s)
	}
	h.Close()
	make("d", 0, wire.CodeDraining)
	if s := h.Stats(); s.Open != 0 || s.Broken != 4 {
		t.Fatalf("stats %+v", s)
	}
}

func TestRefsAreUUIDsAndDiffer(t *testing.T) {
	w, r, err := channel.New(channel.Options{}).Create(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if w.ChannelID != r.ChannelID || w.AccessKey == r.AccessKey ||
		w.Direction != "write" || r.Direction != "read" {
		t.Fatalf("refs %+v and %+v", w, r)
	}
	for _, u := range []string{w.ChannelID, w.AccessKey, r.AccessKey} {
		if len(u) != 36 || u[14] != '4' || !strings.ContainsRune("89ab", rune(u[19])) {
			t.Fatalf("%q is no UUID of version 4", u)
		}
	}
}

func TestWhatNobodyFetchesIsSwept(t *testing.T) {
	var now atomic.Int64
	h := open(t, channel.New(channel.Options{Untaken: time.Minute, Now: now.Load}), loop.Config{}, nil)
	h.pair(t, "x", 0)
	wr, rr := h.pair(t, "x", 0)
	w := h.dial(t, wr)
	w.mustSend(t, ws.Text, "lost")
	until(func() bool { return h.Stats().MessagesIn == 1 })
	now.Store(int64(30 * time.Second))
	wr2, rr2 := h.pair(t, "x", 0)
	w2, r2 := h.dial(t, wr2), h.dial(t, rr2)
	h.pair(t, "x", 0)

	h.Sweep(int64(59 * time.Second))
	if s := h.Stats(); s.Swept != 0 || s.Open != 4 {
		t.Fatalf("too early: %+v", s)
	}
	h.Sweep(int64(time.Minute))
	w.wantClose(t, ws.CloseGoingAway, "the other end was not opened in time")
	if _, err := dial(t, h.addr, rr); err == nil {
		t.Error("a swept channel can be opened")
	}
	if s := h.Stats(); s.Swept != 2 || s.Open != 2 || s.MessagesLost != 1 || s.BytesLost != 4 {
		t.Fatalf("after a minute: %+v", s)
	}
	h.Sweep(int64(time.Hour))
	if s := h.Stats(); s.Swept != 3 || s.Open != 1 {
		t.Fatalf("after an hour: %+v", s)
	}
	w2.mustSend(t, ws.Text, "both were taken")
	r2.wantMessage(t, ws.Text, "both were taken")
}

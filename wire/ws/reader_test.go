package ws_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plinth-run/plinth/wire/ws"
)

// reader feeds a decoder as a connection does: it keeps what the decoder leaves and puts it before the
// next bytes. It checks on the way what must hold for every call.
type reader struct {
	tb    testing.TB
	cfg   ws.Config
	allow func(n int64) bool // an answer of the budget; nil is always yes

	d      ws.Decoder
	kept   []byte
	story  story
	chunks []byte
	broken bool  // an error came
	closed bool  // a close frame came
	fed    int64 // all bytes
	held   int64 // what the budget gave and did not get back
	peak   int64
}

func newReader(tb testing.TB, cfg ws.Config) *reader {
	r := &reader{tb: tb, cfg: cfg}
	r.cfg.Grow = func(n int64) bool {
		if n > 0 && r.allow != nil && !r.allow(n) {
			return false
		}
		r.held += n
		r.peak = max(r.peak, r.held)
		if r.held < 0 {
			tb.Fatalf("more memory was given back than taken: %d", r.held)
		}
		return true
	}
	return r
}

// feed gives the decoder one read of a connection.
func (r *reader) feed(p []byte) {
	r.fed += int64(len(p))
	b := append(append([]byte(nil), r.kept...), p...)
	most := 2*len(b) + 4
	for calls := 0; ; calls++ {
		if calls > most {
			r.tb.Fatalf("no end after %d calls", calls)
		}
		ev, n, err := r.d.Next(&r.cfg, b)
		if n < 0 || n > len(b) {
			r.tb.Fatalf("used %d of %d bytes", n, len(b))
		}
		b = b[n:]
		if err != nil {
			r.fail(err)
			return
		}
		if ev.Kind == ws.KindNone {
			break
		}
		r.take(ev)
	}
	if len(b) >= 16<<10 {
		r.tb.Fatalf("%d bytes were left with the caller", len(b))
	}
	if r.held > max(512, 2*r.fed) {
		r.tb.Fatalf("%d bytes held after %d bytes came", r.held, r.fed)
	}
	r.kept = append([]byte(nil), b...)
}

func (r *reader) fail(err error) {
	var breach *ws.CloseError
	if !errors.As(err, &breach) {
		r.tb.Fatalf("error of another type: %v", err)
	}
	if r.broken || r.closed {
		r.tb.Fatalf("an error after the end: %v", err)
	}
	if len(breach.Reason) > 123 || !ws.ValidCode(breach.Code) {
		r.tb.Fatalf("error that fits no close frame: %v", err)
	}
	r.story.list = append(r.story.list, happening{what: "error", code: breach.Code})
	r.broken, r.chunks, r.kept = true, nil, nil
}

func (r *reader) take(ev ws.Event) {
	if r.broken || r.closed {
		r.tb.Fatalf("event after the end: %v", ev)
	}
	if len(ev.Payload) != cap(ev.Payload) && ev.Kind != ws.KindChunk && ev.Kind != ws.KindMessage {
		r.tb.Fatalf("payload of %v could be appended to", ev.Kind)
	}
	h := happening{op: ev.Op, code: ev.Code, payload: string(ev.Payload)}
	switch ev.Kind {
	case ws.KindMessage:
		h.what = "message"
	case ws.KindPing:
		h.what = "ping"
	case ws.KindPong:
		h.what = "pong"
	case ws.KindClose:
		h.what = "close"
		r.closed, r.chunks = true, nil
	case ws.KindChunk:
		if len(ev.Payload) == 0 {
			r.tb.Fatal("empty chunk")
		}
		r.chunks = append(r.chunks, ev.Payload...)
		return
	case ws.KindDropped:
		h.what, h.payload = "dropped", string(r.chunks)
		r.chunks = nil
	default:
		r.tb.Fatalf("unknown kind %d", ev.Kind)
	}
	r.story.list = append(r.story.list, h)
}

// end releases the decoder and returns the story.
func (r *reader) end() story {
	r.d.Release()
	if r.held != 0 {
		r.tb.Fatalf("%d bytes were not given back", r.held)
	}
	r.story.open = string(r.chunks)
	return r.story
}

// compare reports how two stories differ, "" if they do not. Of an open message got may know less, as
// the end of it may still be with the caller.
func compare(want, got story, looseKinds bool) string {
	for i := range max(len(want.list), len(got.list)) {
		if i >= len(want.list) || i >= len(got.list) {
			return fmt.Sprintf("happenings %v, want %v", got.list, want.list)
		}
		w, g := want.list[i], got.list[i]
		if looseKinds && w.what == "message" && g.what == "dropped" {
			g.what = w.what
		}
		if w != g {
			return fmt.Sprintf("happening %d is %v, want %v", i, g, w)
		}
	}
	if looseKinds {
		return ""
	}
	if len(got.open) > len(want.open) || want.open[:len(got.open)] != got.open ||
		len(want.open)-len(got.open) >= 16<<10 {
		return fmt.Sprintf("open message of %d bytes, want %d", len(got.open), len(want.open))
	}
	return ""
}

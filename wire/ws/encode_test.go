package ws_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire/ws"
)

func TestMaskEqualsTheNaiveOne(t *testing.T) {
	const key = 0xd4c3b2a1
	wire := [4]byte{0xa1, 0xb2, 0xc3, 0xd4}
	for n := range 100 {
		for start := range 9 {
			for offset := range 9 {
				backing := filled(start + n + 8)
				want := bytes.Clone(backing)
				for i := range n {
					want[start+i] ^= wire[(offset+i)%4]
				}
				ws.Mask(backing[start:start+n], key, offset)
				if !bytes.Equal(backing, want) {
					t.Fatalf("%d bytes at %d, offset %d: %x, want %x", n, start, offset, backing, want)
				}
			}
		}
	}
}

func TestMaskTwiceIsNothing(t *testing.T) {
	b := filled(1001)
	ws.Mask(b, 0x12345678, 3)
	if bytes.Equal(b, filled(1001)) {
		t.Error("the mask changed nothing")
	}
	ws.Mask(b, 0x12345678, 3)
	if !bytes.Equal(b, filled(1001)) {
		t.Error("the mask is not its own inverse")
	}
}

// TestFramesOfTheRFC holds the examples of RFC 6455 section 5.7.
func TestFramesOfTheRFC(t *testing.T) {
	hello := []byte("Hello")
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"text", ws.AppendFrame(nil, ws.Text, hello), "810548656c6c6f"},
		{"masked text", ws.AppendMaskedFrame(nil, ws.Text, hello, 0x3d21fa37), "818537fa213d7f9f4d5158"},
		{"ping", ws.AppendFrame(nil, ws.Ping, hello), "890548656c6c6f"},
		{"masked pong", ws.AppendMaskedFrame(nil, ws.Pong, hello, 0x3d21fa37), "8a8537fa213d7f9f4d5158"},
		{"256 bytes", ws.AppendFrame(nil, ws.Binary, make([]byte, 256))[:4], "827e0100"},
		{"64 KiB", ws.AppendFrame(nil, ws.Binary, make([]byte, 65536))[:10], "827f0000000000010000"},
	} {
		if hex.EncodeToString(c.got) != c.want {
			t.Errorf("%s: %x, want %s", c.name, c.got, c.want)
		}
	}
}

func TestBeginAndEndMakeTheFrameThatAppendFrameMakes(t *testing.T) {
	for _, n := range sizes {
		for _, before := range []string{"", "queued before"} {
			p := filled(n)
			dst := []byte(before)
			got := ws.End(append(ws.Begin(dst), p...), len(before), ws.Text)
			if want := ws.AppendFrame([]byte(before), ws.Text, p); !bytes.Equal(got, want) {
				t.Errorf("%d bytes behind %d: End differs from AppendFrame", n, len(before))
			}
			got = ws.EndMasked(append(ws.Begin(dst), p...), len(before), ws.Binary, 0xfeedbeef)
			if want := ws.AppendMaskedFrame([]byte(before), ws.Binary, p, 0xfeedbeef); !bytes.Equal(got, want) {
				t.Errorf("%d bytes behind %d: EndMasked differs from AppendMaskedFrame", n, len(before))
			}
		}
	}
}

func TestMaskedFrameLeavesItsPayloadAlone(t *testing.T) {
	p := filled(300)
	ws.AppendMaskedFrame(nil, ws.Text, p, 0x12345678)
	if !bytes.Equal(p, filled(300)) {
		t.Error("the payload was changed")
	}
}

func TestControlFramesAreCutAt125Bytes(t *testing.T) {
	for _, b := range [][]byte{
		ws.AppendFrame(nil, ws.Ping, filled(200)),
		ws.AppendFrame(nil, ws.Close, filled(126)),
	} {
		if len(b) != 127 || b[1] != 125 {
			t.Errorf("a frame of %d bytes", len(b))
		}
	}
	if b := ws.AppendMaskedFrame(nil, ws.Pong, filled(200), 1); len(b) != 131 {
		t.Errorf("a masked frame of %d bytes", len(b))
	}
}

func TestCloseFrames(t *testing.T) {
	for _, c := range []struct {
		code         uint16
		reason, want string
	}{
		{1000, "", "880203e8"},
		{1000, "ok", "880403e86f6b"},
		{4999, "x", "88031387" + "78"},
		{1005, "not sent", "8800"},
		{1006, "", "8800"},
		{0, "not sent", "8800"},
	} {
		if got := hex.EncodeToString(ws.AppendClose(nil, c.code, c.reason)); got != c.want {
			t.Errorf("close %d %q: %s, want %s", c.code, c.reason, got, c.want)
		}
	}
}

func TestCloseReasonIsCutBetweenRunes(t *testing.T) {
	for _, reason := range []string{
		strings.Repeat("a", 123), strings.Repeat("a", 200), strings.Repeat("é", 100), strings.Repeat("€", 60),
		strings.Repeat("a", 122) + "é", "bad\xffbytes", strings.Repeat("\xff", 200),
	} {
		b := ws.AppendClose(nil, 1011, reason)
		if len(b) > 127 || len(b) < 4 || !utf8.Valid(b[4:]) {
			t.Errorf("reason %q: frame of %d bytes, %q", reason, len(b), b[4:])
		}
		if len(reason) <= 123 && utf8.ValidString(reason) && string(b[4:]) != reason {
			t.Errorf("reason %q became %q", reason, b[4:])
		}
		r := newReader(t, ws.Config{})
		r.feed(ws.AppendMaskedClose(nil, 1011, reason, 0xabcdef12))
		if got := r.end().list; len(got) != 1 || got[0].payload != string(b[4:]) || got[0].code != 1011 {
			t.Errorf("reason %q: the masked frame says %v", reason, got)
		}
	}
}

func TestEncodingTakesNoMemory(t *testing.T) {
	p := filled(170)
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		dst = ws.End(append(ws.Begin(dst[:0]), p...), 0, ws.Text)
		dst = ws.EndMasked(append(ws.Begin(dst[:0]), p...), 0, ws.Text, 99)
		dst = ws.AppendFrame(dst[:0], ws.Text, p)
		dst = ws.AppendMaskedFrame(dst[:0], ws.Ping, p[:5], 3)
		dst = ws.AppendClose(dst[:0], 1000, "bye")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMask(b *testing.B) {
	p := filled(4096)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		ws.Mask(p, 0x12345678, 1)
	}
}

func BenchmarkEnd(b *testing.B) {
	p := filled(170)
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		dst = ws.End(append(ws.Begin(dst[:0]), p...), 0, ws.Text)
	}
}

func BenchmarkEndMasked(b *testing.B) {
	p := filled(170)
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		dst = ws.EndMasked(append(ws.Begin(dst[:0]), p...), 0, ws.Text, 0x12345678)
	}
}

func BenchmarkNext(b *testing.B) {
	frame := ws.AppendMaskedFrame(nil, ws.Text, filled(170), 0)
	cfg := &ws.Config{}
	var d ws.Decoder
	b.ReportAllocs()
	for b.Loop() {
		if ev, _, _ := d.Next(cfg, frame); ev.Kind != ws.KindMessage {
			b.Fatal(ev.Kind)
		}
	}
}

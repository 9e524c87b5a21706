package ws_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire/ws"
)

// sizes are the lengths at which headers and paths change.
var sizes = []int{0, 1, 124, 125, 126, 127, 128, 16<<10 - 9, 16<<10 - 8, 16 << 10,
	65534, 65535, 65536, 65537, 1 << 20}

func filled(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestIdleDecoderIsSmall(t *testing.T) {
	if n := reflect.TypeFor[ws.Decoder]().Size(); n > 96 {
		t.Errorf("a Decoder has %d bytes, want at most 96", n)
	}
}

func TestMessagesOfAllSizesArriveHoweverTheyAreSplit(t *testing.T) {
	for _, n := range sizes {
		for _, split := range []int{1, 13, 4096, 64 << 10, 1 << 30} {
			if split == 1 && n > 1000 {
				continue // seconds of nothing new
			}
			want := filled(n)
			var stream []byte
			stream = ws.AppendMaskedFrame(stream, ws.Binary, want, 0x9a3f5b01)
			stream = ws.AppendMaskedFrame(stream, ws.Text, []byte("after"), 7)
			r := newReader(t, ws.Config{})
			for len(stream) > 0 {
				k := min(split, len(stream))
				r.feed(stream[:k])
				stream = stream[k:]
			}
			got := r.end()
			diff := compare(story{list: []happening{
				{"message", ws.Binary, 0, string(want)}, {"message", ws.Text, 0, "after"},
			}}, got, false)
			if diff != "" {
				t.Errorf("size %d in parts of %d: %s", n, split, diff)
			}
		}
	}
}

func TestWholeFrameIsHandedOutWhereItLies(t *testing.T) {
	for _, n := range []int{1, 125, 126, 65535, 65536, 1 << 20} {
		b := ws.AppendMaskedFrame([]byte{}, ws.Binary, filled(n), 0x01020304)
		var d ws.Decoder
		ev, used, err := d.Next(&ws.Config{Grow: refuseAll(t)}, b)
		if err != nil || used != len(b) || ev.Kind != ws.KindMessage || !bytes.Equal(ev.Payload, filled(n)) {
			t.Fatalf("size %d: %v, %d bytes used, %v", n, ev.Kind, used, err)
		}
		if &ev.Payload[0] != &b[len(b)-n] {
			t.Errorf("size %d: the payload was copied", n)
		}
		if cap(ev.Payload) != n {
			t.Errorf("size %d: an append to the payload would change the bytes behind it", n)
		}
	}
}

// refuseAll fails the test when memory is asked for.
func refuseAll(t *testing.T) func(int64) bool {
	return func(n int64) bool {
		t.Errorf("asked for %d bytes", n)
		return false
	}
}

func TestIncompleteFrameLeavesBytesAlone(t *testing.T) {
	b := ws.AppendMaskedFrame(nil, ws.Text, filled(300), 0x01020304)
	before := bytes.Clone(b)
	var d ws.Decoder
	for n := range b {
		ev, used, err := d.Next(&ws.Config{}, b[:n])
		if ev.Kind != ws.KindNone || used != 0 || err != nil {
			t.Fatalf("after %d bytes: %v, %d used, %v", n, ev.Kind, used, err)
		}
	}
	if !bytes.Equal(b, before) {
		t.Error("bytes changed that were not used up")
	}
}

func TestMemoryFollowsWhatArrivedNotWhatIsClaimed(t *testing.T) {
	head := []byte{bin, 0xff, 0, 0, 0, 0, 3, 0xc0, 0, 0, 1, 0, 0, 0} // 60 MiB
	r := newReader(t, ws.Config{})
	r.feed(head)
	if r.held > 512 {
		t.Errorf("%d bytes taken for a mere claim", r.held)
	}
	r.feed(make([]byte, 100<<10))
	if r.held > 200<<10 {
		t.Errorf("%d bytes held after 100 KiB arrived", r.held)
	}
	r.end()
}

func TestBufferOfALargeMessageFitsItAndGoesWithIt(t *testing.T) {
	want := filled(5 << 20)
	stream := ws.AppendMaskedFrame(nil, ws.Binary, want, 0xa1b2c3d4)
	r := newReader(t, ws.Config{})
	for len(stream) > 0 {
		k := min(64<<10, len(stream))
		r.feed(stream[:k])
		stream = stream[k:]
	}
	if r.peak != int64(len(want)) {
		t.Errorf("peak of %d bytes, want %d", r.peak, len(want))
	}
	if r.held != 0 {
		t.Errorf("%d bytes held between messages", r.held)
	}
	if len(r.story.list) != 1 || r.story.list[0].payload != string(want) {
		t.Error("the message is not what was sent")
	}
}

func TestTooLargeMessageComesInChunksAndTheConnectionLives(t *testing.T) {
	cfg := ws.Config{MaxMessage: 1000, HardMessage: 100_000}
	for _, n := range []int{1000, 1001, 20_000, 99_999, 100_000} {
		for _, fragments := range []int{1, 2, 7} {
			for _, split := range []int{61, 999, 1 << 20} {
				want := filled(n)
				stream := fragmented(ws.Text, want, fragments)
				stream = ws.AppendMaskedFrame(stream, ws.Ping, []byte("p"), 3)
				r := newReader(t, cfg)
				feedSplit(r, stream, split)
				first := happening{"dropped", ws.Text, 0, string(want)}
				if n <= 1000 {
					first.what = "message"
				}
				diff := compare(story{list: []happening{first, {"ping", ws.Ping, 0, "p"}}}, r.end(), false)
				if diff != "" {
					t.Errorf("%d bytes in %d fragments, parts of %d: %s", n, fragments, split, diff)
				}
				if r.peak > 1000 {
					t.Errorf("%d bytes in %d fragments, parts of %d: %d bytes held", n, fragments, split, r.peak)
				}
			}
		}
	}
}

func TestMessageOverTheHardBoundIs1009(t *testing.T) {
	cfg := ws.Config{MaxMessage: 1000, HardMessage: 100_000}
	for _, fragments := range []int{1, 2, 7} {
		r := newReader(t, cfg)
		feedSplit(r, fragmented(ws.Text, filled(100_001), fragments), 5000)
		got := r.end().list
		if len(got) != 1 || got[0].what != "error" || got[0].code != 1009 {
			t.Errorf("%d fragments: %v", fragments, got)
		}
	}
}

func TestRefusedMemoryTurnsAMessageIntoChunks(t *testing.T) {
	want := filled(300_000)
	r := newReader(t, ws.Config{})
	r.allow = func(n int64) bool { return r.held+n < 100_000 }
	stream := ws.AppendMaskedFrame(nil, ws.Text, want, 0x55aa1234)
	stream = ws.AppendMaskedFrame(stream, ws.Text, []byte("small"), 5)
	feedSplit(r, stream, 4096)
	diff := compare(story{list: []happening{
		{"dropped", ws.Text, 0, string(want)}, {"message", ws.Text, 0, "small"},
	}}, r.end(), false)
	if diff != "" {
		t.Error(diff)
	}
}

func TestReleaseInAMessageEndsTheDecoder(t *testing.T) {
	r := newReader(t, ws.Config{})
	stream := ws.AppendMaskedFrame(nil, ws.Text, filled(300_000), 9)
	r.feed(stream[:100_000])
	r.d.Release()
	if r.held != 0 {
		t.Errorf("%d bytes held after Release", r.held)
	}
	r.feed(stream[100_000:])
	r.feed(ws.AppendMaskedFrame(nil, ws.Text, []byte("more"), 9))
	if got := r.end().list; len(got) != 0 {
		t.Errorf("events after Release: %v", got)
	}
}

func TestReleaseBetweenMessagesDoesNoHarm(t *testing.T) {
	r := newReader(t, ws.Config{})
	r.feed(ws.AppendMaskedFrame(nil, ws.Text, []byte("one"), 9))
	r.d.Release()
	r.feed(ws.AppendMaskedFrame(nil, ws.Text, []byte("two"), 9))
	if got := r.end().list; len(got) != 2 {
		t.Errorf("events: %v", got)
	}
}

func TestNothingIsReadBehindACloseFrame(t *testing.T) {
	r := newReader(t, ws.Config{})
	stream := ws.AppendMaskedClose(nil, 1001, "bye", 4)
	stream = append(stream, 0xff, 0xff, 0xff)
	r.feed(stream)
	r.feed([]byte("GET / HTTP/1.1"))
	if diff := compare(story{list: []happening{{"close", ws.Close, 1001, "bye"}}}, r.end(), false); diff != "" {
		t.Error(diff)
	}
}

func TestErrorStaysAnError(t *testing.T) {
	var d ws.Decoder
	_, _, err := d.Next(&ws.Config{}, []byte{0xff, 0x80})
	var breach *ws.CloseError
	if !errors.As(err, &breach) || breach.Code != ws.CloseProtocol {
		t.Fatalf("error %v, want 1002", err)
	}
	if !strings.Contains(err.Error(), "1002") || !strings.Contains(err.Error(), breach.Reason) {
		t.Errorf("the text %q does not say what happened", err)
	}
	if ev, n, err := d.Next(&ws.Config{}, []byte("abc")); ev.Kind != ws.KindNone || n != 3 || err != nil {
		t.Errorf("after the error: %v, %d, %v", ev.Kind, n, err)
	}
}

func TestDecodingTakesNoMemory(t *testing.T) {
	frame := ws.AppendMaskedFrame(nil, ws.Text, filled(170), 0x01020304)
	b := make([]byte, len(frame))
	cfg := &ws.Config{}
	var d ws.Decoder
	if n := testing.AllocsPerRun(100, func() {
		copy(b, frame)
		if ev, _, err := d.Next(cfg, b); ev.Kind != ws.KindMessage || err != nil {
			t.Fatal(ev.Kind, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// fragmented cuts a message into frames of about equal length.
func fragmented(op ws.Opcode, payload []byte, n int) []byte {
	var stream []byte
	for i := range n {
		part := payload[len(payload)*i/n : len(payload)*(i+1)/n]
		at := len(stream)
		stream = ws.AppendMaskedFrame(stream, op, part, uint32(i)*0x01234567)
		if i < n-1 {
			stream[at] &^= 0x80
		}
		op = ws.Continuation
	}
	return stream
}

func feedSplit(r *reader, stream []byte, n int) {
	for len(stream) > 0 && !r.broken {
		k := min(n, len(stream))
		r.feed(stream[:k])
		stream = stream[k:]
	}
}

// TestDecoderTellsWhatTheReferenceTells runs made-up connections, good and broken ones, through both.
func TestDecoderTellsWhatTheReferenceTells(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 100
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		stream, cfg := invented(rnd)
		if diff := differ(t, rnd, stream, cfg, rnd.IntN(4) == 0); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// differ runs a stream through the decoder in random parts and through the reference.
func differ(tb testing.TB, rnd *rand.Rand, stream []byte, cfg ws.Config, poor bool) string {
	ref := &reference{b: stream, server: cfg.Role == ws.Server, most: cfg.MaxMessage, hard: cfg.HardMessage}
	want := ref.run()
	r := newReader(tb, cfg)
	if poor {
		r.allow = func(int64) bool { return rnd.IntN(3) > 0 }
	}
	largest := []int{1, 3, 40, 5000, 70_000}[rnd.IntN(5)]
	if len(stream) > 2000 {
		largest = max(largest, 40)
	}
	if len(stream) > 100_000 {
		largest = max(largest, 5000)
	}
	for rest := stream; len(rest) > 0 && !r.broken; {
		k := min(1+rnd.IntN(largest), len(rest))
		r.feed(rest[:k])
		rest = rest[k:]
	}
	return compare(want, r.end(), poor)
}

// invented makes a stream of frames, mostly in order.
func invented(rnd *rand.Rand) ([]byte, ws.Config) {
	cfg := ws.Config{Role: ws.Role(rnd.IntN(2)), MaxMessage: 1 << 20, HardMessage: 4 << 20}
	if rnd.IntN(3) == 0 {
		cfg.MaxMessage, cfg.HardMessage = int64(1+rnd.IntN(5000)), int64(5000+rnd.IntN(90_000))
	}
	var stream []byte
	under := false
	for range 1 + rnd.IntN(12) {
		at := len(stream)
		op := []ws.Opcode{ws.Text, ws.Binary, ws.Text, ws.Ping, ws.Pong}[rnd.IntN(5)]
		fin := rnd.IntN(3) > 0
		switch {
		case op > ws.Binary:
			fin = true
		case under:
			op = ws.Continuation
		}
		n := []int{0, 1, 125, 126, 300, 16380, 65535, 65536, 70_000}[rnd.IntN(9)]
		if op > ws.Binary {
			n = rnd.IntN(126)
		}
		stream = one(stream, cfg.Role, op, filled(n), rnd.Uint32())
		if !fin {
			stream[at] &^= 0x80
		}
		if op <= ws.Binary {
			under = !fin
		}
	}
	switch rnd.IntN(8) {
	case 0: // damage
		stream[rnd.IntN(len(stream))] ^= 1 << rnd.IntN(8)
	case 1: // a cut
		stream = stream[:rnd.IntN(len(stream))]
	case 2, 3:
		p := append([]byte{byte(rnd.IntN(20)), byte(rnd.IntN(256))}, "why"...)
		stream = one(stream, cfg.Role, ws.Close, p[:rnd.IntN(6)], rnd.Uint32())
	}
	return stream, cfg
}

func one(dst []byte, to ws.Role, op ws.Opcode, p []byte, key uint32) []byte {
	if to == ws.Server {
		return ws.AppendMaskedFrame(dst, op, p, key)
	}
	return ws.AppendFrame(dst, op, p)
}

func ExampleDecoder() {
	cfg := &ws.Config{Role: ws.Client}
	var d ws.Decoder
	b := ws.AppendFrame(nil, ws.Text, []byte("hello"))
	b = ws.AppendFrame(b, ws.Ping, []byte("are you there"))
	for {
		ev, n, err := d.Next(cfg, b)
		if err != nil || ev.Kind == ws.KindNone {
			break
		}
		b = b[n:]
		fmt.Println(ev.Op, string(ev.Payload))
	}
	// Output:
	// text hello
	// ping are you there
}

package channel_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

var update = flag.Bool("update", false, "write the corpus under testdata/fuzz")

const fuzzMessage = 40_000 // largest message of the fuzz test

// tape is a connection that says nothing and keeps what it is told.
type tape struct {
	net.Conn
	mu   sync.Mutex
	got  []byte
	shut chan struct{}
	once sync.Once
}

func newTape() *tape { return &tape{shut: make(chan struct{})} }

func (t *tape) Read([]byte) (int, error) {
	<-t.shut
	return 0, io.EOF
}

func (t *tape) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got = append(t.got, b...)
	return len(b), nil
}

func (t *tape) Close() error                     { t.once.Do(func() { close(t.shut) }); return nil }
func (t *tape) RemoteAddr() net.Addr             { return nil }
func (t *tape) SetWriteDeadline(time.Time) error { return nil }

// deaf is a handler that leaves all to the test.
type deaf struct{ closed chan struct{} }

func (d deaf) Data(_ *loop.Conn, b []byte) int { return len(b) }
func (d deaf) Drained(*loop.Conn)              {}
func (d deaf) Closed(*loop.Conn, error)        { close(d.closed) }

// verdict is what a stream means, by the codec alone: its messages, and whether its end is a good one.
func verdict(stream []byte) (all []event, whole bool) {
	cfg := ws.Config{Role: ws.Server, MaxMessage: fuzzMessage, HardMessage: fuzzMessage}
	var d ws.Decoder
	b := append([]byte(nil), stream...)
	for {
		ev, n, err := d.Next(&cfg, b)
		switch {
		case err != nil, ev.Kind == ws.KindMessage && ev.Op == ws.Text && !ws.ValidText(ev.Payload):
			return all, false
		case ev.Kind == ws.KindMessage:
			all = append(all, event{kind: ev.Kind, op: ev.Op, text: string(ev.Payload)})
		case ev.Kind == ws.KindClose:
			return all, !begun(stream) && (ev.Code == ws.CloseNormal || ev.Code == ws.CloseNoStatus)
		case ev.Kind == ws.KindNone && n == 0:
			return all, false
		}
		b = b[n:]
	}
}

// begun walks over good frames up to a close frame and reports whether that is within a message of which
// bytes have come.
func begun(b []byte) bool {
	bytes := uint64(0)
	for {
		op, n, at := b[0]&0x0f, uint64(b[1]&0x7f), 6
		switch n {
		case 126:
			n, at = uint64(binary.BigEndian.Uint16(b[2:])), 8
		case 127:
			n, at = binary.BigEndian.Uint64(b[2:]), 14
		}
		switch {
		case op == 8:
			return bytes > 0
		case op < 3 && b[0]&0x80 != 0:
			bytes = 0
		case op < 3:
			bytes += n
		}
		b = b[uint64(at)+n:]
	}
}

// FuzzEnds: whatever a writer sends, in whatever pieces, the reader gets the messages that a codec finds in
// it, and a good end only if the stream had one. What a reader sends changes nothing but how much it gets.
func FuzzEnds(f *testing.F) {
	if *update {
		writeCorpus(f)
	}
	g := loop.New(loop.Config{Loops: 1, Portable: true})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }() // owner: the test
	f.Cleanup(func() {
		stop()
		<-done
	})
	f.Fuzz(func(t *testing.T, sent, answer []byte, seed uint64) {
		if len(sent)+len(answer) > 1<<20 {
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		hub := channel.New(channel.Options{BufferBytes: 8 << 10, MaxMessage: fuzzMessage})
		wr, rr, err := hub.Create(nil, 1+rnd.IntN(10))
		if err != nil {
			t.Fatal(err)
		}
		w, r := attach(t, hub, g, wr), attach(t, hub, g, rr)
		early := seed%2 == 0
		if early {
			r.open()
			r.feed(t, rnd, hub, answer, nil)
		}
		w.open()
		w.feed(t, rnd, hub, sent, func() {
			if !early { // the writer is held back until the reader is there
				early = true
				r.open()
			}
		})
		w.leave()
		if !early {
			r.open()
		}
		until(func() bool { s := hub.Stats(); return s.Finished+s.Broken > 0 })
		r.leave()
		check(t, r.tape.got, sent, len(answer) > 0 && seed%2 == 0)
		if s := hub.Stats(); s.Open+s.Held != 0 || s.BytesIn < s.BytesOut {
			t.Fatalf("stats %+v", s)
		}
	})
}

// check compares what a reader got with what was sent to it. A reader that spoke may have been closed
// at any time.
func check(t *testing.T, got, sent []byte, spoke bool) {
	t.Helper()
	want, whole := verdict(sent)
	var d ws.Decoder
	for i := 0; ; i++ {
		ev, n, err := d.Next(&reading, got)
		if err != nil {
			t.Fatalf("the hub broke the protocol: %v", err)
		}
		got = got[n:]
		switch {
		case ev.Kind == ws.KindPong || ev.Kind == ws.KindNone && n > 0:
			i--
		case ev.Kind == ws.KindMessage:
			if i >= len(want) || want[i].op != ev.Op || want[i].text != string(ev.Payload) {
				t.Fatalf("message %d: got %v %.40q, want %d messages", i, ev.Op, ev.Payload, len(want))
			}
		case spoke:
			return
		case ev.Kind == ws.KindClose:
			if i != len(want) || (ev.Code == ws.CloseNormal) != whole {
				t.Fatalf("close %d after %d messages of %d, whole %v", ev.Code, i, len(want), whole)
			}
			return
		default:
			t.Fatalf("no close frame after %d messages", i)
		}
	}
}

// fake is an end whose bytes come from the test.
type fake struct {
	end  *channel.End
	conn *loop.Conn
	tape *tape
	gone chan struct{}
}

func attach(t *testing.T, hub *channel.Hub, g *loop.Group, ref channel.Ref) *fake {
	t.Helper()
	k := &fake{tape: newTape(), gone: make(chan struct{})}
	var err error
	if k.conn, err = g.Attach(k.tape, deaf{k.gone}); err != nil {
		t.Fatal(err)
	}
	on(k.conn.Loop(), func() {
		k.end, _ = hub.Take(ref.ChannelID, ref.AccessKey, ref.Direction, k.conn, 0)
	})
	return k
}

func (k *fake) open() { on(k.conn.Loop(), k.end.Open) }

// feed gives the end b in random pieces, as a loop does: what it leaves comes again.
func (k *fake) feed(t *testing.T, rnd *rand.Rand, hub *channel.Hub, b []byte, held func()) {
	b = append([]byte(nil), b...)
	at, to := 0, 0
	for at < len(b) {
		if to = min(len(b), max(to, at)+1+rnd.IntN(1+rnd.IntN(30_000))); to == at {
			return
		}
		used, last := 0, to == len(b)
		on(k.conn.Loop(), func() { used = k.end.Data(k.conn, b[at:to]) })
		if used < 0 || used > to-at {
			t.Fatalf("used %d of %d bytes", used, to-at)
		}
		at += used
		switch {
		case hub.Stats().Held > 0:
			held()
			until(func() bool { return hub.Stats().Held == 0 })
			to = at
		case last && used == 0:
			return
		}
	}
}

// leave breaks the connection when all that is queued was written.
func (k *fake) leave() {
	until(func() bool { return k.conn.Queued() == 0 })
	k.conn.Close(io.EOF)
	<-k.gone
	on(k.conn.Loop(), func() { k.end.Closed(k.conn, io.EOF) })
}

// FuzzText: text is judged alike in any two parts and whole.
func FuzzText(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte, one, two int) {
		i := min(max(one, 0), len(b))
		j := min(max(two, i), len(b))
		if got, want := channel.ValidInParts(b[:i], b[i:j], b[j:]), utf8.Valid(b); got != want {
			t.Fatalf("%q cut at %d and %d: %v, want %v", b, i, j, got, want)
		}
	})
}

func TestTextIsJudgedAcrossParts(t *testing.T) {
	for _, s := range []string{"", "a", "é", "€", "𝄞", "a€𝄞é", "\xff", "€\xe2\x82", "\xc0\x80", "\xed\xa0\x80",
		"a\x80", "\xf4\x90\x80\x80", "\xe2\x28\xa1"} {
		for i := range len(s) + 1 {
			for j := i; j <= len(s); j++ {
				got := channel.ValidInParts([]byte(s[:i]), []byte(s[i:j]), []byte(s[j:]))
				if got != utf8.ValidString(s) {
					t.Errorf("%q cut at %d and %d: %v", s, i, j, got)
				}
			}
		}
	}
}

// writeCorpus writes the seeds of both targets.
func writeCorpus(f *testing.F) {
	f.Helper()
	rnd := rand.New(rand.NewPCG(9, 9))
	var mixed []byte
	for _, m := range mix(rnd, 6) {
		if len(m.text) <= 1000 {
			mixed = append(mixed, fragments(rnd, m)...)
		}
	}
	long := fragments(rnd, event{op: ws.Binary, text: string(make([]byte, 17_000))})
	bye := ws.AppendMaskedClose(nil, ws.CloseNormal, "stream_complete", 3)
	half := ws.AppendMaskedFrame(nil, ws.Text, []byte("half\xe2\x82"), 3)
	half[0] &^= 0x80
	ping := ws.AppendMaskedFrame(nil, ws.Ping, []byte("p"), 3)
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	for i, s := range [][2][]byte{
		{join(mixed, bye), nil}, {mixed, ping}, {join(long, long, long, bye), ping},
		{join(mixed, half, bye), nil}, {half, nil}, {half[:4], nil},
		{join(mixed, []byte{0x82, 1, 'x'}), bye},
		{ws.AppendMaskedFrame(nil, ws.Binary, make([]byte, fuzzMessage+1), 1), nil},
		{join(mixed, ws.AppendMaskedFrame(nil, ws.Text, []byte("\xff"), 1)), nil},
		{join(mixed, ws.AppendMaskedClose(nil, 4000, "own", 1), mixed), []byte{0x82, 1, 'x'}},
	} {
		for seed := range 2 {
			keep(f, "FuzzEnds", i*2+seed, fmt.Sprintf("[]byte(%q)\n[]byte(%q)\nuint64(%d)\n", s[0], s[1], seed))
		}
	}
	for i, s := range []string{"a€𝄞é", "\xe2\x82", "\xf4\x90\x80\x80", "x\xed\xa0\x80"} {
		keep(f, "FuzzText", i, fmt.Sprintf("[]byte(%q)\nint(%d)\nint(%d)\n", s, i, i+1))
	}
}

func keep(f *testing.F, target string, i int, text string) {
	f.Helper()
	dir := filepath.Join("testdata", "fuzz", target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	name := filepath.Join(dir, fmt.Sprintf("seed-%02d", i))
	if err := os.WriteFile(name, []byte("go test fuzz v1\n"+text), 0o644); err != nil {
		f.Fatal(err)
	}
}

package worker

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

func TestTableGivesEveryCallAnIDOfItsOwn(t *testing.T) {
	tab := table{limit: 100}
	live := map[uint64]*call{}
	var gone []uint64
	seen := map[uint64]bool{}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		if r.IntN(2) == 0 {
			c := &call{}
			id, ok := tab.put(c)
			if ok != (len(live) < 100) {
				t.Fatalf("%d calls wait, room %v", len(live), ok)
			}
			if ok {
				if seen[id] {
					t.Fatalf("id %x was given twice", id)
				}
				seen[id], live[id] = true, c
			}
			continue
		}
		for id, c := range live { // any one
			if got := tab.take(id); got != c {
				t.Fatalf("id %x: wrong call", id)
			}
			delete(live, id)
			gone = append(gone, id)
			break
		}
		if len(gone) > 0 && tab.take(gone[r.IntN(len(gone))]) != nil {
			t.Fatal("a late id found a call")
		}
		if tab.live != len(live) {
			t.Fatalf("live is %d, want %d", tab.live, len(live))
		}
	}
	for _, id := range []uint64{0, 1, 99, maxSlots - 1, 1 << 63, ^uint64(0)} {
		if !seen[id] && tab.get(id) != nil {
			t.Errorf("foreign id %x found a call", id)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"1", "100000", "ffffffffffffffff", "0", "", "01", "F", "10000000000000000",
		"-1", "+1", "0x1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, ok := parseID(b)
		if ok != (ok && string(appendID(nil, id)) == string(b)) {
			t.Errorf("%q is read as %x, which is written %q", b, id, appendID(nil, id))
		}
		want, err := strconv.ParseUint(string(b), 16, 64)
		if err == nil && want != 0 && string(appendID(nil, want)) == string(b) && !ok {
			t.Errorf("%q is refused", b)
		}
	})
}

func FuzzValidJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{`, `[]`, `"\u00e9"`, "\"\xff\"", `{"a":1}x`, ` {} `,
		`{"type":"x","id":"\n"}`, `1e5`, ``} {
		f.Add([]byte(s))
	}
	var frame wire.Frame
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := validJSON(&frame, b), json.Valid(b) && utf8.Valid(b)
		if got != want && len(b) < wire.MaxDepth {
			t.Errorf("%q: valid %v, want %v", b, got, want)
		}
	})
}

// FuzzBehind cuts a buffer of frames at any byte: what was not sent whole must come back, and no more.
func FuzzBehind(f *testing.F) {
	f.Add(uint32(10), uint32(200), uint32(70_000), 5)
	f.Add(uint32(0), uint32(125), uint32(126), 131)
	f.Fuzz(func(t *testing.T, a, b, c uint32, cut int) {
		var out []byte
		var ends []int
		for _, n := range []uint32{a, b, c} {
			out = ws.AppendMaskedFrame(out, ws.Text, make([]byte, n%100_000), n)
			ends = append(ends, len(out))
		}
		cut = min(max(cut, 0), len(out))
		want := 0
		for _, e := range ends {
			if e <= cut {
				want = e
			}
		}
		if got := len(out) - len(behind(out, cut)); got != want {
			t.Errorf("frames end at %v, cut at %d: the rest begins at %d, want %d", ends, cut, got, want)
		}
	})
}

func TestBehindLivesWithBytesThatAreNoFrames(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, {0, 0xff}, {0x81, 0xfe, 1},
		{0x81, 0xff, 255, 255, 255, 255, 255, 255, 255, 255, 1}} {
		for n := range len(b) + 1 {
			_ = behind(b, n)
		}
	}
}

func TestQueueForgetsCallsNobodyWaitsForOnceTheyAreHalf(t *testing.T) {
	var q queue
	add := func(text string, id uint64) {
		q.text = append(q.text, text...)
		q.add(id)
	}
	add("one", 1)
	add("void", 0)
	add("two", 2)
	add("three", 3)
	list := func() (got []string) {
		q.each(func(text []byte, id uint64) { got = append(got, string(text)) })
		return got
	}
	alive := map[uint64]bool{2: true}
	is := func(id uint64) bool { return alive[id] }
	q.dead = 3
	q.compact(is)
	if got := list(); len(got) != 4 {
		t.Errorf("compacted too early: %q", got)
	}
	q.dead = 8
	q.compact(is)
	if got := list(); !slices.Equal(got, []string{"void", "two"}) || q.dead != 0 || len(q.text) != 7 {
		t.Errorf("left %q, %d dead", got, q.dead)
	}
}

// FuzzMessage gives any bytes to a worker as a message from the engine.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"type":"workerregistered","worker_id":"a","reattach_token":"b"}`,
		`{"type":"invokefunction","invocation_id":"1","function_id":"echo","data":{"a":1},"metadata":1,"caller":2}`,
		`{"type":"invokefunction","function_id":"echo","traceparent":"x","baggage":"y"}`,
		`{"type":"invokefunction","invocation_id":"1","function_id":"none"}`,
		`{"type":"invocationresult","invocation_id":"100000","result":[1]}`,
		`{"type":"invocationresult","invocation_id":"100000","error":{"code":1}}`,
		`{"type":"registrationrejected","code":"WORKER_NAMESPACE_CONFLICT"}`,
		`{"type":"error","error":"x"}`, `{"type":"ping"}`, `{"type":"pong"}`, `{}`, `[]`, ` `,
		`{"type":"invocationresult"`,
	} {
		f.Add([]byte(s))
	}
	w, err := New("", Options{Logger: quiet()})
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Register("echo", func(_ ctxt, p []byte) ([]byte, error) { return p, nil }); err != nil {
		f.Fatal(err)
	}
	w.opts.OnRejected = func(Rejection) {}
	c := w.newConn(nil)
	w.conn = c
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newCall().(*call)
		w.mu.Lock()
		id, ok := w.table.put(k)
		w.mu.Unlock()
		if !ok {
			t.Fatal("the table is full")
		}
		_ = c.message(t.Context(), b)
		c.submit()
		w.mu.Lock()
		waits := w.table.take(id) != nil
		c.out, c.awake = c.out[:0], true
		w.mu.Unlock()
		if done := len(k.done) == 1; done == waits {
			t.Errorf("the call has its outcome: %v, and waits: %v", done, waits)
		}
	})
}

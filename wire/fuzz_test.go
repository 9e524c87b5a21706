package wire_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire"
)

// FuzzScan: Scan accepts what encoding/json accepts, and every field is what encoding/json reads.
func FuzzScan(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr wire.Frame
		agree(t, &fr, b)
		agree(t, &fr, b) // once more into a frame that was used
	})
}

// FuzzAppend: what Append writes is valid JSON and UTF-8 where the raw values are, and Scan reads the
// same frame from it.
func FuzzAppend(f *testing.F) {
	f.Fuzz(func(t *testing.T, kind uint8, which uint64, a, b string, raw []byte) {
		if !json.Valid(raw) || nesting(raw) >= wire.MaxDepth {
			raw = []byte("null")
		}
		in := invented(kind, which, a, b, raw)
		out := in.Append([]byte("before"))
		if !bytes.HasPrefix(out, []byte("before")) {
			t.Fatalf("%q does not begin with what was there", out)
		}
		out = out[len("before"):]
		if !json.Valid(out) || utf8.Valid(raw) && !utf8.Valid(out) {
			t.Fatalf("no JSON: %q", out)
		}
		want := kept(in)
		var got wire.Frame
		if !agree(t, &got, out) {
			t.Fatalf("refused: %q", out)
		}
		if diff := differences(want, &got); diff != "" {
			t.Fatalf("%q: %s", out, diff)
		}
	})
}

// invented makes a frame with every field that a bit of which asks for.
func invented(kind uint8, which uint64, a, b string, raw []byte) *wire.Frame {
	f := &wire.Frame{Type: wire.Type(1 + kind%uint8(wire.TypeError))}
	i := 0
	for _, field := range sorted(textKeys) {
		if which>>i&1 != 0 {
			set(f, field, []byte([]string{a, b}[i%2]))
		}
		i++
	}
	for _, field := range sorted(rawKeys) {
		if which>>i&1 != 0 {
			set(f, field, raw)
		}
		i++
	}
	f.BadNamespace = f.Namespace == nil && which>>i&1 != 0
	f.BadTriggerNamespace = f.TriggerNamespace == nil && which>>(i+1)&1 != 0
	return f
}

// kept returns the frame that remains of f after a trip over the wire: the fields of its type, texts in
// UTF-8, raw values without white space around them.
func kept(f *wire.Frame) *wire.Frame {
	keys := map[string]bool{}
	for _, key := range strings.Fields(typeKeys[f.Type]) {
		keys[key] = true
	}
	g := &wire.Frame{Type: f.Type}
	for field, key := range textKeys {
		if v := get(f, field); keys[key] && v != nil {
			set(g, field, []byte(string([]rune(string(v)))))
		}
	}
	for field, key := range rawKeys {
		if v := get(f, field); keys[key] && v != nil {
			set(g, field, bytes.Trim(v, " \t\r\n"))
		}
	}
	g.BadNamespace = f.BadNamespace && keys["namespace"]
	g.BadTriggerNamespace = f.BadTriggerNamespace && keys["trigger_namespace"]
	return g
}

// FuzzDrain: however a message is split, Drain finds the type and the ids that Scan finds; of what Scan
// refuses it finds anything, without a panic and within its memory.
func FuzzDrain(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		var d wire.Drain
		drainAgrees(t, &d, b, rand.New(rand.NewPCG(seed, 3)))
		d.Reset()
		drainAgrees(t, &d, b, rand.New(rand.NewPCG(seed, 4)))
	})
}

func drainAgrees(t *testing.T, d *wire.Drain, b []byte, rnd *rand.Rand) {
	t.Helper()
	most := []int{1, 7, 100, 1 << 20}[rnd.IntN(4)]
	for rest := b; len(rest) > 0; {
		n := min(1+rnd.IntN(most), len(rest))
		part := bytes.Clone(rest[:n])
		d.Write(part)
		clear(part) // nothing of it may be kept
		rest = rest[n:]
	}
	if n := d.Held(); n > 16<<10 {
		t.Fatalf("%d bytes held", n)
	}
	got := d.Frame()
	for _, field := range drained {
		if n := len(get(got, field)); n > 512 {
			t.Fatalf("%s has %d bytes", field, n)
		}
	}
	var f wire.Frame
	if f.Scan(b) != nil {
		return
	}
	want := &wire.Frame{Type: f.Type}
	for _, field := range drained {
		if v := get(&f, field); len(v) <= 512 {
			set(want, field, v)
		}
	}
	if diff := differences(want, got); diff != "" {
		t.Fatalf("%s: %s", shown(b), diff)
	}
}

// drained are the fields that Drain keeps.
var drained = []string{"ID", "FunctionID", "InvocationID"}

// FuzzError: ParseError and ParseAction agree with encoding/json and never panic, valid or not.
func FuzzError(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		e := wire.ParseError(raw)
		a, queue := wire.ParseAction(raw)
		if !json.Valid(raw) || nesting(raw) >= wire.MaxDepth {
			return
		}
		checkError(t, raw, e)
		checkAction(t, raw, a, queue)
	})
}

package wire_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

func TestEveryTypeGoesOverTheWireAndBack(t *testing.T) {
	for kind := wire.TypeInvokeFunction; kind <= wire.TypeError; kind++ {
		if _, ok := typeKeys[kind]; !ok {
			t.Fatalf("%v is in no table", kind)
		}
		full := &wire.Frame{Type: kind}
		for field, key := range textKeys {
			set(full, field, []byte(key+" é\n\""))
		}
		for field, key := range rawKeys {
			set(full, field, []byte(`{"`+key+`":[1]}`))
		}
		out := full.Append(nil)
		got := scanned(t, string(out))
		if diff := differences(kept(full), got); diff != "" {
			t.Errorf("%v: %s in %s", kind, diff, out)
		}
		empty := (&wire.Frame{Type: kind}).Append(nil)
		if want := `{"type":"` + kind.String() + `"}`; string(empty) != want {
			t.Errorf("%v without fields is %s, want %s", kind, empty, want)
		}
	}
}

func TestUnknownTypeAppendsNothing(t *testing.T) {
	for _, kind := range []wire.Type{wire.TypeUnknown, 200} {
		if out := (&wire.Frame{Type: kind, ID: []byte("x")}).Append([]byte("q")); string(out) != "q" {
			t.Errorf("type %d appended %q", kind, out)
		}
	}
}

func TestIDsComeFirst(t *testing.T) {
	for kind := range typeKeys {
		f := &wire.Frame{Type: kind}
		for field := range textKeys {
			set(f, field, []byte("v"))
		}
		for field := range rawKeys {
			set(f, field, []byte("0"))
		}
		out := string(f.Append(nil))
		if !strings.HasPrefix(out, `{"type":"`+kind.String()+`"`) {
			t.Errorf("%v does not begin with its type: %s", kind, out)
		}
		lastID, firstRaw := strings.LastIndex(out, `_id":"v"`), strings.Index(out, `":0`)
		if firstRaw >= 0 && lastID > firstRaw {
			t.Errorf("%v: an id behind a raw value: %s", kind, out)
		}
	}
}

// TestHotFramesAreWrittenAsTheSDKWritesThem pins the bytes: recorded traffic and caches compare them.
func TestHotFramesAreWrittenAsTheSDKWritesThem(t *testing.T) {
	for _, m := range messages {
		f := scanned(t, m.frame)
		out := f.Append(nil)
		var want, got any
		if json.Unmarshal([]byte(m.frame), &want) != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%s: no JSON: %s", m.name, out)
		}
		if len(out) != len(m.frame) {
			t.Errorf("%s: %s, want the fields of %s", m.name, out, m.frame)
		}
		if m.name != "InvocationResult" && string(out) != m.frame {
			t.Errorf("%s: %s, want %s", m.name, out, m.frame)
		}
	}
}

func TestHotAppendsIgnoreTheType(t *testing.T) {
	f := &wire.Frame{InvocationID: []byte("i"), FunctionID: []byte("f"), Data: []byte("1"), Result: []byte("2")}
	if got := string(wire.AppendInvoke(nil, f)); got !=
		`{"type":"invokefunction","invocation_id":"i","function_id":"f","data":1}` {
		t.Error(got)
	}
	if got := string(wire.AppendResult(nil, f)); got !=
		`{"type":"invocationresult","invocation_id":"i","function_id":"f","result":2}` {
		t.Error(got)
	}
}

func TestAbsentAndNullResultsStayDifferent(t *testing.T) {
	for _, s := range []string{
		`{"type":"invocationresult","invocation_id":"i","function_id":"f"}`,
		`{"type":"invocationresult","invocation_id":"i","function_id":"f","result":null}`,
	} {
		if got := string(scanned(t, s).Append(nil)); got != s {
			t.Errorf("%s became %s", s, got)
		}
	}
}

func TestBadNamespaceStaysBad(t *testing.T) {
	for _, ns := range []string{"null", "5", "{}"} {
		f := scanned(t, `{"type":"registertrigger","id":"i","namespace":`+ns+`,"trigger_namespace":`+ns+`}`)
		again := scanned(t, string(f.Append(nil)))
		if !again.BadNamespace || !again.BadTriggerNamespace {
			t.Errorf("namespace %s became good: %s", ns, f.Append(nil))
		}
	}
}

func TestStringsAreEscapedAsJSON(t *testing.T) {
	for s, want := range map[string]string{
		"":                     `""`,
		"plain":                `"plain"`,
		"a\"b\\c":              `"a\"b\\c"`,
		"\n\r\t":               `"\n\r\t"`,
		"\x00\x1f\b\f":         `"\u0000\u001f\u0008\u000c"`,
		"\x7f</script>\u2028":  "\"\x7f</script>\u2028\"",
		"é€\U0001f600":         "\"é€\U0001f600\"",
		"\xff":                 "\"\ufffd\"",
		"a\xc3":                "\"a\ufffd\"",
		"\xed\xa0\x80":         "\"\ufffd\ufffd\ufffd\"",
		"\ufffd":               "\"\ufffd\"",
		"12345678\"":           `"12345678\""`,
		"1234567\"":            `"1234567\""`,
		"12345678é\xff9":       "\"12345678é\ufffd9\"",
		"\xe2\x82\xac\xe2\x82": "\"€\ufffd\ufffd\"",
	} {
		if got := string(wire.AppendString(nil, s)); got != want {
			t.Errorf("AppendString(%q) is %s, want %s", s, got, want)
		}
		if got := string(wire.AppendString([]byte("before"), []byte(s))); got != "before"+want {
			t.Errorf("AppendString of bytes (%q) is %s, want %s", s, got, want)
		}
	}
}

// TestStringsOfAllLengthsAndPlaces puts each kind of byte at each place of strings of each length.
func TestStringsOfAllLengthsAndPlaces(t *testing.T) {
	odds := []string{"", `"`, `\`, "\n", "\x00", " ", "!", "#", "[", "]", "\x1f", "\x7f", "é", "\xff", "\x80",
		"€"}
	for n := range 40 {
		plain := strings.Repeat("abcdefgh", 5)[:n]
		for i := range n + 1 {
			for _, odd := range odds {
				s := plain[:i] + odd + plain[i:]
				out := wire.AppendString([]byte("xx"), s)[2:]
				var got string
				if err := json.Unmarshal(out, &got); err != nil || got != string([]rune(s)) {
					t.Fatalf("AppendString(%q) is %q, read as %q, %v", s, out, got, err)
				}
				f := scanned(t, `{"id":`+string(out)+`}`)
				if string(f.ID) != got {
					t.Fatalf("Scan reads %q from %q", f.ID, out)
				}
			}
		}
	}
}

func TestRandomStringsSurvive(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, rnd.IntN(60))
		for i := range b {
			b[i] = byte(rnd.IntN(256))
			if rnd.IntN(3) > 0 {
				b[i] = 'a' + b[i]%26
			}
		}
		out := wire.AppendString(nil, b)
		var got string
		if err := json.Unmarshal(out, &got); err != nil || got != string([]rune(string(b))) {
			t.Fatalf("AppendString(%q) is %q, read as %q, %v", b, out, got, err)
		}
		if !bytes.Equal(out, wire.AppendString(nil, string(b))) {
			t.Fatalf("bytes and string differ for %q", b)
		}
	}
}

func TestAppendTakesNoMemory(t *testing.T) {
	dst := make([]byte, 0, 1<<10)
	for _, m := range messages {
		f := scanned(t, m.frame)
		if n := testing.AllocsPerRun(100, func() { dst = f.Append(dst[:0]) }); n != 0 {
			t.Errorf("%s: %v allocations", m.name, n)
		}
	}
	odd := []byte("line\n\xff \"é\"")
	e := &wire.Error{Code: "X", Message: "y\n", Stacktrace: "z"}
	if n := testing.AllocsPerRun(100, func() {
		dst = wire.AppendString(dst[:0], odd)
		dst = wire.AppendError(dst, e)
	}); n != 0 {
		t.Errorf("strings with escapes: %v allocations", n)
	}
}

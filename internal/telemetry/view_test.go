package telemetry

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from testdata/%s:\n%s", file, got)
	}
}

func indent(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return append(b.Bytes(), '\n')
}

func TestSpansAreWrittenInTheShapeOfTheProtocol(t *testing.T) {
	r := shop()
	page, _ := r.List(Filter{})
	raw := []byte("[")
	for i, v := range page {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = v.AppendJSON(raw)
	}
	golden(t, "spans.json", indent(t, append(raw, ']')))
}

func TestTreeIsWrittenWithItsChildren(t *testing.T) {
	roots, rest := shop().Tree([16]byte{15: 1})
	if len(roots) != 1 || rest != 0 {
		t.Fatalf("%d roots, %d left out", len(roots), rest)
	}
	golden(t, "tree.json", indent(t, roots[0].AppendJSON(nil)))
}

func TestForeignSpanComesBackAsItWas(t *testing.T) {
	s := NewSpans(1 << 20)
	in := &Foreign{Name: "näme", Service: "svc", Scope: "scope", Version: "v2", Role: 4,
		Attributes: []byte(`[["a","b"]]`), Events: []byte(`[{"name":"x"}]`), Links: []byte(`[{}]`),
		Resource: []byte(`[["r","s"]]`)}
	s.Record(&Span{Kind: KindPlain, Status: StatusError, Start: 5, End: 9, Message: []byte("msg"), Foreign: in})
	page, _ := Reader{Spans: s, Names: NewNames()}.List(Filter{})
	v := page[0]
	if v.Kind != KindForeign || v.Name != in.Name || v.Service != in.Service || v.Scope != in.Scope ||
		v.Version != in.Version || v.Role != in.Role || v.Message != "msg" || v.Cut ||
		!bytes.Equal(v.Attributes, in.Attributes) || !bytes.Equal(v.Events, in.Events) ||
		!bytes.Equal(v.Links, in.Links) || !bytes.Equal(v.Resource, in.Resource) {
		t.Errorf("got %+v", v)
	}
}

// A kind that asks for a foreign part which is not there, and kinds that do not exist, must not confuse
// the reader.
func TestOddKindsReadAsPlainSpans(t *testing.T) {
	s := NewSpans(1 << 20)
	for _, kind := range []Kind{KindForeign, 4, 77, 255} {
		s.Record(&Span{Kind: kind, Start: 1, End: 2, Message: []byte("m")})
	}
	page, total := Reader{Spans: s, Names: NewNames()}.List(Filter{})
	for _, v := range page {
		if v.Kind != KindPlain || v.Message != "m" {
			t.Errorf("got %+v", v)
		}
	}
	if st := s.Stats(); total != 4 || st.Kinds[KindPlain].Kept != 4 {
		t.Errorf("found %d, %+v", total, st)
	}
}

func TestLargeForeignSpanLosesItsEventsFirst(t *testing.T) {
	big := func(n int) []byte { return []byte(`[["k","` + strings.Repeat("x", n) + `"]]`) }
	for name, c := range map[string]struct {
		in                                  Foreign
		attributes, resource, links, events bool
		cut                                 uint64
	}{
		"fits": {Foreign{Attributes: big(15000), Resource: big(15000), Links: big(15000), Events: big(15000)},
			true, true, true, true, 0},
		"events go": {Foreign{Attributes: big(20000), Resource: big(1), Links: big(1), Events: big(50000)},
			true, true, true, false, 1},
		"links go": {Foreign{Attributes: big(50000), Resource: big(1), Links: big(20000), Events: big(10)},
			true, true, false, false, 1},
		"resource goes": {Foreign{Attributes: big(60000), Resource: big(20000)}, true, false, false, false, 1},
		"all go":        {Foreign{Name: "n", Attributes: big(200000)}, false, false, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSpans(1 << 20)
			s.Record(&Span{Start: 1, End: 2, Foreign: &c.in})
			page, _ := Reader{Spans: s, Names: NewNames()}.List(Filter{})
			v := page[0]
			if len(v.Attributes) > 0 != c.attributes || len(v.Resource) > 0 != c.resource ||
				len(v.Links) > 0 != c.links || len(v.Events) > 0 != c.events || v.Cut != (c.cut > 0) ||
				s.Stats().Cut != c.cut || v.Name != c.in.Name {
				t.Errorf("%d, %d, %d, %d bytes left, cut %v", len(v.Attributes), len(v.Resource), len(v.Links),
					len(v.Events), v.Cut)
			}
			if raw := v.AppendJSON(nil); !json.Valid(raw) {
				t.Errorf("malformed: %.300s", raw)
			}
		})
	}
}

func TestLongMessageIsCut(t *testing.T) {
	s := NewSpans(1 << 20)
	long := []byte(strings.Repeat("é", maxMessage))
	s.Record(&Span{Start: 1, End: 2, Status: StatusError, Message: long})
	s.Record(&Span{Start: 1, End: 2, Status: StatusError, Message: long, Foreign: &Foreign{}})
	page, _ := Reader{Spans: s, Names: NewNames()}.List(Filter{})
	for _, v := range page {
		if len(v.Message) != maxMessage || !v.Cut || !utf8.ValidString(v.Message) {
			t.Errorf("%d bytes, cut %v", len(v.Message), v.Cut)
		}
	}
	if s.Stats().Cut != 2 {
		t.Errorf("got %+v", s.Stats())
	}
}

func TestTextIsEscapedAsJSON(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c", "\x00\x1f\n\r\t\b", "é漢😀", "\xff\xc3", "a\xe2\x82",
		"\u2028<&>"} {
		raw := appendString(nil, s)
		var back string
		if err := json.Unmarshal(raw, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") &&
			back != replaced(s) {
			t.Errorf("%q: %s reads as %q, %v", s, raw, back, err)
		}
		if got := appendString(nil, []byte(s)); !bytes.Equal(got, raw) {
			t.Errorf("as bytes %s, as text %s", got, raw)
		}
	}
}

// replaced is s with every byte that is no UTF-8 replaced on its own.
func replaced(s string) string { return string([]rune(s)) }

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\\x00", "é\xff", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		raw := appendString([]byte("x"), s)[1:]
		if err := json.Unmarshal(raw, &back); err != nil || back != replaced(s) {
			t.Fatalf("%q: %s reads as %q, %v", s, raw, back, err)
		}
	})
}

package telemetry

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// family records spans of one trace, given as child<parent, and draws the tree that comes back.
func family(t *testing.T, spans ...string) string {
	t.Helper()
	s := NewSpans(8 << 20)
	for i, pair := range spans {
		child, parent, _ := strings.Cut(pair, "<")
		sp := &Span{Start: int64(i + 1), End: int64(i + 2), Foreign: &Foreign{Name: child}}
		sp.TraceID[0] = 1
		copy(sp.SpanID[:], child)
		copy(sp.Parent[:], parent)
		s.Record(sp)
	}
	roots, _ := Reader{Spans: s, Names: NewNames()}.Tree([16]byte{1})
	return draw(roots)
}

func draw(nodes []*Node) string {
	var all []string
	for _, n := range nodes {
		text := n.Span.Name
		if len(n.Children) > 0 {
			text += "(" + draw(n.Children) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestTreeFollowsTheParents(t *testing.T) {
	for want, spans := range map[string][]string{
		"":                {},
		"a":               {"a"},
		"a(b(c) d)":       {"a", "b<a", "c<b", "d<a"},
		"a(b c) x":        {"a", "b<a", "c<a", "x<gone"},
		"b(a)":            {"b", "a<b"},
		"a(b(c(d)))":      {"a", "b<a", "c<b", "d<c"},
		"late(a(b))":      {"a<late", "b<a", "late"},
		"self":            {"self<self"},
		"a(b)":            {"a<b", "b<a"},
		"a(c(b))":         {"a<b", "b<c", "c<a"},
		"r a(b(c d(e)))":  {"r", "a<b", "b<a", "c<b", "d<b", "e<d"},
		"twice(x)":        {"twice", "x<twice", "twice"},
		"one(two) other":  {"one", "two<one", "other"},
		"self2(child) up": {"self2<self2", "child<self2", "up"},
	} {
		if got := family(t, spans...); got != want {
			t.Errorf("%v: got %q, want %q", spans, got, want)
		}
	}
}

func TestLastRecordOfASpanStands(t *testing.T) {
	s := NewSpans(1 << 20)
	running := &Span{Context: Context{TraceID: [16]byte{1}, SpanID: [8]byte{1}}, Start: 5}
	s.Record(running)
	running.End, running.Status = 9, StatusOK
	s.Record(running)
	roots, _ := Reader{Spans: s, Names: NewNames()}.Tree([16]byte{1})
	if len(roots) != 1 || roots[0].Span.End != 9 {
		t.Fatalf("got %d roots, %+v", len(roots), roots[0].Span)
	}
}

func TestTreeIsBounded(t *testing.T) {
	var chain []string
	for i := range maxTree + 500 {
		chain = append(chain, fmt.Sprintf("s%d<s%d", i+1, i))
	}
	s := NewSpans(8 << 20)
	for i := range chain {
		sp := &Span{Start: int64(i + 1), End: int64(i + 2)}
		sp.TraceID[0] = 1
		child, parent, _ := strings.Cut(chain[i], "<")
		copy(sp.SpanID[:], child)
		copy(sp.Parent[:], parent)
		s.Record(sp)
	}
	roots, rest := Reader{Spans: s, Names: NewNames()}.Tree([16]byte{1})
	if rest != 500 {
		t.Errorf("%d spans are left out, want 500", rest)
	}
	count, deepest := 0, 0
	var walk func(n *Node, depth int)
	walk = func(n *Node, depth int) {
		count, deepest = count+1, max(deepest, depth)
		for _, c := range n.Children {
			walk(c, depth+1)
		}
	}
	for _, r := range roots {
		walk(r, 1)
		var any any
		if err := json.Unmarshal(r.AppendJSON(nil), &any); err != nil {
			t.Fatalf("cannot be read: %v", err)
		}
	}
	if count != maxTree || deepest != maxDepth || len(roots) != maxTree/maxDepth {
		t.Errorf("%d spans, %d deep, under %d roots", count, deepest, len(roots))
	}
}

func TestEverySpanOfATraceStandsOnceInTheTree(t *testing.T) {
	// All graphs of four spans in which each has one of them, or nobody, as its parent.
	for code := range 5 * 5 * 5 * 5 {
		s, c := NewSpans(1<<20), code
		for i := range 4 {
			sp := &Span{Start: int64(i + 1), End: int64(i + 1)}
			sp.TraceID[0], sp.SpanID[0], sp.Parent[0] = 1, byte(i+1), byte(c%5)
			c /= 5
			s.Record(sp)
		}
		roots, _ := Reader{Spans: s, Names: NewNames()}.Tree([16]byte{1})
		seen := map[byte]int{}
		var walk func(nodes []*Node)
		walk = func(nodes []*Node) {
			for _, n := range nodes {
				if seen[n.Span.SpanID[0]]++; seen[n.Span.SpanID[0]] == 1 {
					walk(n.Children)
				}
			}
		}
		walk(roots)
		for i := range byte(4) {
			if seen[i+1] != 1 {
				t.Fatalf("graph %d: span %d stands %d times", code, i+1, seen[i+1])
			}
		}
	}
}

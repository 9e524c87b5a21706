package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shop is a ring with a few spans of every kind.
func shop() Reader {
	r := Reader{Spans: NewSpans(1 << 20), Names: NewNames(), Service: "iii"}
	name := r.Names.Intern
	trace := func(n byte) [16]byte { return [16]byte{15: n} }
	id := func(n byte) [8]byte { return [8]byte{7: n} }
	for _, sp := range []Span{
		{Context: Context{trace(1), id(1), true}, Name: name("orders::create"), Kind: KindUser, Status: StatusOK,
			Start: 1000, End: 1900, Worker: name("shop-1"), Caller: name("web")},
		{Context: Context{trace(1), id(2), true}, Parent: id(1), Name: name("stock::take"), Kind: KindUser,
			Status: StatusError, Start: 1100, End: 1200, Code: name("OUT_OF_STOCK"), Message: []byte(`no "x" left`)},
		{Context: Context{trace(2), id(3), false}, Name: name("engine::functions::list"), Kind: KindInternal,
			Status: StatusOK, Start: 3000, End: 3010},
		{Context: Context{trace(1), id(4), true}, Parent: id(2), Kind: KindForeign, Status: StatusUnset,
			Start: 1110,
			End:   1190, Message: []byte("hm"), Foreign: &Foreign{Name: "execute stock::take", Service: "stock-service",
				Role: 3, Scope: "iii-node", Version: "1", Attributes: []byte(`[["db.system","sqlite"],["n","7"]]`),
				Resource: []byte(`[["service.name","stock-service"]]`), Events: []byte(`[{"name":"e"}]`),
				Links: []byte(`[]`)}},
		{Context: Context{trace(3), id(5), true}, Name: name("cron tick"), Start: 5000, End: 0},
	} {
		r.Spans.Record(&sp)
	}
	return r
}

func names(page []*View) (all []string) {
	for _, v := range page {
		all = append(all, v.Name)
	}
	return all
}

func TestSpansAreFound(t *testing.T) {
	const create, take, list, execute, tick = "call orders::create", "call stock::take",
		"call engine::functions::list", "execute stock::take", "cron tick"
	r := shop()
	for name, c := range map[string]struct {
		filter Filter
		want   []string
	}{
		"all":             {Filter{}, []string{tick, execute, list, take, create}},
		"a trace":         {Filter{TraceID: [16]byte{15: 1}}, []string{execute, take, create}},
		"traces":          {Filter{TraceIDs: [][16]byte{{15: 2}, {15: 3}, {15: 9}}}, []string{tick, list}},
		"no such trace":   {Filter{TraceID: [16]byte{15: 9}}, nil},
		"name, any case":  {Filter{Name: "STOCK"}, []string{execute, take}},
		"service":         {Filter{Service: "stock"}, []string{execute}},
		"our own service": {Filter{Service: "III", Name: "call"}, []string{list, take, create}},
		"status":          {Filter{Status: "error"}, []string{take}},
		"status unset":    {Filter{Status: "unset"}, []string{tick, execute}},
		"least duration":  {Filter{MinDuration: 100}, []string{take, create}},
		"most duration":   {Filter{MaxDuration: 80}, []string{tick, execute, list}},
		"from":            {Filter{From: 3000}, []string{tick, list}},
		"to":              {Filter{To: 1100}, []string{take, create}},
		"from to":         {Filter{From: 1100, To: 1110}, []string{execute, take}},
		"roots":           {Filter{Roots: true}, []string{tick, list, create}},
		"not internal":    {Filter{NoInternal: true}, []string{tick, execute, take, create}},
		"attribute":       {Filter{Attributes: [][2]string{{"function_id", "stock::take"}}}, []string{take}},
		"foreign": {Filter{Attributes: [][2]string{{"db.system", "sqlite"}, {"n", "7"}}},
			[]string{execute}},
		"all attributes": {Filter{Attributes: [][2]string{{"db.system", "sqlite"}, {"n", "8"}}}, nil},
		"not an attribute": {Filter{NotAttributes: [][2]string{{"iii.function.kind", "user"}}}, []string{tick,
			execute, list}},
		"own test": {Filter{Match: func(v *View) bool { return v.Parent != [8]byte{} }},
			[]string{execute, take}},
		"by start":       {Filter{Sort: ByStart, Ascending: true}, []string{create, take, execute, list, tick}},
		"by start, down": {Filter{Sort: ByStart}, []string{tick, list, execute, take, create}},
		"by duration":    {Filter{Sort: ByDuration}, []string{create, take, execute, list, tick}},
		"by name":        {Filter{Sort: ByName, Ascending: true}, []string{list, create, take, tick, execute}},
		"page":           {Filter{Offset: 1, Limit: 2}, []string{execute, list}},
		"sorted page":    {Filter{Sort: ByStart, Ascending: true, Offset: 1, Limit: 2}, []string{take, execute}},
		"after the end":  {Filter{Offset: 99, Limit: 2}, nil},
		"odd numbers":    {Filter{Offset: -3, Limit: -1, Name: "tick"}, []string{tick}},
	} {
		t.Run(name, func(t *testing.T) {
			page, total := r.List(c.filter)
			if got := names(page); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			all := c.filter
			all.Offset, all.Limit = 0, 1000
			if whole, _ := r.List(all); total != len(whole) {
				t.Errorf("counted %d of %d", total, len(whole))
			}
			n := 0
			if r.Each(c.filter, func(*View) bool { n++; return true }); n != total {
				t.Errorf("visited %d of %d", n, total)
			}
		})
	}
}

func TestPageIsBounded(t *testing.T) {
	s := NewSpans(4 << 20)
	fill(s, 20_000)
	r := Reader{Spans: s, Names: NewNames()}
	for _, f := range []Filter{{Limit: 1 << 62}, {Limit: 1 << 62, Sort: ByStart}, {Offset: 1 << 62,
		Limit: 1 << 62},
		{Offset: 9_999, Limit: 50}} {
		if page, total := r.List(f); len(page) > maxPage || total != 20_000 {
			t.Errorf("%+v: %d of %d", f, len(page), total)
		}
	}
	if page, _ := r.List(Filter{}); len(page) != 100 {
		t.Errorf("without a limit the page has %d", len(page))
	}
}

// Every page of every order is the same as sorting all and cutting.
func TestPagesAgreeWithSortingAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Reader{Spans: NewSpans(1 << 20), Names: NewNames()}
		for range rapid.IntRange(0, 60).Draw(t, "spans") {
			start := rapid.Int64Range(1, 20).Draw(t, "start")
			r.Spans.Record(&Span{Start: start, End: start + rapid.Int64Range(0, 5).Draw(t, "duration"), Kind: KindUser,
				Name: r.Names.Intern(rapid.StringMatching(`[ab]`).Draw(t, "name"))})
		}
		f := Filter{Sort: rapid.SampledFrom([]Sort{ByRecency, ByStart, ByDuration, ByName}).Draw(t, "sort"),
			Ascending: rapid.Bool().Draw(t, "ascending"), Offset: rapid.IntRange(0, 70).Draw(t, "offset"),
			Limit: rapid.IntRange(1, 70).Draw(t, "limit"), MinDuration: rapid.Int64Range(0, 2).Draw(t, "least")}
		var all []*View
		r.Each(Filter{MinDuration: f.MinDuration}, func(v *View) bool { all = append(all, v); return true })
		by := map[Sort]func(a, b *View) int{
			ByRecency:  func(a, b *View) int { return 0 },
			ByStart:    func(a, b *View) int { return cmp.Compare(a.Start, b.Start) },
			ByDuration: func(a, b *View) int { return cmp.Compare(a.Duration(), b.Duration()) },
			ByName:     func(a, b *View) int { return strings.Compare(a.Name, b.Name) },
		}[f.Sort]
		slices.SortStableFunc(all, func(a, b *View) int {
			if f.Ascending {
				return by(a, b)
			}
			return by(b, a)
		})
		want := all[min(f.Offset, len(all)):min(f.Offset+f.Limit, len(all))]
		page, total := r.List(f)
		show := func(page []*View) string {
			var b strings.Builder
			for _, v := range page {
				fmt.Fprint(&b, v.Start, "-", v.End, v.Name, " ")
			}
			return b.String()
		}
		if total != len(all) || show(page) != show(want) {
			t.Fatalf("%+v\ngot  %s\nwant %s", f, show(page), show(want))
		}
	})
}

func TestAttributesOfCallsAreMadeOnReading(t *testing.T) {
	r := shop()
	page, _ := r.List(Filter{Name: "call stock"})
	for key, want := range map[string]string{"function_id": "stock::take", "faas.invoked_name": "stock::take",
		"iii.function.kind": "user", "error.type": "OUT_OF_STOCK", "error.message": `no "x" left`} {
		if got, ok := page[0].Attribute(key); !ok || got != want {
			t.Errorf("%s is %q", key, got)
		}
	}
	if _, ok := page[0].Attribute("plinth.worker"); ok {
		t.Error("it has a worker that nobody named")
	}
	page, _ = r.List(Filter{Name: "orders"})
	if w, _ := page[0].Attribute("plinth.worker"); w != "shop-1" || page[0].Caller != "web" {
		t.Errorf("worker %q, caller %q", w, page[0].Caller)
	}
	page, _ = r.List(Filter{Name: "execute"})
	if _, ok := page[0].Attribute("function_id"); ok {
		t.Error("a foreign span got attributes of ours")
	}
}

func TestSpanOutlivesItsName(t *testing.T) {
	r := Reader{Spans: NewSpans(1 << 20), Names: newNames(nameLimit{10, 1 << 20, 1, 1 << 20})}
	id := r.Names.Intern("short::lived")
	r.Spans.Record(&Span{Kind: KindUser, Name: id, Start: 1, End: 2})
	r.Names.Release(id)
	r.Names.Note("newer")
	r.Names.Note("newest")
	if page, _ := r.List(Filter{}); page[0].Name != "call "+GoneName {
		t.Errorf("reads %q", page[0].Name)
	}
}

func BenchmarkSpanList(b *testing.B) {
	r := Reader{Spans: NewSpans(16 << 20), Names: NewNames(), Service: "iii"}
	src := NewSource(1)
	name := r.Names.Intern("orders::create")
	for range 200_000 {
		sp := benchSpan(src)
		sp.Name = name
		r.Spans.Record(&sp)
	}
	for name, f := range map[string]Filter{"newest": {}, "trace": {TraceID: [16]byte{1}},
		"sorted": {Sort: ByStart, Ascending: true}, "name": {Name: "orders"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r.List(f)
			}
		})
	}
}

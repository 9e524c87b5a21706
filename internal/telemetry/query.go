package telemetry

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// Filter says which spans to read; the zero value means all. Times are in nanoseconds. Texts match
// anywhere in the value and in any case.
type Filter struct {
	TraceID       [16]byte   // zero: any
	TraceIDs      [][16]byte // none: any
	Name          string
	Service       string
	Status        string
	MinDuration   int64
	MaxDuration   int64 // 0: no bound
	From, To      int64 // by start, both inclusive; 0: no bound
	Roots         bool  // only spans without a parent
	NoInternal    bool  // without calls of the engine's own functions
	Attributes    [][2]string
	NotAttributes [][2]string
	Match         func(*View) bool // nil: all
	Sort          Sort
	Ascending     bool
	Offset, Limit int // Limit 0: 100; at most 10,000 spans are kept at a time
}

// Sort says in which order spans are listed.
type Sort uint8

const (
	ByRecency  Sort = iota // newest first, always
	ByStart                //
	ByDuration             //
	ByName                 //
)

// maxPage bounds offset + limit of one answer.
const maxPage = 10_000

// Reader reads spans back, with the names that their ids stand for.
type Reader struct {
	Spans   *Spans
	Names   *Names
	Service string // the service name of our own spans
}

// Each visits the spans that match, the last recorded first, until visit returns false.
func (r Reader) Each(f Filter, visit func(*View) bool) {
	r.each(&f, func(b []byte) bool {
		v := view(b, r.Names, r.Service)
		return !f.matches(v) || visit(v)
	})
}

// each visits the records that match as far as their fixed part says.
func (r Reader) each(f *Filter, visit func([]byte) bool) {
	from := int64(math.MinInt64)
	if f.From != 0 {
		from = f.From // a span that starts later ends later
	}
	r.Spans.ring.walk(from, math.MaxInt64, func(b []byte) bool { return !f.fits(b) || visit(b) })
}

// List returns one page of the spans that match, and how many match in all.
func (r Reader) List(f Filter) (page []*View, total int) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	offset := max(f.Offset, 0)
	p := pager{keep: min(offset+limit, maxPage), before: f.before()}
	whole := f.whole()
	r.each(&f, func(b []byte) bool {
		if !whole && !p.wants(&f, b) {
			total++
			return true
		}
		v := view(b, r.Names, r.Service)
		if !f.matches(v) {
			return true
		}
		total++
		p.add(v)
		return true
	})
	page = p.sorted()
	return page[min(offset, len(page)):], total
}

// fits says what can be said without decoding: ids, kind, status and times.
func (f *Filter) fits(b []byte) bool {
	id := [16]byte(b[spanTrace:])
	if f.TraceID != [16]byte{} && id != f.TraceID || len(f.TraceIDs) > 0 && !slices.Contains(f.TraceIDs, id) {
		return false
	}
	start, duration := startOf(b), durationOf(b)
	switch {
	case f.Roots && [8]byte(b[spanParent:]) != [8]byte{},
		f.NoInternal && b[atKind] == KindInternal,
		f.From != 0 && start < f.From, f.To != 0 && start > f.To,
		duration < f.MinDuration, f.MaxDuration > 0 && duration > f.MaxDuration,
		!contains(StatusText(b[spanStatus]), f.Status):
		return false
	}
	return true
}

// whole reports whether a span has to be decoded to tell if it matches.
func (f *Filter) whole() bool {
	return f.Name != "" || f.Service != "" || len(f.Attributes)+len(f.NotAttributes) > 0 || f.Match != nil
}

// matches says what fits did not.
func (f *Filter) matches(v *View) bool {
	if !contains(v.Name, f.Name) || !contains(v.Service, f.Service) {
		return false
	}
	for _, a := range f.Attributes {
		if got, ok := v.Attribute(a[0]); !ok || got != a[1] {
			return false
		}
	}
	for _, a := range f.NotAttributes {
		if got, ok := v.Attribute(a[0]); ok && got == a[1] {
			return false
		}
	}
	return f.Match == nil || f.Match(v)
}

func startOf(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b[spanStart:])) }

func durationOf(b []byte) int64 {
	if b[spanFlags]&flagPending != 0 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b[spanEnd:])) - startOf(b)
}

func contains(s, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// before returns the order of the page; nil means as they come. Where it leaves two spans equal, the
// one that was recorded later stands first.
func (f *Filter) before() func(a, b *View) int {
	var by func(a, b *View) int
	switch f.Sort {
	case ByStart:
		by = func(a, b *View) int { return cmp.Compare(a.Start, b.Start) }
	case ByDuration:
		by = func(a, b *View) int { return cmp.Compare(a.Duration(), b.Duration()) }
	case ByName:
		by = func(a, b *View) int { return strings.Compare(a.Name, b.Name) }
	default:
		return nil
	}
	if f.Ascending {
		return by
	}
	return func(a, b *View) int { return by(b, a) }
}

// pager keeps the spans that stand first. With an order it is a heap whose top is the one to go next.
type pager struct {
	keep   int
	before func(a, b *View) int
	spans  []placed
	seen   int
}

type placed struct {
	span *View
	seen int
}

// wants reports whether a record could still enter the page, if that can be told without decoding it.
func (p *pager) wants(f *Filter, b []byte) bool {
	if len(p.spans) < p.keep {
		return true
	}
	var key, worst int64
	switch f.Sort {
	case ByRecency:
		return false
	case ByStart:
		key, worst = startOf(b), p.spans[0].span.Start
	case ByDuration:
		key, worst = durationOf(b), p.spans[0].span.Duration()
	default:
		return true
	}
	if f.Ascending {
		return key < worst
	}
	return key > worst
}

func (p *pager) add(v *View) {
	p.seen++
	next := placed{v, p.seen}
	switch {
	case len(p.spans) < p.keep && p.before == nil:
		p.spans = append(p.spans, next)
	case len(p.spans) < p.keep:
		heap.Push(p, next)
	case p.before != nil && p.compare(next, p.spans[0]) < 0:
		p.spans[0] = next
		heap.Fix(p, 0)
	}
}

func (p *pager) sorted() []*View {
	if p.before != nil {
		slices.SortFunc(p.spans, p.compare)
	}
	page := make([]*View, len(p.spans))
	for i := range p.spans {
		page[i] = p.spans[i].span
	}
	return page
}

func (p *pager) compare(a, b placed) int {
	if c := p.before(a.span, b.span); c != 0 {
		return c
	}
	return cmp.Compare(a.seen, b.seen)
}

// Len, Less, Swap, Push and Pop are heap.Interface.
func (p *pager) Len() int           { return len(p.spans) }
func (p *pager) Less(i, j int) bool { return p.compare(p.spans[i], p.spans[j]) > 0 }
func (p *pager) Swap(i, j int)      { p.spans[i], p.spans[j] = p.spans[j], p.spans[i] }
func (p *pager) Push(x any)         { p.spans = append(p.spans, x.(placed)) }
func (p *pager) Pop() (last any) {
	last, p.spans = p.spans[len(p.spans)-1], p.spans[:len(p.spans)-1]
	return last
}

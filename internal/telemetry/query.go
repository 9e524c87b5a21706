package telemetry

import (
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

// Each visits the spans that match, the last recorded first, until visit returns false. It does not sort.
func (r Reader) Each(f Filter, visit func(*View) bool) {
	f.Sort = ByRecency
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
	walk := r.Spans.ring.walk
	if f.oldestFirst() {
		walk = r.Spans.ring.forward
	}
	named := r.named(f)
	walk(from, math.MaxInt64, func(b []byte) bool { return !f.fits(b) || !named(b) || visit(b) })
}

// named returns a test for what the filter asks of name and service. Each name of our own is looked at once.
func (r Reader) named(f *Filter) func(b []byte) bool {
	if f.Name == "" && f.Service == "" {
		return func([]byte) bool { return true }
	}
	ours := contains(r.Service, f.Service)
	type key struct {
		id   uint32
		kind Kind
	}
	known := map[key]bool{}
	return func(b []byte) bool {
		if b[atKind] == KindForeign {
			parts := foreignParts(b)
			return contains(string(parts[0]), f.Name) && contains(string(parts[1]), f.Service)
		}
		k := key{binary.LittleEndian.Uint32(b[spanName:]), b[atKind]}
		match, seen := known[k]
		if !seen {
			name, _ := nameOf(b, r.Names)
			match = ours && contains(name, f.Name)
			known[k] = match
		}
		return match
	}
}

// List returns one page of the spans that match, and how many match in all.
func (r Reader) List(f Filter) (page []*View, total int) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	offset := min(max(f.Offset, 0), maxPage)
	p := pager{keep: min(offset+min(limit, maxPage), maxPage), sort: f.Sort, ascending: f.Ascending,
		oldestFirst: f.oldestFirst()}
	decode := f.whole() || f.Sort == ByName
	r.each(&f, func(b []byte) bool {
		var name string
		if decode {
			v := view(b, r.Names, r.Service)
			if !f.matches(v) {
				return true
			}
			name = v.Name
		}
		total++
		p.add(b, name)
		return true
	})
	for _, b := range p.sorted()[min(offset, len(p.spans)):] {
		page = append(page, view(b.record, r.Names, r.Service))
	}
	return page, total
}

// oldestFirst tells in which order to read for a page: where the earliest are asked for, most of the others
// need not be looked at when those were seen first.
func (f *Filter) oldestFirst() bool { return f.Sort == ByStart && f.Ascending }

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
	return len(f.Attributes)+len(f.NotAttributes) > 0 || f.Match != nil
}

// matches says what can be said of a decoded span only.
func (f *Filter) matches(v *View) bool {
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

package telemetry

import (
	"bytes"
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

// Each visits the spans that match, newest first, until visit returns false.
func (r Reader) Each(f Filter, visit func(*View) bool) {
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if f.From != 0 {
		from = f.From // a span that starts later ends later
	}
	r.Spans.ring.walk(from, to, func(b []byte) bool {
		if f.TraceID != [16]byte{} && !bytes.Equal(b[spanTrace:spanTrace+16], f.TraceID[:]) {
			return true
		}
		if f.Roots && [8]byte(b[spanParent:]) != [8]byte{} || f.NoInternal && b[atKind] == KindInternal {
			return true
		}
		v := view(b, r.Names, r.Service)
		return !f.matches(v) || visit(v)
	})
}

// List returns one page of the spans that match, and how many match in all.
func (r Reader) List(f Filter) (page []*View, total int) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	offset := max(f.Offset, 0)
	keep := min(offset+limit, maxPage)
	less := f.compare()
	r.Each(f, func(v *View) bool {
		total++
		if less == nil {
			if len(page) < keep {
				page = append(page, v)
			}
			return true
		}
		if len(page) == keep && less(v, page[keep-1]) >= 0 {
			return true
		}
		at, _ := slices.BinarySearchFunc(page, v, func(a, b *View) int {
			if c := less(a, b); c != 0 {
				return c
			}
			return -1 // equal ones stay in the order of their coming
		})
		if len(page) == keep {
			page = page[:keep-1]
		}
		page = slices.Insert(page, at, v)
		return true
	})
	return page[min(offset, len(page)):], total
}

func (f *Filter) matches(v *View) bool {
	d := v.Duration()
	switch {
	case len(f.TraceIDs) > 0 && !slices.Contains(f.TraceIDs, v.TraceID),
		f.From != 0 && v.Start < f.From, f.To != 0 && v.Start > f.To,
		d < f.MinDuration, f.MaxDuration > 0 && d > f.MaxDuration,
		!contains(v.Name, f.Name), !contains(v.Service, f.Service), !contains(StatusText(v.Status), f.Status):
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

func contains(s, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// compare returns the order of the page; nil means as they come.
func (f *Filter) compare() func(a, b *View) int {
	var by func(a, b *View) int
	switch f.Sort {
	case ByStart:
		by = func(a, b *View) int { return compare(a.Start, b.Start) }
	case ByDuration:
		by = func(a, b *View) int { return compare(a.Duration(), b.Duration()) }
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

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

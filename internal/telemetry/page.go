package telemetry

import (
	"cmp"
	"container/heap"
	"slices"
)

// pager keeps the records that stand first. With an order it is a heap whose top is the one to go next. It
// holds records as they are, since most of them are pushed out again before anybody reads them.
type pager struct {
	keep        int
	sort        Sort
	ascending   bool
	oldestFirst bool // the order in which records come
	spans       []placed
	seen        int
}

type placed struct {
	record []byte // a copy
	key    int64  // by which it stands
	name   string // likewise, if the page is sorted by name
	seen   int    // of two that are equal, the one that was recorded later stands first
}

func (p *pager) add(record []byte, name string) {
	p.seen++
	next := placed{name: name, seen: p.seen}
	switch p.sort {
	case ByStart:
		next.key = startOf(record)
	case ByDuration:
		next.key = durationOf(record)
	}
	switch {
	case len(p.spans) < p.keep:
		next.record = slices.Clone(record)
		if p.spans = append(p.spans, next); p.sort != ByRecency && len(p.spans) == p.keep {
			heap.Init(p)
		}
	case p.sort != ByRecency && p.compare(&next, &p.spans[0]) < 0:
		next.record = append(p.spans[0].record[:0], record...)
		p.spans[0] = next
		heap.Fix(p, 0)
	}
}

func (p *pager) sorted() []placed {
	if p.sort != ByRecency {
		slices.SortFunc(p.spans, func(a, b placed) int { return p.compare(&a, &b) })
	}
	return p.spans
}

func (p *pager) compare(a, b *placed) int {
	c := cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.name, b.name))
	if !p.ascending {
		c = -c
	}
	if p.oldestFirst {
		a, b = b, a
	}
	return cmp.Or(c, cmp.Compare(a.seen, b.seen))
}

// Len, Less, Swap, Push and Pop are heap.Interface; a page is only ever fixed at the top.
func (p *pager) Len() int           { return len(p.spans) }
func (p *pager) Less(i, j int) bool { return p.compare(&p.spans[i], &p.spans[j]) > 0 }
func (p *pager) Swap(i, j int)      { p.spans[i], p.spans[j] = p.spans[j], p.spans[i] }
func (p *pager) Push(x any)         { p.spans = append(p.spans, x.(placed)) }
func (p *pager) Pop() (last any) {
	last, p.spans = p.spans[len(p.spans)-1], p.spans[:len(p.spans)-1]
	return last
}

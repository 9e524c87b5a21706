package trigger

import (
	"slices"
	"strings"
)

// Stats counts what is in a table.
type Stats struct {
	Types    int
	Bindings int
	Parked   int // bindings without a provider
}

// Stats counts under the lock.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Types: len(t.types), Bindings: len(t.bindings)}
	for _, b := range t.bindings {
		if b.with == nil {
			s.Parked++
		}
	}
	return s
}

// Types returns all types, sorted by id and namespace.
func (t *Table) Types() []*Type {
	t.mu.Lock()
	all := make([]*Type, 0, len(t.types))
	for _, y := range t.types {
		all = append(all, y)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b *Type) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace, b.Namespace)
	})
	return all
}

// Bindings returns all bindings, sorted by id.
func (t *Table) Bindings() []Status {
	t.mu.Lock()
	all := make([]Status, 0, len(t.bindings))
	for _, b := range t.bindings {
		all = append(all, Status{b, b.with, b.failure})
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Find returns one binding.
func (t *Table) Find(id string) (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bindings[id]
	if b == nil {
		return Status{}, false
	}
	return Status{b, b.with, b.failure}, true
}

// Of returns the bindings that a provider has for one of its types, for a room that fires them.
func (t *Table) Of(p Party, space, id string) (all []*Binding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	y := t.types[name{space, id}]
	if y == nil || y.Provider != p {
		return nil
	}
	for _, b := range t.wants[id] {
		if b.with == y && b.failure == nil {
			all = append(all, b)
		}
	}
	return all
}

// To returns the bindings whose target is a function; an empty space is Default.
func (t *Table) To(space, function string) (all []Status) {
	if space == "" {
		space = Default
	}
	for _, s := range t.Bindings() {
		own := s.FunctionNamespace
		if own == "" {
			own = Default
		}
		if s.Function == function && own == space {
			all = append(all, s)
		}
	}
	return all
}

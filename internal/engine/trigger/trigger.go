// Package trigger keeps trigger types and the bindings of functions to them: who offers a type, who wants
// it, and which bindings wait for a provider (protocol section 9).
//
// It promises that a binding is with one provider at most, that it is delivered again to whoever offers its
// type next, that a provider is told of every binding that it loses while it is there, and that nothing of
// a party is left after Leave. A Table is safe for concurrent use; it tells parties what happens with its
// lock held, so that each of them hears of one binding in the right order: they must not block and must not
// call back. It opens no socket, runs no function and knows no kind of event.
package trigger

import (
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire"
)

// Default is the namespace of a type that says none.
const Default = "default"

// Party offers types, binds functions, or both: a worker's connection, or a room of this process. Parties
// are compared, so they are pointers. l is the loop that the change was made on, nil on a goroutine.
type Party interface {
	// Deliver asks a provider to fire for a binding. The provider answers with Table.Answer.
	Deliver(l *loop.Loop, b *Binding)
	// Retract tells a provider that a binding is gone.
	Retract(l *loop.Loop, b *Binding)
	// Failed tells a binder that the provider refused; fail is its error object.
	Failed(l *loop.Loop, b *Binding, fail []byte)
}

// Type is a trigger type. It does not change; offering again makes a new one.
type Type struct {
	Namespace   string
	ID          string
	Description string
	Config      []byte // JSON Schema of a binding's config; nil = none
	Payload     []byte // JSON Schema of what a bound function gets; nil = none
	Provider    Party
	Internal    bool // hidden from default listings
	Instant     bool // the provider takes every binding and does not answer

	at int // index in the provider's share
}

// Binding says that a function runs when something of a type happens. Its exported fields do not change.
type Binding struct {
	ID                string
	Type              string // id of the type
	TypeNamespace     string // "" = the binder's own, then Default
	Function          string
	FunctionNamespace string // "" = Default
	Config            []byte // JSON, never empty
	Metadata          []byte // JSON; nil = none
	Namespace         string // the binder's
	Binder            Party  // nil: it stays until it is removed
	Since             time.Time

	// guarded by Table.mu
	with     *Type // the provider that has it; nil = parked
	failure  []byte
	answered chan struct{} // closed at the first answer; nil when nobody waits
	at       int           // index in the binder's share, or in Table.free
	wanted   int           // index in the list of its type
}

// Status is a binding with what has become of it.
type Status struct {
	*Binding
	Type    *Type  // the type as it is offered; nil = nobody offers it
	Failure []byte // the provider's error object; nil = none
}

// Parked reports whether no provider fires for the binding.
func (s *Status) Parked() bool { return s.Type == nil || s.Failure != nil }

// Table is all types and bindings of an engine.
type Table struct {
	most int // of one party, and of those without a binder

	mu       sync.Mutex // guards everything below, and the inner fields of Type and Binding
	types    map[name]*Type
	bindings map[string]*Binding
	wants    map[string][]*Binding // bindings by the id of their type
	shares   map[Party]*share
	free     []*Binding // without a binder
}

type name struct{ space, id string }

// share is what one party has.
type share struct {
	types    []*Type
	bindings []*Binding
}

// New makes an empty table. A party, and all bindings without one, may have most types and bindings.
func New(most int) *Table {
	return &Table{most: most, types: map[name]*Type{}, bindings: map[string]*Binding{},
		wants: map[string][]*Binding{}, shares: map[Party]*share{}}
}

// Offer makes a party the provider of a type. Whoever offered it before is told that its bindings are gone,
// and all bindings that the type fits are delivered to the new one.
func (t *Table) Offer(l *loop.Loop, offered Type) *fault.Error {
	y := &offered
	if y.Namespace == "" {
		y.Namespace = Default
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.share(y.Provider)
	k := name{y.Namespace, y.ID}
	old := t.types[k]
	if len(s.types)+len(s.bindings) >= t.most && (old == nil || old.Provider != y.Provider) {
		return full(t.most)
	}
	if old != nil {
		for _, b := range t.wants[y.ID] {
			if b.with == old {
				t.part(l, b, old.Provider != y.Provider)
			}
		}
		t.disown(old)
	}
	y.at = len(s.types)
	s.types = append(s.types, y)
	t.types[k] = y
	for _, b := range t.wants[y.ID] {
		if b.with == nil && t.provider(b) == y {
			t.deliver(l, b, y)
		}
	}
	return nil
}

// Withdraw ends a type that a party offers; it reports whether the party did. Its bindings park, or go to
// another provider that fits them.
func (t *Table) Withdraw(l *loop.Loop, p Party, space, id string) bool {
	if space == "" {
		space = Default
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	y := t.types[name{space, id}]
	if y == nil || y.Provider != p {
		return false
	}
	t.withdraw(l, y)
	t.tidy(p)
	return true
}

func (t *Table) withdraw(l *loop.Loop, y *Type) {
	delete(t.types, name{y.Namespace, y.ID})
	t.disown(y)
	for _, b := range t.wants[y.ID] {
		if b.with == y {
			t.part(l, b, false)
			if next := t.provider(b); next != nil {
				t.deliver(l, b, next)
			}
		}
	}
}

// Bind adds a binding, in the place of one with the same id and binder. It waits for its provider when
// there is none. wait, where asked for, is closed once a provider has answered.
func (t *Table) Bind(l *loop.Loop, b *Binding, wantAnswer bool) (wait <-chan struct{}, err *fault.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.bindings[b.ID]; old != nil {
		if old.Binder != b.Binder {
			return nil, fault.Newf(fault.Conflict, wire.CodeTriggerFailed, "a trigger with id %s exists already", b.ID)
		}
		t.unbind(l, old)
	}
	mine := &t.free
	if b.Binder != nil {
		s := t.share(b.Binder)
		if len(s.types)+len(s.bindings) >= t.most {
			return nil, full(t.most)
		}
		mine = &s.bindings
	} else if len(t.free) >= t.most {
		return nil, full(t.most)
	}
	if wantAnswer {
		b.answered = make(chan struct{})
	}
	b.at = len(*mine)
	*mine = append(*mine, b)
	t.bindings[b.ID] = b
	b.wanted = len(t.wants[b.Type])
	t.wants[b.Type] = append(t.wants[b.Type], b)
	if y := t.provider(b); y != nil {
		t.deliver(l, b, y)
	}
	return b.answered, nil
}

// Unbind removes a binding of a binder, nil for those that have none; it reports whether there was one.
// kind, when not empty, must be the binding's type.
func (t *Table) Unbind(l *loop.Loop, binder Party, id, kind string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bindings[id]
	if b == nil || b.Binder != binder || kind != "" && kind != b.Type {
		return false
	}
	t.unbind(l, b)
	if binder != nil {
		t.tidy(binder)
	}
	return true
}

func (t *Table) unbind(l *loop.Loop, b *Binding) {
	if b.with != nil {
		t.part(l, b, true)
	}
	mine := &t.free
	if b.Binder != nil {
		mine = &t.shares[b.Binder].bindings
	}
	*mine = without(*mine, b.at, func(moved *Binding) { moved.at = b.at })
	wants := without(t.wants[b.Type], b.wanted, func(moved *Binding) { moved.wanted = b.wanted })
	if len(wants) == 0 {
		delete(t.wants, b.Type)
	} else {
		t.wants[b.Type] = wants
	}
	delete(t.bindings, b.ID)
	b.settle()
}

// Answer takes a provider's answer to a binding that was delivered to it; fail is its error object, nil
// for a success. Only the provider that has the binding is heard. A refused binding is kept: it is
// delivered again when its type is offered anew.
func (t *Table) Answer(l *loop.Loop, p Party, id string, fail []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bindings[id]
	if b == nil || b.with == nil || b.with.Provider != p {
		return false
	}
	b.failure = fail
	b.settle()
	if fail != nil && b.Binder != nil {
		b.Binder.Failed(l, b, fail)
	}
	return true
}

// Leave takes a party out: its types are withdrawn, its bindings removed.
func (t *Table) Leave(l *loop.Loop, p Party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shares[p]
	if s == nil {
		return
	}
	for len(s.types) > 0 {
		t.withdraw(l, s.types[len(s.types)-1])
	}
	for len(s.bindings) > 0 {
		t.unbind(l, s.bindings[len(s.bindings)-1])
	}
	delete(t.shares, p)
}

// provider returns the type that fits a binding: the namespace that it names, else its own, else Default.
func (t *Table) provider(b *Binding) *Type {
	if b.TypeNamespace != "" {
		return t.types[name{b.TypeNamespace, b.Type}]
	}
	if y := t.types[name{b.Namespace, b.Type}]; y != nil {
		return y
	}
	return t.types[name{Default, b.Type}]
}

func (t *Table) deliver(l *loop.Loop, b *Binding, y *Type) {
	b.with, b.failure = y, nil
	y.Provider.Deliver(l, b)
	if y.Instant {
		b.settle()
	}
}

// part takes a binding from its provider, which is told where it is still there to be told.
func (t *Table) part(l *loop.Loop, b *Binding, tell bool) {
	if tell && b.failure == nil {
		b.with.Provider.Retract(l, b)
	}
	b.with, b.failure = nil, nil
}

func (b *Binding) settle() {
	if b.answered != nil {
		close(b.answered)
		b.answered = nil
	}
}

func (t *Table) share(p Party) *share {
	s := t.shares[p]
	if s == nil {
		s = new(share)
		t.shares[p] = s
	}
	return s
}

// tidy forgets a party that has nothing left.
func (t *Table) tidy(p Party) {
	if s := t.shares[p]; s != nil && len(s.types)+len(s.bindings) == 0 {
		delete(t.shares, p)
	}
}

func (t *Table) disown(y *Type) {
	s := t.shares[y.Provider]
	s.types = without(s.types, y.at, func(moved *Type) { moved.at = y.at })
}

// without takes the element at i out of a list; the last one moves into its place.
func without[T any](list []*T, i int, move func(*T)) []*T {
	last := len(list) - 1
	list[i] = list[last]
	move(list[i])
	list[last] = nil
	return list[:last]
}

func full(most int) *fault.Error {
	return fault.Newf(fault.Limit, wire.CodeLimit, "there are %d triggers and trigger types already, the limit", most)
}

package fn

import (
	"sync/atomic"

	"github.com/plinth-run/plinth/internal/fault"
)

// Principal says on whose behalf something is called. It is handed from a call to the calls that its
// handler makes in this process. It does not change once it is in use.
type Principal struct {
	Kind   string // "worker", "room", "flow", "user", "key", "local", "loopback"
	ID     string // of the user or the key; empty for the others
	Name   string
	Access Access // nil: everything is allowed
}

// Access says what a principal may do with functions. It is asked on every call and on event loops: it must
// be quick and must not block. Nil means yes; the error says what is missing.
type Access interface {
	Call(f *Function) *fault.Error
	Register(space, name string) *fault.Error
}

// Verb is what a caller does by calling a function, in the words of the scopes of keys.
type Verb uint8

// The verbs. Functions of VerbOpen are called by everyone who is connected: the protocol itself needs them.
// Those of VerbRegister register something on the caller's behalf and look at what it is themselves.
const (
	VerbCall Verb = iota
	VerbRead
	VerbRegister
	VerbManage
	VerbOpen
)

var verbs = [...]string{"call", "read", "register", "manage", "open"}

// String returns the word that a scope has for it.
func (v Verb) String() string { return verbs[v] }

// Peer is a party that registers functions, makes calls and hosts calls: a room of this process, or a
// worker behind a socket. Its lists are the registry's; a Peer is made by Room or Join and ends with Leave.
type Peer struct {
	Principal Principal

	// Data belongs to whoever made the peer: a room finds its own state by it. Set before the first call.
	Data any

	name      atomic.Pointer[string]
	span      atomic.Uint32 // interned name for spans
	prefixes  []string      // reserved prefixes that it may register; a worker has none
	functions []*Function   // guarded by Registry.owners

	// guarded by the registry's table mutex
	hosted, made list
	gone         bool
}

// Name returns what the peer is called in listings and messages.
func (p *Peer) Name() string {
	if s := p.name.Load(); s != nil {
		return *s
	}
	return p.Principal.Name
}

// Room makes the peer of a room of this process, which may register the given reserved prefixes.
func (r *Registry) Room(name string, prefixes ...string) *Peer {
	p := &Peer{prefixes: prefixes}
	r.Join(p, Principal{Kind: "room", Name: name})
	return p
}

// Join readies a peer that the caller allocated (a connection embeds its own).
func (r *Registry) Join(p *Peer, who Principal) {
	p.Principal = who
	p.span.Store(r.names.Intern(who.Name))
}

// Rename changes the name of a peer, for listings and later spans.
func (r *Registry) Rename(p *Peer, name string) {
	p.name.Store(&name)
	r.names.Release(p.span.Swap(r.names.Intern(name)))
}

// Which list of a peer a call is on, and by which of its links.
const (
	asHosted = iota
	asMade
	listCount
)

// list holds calls under way, threaded through their own links.
type list struct {
	head *Call
	n    int
}

// link is a call's place in one list.
type link struct{ next, prev *Call }

func (l *list) add(c *Call, as int) {
	c.links[as] = link{next: l.head}
	if l.head != nil {
		l.head.links[as].prev = c
	}
	l.head = c
	l.n++
}

func (l *list) remove(c *Call, as int) {
	at := c.links[as]
	if at.prev != nil {
		at.prev.links[as].next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.links[as].prev = at.prev
	}
	c.links[as] = link{}
	l.n--
}

package fn

import (
	"sync/atomic"
)

// Principal says on whose behalf something is called.
type Principal struct {
	Kind string // "worker", "room", "flow", "user", "key"
	Name string
}

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

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
	hosted, made   *Call
	nHosted, nMade int
	gone           bool
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

func (p *Peer) host(c *Call) {
	c.hostedNext = p.hosted
	if p.hosted != nil {
		p.hosted.hostedPrev = c
	}
	p.hosted = c
	p.nHosted++
}

func (p *Peer) unhost(c *Call) {
	if c.hostedPrev != nil {
		c.hostedPrev.hostedNext = c.hostedNext
	} else {
		p.hosted = c.hostedNext
	}
	if c.hostedNext != nil {
		c.hostedNext.hostedPrev = c.hostedPrev
	}
	c.hostedNext, c.hostedPrev = nil, nil
	p.nHosted--
}

func (p *Peer) make(c *Call) {
	c.madeNext = p.made
	if p.made != nil {
		p.made.madePrev = c
	}
	p.made = c
	p.nMade++
}

func (p *Peer) unmake(c *Call) {
	if c.madePrev != nil {
		c.madePrev.madeNext = c.madeNext
	} else {
		p.made = c.madeNext
	}
	if c.madeNext != nil {
		c.madeNext.madePrev = c.madePrev
	}
	c.madeNext, c.madePrev = nil, nil
	p.nMade--
}

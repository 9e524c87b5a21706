package loop

import (
	"time"
	"unsafe"
)

// ConnSize is what an idle connection costs beside its slot.
const ConnSize = unsafe.Sizeof(Conn{})

// MaxKept is what a handler may leave unused.
const MaxKept = maxKept

// Native says whether groups use epoll here.
const Native = havePoller

// SetSpans shortens the waits of a group that does not run yet.
func (g *Group) SetSpans(finish, linger time.Duration) { g.span.finish, g.span.linger = finish, linger }

// FD returns the descriptor of c; -1 on portable groups.
func (c *Conn) FD() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.fd)
}

// Holds reports whether c holds any buffer.
func (c *Conn) Holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out != nil || c.pend != nil || c.kept != nil || c.quota != 0
}

// Secure reports whether g does TLS.
func (g *Group) Secure() bool { return g.cfg.TLS != nil }

// MaxShaking is how many TLS handshakes there can be at a time.
const MaxShaking = maxShaking

package loop

import "io"

// attend does what c asked its loop for.
func (l *Loop) attend(c *Conn) {
	c.mu.Lock()
	todo := c.todo
	c.todo, c.asked = 0, false
	c.mu.Unlock()
	if todo&todoAdopt != 0 {
		l.adopt(c)
	}
	if c.state.Load()&gone != 0 {
		return
	}
	if todo&todoShut != 0 {
		l.shut(c)
		return
	}
	if todo&todoResume != 0 {
		if c.stream != nil {
			c.stream.wake()
		} else {
			l.again(c)
		}
	}
	if todo&todoDrained != 0 && c.state.Load()&(closing|finishing) == 0 {
		l.guard(c, func() { c.handler.Drained(c) })
	}
	if todo&todoFinish != 0 {
		l.finish(c)
	}
	if todo&todoFlush != 0 {
		l.dirty = append(l.dirty, c)
	}
}

// place gives c a slot.
func (l *Loop) place(c *Conn) {
	if n := len(l.free); n > 0 {
		c.slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.conns[c.slot] = c
		return
	}
	c.slot = int32(len(l.conns))
	l.conns = append(l.conns, c)
}

func (l *Loop) unplace(c *Conn) {
	l.conns[c.slot] = nil
	l.free = append(l.free, c.slot)
}

// adopt takes a new connection into the loop and asks for its handler.
func (l *Loop) adopt(c *Conn) {
	l.place(c)
	if l.group.ending.Load() {
		c.Close(ErrShutdown)
	} else if c.stream == nil {
		if err := c.watch(); err != nil {
			c.Close(err)
		}
	}
	if c.stream != nil && c.stream.tls != nil && c.state.Load()&closing == 0 {
		l.shake(c)
		return
	}
	if l.admit(c) && c.stream != nil {
		l.group.tasks.Go(c.stream.read)
	}
}

// shake starts the TLS handshake of a new connection.
func (l *Loop) shake(c *Conn) {
	if c.handler != nil {
		l.count.accepted.Add(1)
	}
	if l.group.shaking.Add(1) > maxShaking {
		l.group.shaking.Add(-1)
		l.count.refused.Add(1)
		c.Close(errShaking)
		return
	}
	l.group.tasks.Go(c.stream.secure)
}

// admit asks for the handler of a connection, unless it was attached with one. It reports whether there is
// one.
func (l *Loop) admit(c *Conn) bool {
	if accept := c.accepted; accept != nil {
		c.accepted = nil
		if c.state.Load()&closing == 0 {
			l.guard(c, func() { c.handler = accept(c) })
		}
	}
	if c.handler == nil {
		l.count.refused.Add(1)
		c.Close(nil)
		return false
	}
	l.count.accepted.Add(1)
	return true
}

// finish goes on with the end of a connection for which Finish was called.
func (l *Loop) finish(c *Conn) {
	c.kept = nil
	if c.state.Load()&(closing|lingering) != 0 {
		return
	}
	if c.stream != nil {
		c.stream.wake()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.timed {
		c.timed = true
		l.start(&timer{when: l.now.Load() + int64(l.group.span.finish), f: func() { c.Close(ErrUnsent) }})
	}
	if c.queued == 0 && !c.writing {
		c.state.Or(lingering)
		if c.state.Load()&deaf != 0 || !c.hang() {
			c.fail(nil)
			return
		}
		l.start(&timer{when: l.now.Load() + int64(l.group.span.linger), f: func() { c.Close(nil) }})
	}
	if c.stream == nil {
		c.arm()
	}
}

// hang ends the sending side. It reports whether the peer is to be waited for.
func (c *Conn) hang() bool {
	if c.stream != nil {
		return c.stream.halve()
	}
	return c.halve()
}

// hearEnd is told that the peer ended its side. While Finish is still sending, that waits.
func (c *Conn) hearEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load()&(finishing|lingering) == finishing {
		c.state.Or(deaf)
		if c.stream == nil {
			c.arm()
		}
		return
	}
	c.fail(io.EOF)
}

// shut closes c unless a write is under way; whoever writes asks again.
func (l *Loop) shut(c *Conn) {
	c.mu.Lock()
	var ready bool
	switch {
	case c.state.Load()&gone != 0:
	case c.stream != nil:
		ready = c.stream.part()
	default:
		ready = c.part()
	}
	if !ready {
		c.mu.Unlock()
		return
	}
	c.state.Or(closing | gone)
	c.empty()
	if c.stream == nil {
		c.drop()
	}
	err := c.reason
	c.mu.Unlock()
	c.kept = nil
	l.unplace(c)
	if c.handler != nil {
		l.count.closed.Add(1)
		l.guard(c, func() { c.handler.Closed(c, err) })
		c.handler = nil // a timer may hold c for a while
	}
	l.group.gone()
}

// wind closes every connection once the group is ending. It reports whether the loop may return.
func (l *Loop) wind() bool {
	if !l.group.ending.Load() {
		return false
	}
	if !l.ended {
		l.ended = true
		if l.index == 0 {
			l.dropListeners()
			l.group.gone()
		}
		for _, c := range l.conns {
			if c != nil {
				c.Close(ErrShutdown)
			}
		}
	}
	return l.group.live.Load() == 0 && l.inbox.shutIfEmpty()
}

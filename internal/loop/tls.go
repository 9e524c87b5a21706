package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxShaking bounds the TLS handshakes that are under way at a time. Each costs some ten KiB and may take
// as long as spans.shake, so peers that open connections and say nothing must not have as many as they like.
const maxShaking = 1024

var errShaking = errors.New("loop: too many TLS handshakes at a time")

// checkTLS finds what would make every handshake fail.
func (g *Group) checkTLS() error {
	t := g.cfg.TLS
	switch {
	case t == nil:
		return nil
	case !g.cfg.Portable:
		return errors.New("loop: listen: TLS needs a portable group")
	case len(t.Certificates) == 0 && t.GetCertificate == nil && t.GetConfigForClient == nil:
		return errors.New("loop: listen: the TLS configuration has no certificate")
	}
	return nil
}

// shake is the TLS handshake of a stream; it runs on the reading goroutine, which is the only one there
// is unless the owner of an attached connection queues early.
func (s *stream) shake() error {
	if err := s.raw.SetDeadline(time.Now().Add(s.c.loop.group.span.shake)); err != nil {
		return fmt.Errorf("loop: TLS handshake: %w", err)
	}
	if err := s.tls.Handshake(); err != nil {
		return fmt.Errorf("loop: TLS handshake: %w", err)
	}
	if err := s.raw.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("loop: TLS handshake: %w", err)
	}
	return nil
}

// secure is read for a connection over TLS: the handler is asked for when the handshake is done, so that a
// peer which cannot finish one costs the owner nothing.
func (s *stream) secure() {
	c, l := s.c, s.c.loop
	err := s.shake()
	l.group.shaking.Add(-1)
	l.enter()
	switch {
	case c.state.Load()&closing != 0: // the group ends
	case err != nil:
		l.count.handshakes.Add(1)
		c.Close(err)
	default:
		state := s.tls.ConnectionState()
		s.state.Store(&state)
		if c.handler == nil {
			l.admit(c)
		}
	}
	l.leave()
	if err == nil && c.state.Load()&closing == 0 {
		s.read()
	}
}

// TLS returns what the handshake of an encrypted connection agreed on; nil when c is not encrypted. It must
// not be changed. An attached connection has none before its handshake is done.
func (c *Conn) TLS() *tls.ConnectionState {
	if c.stream == nil {
		return nil
	}
	return c.stream.state.Load()
}

// polite reports whether a stream over TLS ends in a way that its peer is to be told of: without that, the
// peer would have to take the end for an attack that cuts the stream off. Where something was left unsent,
// that is the truth. Under c.mu.
func (s *stream) polite() bool {
	c := s.c
	return s.state.Load() != nil && !s.hushed && !c.writing && c.queued == 0 && c.state.Load()&broken == 0 &&
		(c.reason == nil || errors.Is(c.reason, io.EOF) || errors.Is(c.reason, ErrShutdown))
}

// goodbye tells the peer that nothing more comes and closes the socket. It has a goroutine of its own,
// since a peer that does not read makes it wait; it ends soon all the same.
func (s *stream) goodbye() {
	late := time.AfterFunc(s.c.loop.group.span.last, func() { s.raw.Close() })
	defer late.Stop()
	defer s.raw.Close()
	s.tls.CloseWrite() // an error is a peer that is gone
}

// hush is CloseWrite of a stream over TLS, and then of its socket. Like goodbye it may wait, at most until
// the lingering ends and the socket is closed.
func (s *stream) hush() {
	s.tls.CloseWrite() // an error is a peer that is gone
	if half, ok := s.raw.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

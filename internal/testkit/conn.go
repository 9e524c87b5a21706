package testkit

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ErrCut is what the end that cuts a connection gets from its own Write and Read.
var ErrCut = errors.New("testkit: the connection was cut on purpose")

// Cut is how a connection ends before its time.
type Cut uint8

const (
	CutClose Cut = iota // an orderly close
	CutReset            // a reset, where the connection can do that; else a close
	CutHalf             // the sending side ends, the other stays open; where it cannot, a close
	CutStall            // nothing ends, but nothing is sent any more: Write blocks until Close
)

// Trouble says how a connection misbehaves. The zero value does nothing.
type Trouble struct {
	// ReadDelay and WriteDelay pass before each read and each piece that is written.
	ReadDelay, WriteDelay time.Duration
	// Slice is the most bytes that one inner write or read moves; 0 is no bound.
	Slice int
	// CutAfter is the number of bytes that may be written before Cut happens, in the middle of a Write if
	// need be. Negative is never, and so is the zero value: use CutNow for 0.
	CutAfter int64
	CutNow   bool
	Cut      Cut
}

// Conn is a net.Conn with trouble. Like any net.Conn it may be used from several goroutines.
type Conn struct {
	net.Conn
	trouble Trouble

	closed chan struct{}
	once   sync.Once

	writing sync.Mutex // one Write at a time, so that slices of two do not mix; guards the two below
	written int64
	cut     bool
}

// Wrap returns c with trouble.
func Wrap(c net.Conn, t Trouble) *Conn {
	return &Conn{Conn: c, trouble: t, closed: make(chan struct{})}
}

// Read reads, late and in slices.
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.pause(c.trouble.ReadDelay); err != nil {
		return 0, err
	}
	return c.Conn.Read(c.slice(b))
}

func (c *Conn) slice(b []byte) []byte {
	if c.trouble.Slice > 0 && len(b) > c.trouble.Slice {
		return b[:c.trouble.Slice]
	}
	return b
}

// Write writes late, in slices, and up to the cut.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for {
		if c.cut {
			return n, c.afterCut()
		}
		if len(b) == 0 && n > 0 {
			return n, nil
		}
		piece := c.slice(b)
		end := false
		if c.trouble.CutAfter > 0 || c.trouble.CutNow {
			left := max(c.trouble.CutAfter-c.written, 0)
			if int64(len(piece)) >= left {
				piece, end = piece[:left], true
			}
		}
		if err := c.pause(c.trouble.WriteDelay); err != nil {
			return n, err
		}
		if len(piece) > 0 || !end {
			m, err := c.Conn.Write(piece)
			n += m
			c.written += int64(m)
			if err != nil {
				return n, err
			}
		}
		b = b[len(piece):]
		if end {
			c.cut = true
			if err := c.sever(); err != nil {
				return n, fmt.Errorf("testkit: cut: %w", err)
			}
		}
		if len(b) == 0 {
			return n, nil
		}
	}
}

// Written returns how many bytes went out.
func (c *Conn) Written() int64 {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.written
}

func (c *Conn) afterCut() error {
	if c.trouble.Cut == CutStall {
		<-c.closed
		return net.ErrClosed
	}
	return ErrCut
}

func (c *Conn) sever() error {
	switch c.trouble.Cut {
	case CutStall:
		return nil
	case CutHalf:
		if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			return h.CloseWrite()
		}
	case CutReset:
		if l, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
			if err := l.SetLinger(0); err != nil {
				return err
			}
		}
	}
	return c.Close()
}

// pause waits, or ends with the connection.
func (c *Conn) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// Close closes the connection and wakes what waits in it.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = c.Conn.Close()
	})
	return err
}

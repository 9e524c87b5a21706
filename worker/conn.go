package worker

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// conn is one connection to the engine. A reader and a writer serve it; Worker.session owns both.
type conn struct {
	w     *Worker
	sock  net.Conn
	heard atomic.Int64  // when bytes last came, on the worker's clock
	kick  chan struct{} // capacity 1: wakes the writer, once each time awake turns true
	drank chan struct{} // capacity 1: the writer has sent all there was
	news  chan struct{} // capacity 1: greeted or settled has turned true
	done  sync.WaitGroup

	once sync.Once
	down chan struct{} // closed when the connection is over
	err  error         // why; set before down is closed

	// Guarded by Worker.mu.
	out     []byte // whole frames that the writer has not taken yet
	sending []byte // frames the writer is sending
	sent    int    // bytes of sending that went out, once the connection is over
	awake   bool   // the writer knows that there is something
	greeted bool   // the engine has said who we are:
	id      string
	settled bool // the engine has read our registrations
	keys    *rand.ChaCha8

	// Owned by the reader.
	codec ws.Decoder
	drain *wire.Drain
	frame wire.Frame
	batch []*job
}

const (
	readBytes = 64 << 10
	keepOut   = 256 << 10 // of a send buffer that has run empty
	headRoom  = 4         // what ws.Begin reserves
)

var errGone = errors.New("the engine closed the connection")

func (w *Worker) newConn(sock net.Conn) *conn {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails: crypto/rand ends the process instead
	c := &conn{w: w, sock: sock, kick: make(chan struct{}, 1), drank: make(chan struct{}, 1),
		news: make(chan struct{}, 1), down: make(chan struct{}), keys: rand.NewChaCha8(seed)}
	c.heard.Store(w.now())
	return c
}

// fail ends the connection, once. err is nil for an orderly end.
func (c *conn) fail(err error) {
	c.once.Do(func() {
		c.err = err
		_ = c.sock.Close()
		close(c.down)
	})
}

// queued returns how many bytes are on their way out. Caller holds Worker.mu.
func (c *conn) queued() int { return len(c.out) + len(c.sending) }

// seal makes a frame of what was appended to out since ws.Begin. wake: the caller has to send to kick, and
// best after it has let go of mu, which it holds.
func (c *conn) seal(start int, op ws.Opcode) (wake bool) {
	c.out = ws.EndMasked(c.out, start, op, uint32(c.keys.Uint64()))
	if c.awake {
		return false
	}
	c.awake = true
	return true
}

// control sends a control frame.
func (c *conn) control(op ws.Opcode, payload []byte) {
	c.w.mu.Lock()
	start := len(c.out)
	c.out = append(ws.Begin(c.out), payload...)
	wake := c.seal(start, op)
	c.w.mu.Unlock()
	if wake {
		c.kick <- struct{}{}
	}
}

// write is the writer: it sends what has gathered in out in one write. Before it takes out it yields once,
// so that all goroutines that are ready to call or to answer do so first and their frames leave together.
// With nobody ready it goes on at once.
func (c *conn) write() {
	w, spare := c.w, []byte(nil)
	for {
		select {
		case <-c.kick:
		case <-c.down:
			return
		}
		for {
			runtime.Gosched()
			w.mu.Lock()
			if len(c.out) == 0 {
				c.awake = false
				if cap(spare) > keepOut {
					spare = nil
				}
				w.mu.Unlock()
				break
			}
			batch := c.out
			c.out, c.sending = spare[:0], batch
			w.mu.Unlock()
			n, err := c.sock.Write(batch)
			w.count.writes.Add(1)
			w.count.written.Add(uint64(n))
			w.mu.Lock()
			if err != nil {
				c.sent = n
				w.mu.Unlock()
				c.fail(fmt.Errorf("worker: write: %w", err))
				return
			}
			c.sending, spare = nil, batch
			if w.blocked > 0 {
				w.room.Broadcast()
			}
			w.mu.Unlock()
		}
		select {
		case c.drank <- struct{}{}:
		default:
		}
	}
}

// read is the reader: it takes as much as there is and handles all frames of it where they lie. Calls are
// given to the pool together, once a read is used up.
func (c *conn) read(ctx context.Context, rest []byte) {
	w := c.w
	cfg := ws.Config{Role: ws.Client, MaxMessage: int64(w.opts.MaxMessage)}
	buf := make([]byte, max(readBytes, len(rest)))
	have := copy(buf, rest)
	defer c.codec.Release()
	for {
		used := 0
		for {
			ev, n, err := c.codec.Next(&cfg, buf[used:have])
			used += n
			if err != nil {
				c.breach(err)
				return
			}
			if ev.Kind == ws.KindNone {
				break
			}
			if err := c.event(ctx, ev); err != nil {
				c.fail(err)
				return
			}
		}
		c.submit()
		have = copy(buf, buf[used:have])
		n, err := c.sock.Read(buf[have:])
		have += n
		w.count.reads.Add(1)
		if n > 0 {
			c.heard.Store(w.now())
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errGone
			}
			c.fail(fmt.Errorf("worker: read: %w", err))
			return
		}
	}
}

// breach tells the engine what it did against the protocol and ends the connection.
func (c *conn) breach(err error) {
	var e *ws.CloseError
	if errors.As(err, &e) {
		c.goodbye(e.Code, e.Reason)
	}
	c.fail(fmt.Errorf("worker: read: %w", err))
}

// goodbye sends a close frame if nothing else is on its way. What is on its way is not sent to an engine that
// has stopped listening: those calls are for the next connection.
func (c *conn) goodbye(code uint16, reason string) {
	c.w.mu.Lock()
	idle, key := c.queued() == 0, uint32(c.keys.Uint64())
	c.w.mu.Unlock()
	if idle {
		_ = c.sock.SetWriteDeadline(time.Now().Add(leaveTimeout))
		_, _ = c.sock.Write(ws.AppendMaskedClose(nil, code, reason, key)) // the connection ends either way
	}
}

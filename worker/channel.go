package worker

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

const (
	readDirection  = "read"
	writeDirection = "write"
)

// ChannelRef opens one end of a channel, once. It may stand anywhere in a payload or a result, so that one
// worker makes a channel and another one uses it. Whoever has it can open that end: it is a secret, and is
// printed and logged without its key.
type ChannelRef struct {
	ChannelID string `json:"channel_id"`
	AccessKey string `json:"access_key"`
	Direction string `json:"direction"` // "read" or "write"
}

// String returns the id and the direction.
func (r ChannelRef) String() string { return r.Direction + " end of channel " + r.ChannelID }

// LogValue returns what String returns.
func (r ChannelRef) LogValue() slog.Value { return slog.StringValue(r.String()) }

// CreateChannel makes a channel: what is written at one end is read at the other, through the engine. buffer
// is how many messages may wait for the reader before the writer is held back, at most 1,024; 0 is 64. The
// channel ends with this worker's connection, and when an end is not opened in the time the engine allows.
// Errors are those of Call.
func (w *Worker) CreateChannel(ctx context.Context, buffer int) (writer, reader ChannelRef, err error) {
	in := struct {
		Messages int `json:"buffer_size,omitempty"`
	}{buffer}
	out, err := CallAs[struct {
		Writer ChannelRef `json:"writer"`
		Reader ChannelRef `json:"reader"`
	}](ctx, w, "engine::channels::create", in)
	return out.Writer, out.Reader, err
}

// end is this side of one end of a channel: a connection of its own.
type end struct {
	w    *Worker
	ref  ChannelRef
	sock net.Conn
	beat *time.Timer // pings the engine, so that an end that is idle is not taken for dead

	once sync.Once
	gone chan struct{} // closed when the connection is over
	err  error         // why; set before gone is closed; nil: the stream is complete

	closing atomic.Bool // this side said that it is done
	limit   limit       // of a writer

	mu   sync.Mutex // guards what follows, and is held while something is sent
	out  []byte
	keys *rand.ChaCha8
}

// join opens one end. ctx bounds that alone.
func (w *Worker) join(ctx context.Context, ref ChannelRef, direction string) (*end, []byte, error) {
	if ref.ChannelID == "" || ref.Direction != direction {
		return nil, nil, &Error{Code: wire.CodeInvalidArguments,
			Message: fmt.Sprintf("this is no reference to the %s end of a channel: %s", direction, ref)}
	}
	path := w.target.channel + url.PathEscape(ref.ChannelID) + "?key=" + url.QueryEscape(ref.AccessKey) +
		"&dir=" + direction
	sock, rest, err := w.open(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("worker: open %s: %w", ref, err)
	}
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails: crypto/rand ends the process instead
	e := &end{w: w, ref: ref, sock: sock, gone: make(chan struct{}), keys: rand.NewChaCha8(seed)}
	e.limit.over = e.expire
	e.beat = time.AfterFunc(time.Hour, e.pulse)
	e.beat.Reset(pingAfter) // not at once: pulse uses beat
	return e, rest, nil
}

// pulse runs on a goroutine of the timer beat, which belongs to the end. While something else is being sent
// there is no need for it.
func (e *end) pulse() {
	if e.mu.TryLock() {
		// If that fails, whoever reads from the socket finds out.
		_ = e.flush(ws.AppendMaskedFrame(e.out[:0], ws.Ping, nil, e.key()))
		e.mu.Unlock()
	}
	select {
	case <-e.gone:
	default:
		e.beat.Reset(pingAfter)
	}
}

func (e *end) key() uint32 { return uint32(e.keys.Uint64()) }

// flush sends frames that were appended to e.out[:0]. Caller holds mu.
func (e *end) flush(frames []byte) error {
	e.out = frames
	_, err := e.sock.Write(frames)
	return err
}

// pong answers a ping of the engine.
func (e *end) pong(payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.flush(ws.AppendMaskedFrame(e.out[:0], ws.Pong, payload, e.key())) // the next read finds out
}

// over ends the connection, once. A code other than 0 is told the engine, if nothing is being sent now.
func (e *end) over(err error, code uint16, reason string) {
	e.once.Do(func() {
		e.err = err
		close(e.gone)
		e.beat.Stop()
		e.limit.stop()
		if code != 0 && e.mu.TryLock() {
			_ = e.sock.SetWriteDeadline(time.Now().Add(leaveTimeout))
			_ = e.flush(ws.AppendMaskedClose(e.out[:0], code, reason, e.key())) // the connection ends either way
			e.mu.Unlock()
		}
		_ = e.sock.Close()
	})
}

// broken is the error of a stream that ended too early, by a close frame or without one.
func (e *end) broken(kind error, why any) error {
	return fmt.Errorf("worker: %s: %w: %v", e.ref, kind, why)
}

// closed is the error of a stream that the engine closed.
func (e *end) closed(kind error, ev ws.Event) error {
	if len(ev.Payload) == 0 {
		return e.broken(kind, fmt.Sprintf("closed with %d", ev.Code))
	}
	return e.broken(kind, fmt.Sprintf("closed with %d: %s", ev.Code, ev.Payload))
}

// ChannelWriter is the end of a channel that sends. Its methods may be called by all goroutines at once; what
// one Write sends stays together.
//
// It does not keep what it has sent: when the connection breaks, the reader is told that its stream is not
// whole, and the channel is of no use any more.
type ChannelWriter struct{ end *end }

const (
	chunkBytes  = 64 << 10 // payload of a binary frame
	chunksAtOne = 4        // frames that are sent in one write
	sourceBytes = chunkBytes * chunksAtOne
)

// OpenWriter opens the writing end of a channel. ctx bounds the opening alone; Close or Abort end the stream.
// A reference that nobody knows is a *RefusedError with status 404.
func (w *Worker) OpenWriter(ctx context.Context, ref ChannelRef) (*ChannelWriter, error) {
	e, rest, err := w.join(ctx, ref, writeDirection)
	if err != nil {
		return nil, err
	}
	go e.watch(rest) // belongs to the writer: ends with Close, Abort, or the connection
	return &ChannelWriter{e}, nil
}

// watch answers the engine's pings and hears how the stream ends.
func (e *end) watch(rest []byte) {
	var codec ws.Decoder
	cfg := ws.Config{Role: ws.Client}
	buf := make([]byte, max(4<<10, len(rest)))
	have := copy(buf, rest)
	for {
		used := 0
		for {
			ev, n, err := codec.Next(&cfg, buf[used:have])
			used += n
			if err != nil {
				e.over(e.broken(io.ErrClosedPipe, err), ws.CloseProtocol, "protocol error")
				return
			}
			if ev.Kind == ws.KindNone {
				break
			}
			switch ev.Kind {
			case ws.KindPing:
				e.pong(ev.Payload)
			case ws.KindClose:
				e.leave(ev)
				return
			}
		}
		have = copy(buf, buf[used:have])
		n, err := e.sock.Read(buf[have:])
		have += n
		if errors.Is(err, io.EOF) {
			err = errGone
		}
		if err != nil {
			e.over(e.broken(io.ErrClosedPipe, err), 0, "")
			return
		}
	}
}

// leave is the engine's goodbye to a writer: only the answer to our own means that all has arrived.
func (e *end) leave(ev ws.Event) {
	if e.closing.Load() && (ev.Code == ws.CloseNormal || ev.Code == ws.CloseNoStatus) {
		e.over(nil, 0, "")
		return
	}
	e.over(e.closed(io.ErrClosedPipe, ev), ws.CloseNormal, "")
}

// Write sends p as bytes of the stream. It waits while the reader is behind. After the end of the stream, and
// when the reader has left, the error wraps io.ErrClosedPipe.
func (c *ChannelWriter) Write(p []byte) (n int, err error) {
	e := c.end
	if !e.limit.enter() {
		return 0, e.late()
	}
	defer e.limit.leave()
	e.mu.Lock()
	for err == nil && n < len(p) {
		batch := e.out[:0]
		m := n
		for range chunksAtOne {
			part := p[m:min(len(p), m+chunkBytes)]
			if len(part) == 0 {
				break
			}
			batch = ws.AppendMaskedFrame(batch, ws.Binary, part, e.key())
			m += len(part)
		}
		if err = e.send(batch); err == nil {
			n = m
		}
	}
	e.mu.Unlock()
	if err != nil {
		return n, e.reason(err)
	}
	return n, nil
}

// ReadFrom sends what r has, up to its end, as bytes of the stream. It does not close the stream.
func (c *ChannelWriter) ReadFrom(r io.Reader) (n int64, err error) {
	buf := make([]byte, sourceBytes)
	for {
		have, end := r.Read(buf)
		if have > 0 {
			m, err := c.Write(buf[:have])
			if n += int64(m); err != nil {
				return n, err
			}
		}
		if errors.Is(end, io.EOF) {
			return n, nil
		}
		if end != nil {
			return n, fmt.Errorf("worker: %s: read what to send: %w", c.end.ref, end)
		}
	}
}

// SendMessage sends a text message, at most Options.MaxMessage bytes of UTF-8. It reaches the reader's
// OnMessage between the bytes before and behind it.
func (c *ChannelWriter) SendMessage(text string) error {
	e := c.end
	if !ws.ValidText([]byte(text)) {
		return &Error{Code: wire.CodeInvalidArguments, Message: "a text message of a channel has to be UTF-8"}
	}
	if most := e.w.opts.MaxMessage; len(text) > most {
		return &Error{Code: wire.CodeMessageTooLarge, Message: fmt.Sprintf(
			"a text message of %d bytes is larger than MaxMessage, %d; write it as bytes", len(text), most)}
	}
	if !e.limit.enter() {
		return e.late()
	}
	defer e.limit.leave()
	e.mu.Lock()
	err := e.send(ws.AppendMaskedFrame(e.out[:0], ws.Text, []byte(text), e.key()))
	e.mu.Unlock()
	if err != nil {
		return e.reason(err)
	}
	return nil
}

// send is flush for what may not follow the end of the stream. Caller holds mu.
func (e *end) send(frames []byte) error {
	select {
	case <-e.gone:
		return io.ErrClosedPipe
	default:
	}
	if e.closing.Load() {
		return io.ErrClosedPipe
	}
	err := e.flush(frames)
	if cap(e.out) > keepOut+sourceBytes {
		e.out = nil
	}
	return err
}

// reason returns why a send failed: what the engine said, if it said something.
func (e *end) reason(err error) error {
	if !errors.Is(err, io.ErrClosedPipe) || !e.closing.Load() {
		_ = e.sock.SetReadDeadline(time.Now().Add(leaveTimeout)) // the goodbye is here or does not come
		<-e.gone
		if e.err != nil {
			return e.err
		}
	}
	return e.broken(io.ErrClosedPipe, "it was closed before")
}

// Close says that the stream is complete, and waits until the engine has taken all of it, so as long as the
// reader is behind by more than is buffered. Only nil means that the stream is whole. Abort and
// SetWriteDeadline end the wait.
func (c *ChannelWriter) Close() error {
	e := c.end
	if !e.limit.enter() {
		e.expire() // whoever closes wants nothing to be left
		return e.late()
	}
	defer e.limit.leave()
	e.mu.Lock()
	if !e.closing.Swap(true) {
		frame := binary.BigEndian.AppendUint16(nil, ws.CloseNormal)
		if err := e.flush(ws.AppendMaskedFrame(e.out[:0], ws.Close, frame, e.key())); err != nil {
			_ = e.sock.SetReadDeadline(time.Now().Add(leaveTimeout))
		}
	}
	e.mu.Unlock()
	<-e.gone
	return e.err
}

// Abort ends the stream as one that is not whole: the reader gets io.ErrUnexpectedEOF. It waits for nobody,
// and does nothing after Close has returned. To end a stream with a context: context.AfterFunc(ctx, c.Abort).
func (c *ChannelWriter) Abort() { c.abort("it was aborted", "aborted by the writer") }

// CloseWithError is Abort with a reason: what there is room for of the text of err, some 100 bytes, becomes
// part of the reader's error, unless a Write is under way. A nil error is Close. It returns nil otherwise.
func (c *ChannelWriter) CloseWithError(err error) error {
	if err == nil {
		return c.Close()
	}
	c.abort("it was aborted: "+err.Error(), strings.ToValidUTF8(err.Error(), "?"))
	return nil
}

func (c *ChannelWriter) abort(why, reason string) {
	code := ws.CloseInternal
	if c.end.closing.Load() {
		code = 0 // the engine has our goodbye
	}
	c.end.over(c.end.broken(io.ErrClosedPipe, why), code, reason)
}

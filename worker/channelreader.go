package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/plinth-run/plinth/wire/ws"
)

// ChannelReader is the end of a channel that receives. One goroutine reads at a time; Close and
// SetReadDeadline may be called by any.
type ChannelReader struct {
	// OnMessage is told of each text message, between the bytes before and behind it, by the goroutine that
	// reads. Set it before the first Read. Without it text messages are skipped and counted in Stats.
	OnMessage func(text string)

	end   *end
	codec ws.Decoder
	cfg   ws.Config
	buf   []byte
	used  int    // bytes of buf that the codec has used up
	have  int    // bytes of buf that were read
	rest  []byte // in buf: bytes of the stream that nobody has taken yet
	text  []byte // what has come of a text message in parts
	done  error  // what Read gives from now on

	limit sync.Mutex // guards until and the deadline of the connection
	until time.Time  // when a read fails; zero: never
}

const streamBytes = 256 << 10 // of one read from the connection

// OpenReader opens the reading end of a channel. ctx bounds the opening alone; Close ends the stream. A
// reference that nobody knows is a *RefusedError with status 404; of a taken end the first Read fails.
func (w *Worker) OpenReader(ctx context.Context, ref ChannelRef) (*ChannelReader, error) {
	e, rest, err := w.join(ctx, ref, readDirection)
	if err != nil {
		return nil, err
	}
	r := &ChannelReader{end: e, buf: make([]byte, max(streamBytes, len(rest)))}
	r.have = copy(r.buf, rest)
	// Nothing is gathered to whole messages: bytes are handed out as they come, of text we keep the parts.
	r.cfg = ws.Config{Role: ws.Client, MaxMessage: math.MaxInt64, HardMessage: math.MaxInt64,
		Grow: func(n int64) bool { return n < 0 }}
	return r, nil
}

// Read reads bytes of the stream. It gives io.EOF only where the writer has said that the stream is complete.
// A stream that was cut gives an error that wraps io.ErrUnexpectedEOF and says why; after Close it is
// io.ErrClosedPipe.
func (r *ChannelReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo writes the stream to dst up to its end, as Read does, without copying it.
func (r *ChannelReader) WriteTo(dst io.Writer) (n int64, err error) {
	for {
		if err := r.fill(); err != nil {
			if err == io.EOF {
				return n, nil
			}
			return n, err
		}
		m, err := dst.Write(r.rest)
		if m < 0 || m > len(r.rest) {
			m = 0
		}
		n += int64(m)
		short := m < len(r.rest)
		r.rest = r.rest[m:]
		if err != nil {
			return n, fmt.Errorf("worker: %s: write what was received: %w", r.end.ref, err)
		}
		if short {
			return n, io.ErrShortWrite
		}
	}
}

// Close leaves the channel. The writer of a stream that is not complete is told.
func (r *ChannelReader) Close() error {
	r.end.closing.Store(true)
	r.end.over(io.ErrClosedPipe, ws.CloseNormal, "")
	return nil
}

// fill waits until there are bytes to hand out.
func (r *ChannelReader) fill() error {
	if r.end.closing.Load() {
		r.rest, r.done = nil, io.ErrClosedPipe
	}
	for len(r.rest) == 0 && r.done == nil {
		ev, n, err := r.codec.Next(&r.cfg, r.buf[r.used:r.have])
		r.used += n
		switch {
		case err != nil:
			r.fail(err, ws.CloseProtocol)
		case ev.Kind == ws.KindNone:
			if err := r.read(); err != nil {
				return err
			}
		default:
			r.event(ev)
		}
	}
	if len(r.rest) > 0 {
		return nil
	}
	return r.done
}

// read reads from the connection. Its error is that of a deadline, after which the stream may go on.
func (r *ChannelReader) read() error {
	r.have = copy(r.buf, r.buf[r.used:r.have])
	r.used = 0
	r.limit.Lock()
	_ = r.arm() // of a connection that is closed: Read tells
	r.limit.Unlock()
	began := time.Now()
	n, err := r.end.sock.Read(r.buf[r.have:])
	r.have += n
	if n > 0 || err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && (time.Since(began) < dropAfter || r.expired()) {
		return r.end.late()
	}
	r.fail(err, 0)
	return nil
}

func (r *ChannelReader) event(ev ws.Event) {
	switch ev.Kind {
	case ws.KindMessage, ws.KindChunk:
		if ev.Op == ws.Binary {
			r.rest = ev.Payload
			return
		}
		if most := r.end.w.opts.MaxMessage; len(r.text)+len(ev.Payload) > most {
			r.fail(fmt.Errorf("a text message is larger than MaxMessage, %d bytes", most), ws.CloseTooBig)
			return
		}
		if ev.Kind == ws.KindMessage {
			r.message(ev.Payload)
			return
		}
		r.text = append(r.text, ev.Payload...)
	case ws.KindDropped:
		if ev.Op == ws.Text {
			text := r.text
			r.text = nil
			r.message(text)
		}
	case ws.KindPing:
		r.end.pong(ev.Payload)
	case ws.KindClose:
		r.finish(ev)
	}
}

func (r *ChannelReader) message(text []byte) {
	if !ws.ValidText(text) {
		r.fail(errors.New("a text message is no UTF-8"), ws.CloseInvalidText)
		return
	}
	if r.OnMessage == nil {
		r.end.w.count.skipped.Add(1)
		return
	}
	r.OnMessage(string(text))
}

// finish is the engine's goodbye: 1000 alone means that the stream is whole.
func (r *ChannelReader) finish(ev ws.Event) {
	r.done = io.EOF
	if ev.Code != ws.CloseNormal {
		r.done = r.end.closed(io.ErrUnexpectedEOF, ev)
	}
	if r.end.closing.Load() {
		r.done = io.ErrClosedPipe // the engine's answer came before Close was done
	}
	r.end.over(r.done, ws.CloseNormal, "")
}

// fail ends a stream that cannot go on.
func (r *ChannelReader) fail(err error, code uint16) {
	if errors.Is(err, io.EOF) {
		err = errGone
	}
	r.done = r.end.broken(io.ErrUnexpectedEOF, err)
	if r.end.closing.Load() {
		r.done = io.ErrClosedPipe
	}
	r.end.over(r.done, code, "")
}

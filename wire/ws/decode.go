package ws

import (
	"encoding/binary"
	"unicode/utf8"
)

// Role says which end of the connection reads.
type Role uint8

const (
	// Server reads what a client sent: every frame must be masked.
	Server Role = iota
	// Client reads what a server sent: no frame may be masked.
	Client
)

// Config is what many decoders share. It must not change while one uses it.
type Config struct {
	Role Role

	// MaxMessage is the longest message in bytes that is handed out whole; the bytes of a longer one
	// come as KindChunk. 0 is 64 MiB.
	MaxMessage int64
	// HardMessage is the longest message that is read at all; past it the error is 1009. 0 is four
	// times MaxMessage.
	HardMessage int64

	// Grow is asked before a buffer for a message grows by n bytes; if it says no, that message comes
	// as KindChunk. With a negative n memory is given back and the answer is not looked at. nil always
	// says yes. It is called by whoever calls the Decoder.
	Grow func(n int64) bool
}

func (c *Config) bounds() (most, hard int64) {
	most, hard = c.MaxMessage, c.HardMessage
	if most <= 0 {
		most = 64 << 20
	}
	if hard <= 0 {
		hard = 4 * most
	}
	return most, max(most, hard)
}

// Kind says what an Event is.
type Kind uint8

const (
	// KindNone: nothing happened. If no byte was used either, more bytes are needed.
	KindNone Kind = iota
	// KindMessage is a whole message; Op is Text or Binary.
	KindMessage
	// KindPing is a ping, to be answered with a pong of the same payload.
	KindPing
	// KindPong is a pong.
	KindPong
	// KindClose is the last event: Code (CloseNoStatus if there was none), and the reason in Payload.
	KindClose
	// KindChunk is the next part of a message that is not handed out whole; Op is that of the message.
	KindChunk
	// KindDropped follows the last KindChunk of a message.
	KindDropped
)

// Event is what Next found. Payload is unmasked and valid until the next call of Next or Release, or
// until the bytes given to Next change.
type Event struct {
	Kind    Kind
	Op      Opcode
	Code    uint16
	Payload []byte
}

const (
	wait = 16 << 10 // a shorter frame is left with the caller until it is whole
	tiny = 512      // the first buffer of a message
)

// Decoder turns the bytes of one direction of a connection into messages. The zero Decoder is ready.
// It holds memory only while a message is under way: at most twice what has arrived of it.
type Decoder struct {
	buf   []byte  // what has arrived of a message that is not whole
	cfg   *Config // whom to give buf back to
	left  int64   // payload bytes of the frame under way that have not arrived
	total int64   // payload bytes of the message under way, whole frames and the present one
	key   uint32  // mask of the next payload byte on
	op    Opcode  // of the message under way; Continuation if there is none
	bits  state
}

type state uint8

const (
	inFrame  state = 1 << iota // a frame is under way; its header is used up
	last                       // that frame ends its message
	chunked                    // the message under way comes as KindChunk
	spent                      // buf was handed out and goes with the next call
	dropped                    // a KindDropped is due
	finished                   // a close frame or an error came
)

// Next reads the next event from b, which must begin where the last call stopped, and returns how many
// bytes of b it used up. It changes those bytes where it removes a mask. Call it with what is left
// until it returns KindNone; keep the bytes that are left then, less than 16 KiB, and put them before the
// next ones. An event may use no byte at all.
//
// A frame that lies whole in b is handed out where it lies. After a close frame or an error all
// further bytes are used up for nothing. The error is a *CloseError.
func (d *Decoder) Next(cfg *Config, b []byte) (Event, int, error) {
	if d.bits&spent != 0 {
		d.free()
	}
	switch {
	case d.bits&finished != 0:
		return Event{}, len(b), nil
	case d.bits&dropped != 0:
		return d.drop(), 0, nil
	}
	ev, n, err := d.next(cfg, b)
	if err != nil {
		d.free()
		d.bits = finished
		return Event{}, n, err
	}
	return ev, n, nil
}

// Release frees the buffer. Call it when the connection ends. In the middle of a message it also ends
// the decoder: all further bytes are used up for nothing.
func (d *Decoder) Release() {
	if d.op != Continuation {
		d.bits = finished
	}
	d.free()
}

func (d *Decoder) free() {
	if n := cap(d.buf); n > 0 && d.cfg.Grow != nil {
		d.cfg.Grow(-int64(n))
	}
	d.buf, d.cfg = nil, nil
	d.bits &^= spent
}

// header is the head of one frame.
type header struct {
	op   Opcode
	fin  bool
	size int // of the header itself; 0 if b was too short
	n    int64
	key  uint32
}

// parse reads and checks the header at the start of b.
func parse(cfg *Config, b []byte) (h header, err error) {
	if len(b) == 0 {
		return h, nil
	}
	h.op, h.fin = Opcode(b[0]&15), b[0]&fin != 0
	switch {
	case b[0]&0x70 != 0:
		return h, breach("reserved bit set")
	case h.op > Pong, h.op > Binary && h.op < Close:
		return h, breach("reserved opcode")
	case h.op.control() && !h.fin:
		return h, breach("fragmented control frame")
	}
	if len(b) == 1 {
		return h, nil
	}
	size := 2
	if masked := b[1]&mask != 0; masked != (cfg.Role == Server) {
		if masked {
			return h, breach("masked frame from a server")
		}
		return h, breach("unmasked frame from a client")
	} else if masked {
		size = 6
	}
	short := b[1] &^ mask
	if h.op.control() && short > small {
		return h, breach("control frame over 125 bytes")
	}
	at := 2
	switch h.n = int64(short); short {
	case 126:
		if len(b) < 4 {
			return h, nil
		}
		at, size = 4, size+2
		if h.n = int64(binary.BigEndian.Uint16(b[2:])); h.n <= small {
			return h, breach("length not minimal")
		}
	case 127:
		if len(b) < 10 {
			return h, nil
		}
		at, size = 10, size+8
		if h.n = int64(binary.BigEndian.Uint64(b[2:])); h.n < 0 {
			return h, breach("length over 63 bits")
		} else if h.n <= medium {
			return h, breach("length not minimal")
		}
	}
	if len(b) < size {
		return h, nil
	}
	if size > at {
		h.key = binary.LittleEndian.Uint32(b[at:])
	}
	h.size = size
	return h, nil
}

// next is Next for a connection that is not finished.
func (d *Decoder) next(cfg *Config, b []byte) (Event, int, error) {
	used := 0
	for {
		if d.bits&inFrame != 0 {
			ev, n, done := d.payload(cfg, b[used:])
			used += n
			if done {
				return ev, used, nil
			}
			continue
		}
		h, err := parse(cfg, b[used:])
		if err != nil || h.size == 0 {
			return Event{}, used, err
		}
		body := b[used+h.size:]
		if h.op.control() {
			if int64(len(body)) < h.n {
				return Event{}, used, nil
			}
			body = body[:h.n:h.n]
			Mask(body, h.key, 0)
			used += h.size + int(h.n)
			ev, err := d.controlFrame(h.op, body)
			return ev, used, err
		}
		if err := d.admit(cfg, h); err != nil {
			return Event{}, used, err
		}
		if int64(len(body)) < h.n && h.n < wait-int64(h.size) {
			return Event{}, used, nil
		}
		used += h.size
		if ev, ok := d.inPlace(cfg, h, body); ok {
			return ev, used + int(h.n), nil
		}
		d.enter(cfg, h)
	}
}

// admit checks that a data frame may come now.
func (d *Decoder) admit(cfg *Config, h header) error {
	switch under := d.op != Continuation; {
	case under && h.op != Continuation:
		return breach("new message inside a message")
	case !under && h.op == Continuation:
		return breach("continuation of nothing")
	}
	if _, hard := cfg.bounds(); h.n > hard-d.total {
		return &CloseError{Code: CloseTooBig, Reason: "message too big"}
	}
	return nil
}

// inPlace hands out a message that is one whole frame in body.
func (d *Decoder) inPlace(cfg *Config, h header, body []byte) (Event, bool) {
	if d.op != Continuation || !h.fin || int64(len(body)) < h.n {
		return Event{}, false
	}
	if most, _ := cfg.bounds(); h.n > most {
		return Event{}, false
	}
	body = body[:h.n:h.n]
	if cfg.Role == Server {
		Mask(body, h.key, 0)
	}
	return Event{Kind: KindMessage, Op: h.op, Payload: body}, true
}

// enter begins the payload of a data frame whose header is used up.
func (d *Decoder) enter(cfg *Config, h header) {
	d.bits |= inFrame
	if h.fin {
		d.bits |= last
	}
	if h.op != Continuation {
		d.op = h.op
	}
	d.left, d.key = h.n, h.key
	d.total += h.n
	if most, _ := cfg.bounds(); d.total > most {
		d.bits |= chunked
	}
}

// payload takes what b has of the frame under way. If done, Next returns the event; a KindNone then
// means that all of b is used up.
func (d *Decoder) payload(cfg *Config, b []byte) (ev Event, n int, done bool) {
	n = int(min(d.left, int64(len(b))))
	if d.bits&chunked == 0 && !d.grow(cfg, n) {
		d.bits |= chunked
	}
	if d.bits&chunked != 0 && len(d.buf) > 0 {
		d.bits |= spent
		return Event{Kind: KindChunk, Op: d.op, Payload: d.buf}, 0, true
	}
	part := b[:n:n]
	if cfg.Role == Server {
		Mask(part, d.key, 0)
		d.key = turn(d.key, n)
	}
	d.left -= int64(n)
	ended := d.left == 0 && d.bits&last != 0
	if d.left == 0 {
		d.bits &^= inFrame | last
	}
	if d.bits&chunked == 0 {
		d.buf = append(d.buf, part...)
		if ended {
			ev = Event{Kind: KindMessage, Op: d.op, Payload: d.buf}
			d.op, d.total, d.bits = Continuation, 0, spent
			return ev, n, true
		}
		return ev, n, d.left > 0
	}
	if ended {
		d.bits |= dropped
	}
	switch {
	case n > 0:
		return Event{Kind: KindChunk, Op: d.op, Payload: part}, n, true
	case ended:
		return d.drop(), 0, true
	}
	return ev, 0, d.left > 0
}

// drop ends a message that came as KindChunk.
func (d *Decoder) drop() Event {
	ev := Event{Kind: KindDropped, Op: d.op}
	d.op, d.total, d.bits = Continuation, 0, 0
	return ev
}

// grow makes room for n more bytes of the frame under way, or reports that it may not.
func (d *Decoder) grow(cfg *Config, n int) bool {
	need := len(d.buf) + n
	if need <= cap(d.buf) {
		return true
	}
	size := max(2*need, tiny) // never by what the frame only claims
	if d.bits&last != 0 {
		size = min(size, len(d.buf)+int(d.left))
	}
	if most, _ := cfg.bounds(); int64(size) > most {
		size = int(most) // not below need: the whole message is not above it either
	}
	if cfg.Grow != nil && !cfg.Grow(int64(size-cap(d.buf))) {
		return false
	}
	d.cfg = cfg
	d.buf = append(make([]byte, 0, size), d.buf...)
	return true
}

// controlFrame makes the event of a ping, pong or close frame.
func (d *Decoder) controlFrame(op Opcode, body []byte) (Event, error) {
	switch op {
	case Ping:
		return Event{Kind: KindPing, Op: op, Payload: body}, nil
	case Pong:
		return Event{Kind: KindPong, Op: op, Payload: body}, nil
	}
	ev := Event{Kind: KindClose, Op: op, Code: CloseNoStatus}
	switch {
	case len(body) == 1:
		return ev, breach("close frame of one byte")
	case len(body) > 1:
		ev.Code, ev.Payload = binary.BigEndian.Uint16(body), body[2:]
		if !ValidCode(ev.Code) {
			return ev, breach("bad close code")
		}
		if !utf8.Valid(ev.Payload) {
			return ev, &CloseError{Code: CloseInvalidText, Reason: "close reason is no UTF-8"}
		}
	}
	d.free()
	d.bits = finished
	return ev, nil
}

package ws_test

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire/ws"
)

// happening is an event in a form that does not depend on how the bytes were split: a message that came
// in chunks is one happening.
type happening struct {
	what    string // message, dropped, ping, pong, close, error
	op      ws.Opcode
	code    uint16
	payload string
}

func (h happening) String() string {
	p := h.payload
	if len(p) > 40 {
		p = p[:40] + "…"
	}
	return fmt.Sprintf("%s %v %d %q(%d)", h.what, h.op, h.code, p, len(h.payload))
}

// story is what a connection told: its happenings and what is known of a dropped message that has not ended.
type story struct {
	list []happening
	open string // bytes of the chunks of a message that did not end
}

// reference is a decoder that is easy to check by eye: it sees all bytes at once, goes through them one
// by one, and copies everything.
type reference struct {
	b      []byte
	server bool
	most   int64
	hard   int64

	story story
	op    ws.Opcode
	body  []byte
	total int64
}

func (r *reference) run() story {
	for r.frame() {
	}
	if r.op != 0 && r.total > r.most {
		r.story.open = string(r.body)
	}
	return r.story
}

func (r *reference) say(what string, op ws.Opcode, code uint16, payload []byte) {
	r.story.list = append(r.story.list, happening{what, op, code, string(payload)})
}

func (r *reference) fail(code uint16) bool {
	r.say("error", 0, code, nil)
	r.op = 0
	return false
}

// frame reads one frame and reports whether to go on.
func (r *reference) frame() bool {
	b := r.b
	if len(b) < 1 {
		return false
	}
	fin, rsv, op := b[0]>>7 == 1, b[0]>>4&7, ws.Opcode(b[0]&15)
	if rsv != 0 {
		return r.fail(1002)
	}
	known := op == 0 || op == 1 || op == 2 || op == 8 || op == 9 || op == 10
	control := op >= 8
	if !known || control && !fin {
		return r.fail(1002)
	}
	if len(b) < 2 {
		return false
	}
	masked, length := b[1]>>7 == 1, uint64(b[1]&127)
	if masked != r.server || control && length > 125 {
		return r.fail(1002)
	}
	b = b[2:]
	switch length {
	case 126:
		if len(b) < 2 {
			return false
		}
		length = uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
		if length < 126 {
			return r.fail(1002)
		}
	case 127:
		if len(b) < 8 {
			return false
		}
		length = binary.BigEndian.Uint64(b)
		b = b[8:]
		if length < 65536 || length >= 1<<63 {
			return r.fail(1002)
		}
	}
	var key [4]byte
	if masked {
		if len(b) < 4 {
			return false
		}
		b = b[copy(key[:], b):]
	}
	if control {
		if uint64(len(b)) < length {
			return false
		}
		r.b = b[length:]
		return r.control(op, unmask(b[:length], key))
	}
	return r.data(fin, op, length, b, key)
}

func (r *reference) data(fin bool, op ws.Opcode, length uint64, b []byte, key [4]byte) bool {
	if (op == 0) != (r.op != 0) {
		return r.fail(1002)
	}
	if r.total+int64(length) > r.hard || r.total+int64(length) < 0 {
		return r.fail(1009)
	}
	r.total += int64(length)
	if op != 0 {
		r.op = op
	}
	have := min(uint64(len(b)), length)
	r.body = append(r.body, unmask(b[:have], key)...)
	if have < length {
		return false
	}
	r.b = b[length:]
	if !fin {
		return true
	}
	if r.total > r.most {
		r.say("dropped", r.op, 0, r.body)
	} else {
		r.say("message", r.op, 0, r.body)
	}
	r.op, r.body, r.total = 0, nil, 0
	return true
}

func (r *reference) control(op ws.Opcode, p []byte) bool {
	switch op {
	case ws.Ping:
		r.say("ping", op, 0, p)
		return true
	case ws.Pong:
		r.say("pong", op, 0, p)
		return true
	}
	r.op = 0
	switch {
	case len(p) == 0:
		r.say("close", op, 1005, nil)
		return false
	case len(p) == 1:
		return r.fail(1002)
	}
	code := binary.BigEndian.Uint16(p)
	switch {
	case code < 1000, code >= 1004 && code <= 1006, code >= 1015 && code < 3000, code >= 5000:
		return r.fail(1002)
	case !utf8.Valid(p[2:]):
		return r.fail(1007)
	}
	r.say("close", op, code, p[2:])
	return false
}

func unmask(b []byte, key [4]byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] ^ key[i%4]
	}
	return out
}

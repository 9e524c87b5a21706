// Package ws is a codec for WebSocket connections (RFC 6455): frames in, messages out, and the handshake.
//
// It promises to refuse whatever the RFC forbids, to hand out a message that lies whole in the
// caller's bytes without copying it, to hold at most twice as many bytes for a message as have
// arrived of it, and none between messages. It never panics on foreign bytes.
//
// A Decoder belongs to one caller at a time. A Config is shared and only read. Functions without a
// receiver may be called by all at once.
//
// It does no I/O but for ClientHandshake, starts no goroutine, answers no ping, negotiates no
// extension and no subprotocol, and does not check that text is UTF-8: ValidText is offered for that.
package ws

import (
	"strconv"
	"unicode/utf8"
)

// Opcode is the kind of a frame (RFC 6455 section 5.2).
type Opcode byte

// The opcodes; all others are reserved.
const (
	Continuation Opcode = 0
	Text         Opcode = 1
	Binary       Opcode = 2
	Close        Opcode = 8
	Ping         Opcode = 9
	Pong         Opcode = 10
)

// String returns the name of the opcode.
func (o Opcode) String() string {
	switch o {
	case Continuation:
		return "continuation"
	case Text:
		return "text"
	case Binary:
		return "binary"
	case Close:
		return "close"
	case Ping:
		return "ping"
	case Pong:
		return "pong"
	}
	return "reserved " + strconv.Itoa(int(o))
}

func (o Opcode) control() bool { return o&8 != 0 }

// Close codes (RFC 6455 section 7.4.1 and the registry of IANA).
const (
	CloseNormal      uint16 = 1000
	CloseGoingAway   uint16 = 1001
	CloseProtocol    uint16 = 1002
	CloseUnsupported uint16 = 1003
	CloseNoStatus    uint16 = 1005 // never sent: the close frame had no code
	CloseAbnormal    uint16 = 1006 // never sent: there was no close frame
	CloseInvalidText uint16 = 1007
	ClosePolicy      uint16 = 1008
	CloseTooBig      uint16 = 1009
	CloseInternal    uint16 = 1011
	CloseRestart     uint16 = 1012
	CloseTryLater    uint16 = 1013
)

// ValidCode reports whether a close code may be sent: the defined ones, those of libraries (3000 to
// 3999) and private ones (4000 to 4999).
func ValidCode(code uint16) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014, code >= 3000 && code <= 4999:
		return true
	}
	return false
}

// CloseError is a breach of the protocol by the peer: close the connection with its code and reason.
type CloseError struct {
	Code   uint16
	Reason string // ASCII, fits a close frame
}

// Error returns code and reason.
func (e *CloseError) Error() string {
	return "websocket: close " + strconv.Itoa(int(e.Code)) + ": " + e.Reason
}

func breach(reason string) error { return &CloseError{Code: CloseProtocol, Reason: reason} }

// ValidText reports whether b may be the payload of a text message: it is UTF-8.
func ValidText(b []byte) bool { return utf8.Valid(b) }

package ws

import (
	"encoding/binary"
	"unicode/utf8"
)

const (
	fin  = 0x80 // first byte: last frame of the message
	mask = 0x80 // second byte: the payload is masked

	small  = 125       // longest payload with a header of two bytes, and of a control frame
	medium = 1<<16 - 1 // longest payload with a header of four bytes

	room = 4 // what Begin reserves: right for 126 to 65535 bytes
)

// Begin reserves room for the header of a frame. The caller appends the payload to the result and
// then calls End or EndMasked with start = len(dst), the length before Begin.
func Begin(dst []byte) []byte { return append(dst, 0, 0, 0, 0) }

// End makes what was appended since Begin one whole unmasked frame, as a server sends them, with the
// shortest header. The payload moves by a few bytes if it is no 126 to 65535 bytes long.
func End(dst []byte, start int, op Opcode) []byte {
	dst, _ = end(dst, start, op, 0)
	return dst
}

// EndMasked is End for a client: the payload is masked with key, which should be hard to guess.
func EndMasked(dst []byte, start int, op Opcode, key uint32) []byte {
	dst, at := end(dst, start, op, 4)
	dst[start+1] |= mask
	binary.LittleEndian.PutUint32(dst[at-4:], key)
	Mask(dst[at:], key, 0)
	return dst
}

// end writes the header, with extra bytes of room behind the length, and returns where the payload is.
func end(dst []byte, start int, op Opcode, extra int) ([]byte, int) {
	n := len(dst) - start - room
	head := headerSize(n) + extra
	at := start + head
	if grow := head - room; grow > 0 {
		var more [14]byte
		dst = append(dst, more[:grow]...)
		copy(dst[at:], dst[start+room:start+room+n])
	} else if grow < 0 {
		copy(dst[at:], dst[start+room:])
		dst = dst[:at+n]
	}
	putHeader(dst[start:], op, n)
	return dst, at
}

func headerSize(n int) int {
	switch {
	case n <= small:
		return 2
	case n <= medium:
		return 4
	}
	return 10
}

func putHeader(b []byte, op Opcode, n int) {
	b[0] = fin | byte(op)
	switch {
	case n <= small:
		b[1] = byte(n)
	case n <= medium:
		b[1] = 126
		binary.BigEndian.PutUint16(b[2:], uint16(n))
	default:
		b[1] = 127
		binary.BigEndian.PutUint64(b[2:], uint64(n))
	}
}

// appendHeader appends the header of a whole frame with a payload of n bytes, unmasked.
func appendHeader(dst []byte, op Opcode, n int) []byte {
	var head [10]byte
	putHeader(head[:], op, n)
	return append(dst, head[:headerSize(n)]...)
}

// AppendFrame appends one whole unmasked frame. The payload of a control frame must be at most 125
// bytes long; of a longer one the rest is left out.
func AppendFrame(dst []byte, op Opcode, payload []byte) []byte {
	if op.control() && len(payload) > small {
		payload = payload[:small]
	}
	return append(appendHeader(dst, op, len(payload)), payload...)
}

// AppendMaskedFrame is AppendFrame for a client. The payload itself is not changed.
func AppendMaskedFrame(dst []byte, op Opcode, payload []byte, key uint32) []byte {
	if op.control() && len(payload) > small {
		payload = payload[:small]
	}
	start := len(dst)
	dst = appendHeader(dst, op, len(payload))
	dst[start+1] |= mask
	dst = binary.LittleEndian.AppendUint32(dst, key)
	at := len(dst)
	dst = append(dst, payload...)
	Mask(dst[at:], key, 0)
	return dst
}

// AppendClose appends a close frame, unmasked. A code that may not be sent, like CloseNoStatus, makes a
// frame without code and reason. The reason is cut at 123 bytes, between runes.
func AppendClose(dst []byte, code uint16, reason string) []byte {
	start := len(dst)
	return End(appendStatus(Begin(dst), code, reason), start, Close)
}

// AppendMaskedClose is AppendClose for a client.
func AppendMaskedClose(dst []byte, code uint16, reason string, key uint32) []byte {
	start := len(dst)
	return EndMasked(appendStatus(Begin(dst), code, reason), start, Close, key)
}

func appendStatus(dst []byte, code uint16, reason string) []byte {
	if !ValidCode(code) {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, code)
	n := 0
	for _, r := range reason {
		size := utf8.RuneLen(r)
		if n += size; n > small-2 {
			break
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

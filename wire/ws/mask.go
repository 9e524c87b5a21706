package ws

import (
	"encoding/binary"
	"math/bits"
)

// Mask masks or unmasks b in place (RFC 6455 section 5.3). The lowest byte of key is the first byte of
// the masking key on the wire. offset is the index of b[0] in the payload.
func Mask(b []byte, key uint32, offset int) {
	key = turn(key, offset)
	wide := uint64(key)<<32 | uint64(key)
	for len(b) >= 32 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])^wide)
		binary.LittleEndian.PutUint64(b[16:], binary.LittleEndian.Uint64(b[16:])^wide)
		binary.LittleEndian.PutUint64(b[24:], binary.LittleEndian.Uint64(b[24:])^wide)
		b = b[32:]
	}
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	if len(b) >= 4 {
		binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)^key)
		b = b[4:]
	}
	for i := range b {
		b[i] ^= byte(key)
		key >>= 8
	}
}

// turn returns the key for a payload that goes on n bytes later.
func turn(key uint32, n int) uint32 { return bits.RotateLeft32(key, -8*(n&3)) }

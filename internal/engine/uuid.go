package engine

import (
	"crypto/rand"
	"encoding/hex"
)

// uuid is a version 4 UUID (RFC 9562, section 5.4).
type uuid [16]byte

func newUUID() (u uuid) {
	rand.Read(u[:]) // never fails (crypto/rand)
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

func (u uuid) String() string {
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:], u[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// parseUUID reads the canonical text form.
func parseUUID(b []byte) (u uuid, ok bool) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return u, false
	}
	var s [32]byte
	n := copy(s[:], b[:8])
	n += copy(s[n:], b[9:13])
	n += copy(s[n:], b[14:18])
	n += copy(s[n:], b[19:23])
	copy(s[n:], b[24:])
	_, err := hex.Decode(u[:], s[:])
	return u, err == nil
}

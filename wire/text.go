package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Eight bytes at once: the constants repeat one byte.
const (
	ones    = 0x0101010101010101
	highs   = 0x80 * ones
	quotes  = '"' * ones
	slashes = '\\' * ones
	spaces  = ' ' * ones
)

func load(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// first returns the index of the lowest byte that a mask of special marks.
func first(m uint64) int { return bits.TrailingZeros64(m) >> 3 }

// special marks with their high bit the bytes of x that end a plain run of a JSON string: quote,
// backslash, control character. Only the lowest mark is exact, which is all that is asked.
func special(x uint64) uint64 {
	return ((x ^ quotes - ones) | (x ^ slashes - ones) | (x - spaces)) &^ x & highs
}

// stringEnd validates the JSON string whose first byte behind the quote is b[i]. It returns the index
// of the closing quote and whether the string is odd: has escapes or bytes that are no ASCII, so that
// its text may differ from its bytes. On a fault the end is the complement of the fault's index.
func stringEnd(b []byte, i int) (end int, odd bool) {
	var seen uint64
	for {
		if i+8 <= len(b) {
			x := load(b[i:])
			m := special(x)
			if m == 0 {
				seen |= x
				i += 8
				continue
			}
			seen |= x & (m&-m - 1)
			i += first(m)
		} else {
			for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
				seen |= uint64(b[i])
				i++
			}
			if i >= len(b) {
				return ^i, false
			}
		}
		switch b[i] {
		case '"':
			return i, seen&highs != 0
		case '\\':
			n := escape(b, i)
			if n < 0 {
				return n, false
			}
			i = n
			seen |= highs
		default:
			return ^i, false
		}
	}
}

// escape returns the index behind the escape that begins at b[i], or the complement of the fault's.
func escape(b []byte, i int) int {
	if i+1 >= len(b) {
		return ^len(b)
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 <= len(b) && hex4(b[i+2:i+6]) >= 0 {
			return i + 6
		}
	}
	return ^(i + 1)
}

// hex4 returns the value of four hex digits, or -1.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b {
		switch {
		case c-'0' < 10:
			c -= '0'
		case c|0x20-'a' < 6:
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// decode returns the text of the inside of a valid odd JSON string: s itself where nothing differs,
// else bytes of the frame's scratch.
func (f *Frame) decode(s []byte) []byte {
	if plain(s) {
		return s
	}
	n := len(f.scratch)
	f.scratch = unquote(f.scratch, s)
	return f.scratch[n:len(f.scratch):len(f.scratch)]
}

// plain reports whether s has no escape and is UTF-8: its text is its bytes.
func plain(s []byte) bool {
	for _, c := range s {
		if c == '\\' {
			return false
		}
	}
	return utf8.Valid(s)
}

// unquote appends the text of the inside of a valid JSON string, as encoding/json reads it: each byte
// that is no UTF-8, and each surrogate without its pair, becomes U+FFFD.
func unquote(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\':
			var r rune
			r, i = unescape(s, i+1)
			dst = utf8.AppendRune(dst, r)
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	return dst
}

// unescape returns the rune of the valid escape whose byte behind the backslash is s[i], and the index
// behind it.
func unescape(s []byte, i int) (rune, int) {
	switch s[i] {
	case 'b':
		return '\b', i + 1
	case 'f':
		return '\f', i + 1
	case 'n':
		return '\n', i + 1
	case 'r':
		return '\r', i + 1
	case 't':
		return '\t', i + 1
	case 'u':
		r := hex4(s[i+1 : i+5])
		i += 5
		if !utf16.IsSurrogate(r) {
			return r, i
		}
		if i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(s[i+2:i+6])); pair != utf8.RuneError {
				return pair, i + 6
			}
		}
		return utf8.RuneError, i
	}
	return rune(s[i]), i + 1 // quote, backslash, slash
}

// longestKey is the length of the longest known key; each of its bytes may be sent as six.
const longestKey = len("trigger_request_format")

// oddKey returns the text of a key with escapes, valid until the next decode. A key too long to be a
// known one keeps its bytes, which match none.
func (f *Frame) oddKey(key []byte) []byte {
	if len(key) > 6*longestKey {
		return key
	}
	n := len(f.scratch)
	f.scratch = unquote(f.scratch, key)
	key = f.scratch[n:]
	f.scratch = f.scratch[:n]
	return key
}

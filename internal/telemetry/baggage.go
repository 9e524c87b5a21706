package telemetry

import (
	"bytes"
	"iter"
)

// Bounds of a baggage text (W3C Baggage, section 3.3). What is over them does not count as baggage.
const (
	MaxBaggageBytes   = 8192
	MaxBaggageMembers = 180
)

// Members yields the members of a baggage text in order: the key and the value, still percent-encoded
// and without properties. What is not a member (no "=", no token as its key) is passed over; after 180
// members it ends. A text of over 8,192 bytes has none.
func Members(baggage []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for _, m := range members(baggage) {
			if !yield(m.key, m.value) {
				return
			}
		}
	}
}

type member struct{ whole, key, value []byte }

// members iterates as Members does, and also gives the member as it stands, with its properties.
func members(rest []byte) iter.Seq2[int, member] {
	return func(yield func(int, member) bool) {
		if len(rest) > MaxBaggageBytes {
			return
		}
		for n := 0; n < MaxBaggageMembers && len(rest) > 0; {
			var m member
			m.whole, rest, _ = bytes.Cut(rest, []byte{','})
			m.whole = trimSpace(m.whole)
			pair, _, _ := bytes.Cut(m.whole, []byte{';'})
			var ok bool
			m.key, m.value, ok = bytes.Cut(pair, []byte{'='})
			m.key, m.value = trimSpace(m.key), trimSpace(m.value)
			if !ok || !isToken(m.key) {
				continue
			}
			if !yield(n, m) {
				return
			}
			n++
		}
	}
}

// Baggage returns the members of a baggage text with their values decoded; of members with one key the
// last counts. It returns nil for a text without members.
func Baggage[T ~string | ~[]byte](baggage T) map[string]string {
	var all map[string]string
	for key, value := range Members([]byte(baggage)) {
		if all == nil {
			all = map[string]string{}
		}
		all[string(key)] = string(percentDecode(nil, value))
	}
	return all
}

// BaggageValue returns the decoded value of one member.
func BaggageValue(baggage []byte, key string) (value string, found bool) {
	var last []byte
	for k, v := range Members(baggage) {
		if string(k) == key {
			last, found = v, true
		}
	}
	return string(percentDecode(nil, last)), found
}

// SetBaggage appends to dst the given baggage with one member set: members of the same key are left
// out, the others stand as they came, and the new one is last. Where the bounds do not allow all, the
// last of the others go. A key that is no token changes nothing.
func SetBaggage(dst, baggage []byte, key, value string) []byte {
	if !isToken(key) {
		return append(dst, baggage...)
	}
	start := len(dst)
	room := MaxBaggageBytes - len(key) - len("=") - encodedLen(value)
	if room < 0 {
		return append(dst, baggage...)
	}
	kept := 0
	for _, m := range members(baggage) {
		if string(m.key) == key {
			continue
		}
		if kept == MaxBaggageMembers-1 || len(dst)-start+len(m.whole)+len(",") > room {
			break
		}
		dst = append(append(dst, m.whole...), ',')
		kept++
	}
	return AppendBaggage(dst, key, value)
}

// AppendBaggage appends one member, with its value percent-encoded. The comma between members is the
// caller's. A key that is no token appends nothing.
func AppendBaggage(dst []byte, key, value string) []byte {
	if !isToken(key) {
		return dst
	}
	dst = append(append(dst, key...), '=')
	for i := range len(value) {
		if c := value[i]; baggageOctet(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

const upperHex = "0123456789ABCDEF"

func encodedLen(value string) int {
	n := len(value)
	for i := range len(value) {
		if !baggageOctet(value[i]) {
			n += 2
		}
	}
	return n
}

// baggageOctet reports whether a byte stands for itself in a value.
func baggageOctet(c byte) bool {
	return c > ' ' && c < 0x7f && c != '"' && c != ',' && c != ';' && c != '\\' && c != '%'
}

// isToken reports whether s is a token of HTTP (RFC 9110, section 5.6.2).
func isToken[T ~string | ~[]byte](s T) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c == '!' || c == '#' || c == '$' || c == '%' || c == '&' || c == '\'' || c == '*' || c == '+' ||
			c == '-' || c == '.' || c == '^' || c == '_' || c == '`' || c == '|' || c == '~':
		default:
			return false
		}
	}
	return len(s) > 0
}

func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t") }

// percentDecode appends value with %XX replaced by the byte; a % without two digits after it stands for
// itself.
func percentDecode(dst, value []byte) []byte {
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			h, okHigh := hexDigit(value[i+1])
			l, okLow := hexDigit(value[i+2])
			if okHigh && okLow {
				dst = append(dst, h<<4|l)
				i += 2
				continue
			}
		}
		dst = append(dst, value[i])
	}
	return dst
}

func hexDigit(c byte) (byte, bool) {
	if c >= 'A' && c <= 'F' {
		c += 'a' - 'A'
	}
	d := digits[c]
	return d, d < 16
}

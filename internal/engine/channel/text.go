package channel

import "unicode/utf8"

// text checks that a message which comes in parts is UTF-8 (RFC 6455 section 8.1); a part may end in the
// middle of a rune.
type text struct {
	tail [utf8.UTFMax]byte // the bytes of a rune that is not whole
	n    int
}

// add takes the next part and reports whether all so far may be the start of good text.
func (t *text) add(b []byte) bool {
	for t.n > 0 && len(b) > 0 {
		t.tail[t.n] = b[0]
		t.n++
		b = b[1:]
		if utf8.FullRune(t.tail[:t.n]) {
			if !utf8.Valid(t.tail[:t.n]) {
				return false
			}
			t.n = 0
		}
	}
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if rest := b[len(b)-i:]; utf8.RuneStart(rest[0]) {
			if !utf8.FullRune(rest) {
				t.n = copy(t.tail[:], rest)
				b = b[:len(b)-i]
			}
			break
		}
	}
	return utf8.Valid(b)
}

// end reports whether the text may end here, and makes t ready for the next message.
func (t *text) end() bool {
	whole := t.n == 0
	t.n = 0
	return whole
}

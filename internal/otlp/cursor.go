package otlp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// cursor reads JSON that was found to be valid, in one pass and without building anything. Each method
// reads the value that it stands at, whatever that is: one of another kind than asked for is passed over,
// and noted in partial.
type cursor struct {
	b       []byte
	i       int
	partial bool
	cut     int // lists with more elements, and values with more depth, than is kept
}

// peek returns the next byte that is no white space; 0 at the end.
func (c *cursor) peek() byte {
	for ; c.i < len(c.b); c.i++ {
		if c.b[c.i] > ' ' {
			return c.b[c.i]
		}
	}
	return 0
}

// object calls visit for each member; visit reads the value, or leaves it.
func (c *cursor) object(visit func(key []byte)) {
	if c.peek() != '{' {
		c.odd()
		return
	}
	c.i++
	for {
		switch c.peek() {
		case ',':
			c.i++
		case '"':
			key := c.inside()
			c.peek()
			c.i++ // the colon
			c.peek()
			at := c.i
			if visit(key); c.i == at {
				c.skip()
			}
		default: // the closing brace
			c.i++
			return
		}
	}
}

// array calls visit for each element; visit reads it, or leaves it.
func (c *cursor) array(visit func()) {
	if c.peek() != '[' {
		c.odd()
		return
	}
	c.i++
	for {
		switch c.peek() {
		case ',':
			c.i++
		case ']', 0:
			c.i++
			return
		default:
			at := c.i
			if visit(); c.i == at {
				c.skip()
			}
		}
	}
}

// list is array for at most n elements; more are passed over, and counted.
func (c *cursor) list(n int, visit func()) {
	c.array(func() {
		switch n--; {
		case n >= 0:
			visit()
		case n == -1:
			c.cut++
		}
	})
}

// odd passes over a value of another kind than asked for. null is of any kind.
func (c *cursor) odd() {
	if c.peek() != 'n' {
		c.partial = true
	}
	c.skip()
}

// skip passes over a value.
func (c *cursor) skip() {
	depth := 0
	for {
		switch c.peek() {
		case 0:
			return
		case '"':
			c.inside()
		case '{', '[':
			depth++
			c.i++
		case '}', ']':
			depth--
			c.i++
		case ',', ':':
			c.i++
		default:
			c.scalar()
		}
		if depth <= 0 {
			return
		}
	}
}

// scalar returns a number or literal as it is written.
func (c *cursor) scalar() []byte {
	start := c.i
	for c.i < len(c.b) && c.b[c.i] > ' ' && c.b[c.i] != ',' && c.b[c.i] != '}' && c.b[c.i] != ']' {
		c.i++
	}
	return c.b[start:c.i]
}

// inside returns what stands between the quotes of the string at b[i], escapes as they are written.
func (c *cursor) inside() []byte {
	start := c.i + 1
	for end := start; ; end++ {
		n := bytes.IndexByte(c.b[end:], '"')
		if n < 0 {
			c.i = len(c.b)
			return nil
		}
		end += n
		slashes := 0
		for c.b[end-1-slashes] == '\\' { // it ends at the opening quote at the latest
			slashes++
		}
		if slashes%2 == 0 {
			c.i = end + 1
			return c.b[start:end]
		}
	}
}

// raw reads a string and returns it as it is written, without the quotes; nil for anything else.
func (c *cursor) raw() []byte {
	if c.peek() != '"' {
		c.odd()
		return nil
	}
	return c.inside()
}

// text reads a string.
func (c *cursor) text() string { return unescape(c.raw()) }

// unescape returns the text of a string as it is written between its quotes.
func unescape(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	var s string
	_ = json.Unmarshal(quoted, &s) // it is a valid string
	return s
}

// word reads a number or literal, or a string in its place: OTLP writes an int64 as a string of digits.
func (c *cursor) word() []byte {
	switch c.peek() {
	case '{', '[', 0:
		c.odd()
		return nil
	case '"':
		return c.inside()
	}
	return c.scalar()
}

// integer reads an int64. What is none counts as 0.
func (c *cursor) integer() int64 {
	word := c.word()
	n, err := strconv.ParseInt(string(word), 10, 64)
	if err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(string(word), 64) // 1e3 is an integer, too
	if f > -(1<<63) && f < 1<<63 {
		return int64(f)
	}
	return 0
}

// double reads a float64, which may also be "NaN", "Infinity" or "-Infinity". What is none counts as 0.
func (c *cursor) double() float64 {
	f, err := strconv.ParseFloat(string(c.word()), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0
	}
	return f
}

// truth reads true or false. What is neither counts as false.
func (c *cursor) truth() bool { return string(c.word()) == "true" }

// present reports whether the value is another than null.
func (c *cursor) present() bool { return c.peek() != 'n' }

// enum reads a number that may also be sent by name: prefix and one of names, counted from 0.
func (c *cursor) enum(prefix string, names ...string) int {
	at := c.i
	if c.peek() != '"' {
		return int(min(max(c.integer(), -1), 1<<30))
	}
	name, ok := strings.CutPrefix(string(c.inside()), prefix)
	if ok {
		for i, n := range names {
			if n == name {
				return i
			}
		}
	}
	c.i = at
	return int(min(max(c.integer(), -1), 1<<30))
}

// id reads an id in hexadecimal into dst. It reports whether there is one: of that length, and not zero.
func (c *cursor) id(dst []byte) bool {
	raw := c.raw()
	if len(raw) != 2*len(dst) {
		clear(dst)
		return false
	}
	if _, err := hex.Decode(dst, raw); err != nil {
		clear(dst)
	}
	return bytes.ContainsFunc(dst, func(r rune) bool { return r != 0 })
}

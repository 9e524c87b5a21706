package rbac

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// members visits the members of a JSON object in their order, names as they are written: other case is
// another name. A name that comes twice is an error, since two readers could take different ones.
func members(raw []byte, visit func(name string, value json.RawMessage) error) error {
	if !utf8.Valid(raw) {
		return errors.New("its text is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New("it is no object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // nothing else can stand there
		if seen[name] {
			return fmt.Errorf("member %q comes twice", clip(name))
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := visit(name, value); err != nil {
			return fmt.Errorf("member %q: %w", clip(name), err)
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the object")
	}
	return nil
}

func textOf(value json.RawMessage) (string, error) {
	var s *string
	if json.Unmarshal(value, &s) != nil || s == nil {
		return "", errors.New("want a text")
	}
	return *s, nil
}

func flagOf(value json.RawMessage) (bool, error) {
	var b *bool
	if json.Unmarshal(value, &b) != nil || b == nil {
		return false, errors.New("want true or false")
	}
	return *b, nil
}

func listOf(value json.RawMessage) ([]string, error) {
	var in []*string
	if json.Unmarshal(value, &in) != nil {
		return nil, errors.New("want a list of texts")
	}
	list := make([]string, 0, len(in))
	for _, s := range in {
		if s == nil {
			return nil, errors.New("want a list of texts")
		}
		list = append(list, *s)
	}
	return list, nil
}

// cursor walks over JSON that was checked when it came in. Of other bytes it makes what it can, within them.
type cursor struct {
	b []byte
	i int
}

// peek skips white space and returns the next byte; 0 at the end.
func (c *cursor) peek() byte {
	for ; c.i < len(c.b); c.i++ {
		switch c.b[c.i] {
		case ' ', '\t', '\r', '\n':
		default:
			return c.b[c.i]
		}
	}
	return 0
}

// text returns the string that stands next, without its quotes and with its escapes; false when there is
// none.
func (c *cursor) text() (inside []byte, ok bool) {
	if c.peek() != '"' {
		return nil, false
	}
	start := c.i + 1
	for c.i = start; c.i < len(c.b); c.i++ {
		switch c.b[c.i] {
		case '\\':
			c.i++
		case '"':
			c.i++
			return c.b[start : c.i-1], true
		}
	}
	return nil, false
}

// value returns the value that stands next, as it is written; nil when there is none.
func (c *cursor) value() []byte {
	c.peek()
	start := c.i
	for depth := 0; c.i < len(c.b); {
		switch b := c.peek(); b {
		case 0:
			return nil
		case '"':
			if _, ok := c.text(); !ok {
				return nil
			}
		case '{', '[':
			depth++
			c.i++
			continue
		case '}', ']':
			depth--
			c.i++
		case ',', ':':
			c.i++
			continue
		default:
			for c.i < len(c.b) && !strings.ContainsRune(" \t\r\n,:\"{}[]", rune(c.b[c.i])) {
				c.i++
			}
		}
		if depth <= 0 {
			return c.b[start:c.i]
		}
	}
	return nil
}

// decoded returns the text of the inside of a JSON string: inside itself where it has no escapes.
func decoded(inside []byte) []byte {
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	var s string
	if json.Unmarshal(append(append([]byte{'"'}, inside...), '"'), &s) != nil {
		return inside
	}
	return []byte(s)
}

// sameNumber compares two JSON numbers: whole ones digit by digit, since a float64 holds only 53 bits of an
// id, others as float64.
func sameNumber(a string, b []byte) bool {
	if whole(a) && whole(string(b)) {
		return a == string(b) || (a == "0" || a == "-0") && (string(b) == "0" || string(b) == "-0")
	}
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(string(b), 64)
	return err == nil && err2 == nil && x == y
}

func whole(number string) bool { return !strings.ContainsAny(number, ".eE") }

package otlp

import (
	"math"
	"strconv"

	"github.com/plinth-run/plinth/wire"
)

// maxValue is how deep lists may nest in the value of an attribute.
const maxValue = 16

// The kinds of an AnyValue, as the first byte of its only field: stringValue, boolValue, …
const (
	none     = 0
	isString = 's'
	isBool   = 'b'
	isInt    = 'i'
	isDouble = 'd'
	isBytes  = 'y'
	isArray  = 'a'
	isList   = 'k'
)

// find reads an AnyValue and returns what it is and where its content stands. The cursor is behind it.
func (c *cursor) find() (kind byte, at int) {
	c.object(func(key []byte) {
		k := byte(none)
		switch string(key) {
		case "stringValue":
			k = isString
		case "boolValue":
			k = isBool
		case "intValue":
			k = isInt
		case "doubleValue":
			k = isDouble
		case "bytesValue":
			k = isBytes
		case "arrayValue":
			k = isArray
		case "kvlistValue":
			k = isList
		}
		if k != none && c.present() {
			kind, at = k, c.i
		}
	})
	return kind, at
}

// value reads an AnyValue and appends it as JSON: numbers as numbers, lists as arrays, key-value lists
// as objects.
func (c *cursor) value(dst []byte, depth int) []byte {
	kind, at := c.find()
	behind := c.i
	c.i = at
	dst = c.content(dst, kind, depth)
	c.i = behind
	return dst
}

func (c *cursor) content(dst []byte, kind byte, depth int) []byte {
	switch kind {
	case isString, isBytes:
		return append(append(append(dst, '"'), c.raw()...), '"')
	case isBool:
		return strconv.AppendBool(dst, c.truth())
	case isInt:
		return strconv.AppendInt(dst, c.integer(), 10)
	case isDouble:
		f := c.double()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(strconv.AppendFloat(append(dst, '"'), f, 'g', -1, 64), '"')
		}
		return strconv.AppendFloat(dst, f, 'g', -1, 64)
	case isArray, isList:
		if depth >= maxValue {
			c.cut++
			break
		}
		open, found := len(dst), false
		c.object(func(key []byte) {
			if string(key) != "values" {
				return
			}
			found, dst = true, dst[:open]
			if kind == isList {
				dst = c.members(dst, depth+1)
				return
			}
			dst = append(dst, '[')
			c.list(maxAttributes, func() {
				dst = c.value(comma(dst, open), depth+1)
			})
			dst = append(dst, ']')
		})
		switch {
		case found:
			return dst
		case kind == isList:
			return append(dst, "{}"...)
		}
		return append(dst, "[]"...)
	}
	return append(dst, "null"...)
}

// comma appends a comma if something stands behind the bracket at dst[open].
func comma(dst []byte, open int) []byte {
	if len(dst) > open+1 {
		return append(dst, ',')
	}
	return dst
}

// attribute reads a KeyValue and returns its key as it is written, and where its value stands; 0 is no
// value. The cursor is behind it.
func (c *cursor) attribute() (key []byte, at int) {
	c.object(func(name []byte) {
		switch string(name) {
		case "key":
			key = c.raw()
		case "value":
			if c.present() {
				at = c.i
			}
		}
	})
	return key, at
}

// members reads a list of KeyValues and appends it as a JSON object; of one key the first value counts.
func (c *cursor) members(dst []byte, depth int) []byte {
	open := len(dst)
	dst = append(dst, '{')
	var seen []string
	c.list(maxAttributes, func() {
		raw, at := c.attribute()
		key := unescape(raw)
		for _, s := range seen {
			if s == key {
				return
			}
		}
		seen = append(seen, key)
		dst = append(wire.AppendString(comma(dst, open), key), ':')
		if at == 0 {
			dst = append(dst, "null"...)
			return
		}
		behind := c.i
		c.i = at
		dst = c.value(dst, depth)
		c.i = behind
	})
	return append(dst, '}')
}

// pairs reads a list of KeyValues and appends it as [[key, text], …], the shape of a span's attributes.
func (c *cursor) pairs(dst []byte) []byte {
	open := len(dst)
	dst = append(dst, '[')
	c.list(maxAttributes, func() {
		raw, at := c.attribute()
		dst = append(append(comma(dst, open), `["`...), raw...)
		dst = append(dst, `",`...)
		if at == 0 {
			dst = append(dst, `""]`...)
			return
		}
		behind := c.i
		c.i = at
		dst = append(c.quoted(dst), ']')
		c.i = behind
	})
	return append(dst, ']')
}

// quoted reads an AnyValue and appends it as a JSON string: a text as it is, everything else as its JSON.
func (c *cursor) quoted(dst []byte) []byte {
	kind, at := c.find()
	behind := c.i
	c.i = at
	switch kind {
	case none:
		dst = append(dst, `""`...)
	case isArray, isList:
		dst = wire.AppendString(dst, c.content(nil, kind, 0))
	default:
		start := len(dst)
		if dst = c.content(dst, kind, 0); dst[start] != '"' {
			dst = append(dst, '"')
			copy(dst[start+1:], dst[start:])
			dst[start] = '"'
			dst = append(dst, '"')
		}
	}
	c.i = behind
	return dst
}

// plain reads an AnyValue as text.
func (c *cursor) plain() string {
	b := c.quoted(nil)
	return unescape(b[1 : len(b)-1])
}

package rbac

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

const (
	maxRule    = 8 << 10 // bytes of the text of one rule
	maxMembers = 64      // members of metadata that one rule asks for
)

// Rule says which functions a listener exposes: by their id, or by members of their metadata.
type Rule struct {
	namespace string
	pattern   *glob // of the id; nil when the rule is about metadata
	metadata  []wanted
}

// wanted is a member of metadata with the value that it must have.
type wanted struct {
	key     string
	pattern *glob  // of a text; nil when raw holds
	raw     string // JSON: the text of a number, true, false or null; of a string, what it says
	kind    byte   // the first byte of raw as it was written: what sort of value it is
	deep    any    // an object or a list
}

// ParseRule reads a rule: match("svc::*"), the bare pattern svc::*, or a JSON object
// {"match":"svc::*","namespace":"ns"} or
// {"metadata":{"public":true,"tier":"match(\"gold*\")"},"namespace":"ns"}.
// An unknown key is an error.
func ParseRule(text string) (Rule, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Rule{}, errors.New("an expose rule is empty")
	case len(text) > maxRule:
		return Rule{}, fmt.Errorf("an expose rule is longer than %d bytes", maxRule)
	case text[0] == '{':
		r, err := parseObject(text)
		if err != nil {
			return Rule{}, fmt.Errorf("expose rule %q: %w", clip(text), err)
		}
		return r, nil
	}
	p, err := unwrap(text)
	if err != nil || strings.ContainsAny(p, "\"{}() \t\n") {
		return Rule{}, fmt.Errorf("expose rule %q: want match(\"service::*\"), service::* or a JSON object",
			clip(text))
	}
	g := compile(p)
	return Rule{namespace: Default, pattern: &g}, nil
}

// parseObject reads a rule that is written as an object.
func parseObject(text string) (Rule, error) {
	r := Rule{namespace: Default}
	about := 0
	err := members([]byte(text), func(name string, value json.RawMessage) (err error) {
		switch name {
		case "match":
			about++
			r.pattern, err = parsePattern(value)
		case "namespace":
			r.namespace, err = textOf(value)
			if err == nil && strings.TrimSpace(r.namespace) == "" {
				err = errors.New("it is blank")
			}
		case "metadata":
			about++
			r.metadata, err = parseMetadata(value)
		default:
			err = errors.New("no rule has it: match, metadata and namespace are known")
		}
		return err
	})
	if err == nil && about != 1 {
		err = errors.New("give either match or metadata")
	}
	return r, err
}

func parsePattern(value json.RawMessage) (*glob, error) {
	text, err := textOf(value)
	if err != nil {
		return nil, err
	}
	if text, err = unwrap(text); err != nil {
		return nil, err
	}
	g := compile(text)
	return &g, nil
}

func parseMetadata(value json.RawMessage) (all []wanted, err error) {
	err = members(value, func(name string, value json.RawMessage) error {
		if len(all) == maxMembers {
			return fmt.Errorf("a rule asks for more than %d members", maxMembers)
		}
		w := wanted{key: name, raw: string(value), kind: value[0]}
		switch w.kind {
		case '"':
			text, err := textOf(value)
			if err != nil {
				return err
			}
			w.raw = text
			if strings.HasPrefix(text, "match(") {
				w.pattern, err = parsePattern(value)
			}
			if err != nil {
				return err
			}
		case '{', '[':
			if err := json.Unmarshal(value, &w.deep); err != nil {
				return err
			}
		}
		all = append(all, w)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errors.New("it asks for nothing")
	}
	return all, err
}

// Matches reports whether a rule exposes a function. Metadata is JSON, nil when there is none. A member that
// metadata has twice has no value that a rule could ask for.
func (r *Rule) Matches(namespace, function string, metadata []byte) bool {
	if r.namespace != namespace {
		return false
	}
	if r.pattern == nil {
		return r.asked(metadata)
	}
	var room [512]byte
	return r.pattern.match(append(room[:0], function...))
}

// asked reports whether metadata has every member that the rule asks for.
func (r *Rule) asked(metadata []byte) bool {
	c := cursor{b: metadata}
	if len(r.metadata) == 0 || c.peek() != '{' {
		return false
	}
	c.i++
	var met uint64
	for c.peek() != '}' {
		if c.peek() == ',' {
			c.i++
		}
		key, ok := c.text()
		if !ok || c.peek() != ':' {
			return false
		}
		c.i++
		value := c.value()
		if value == nil {
			return false
		}
		key = decoded(key)
		for i := range r.metadata {
			w := &r.metadata[i]
			if w.key != string(key) {
				continue
			}
			if met&(1<<i) != 0 || !w.is(value) {
				return false
			}
			met |= 1 << i
		}
	}
	return met == ^uint64(0)>>(maxMembers-len(r.metadata))
}

// is reports whether a value of metadata is the wanted one. Only texts with escapes, and lists and objects,
// take memory.
func (w *wanted) is(value []byte) bool {
	switch {
	case w.kind == '"':
		if len(value) < 2 || value[0] != '"' {
			return false
		}
		text := decoded(value[1 : len(value)-1])
		if w.pattern != nil {
			return w.pattern.match(text)
		}
		return string(text) == w.raw
	case w.deep != nil:
		var has any
		return value[0] == w.kind && json.Unmarshal(value, &has) == nil && reflect.DeepEqual(has, w.deep)
	case w.kind == '-' || w.kind >= '0' && w.kind <= '9':
		return (value[0] == '-' || value[0] >= '0' && value[0] <= '9') && sameNumber(w.raw, value)
	}
	return string(value) == w.raw // true, false, null
}

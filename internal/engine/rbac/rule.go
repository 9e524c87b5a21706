package rbac

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"
)

// maxRule bounds the text of one rule, in bytes.
const maxRule = 4 << 10

// Rule says which functions a listener exposes: by their id, or by members of their metadata.
type Rule struct {
	namespace string
	pattern   string // of the id; "" when the rule is about metadata
	metadata  []member
}

type member struct {
	key     string
	pattern string // of a text; "" when want holds
	want    any
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
	case text[0] != '{':
		p := pattern(text)
		if p == "" || strings.ContainsAny(p, "\"{}() \t\n") {
			return Rule{}, fmt.Errorf("expose rule %q: want match(\"service::*\"), service::* or a JSON object", text)
		}
		return Rule{namespace: Default, pattern: p}, nil
	}
	var in struct {
		Match     *string        `json:"match"`
		Namespace *string        `json:"namespace"`
		Metadata  map[string]any `json:"metadata"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return Rule{}, fmt.Errorf("expose rule %q: %w", text, err)
	}
	if d.More() {
		return Rule{}, fmt.Errorf("expose rule %q: there is more behind the object", text)
	}
	r := Rule{namespace: Default}
	if in.Namespace != nil {
		if r.namespace = *in.Namespace; strings.TrimSpace(r.namespace) == "" {
			return Rule{}, fmt.Errorf("expose rule %q: namespace is blank", text)
		}
	}
	switch {
	case in.Match != nil && in.Metadata == nil && pattern(*in.Match) != "":
		r.pattern = pattern(*in.Match)
	case in.Match == nil && len(in.Metadata) > 0:
		for key, want := range in.Metadata {
			m := member{key: key, want: want}
			if s, ok := want.(string); ok && pattern(s) != s {
				m.pattern = pattern(s)
			}
			r.metadata = append(r.metadata, m)
		}
		sort.Slice(r.metadata, func(i, j int) bool { return r.metadata[i].key < r.metadata[j].key })
	default:
		return Rule{}, fmt.Errorf("expose rule %q: give either match or metadata", text)
	}
	return r, nil
}

// Matches reports whether a rule exposes a function. Metadata is JSON, nil when there is none.
func (r *Rule) Matches(namespace, function string, metadata []byte) bool {
	if r.namespace != namespace {
		return false
	}
	if r.pattern != "" {
		return match(r.pattern, function)
	}
	if len(metadata) == 0 || metadata[0] != '{' {
		return false
	}
	var has map[string]any
	if json.Unmarshal(metadata, &has) != nil {
		return false
	}
	for _, m := range r.metadata {
		v, ok := has[m.key]
		if !ok {
			return false
		}
		if m.pattern != "" {
			if s, isText := v.(string); !isText || !match(m.pattern, s) {
				return false
			}
			continue
		}
		if !reflect.DeepEqual(v, m.want) {
			return false
		}
	}
	return true
}

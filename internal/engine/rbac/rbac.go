// Package rbac holds the rules of a worker listener: what its auth function allowed a session, what the
// listener exposes, and what hooks and middleware are asked (semantics section 19).
//
// It promises that a decision is the same for the same input, takes no lock and, where it is yes, makes no
// garbage; that matching takes time in proportion to the text; and that an answer of an auth function or a
// hook which is not understood allows nothing. Rules, policies and sessions do not change once they are made
// and may be used by any goroutine. It opens nothing and calls nobody.
package rbac

import (
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Default is the namespace that a rule means when it names none.
const Default = "default"

// Policy is the rules of one listener. The function fields are ids in namespace default; "" is none.
type Policy struct {
	AuthFunction  string // decides who comes in
	OnFunction    string // hook: a function is about to be registered
	OnTrigger     string // hook: a trigger
	OnTriggerType string // hook: a trigger type
	Middleware    string // answers in place of the functions that are called
	Expose        []Rule
}

// infrastructure is what every session may call: the protocol itself needs it.
var infrastructure = map[string]bool{
	"engine::channels::create": true, "engine::workers::register": true,
	"engine::log::info": true, "engine::log::warn": true, "engine::log::error": true,
	"engine::log::debug": true, "engine::log::trace": true,
	"engine::baggage::get": true, "engine::baggage::set": true, "engine::baggage::get_all": true,
}

// MayCall decides on a call, in this order: the forbidden list denies; a grant of the namespace, the allowed
// list (namespace default only), the infrastructure and any expose rule allow; everything else is denied. s
// is
// nil where the listener has no auth function. metadata is the function's own, nil when there is none.
func (p *Policy) MayCall(s *Session, namespace, function string, metadata []byte) *fault.Error {
	if s != nil {
		if namespace == Default && s.forbidden.has(function) {
			return fault.Newf(fault.Denied, wire.CodeForbidden,
				"%s is in forbidden_functions of this session's auth result", function)
		}
		if g := s.namespaces[namespace]; g != nil && g.has(function) {
			return nil
		}
		if namespace == Default && s.allowed.has(function) {
			return nil
		}
	}
	if namespace == Default && infrastructure[function] {
		return nil
	}
	for i := range p.Expose {
		if p.Expose[i].Matches(namespace, function, metadata) {
			return nil
		}
	}
	if s == nil {
		return fault.Newf(fault.Denied, wire.CodeForbidden,
			"%s in namespace %s is not exposed: add it to the expose rules of this listener", function, namespace)
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden,
		"%s in namespace %s is neither in allowed_functions of this session's auth result nor exposed: add it there",
		function, namespace)
}

// names is a set of ids and patterns.
type names struct {
	exact    map[string]struct{}
	prefixes []string // of patterns with one star, at their end
	patterns []string
}

func (n *names) add(text string) {
	text = pattern(text)
	switch at := strings.IndexByte(text, '*'); {
	case at < 0:
		if n.exact == nil {
			n.exact = map[string]struct{}{}
		}
		n.exact[text] = struct{}{}
	case at == len(text)-1:
		n.prefixes = append(n.prefixes, text[:at])
	default:
		n.patterns = append(n.patterns, text)
	}
}

func (n *names) has(id string) bool {
	if _, ok := n.exact[id]; ok {
		return true
	}
	for _, p := range n.prefixes {
		if strings.HasPrefix(id, p) {
			return true
		}
	}
	for _, p := range n.patterns {
		if match(p, id) {
			return true
		}
	}
	return false
}

// pattern takes the pattern out of match("…"); another text is a pattern itself.
func pattern(text string) string {
	if inner, ok := strings.CutPrefix(text, `match("`); ok {
		if inner, ok = strings.CutSuffix(inner, `")`); ok {
			return inner
		}
	}
	return text
}

// match holds text against a pattern in which a star stands for any run of characters. It is anchored at both
// ends and goes back to the last star only, so it takes at most len(pattern) times len(text) steps.
func match(pattern, text string) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// Package rbac holds the rules of a worker listener: what its auth function allowed a session, what the
// listener exposes, and what hooks and middleware are asked (semantics section 19).
//
// It promises that a decision is the same for the same input, takes no lock and, where it is yes, makes no
// garbage; that matching takes time in proportion to the text; that everything it reads is bounded; and that
// an answer of an auth function or a hook which is not understood allows nothing: a member of a wrong type or
// one that comes twice is such an answer.
// Rules, policies and sessions do not change once they are made and may be used by any goroutine. The
// package opens nothing and calls nobody: whoever holds the listener asks the functions and brings the
// answers.
package rbac

import (
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

// MayCall decides on a call, in this order: the forbidden list denies, in every namespace; a grant of the
// namespace, the allowed list (namespace default only), the infrastructure and any expose rule allow;
// everything else is denied. s is nil where the listener has no auth function. metadata is the function's
// own, JSON, nil when there is none. The error is Denied with code FORBIDDEN and says which list to change.
func (p *Policy) MayCall(s *Session, namespace, function string, metadata []byte) *fault.Error {
	if s != nil {
		if s.forbidden.has(function) {
			return fault.Newf(fault.Denied, wire.CodeForbidden,
				"%s is in forbidden_functions of this session's auth result: take it out there", function)
		}
		if s.namespaces[namespace].has(function) {
			return nil
		}
		if namespace == Default && s.allowed.has(function) {
			return nil
		}
	}
	if namespace == Default && infrastructure(function) {
		return nil
	}
	for i := range p.Expose {
		if p.Expose[i].Matches(namespace, function, metadata) {
			return nil
		}
	}
	return refused(s, namespace, function)
}

// refused says what would have to change for a call that nothing allows.
func refused(s *Session, namespace, function string) *fault.Error {
	switch {
	case s == nil:
		return fault.Newf(fault.Denied, wire.CodeForbidden,
			"%s in namespace %s is not exposed: add it to expose_functions of this listener", function, namespace)
	case namespace == Default:
		return fault.Newf(fault.Denied, wire.CodeForbidden,
			"%s is neither allowed nor exposed: add it to allowed_functions of this session's auth result, "+
				"or to expose_functions of this listener", function)
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden,
		"%s in namespace %s is neither granted nor exposed: add it to namespaces.%s of this session's auth "+
			"result, or with that namespace to expose_functions of this listener", function, namespace, namespace)
}

// infrastructure reports whether the protocol itself needs a function, so that every session may call it.
func infrastructure(function string) bool {
	switch function {
	case "engine::channels::create", "engine::workers::register",
		"engine::log::info", "engine::log::warn", "engine::log::error", "engine::log::debug",
		"engine::log::trace",
		"engine::baggage::get", "engine::baggage::set", "engine::baggage::get_all":
		return true
	}
	return false
}

package rbac

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

const (
	maxAnswer  = 4 << 20  // bytes of an auth function's answer, and of a hook's
	maxGrants  = 10_000   // ids and patterns of all lists together; also namespaces
	maxContext = 64 << 10 // bytes
	maxPrefix  = 128      // bytes
)

// Session is what an auth function allowed one connection.
type Session struct {
	namespaces map[string]*names // nil: none were named
	allowed    *names
	forbidden  *names
	types      map[string]struct{} // trigger types that it may bind to; nil: all
	offers     bool                // it may register trigger types
	registers  bool                // it may register functions
	prefix     string              // with the colons; "" is none
	context    []byte
}

// AuthInput is what an auth function is asked: {headers, query_params, ip_address}. Names of headers are in
// lower case. It is bounded by what it is made from, the head of a handshake.
func AuthInput(headers map[string]string, query, ip string) []byte {
	values, _ := url.ParseQuery(query) // what can be read of it
	if values == nil {
		values = url.Values{}
	}
	if headers == nil {
		headers = map[string]string{}
	}
	b, err := json.Marshal(map[string]any{"headers": headers, "query_params": values, "ip_address": ip})
	if err != nil {
		return []byte("{}") // maps of strings always marshal
	}
	return b
}

// answer is the result of an auth function, member by member.
type answer struct {
	spaces    map[string][]string
	allowed   []string
	forbidden []string
	types     []string
	typed     bool // there were types
	offers    bool
	registers bool
	prefix    string
	context   []byte
}

// ParseSession reads the answer of an auth function. What it does not understand of a known member refuses
// the session; unknown members are ignored, and null is as good as absent. Namespaces that name none bind the
// session to none. The error is Invalid with code AUTH_ERROR.
func ParseSession(raw []byte) (*Session, *fault.Error) {
	if len(raw) > maxAnswer {
		return nil, unclear(fmt.Errorf("it is larger than %d bytes", maxAnswer))
	}
	a := answer{registers: true, context: []byte("{}")}
	if err := members(raw, a.take); err != nil {
		return nil, unclear(err)
	}
	if a.count() > maxGrants || len(a.spaces) > maxGrants {
		return nil, unclear(fmt.Errorf("it names more than %d functions, types or namespaces", maxGrants))
	}
	s, err := a.session()
	if err != nil {
		return nil, unclear(err)
	}
	return s, nil
}

func unclear(why error) *fault.Error {
	return fault.Newf(fault.Invalid, wire.CodeAuthError, "the answer of the auth function cannot be used: %w", why)
}

// take reads one member.
func (a *answer) take(name string, value json.RawMessage) (err error) {
	if wire.IsNull(value) {
		return nil
	}
	switch name {
	case "namespaces":
		a.spaces = map[string][]string{}
		err = members(value, func(space string, value json.RawMessage) (err error) {
			if strings.TrimSpace(space) == "" {
				return errors.New("it is blank")
			}
			a.spaces[space], err = listOf(value)
			return err
		})
	case "allowed_functions":
		a.allowed, err = listOf(value)
	case "forbidden_functions":
		a.forbidden, err = listOf(value)
	case "allowed_trigger_types":
		a.typed = true
		a.types, err = listOf(value)
	case "allow_trigger_type_registration":
		a.offers, err = flagOf(value)
	case "allow_function_registration":
		a.registers, err = flagOf(value)
	case "function_registration_prefix":
		a.prefix, err = textOf(value)
	case "context":
		if a.context = bytes.Clone(value); len(value) > maxContext {
			err = fmt.Errorf("it is larger than %d bytes", maxContext)
		}
	}
	return err
}

func (a *answer) count() int {
	n := len(a.allowed) + len(a.forbidden) + len(a.types)
	for _, list := range a.spaces {
		n += len(list)
	}
	return n
}

// session compiles the answer.
func (a *answer) session() (s *Session, err error) {
	s = &Session{offers: a.offers, registers: a.registers, context: a.context}
	if a.spaces != nil {
		s.namespaces = make(map[string]*names, len(a.spaces))
	}
	for space, list := range a.spaces {
		if s.namespaces[space], err = newNames(list); err != nil {
			return nil, fmt.Errorf("namespaces: %q: %w", clip(space), err)
		}
	}
	if s.allowed, err = newNames(a.allowed); err != nil {
		return nil, fmt.Errorf("allowed_functions: %w", err)
	}
	if s.forbidden, err = newNames(a.forbidden); err != nil {
		return nil, fmt.Errorf("forbidden_functions: %w", err)
	}
	if a.typed {
		s.types = make(map[string]struct{}, len(a.types))
	}
	for _, kind := range a.types {
		s.types[kind] = struct{}{}
	}
	s.prefix, err = prefixOf(a.prefix)
	return s, err
}

// prefixOf returns a prefix as it stands before an id; the answer may have its colons or not.
func prefixOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	text = strings.TrimSuffix(text, "::")
	if text == "" || len(text) > maxPrefix || strings.ContainsAny(text, " \t\r\n*\x00") {
		return "", fmt.Errorf("function_registration_prefix is blank, longer than %d bytes, or has a star or a space",
			maxPrefix)
	}
	return text + "::", nil
}

// MayRegister decides on the namespace of a registration: a session whose auth result names namespaces is
// bound to them. The errors of this and the next three are Denied with code FORBIDDEN.
func (s *Session) MayRegister(namespace string) *fault.Error {
	if s.namespaces == nil || s.namespaces[namespace] != nil {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden,
		"namespace %s is not among the namespaces of this session's auth result", namespace)
}

// MayRegisterFunction decides on functions.
func (s *Session) MayRegisterFunction() *fault.Error {
	if s.registers {
		return nil
	}
	return fault.New(fault.Denied, wire.CodeForbidden,
		"allow_function_registration is false in this session's auth result")
}

// MayRegisterTriggerType decides on trigger types.
func (s *Session) MayRegisterTriggerType() *fault.Error {
	if s.offers {
		return nil
	}
	return fault.New(fault.Denied, wire.CodeForbidden,
		"allow_trigger_type_registration is not true in this session's auth result")
}

// MayRegisterTrigger decides on a binding to a trigger type.
func (s *Session) MayRegisterTrigger(kind string) *fault.Error {
	if s.types == nil {
		return nil
	}
	if _, ok := s.types[kind]; ok {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden,
		"trigger type %s is not in allowed_trigger_types of this session's auth result", kind)
}

// Add returns an id as it is registered: with the session's prefix.
func (s *Session) Add(id string) string { return s.prefix + id }

// Strip returns an id as the worker knows it. An id without the prefix is returned as it is.
func (s *Session) Strip(id []byte) []byte {
	if n := len(s.prefix); len(id) >= n && string(id[:n]) == s.prefix {
		return id[n:]
	}
	return id
}

// Context is what hooks and middleware are told of the session: JSON, {} when the auth function gave none.
// It must not be changed.
func (s *Session) Context() []byte { return s.context }

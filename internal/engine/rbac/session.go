package rbac

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

const (
	maxGrants  = 10_000   // ids and patterns of one list
	maxContext = 64 << 10 // bytes
	maxPrefix  = 128      // bytes
)

// Session is what an auth function allowed one connection.
type Session struct {
	namespaces map[string]*names // nil: none were named
	allowed    names
	forbidden  names
	types      []string // trigger types that it may bind to; nil: all
	anyType    bool
	offers     bool // it may register trigger types
	registers  bool // it may register functions
	prefix     string
	context    []byte
}

// AuthInput is what an auth function is asked: {headers, query_params, ip_address}. Names of headers are in
// lower case.
func AuthInput(headers map[string]string, query, ip string) []byte {
	values, _ := url.ParseQuery(query) // what can be read of it
	if values == nil {
		values = url.Values{}
	}
	b, err := json.Marshal(map[string]any{"headers": headers, "query_params": values, "ip_address": ip})
	if err != nil {
		return []byte("{}") // maps of strings always marshal
	}
	return b
}

// ParseSession reads the answer of an auth function. What it does not understand of a known member refuses
// the
// session; unknown members are ignored.
func ParseSession(raw []byte) (*Session, *fault.Error) {
	var in struct {
		Namespaces   map[string][]string `json:"namespaces"`
		Allowed      []string            `json:"allowed_functions"`
		Forbidden    []string            `json:"forbidden_functions"`
		TriggerTypes *[]string           `json:"allowed_trigger_types"`
		Offers       bool                `json:"allow_trigger_type_registration"`
		Registers    *bool               `json:"allow_function_registration"`
		Prefix       *string             `json:"function_registration_prefix"`
		Context      json.RawMessage     `json:"context"`
	}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, unclear("it is no object")
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, unclear(err.Error())
	}
	s := &Session{offers: in.Offers, registers: in.Registers == nil || *in.Registers, context: []byte("{}")}
	n := len(in.Allowed) + len(in.Forbidden)
	for _, list := range in.Namespaces {
		n += len(list)
	}
	if in.TriggerTypes != nil {
		n += len(*in.TriggerTypes)
	}
	if n > maxGrants || len(in.Namespaces) > maxGrants {
		return nil, unclear("it names more than 10,000 functions")
	}
	if in.Namespaces != nil {
		s.namespaces = map[string]*names{}
		for space, list := range in.Namespaces {
			if strings.TrimSpace(space) == "" {
				return nil, unclear("a namespace is blank")
			}
			s.namespaces[space] = new(names)
			for _, text := range list {
				s.namespaces[space].add(text)
			}
		}
	}
	for _, text := range in.Allowed {
		s.allowed.add(text)
	}
	for _, text := range in.Forbidden {
		s.forbidden.add(text)
	}
	if s.anyType = in.TriggerTypes == nil; !s.anyType {
		s.types = *in.TriggerTypes
	}
	if in.Prefix != nil && *in.Prefix != "" {
		if len(*in.Prefix) > maxPrefix || strings.ContainsAny(*in.Prefix, " \t\r\n*") {
			return nil, unclear("function_registration_prefix is blank, too long, or has a star or a space")
		}
		s.prefix = strings.TrimSuffix(*in.Prefix, "::") + "::"
	}
	if !wire.IsNull(in.Context) {
		if len(in.Context) > maxContext {
			return nil, unclear("context is larger than 64 KiB")
		}
		s.context = bytes.Clone(in.Context)
	}
	return s, nil
}

func unclear(why string) *fault.Error {
	return fault.Newf(fault.Invalid, wire.CodeAuthError, "the answer of the auth function cannot be used: %s", why)
}

// MayRegister decides on the namespace of a registration: a session whose auth result names namespaces is
// bound to them.
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
	if s.anyType || slices.Contains(s.types, kind) {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden,
		"trigger type %s is not in allowed_trigger_types of this session's auth result", kind)
}

// Add returns an id as it is registered: with the session's prefix.
func (s *Session) Add(id string) string { return s.prefix + id }

// Strip returns an id as the worker knows it.
func (s *Session) Strip(id []byte) []byte { return bytes.TrimPrefix(id, []byte(s.prefix)) }

// Context is what hooks and middleware are told of the session: JSON.
func (s *Session) Context() []byte { return s.context }

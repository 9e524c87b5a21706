package auth

import (
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
)

// Rooms and verbs that a scope can name, besides "*".
var (
	rooms = []string{"engine", "flows", "sites", "secrets", "admin"}
	verbs = []string{"read", "call", "register", "write", "manage"}
)

// The roles of users, and what they may do.
const (
	RoleOwner     = "owner"     // everything
	RoleAdmin     = "admin"     // everything, but for owners
	RoleDeveloper = "developer" // read, call, register and write in every room but admin
	RoleViewer    = "viewer"    // read in every room but admin
)

// roles are the scopes behind the names.
var roles = map[string][]string{
	RoleOwner:     {"*:*"},
	RoleAdmin:     {"*:*"},
	RoleDeveloper: expand("read", "call", "register", "write"),
	RoleViewer:    expand("read"),
}

// rights are the roles, compiled.
var rights = func() map[string][]scope {
	all := map[string][]scope{}
	for name, texts := range roles {
		all[name] = mustScopes(texts)
	}
	return all
}()

// expand gives verbs in every room but admin.
func expand(verbs ...string) (all []string) {
	for _, r := range rooms[:len(rooms)-1] {
		for _, v := range verbs {
			all = append(all, r+":"+v)
		}
	}
	return all
}

// Roles lists the names of the roles, the mightiest first.
func Roles() []string { return []string{RoleOwner, RoleAdmin, RoleDeveloper, RoleViewer} }

// scope is a right: to do something in a room with names that begin with a prefix.
type scope struct{ room, verb, prefix string }

const (
	maxScopes = 64
	maxScope  = 512 // bytes
)

// parseScope reads room:verb or room:verb:prefix.
func parseScope(text string) (scope, error) {
	room, rest, ok := strings.Cut(text, ":")
	verb, prefix, _ := strings.Cut(rest, ":")
	switch {
	case len(text) > maxScope:
		return scope{}, fault.Newf(fault.Invalid, CodeBadScope, "a scope is longer than %d bytes", maxScope)
	case !ok || verb == "":
		return scope{}, fault.Newf(fault.Invalid, CodeBadScope,
			"scope %q: want room:verb or room:verb:prefix, such as engine:call:billing::", text)
	case room != "*" && !slices.Contains(rooms, room):
		return scope{}, fault.Newf(fault.Invalid, CodeBadScope, "scope %q: no room %q; rooms are %s", text, room,
			strings.Join(rooms, ", "))
	case verb != "*" && !slices.Contains(verbs, verb):
		return scope{}, fault.Newf(fault.Invalid, CodeBadScope, "scope %q: no verb %q; verbs are %s", text, verb,
			strings.Join(verbs, ", "))
	case strings.ContainsAny(prefix, "* \t\r\n"):
		return scope{}, fault.Newf(fault.Invalid, CodeBadScope,
			"scope %q: a prefix has no star and no space; it stands for all names that begin with it", text)
	}
	return scope{room, verb, prefix}, nil
}

func parseScopes(texts []string) (all []scope, err error) {
	if len(texts) == 0 || len(texts) > maxScopes {
		return nil, fault.Newf(fault.Invalid, CodeBadScope, "give 1 to %d scopes, such as engine:call:billing::",
			maxScopes)
	}
	for _, t := range texts {
		s, err := parseScope(t)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// allows reports whether the right covers a room, a verb and a name.
func (s *scope) allows(room, verb, name string) bool {
	return (s.room == "*" || s.room == room) && (s.verb == "*" || s.verb == verb) &&
		strings.HasPrefix(name, s.prefix)
}

func (s *scope) String() string {
	if s.prefix == "" {
		return s.room + ":" + s.verb
	}
	return s.room + ":" + s.verb + ":" + s.prefix
}

// covers reports whether the right holds all of another.
func (s *scope) covers(o *scope) bool {
	return (s.room == "*" || s.room == o.room) && (s.verb == "*" || s.verb == o.verb) &&
		strings.HasPrefix(o.prefix, s.prefix)
}

// mustScopes compiles the scopes of a role, which a test reads.
func mustScopes(texts []string) (all []scope) {
	for _, t := range texts {
		if s, err := parseScope(t); err == nil {
			all = append(all, s)
		}
	}
	return all
}

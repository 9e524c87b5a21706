package auth

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Kinds of principals.
const (
	KindUser     = "user"
	KindKey      = "key"
	KindLocal    = "local"    // proved by the local token
	KindLoopback = "loopback" // a program on this machine, while there is no account
)

// Codes of this package besides those of the protocol.
const (
	CodeUnclaimed      = "UNCLAIMED"
	CodeAlreadyClaimed = "ALREADY_CLAIMED"
	CodeBadScope       = "BAD_SCOPE"
	CodeBadName        = "BAD_NAME"
	CodeBadPassword    = "BAD_PASSWORD"
	CodeBadRole        = "BAD_ROLE"
	CodeExists         = "EXISTS"
	CodeLastOwner      = "LAST_OWNER"
	CodeNeedsCode      = "CODE_NEEDED"
	CodeNoTOTP         = "NO_TOTP"
)

// Principal is who asks. It does not change; a change of rights makes a new one.
type Principal struct {
	Kind   string
	ID     string // of the user or the key
	Name   string
	Role   string   // of a user
	Scopes []string // in their text form

	scopes       []scope
	remote, door string
}

// May reports whether the principal may do a verb in a room to a name. It takes no lock and makes no garbage.
func (p *Principal) May(room, verb, name string) bool {
	for i := range p.scopes {
		if p.scopes[i].allows(room, verb, name) {
			return true
		}
	}
	return false
}

// All reports whether the principal may do everything in a room.
func (p *Principal) All(room string) bool {
	return slices.ContainsFunc(p.scopes, func(s scope) bool {
		return (s.room == "*" || s.room == room) && s.verb == "*" && s.prefix == ""
	})
}

// needs refuses with the scope that is missing.
func (p *Principal) needs(room, verb string) error {
	if p.May(room, verb, "") {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden, "this needs the scope %s:%s", room, verb)
}

// Credential is what a client shows.
type Credential struct {
	Token   string // "" = none
	Remote  netip.Addr
	Browser bool   // it is a page, or may be one
	Door    string // "worker" or "admin", for the trail
}

// Authenticate says who shows a credential. The errors are Denied AUTH_ERROR, the same for a credential
// that is
// wrong, revoked or expired, and Unavailable UNCLAIMED, which says how to claim.
func (a *Auth) Authenticate(c Credential) (*Principal, error) {
	p, err := a.authenticate(&c)
	if err != nil {
		a.stats.refused.Add(1)
		a.trail.Note(audit.Event{Actor: audit.Actor{Kind: "none"}, Action: "credential.refuse",
			Outcome: audit.Denied,
			Reason:  reason(err), Remote: c.Remote.String(), Door: c.Door})
		return nil, err
	}
	return p, nil
}

func (a *Auth) authenticate(c *Credential) (*Principal, error) {
	now := a.o.Now()
	switch kind, id, secret := split(c.Token); kind {
	case "":
		if a.claimed.Load() {
			return nil, fault.New(fault.Denied, wire.CodeAuthError,
				"a credential is needed: give a key as Authorization: Bearer, or as password in the URL")
		}
		if c.Browser || !c.Remote.IsLoopback() {
			return nil, unclaimed()
		}
		return &Principal{Kind: KindLoopback, Name: KindLoopback, Scopes: loopbackScopes,
			scopes: mustScopes(loopbackScopes), remote: c.Remote.String(), door: c.Door}, nil
	case prefixLocal:
		if same(c.Token, a.local) {
			return &Principal{Kind: KindLocal, Name: KindLocal, Scopes: roles[RoleOwner],
				scopes: []scope{{"*", "*", ""}}, remote: c.Remote.String(), door: c.Door}, nil
		}
	case prefixAPI, prefixWorker:
		a.mu.RLock()
		k := a.byPrefix[kind+id]
		if k == nil || k.Revoked || k.expired(now) || !same(hashOf(secret), k.Hash) {
			a.mu.RUnlock()
			break
		}
		p := &Principal{Kind: KindKey, ID: k.ID, Name: k.Name, Scopes: k.Scopes, scopes: k.compiled,
			remote: c.Remote.String(), door: c.Door}
		a.mu.RUnlock()
		k.used.Store(now.Unix())
		return p, nil
	case prefixSession:
		a.mu.RLock()
		defer a.mu.RUnlock()
		s := a.sessions[hashOf(c.Token)]
		if s == nil || s.expired(now) {
			break
		}
		u := a.state.Users[s.User]
		if u == nil || u.Disabled {
			break
		}
		s.used.Store(now.Unix())
		return u.principal(c), nil
	}
	return nil, fault.New(fault.Denied, wire.CodeAuthError, "the credential is not valid")
}

// loopbackScopes are what a program on this machine may do while there is no account: everything but
// identity.
var loopbackScopes = []string{"engine:*", "flows:*", "sites:*", "secrets:*", "admin:read:metrics"}

func unclaimed() error {
	return fault.New(fault.Unavailable, CodeUnclaimed,
		"this Plinth has no account yet: run plinth admin claim on its machine, or set PLINTH_BOOTSTRAP_NAME and "+
			"PLINTH_BOOTSTRAP_PASSWORD_FILE")
}

func (u *user) principal(c *Credential) *Principal {
	return &Principal{Kind: KindUser, ID: u.ID, Name: u.Name, Role: u.Role, Scopes: roles[u.Role],
		scopes: mustScopes(roles[u.Role]), remote: c.Remote.String(), door: c.Door}
}

// Token takes the token out of an Authorization header: Bearer, or Basic with the token as password, whatever
// the name. ok is false when the header is something else; an absent header is ok and has no token.
func Token(authorization string) (token string, ok bool) {
	if authorization == "" {
		return "", true
	}
	scheme, value, _ := strings.Cut(authorization, " ")
	value = strings.TrimSpace(value)
	switch {
	case strings.EqualFold(scheme, "Bearer") && value != "":
		return value, true
	case strings.EqualFold(scheme, "Basic"):
		if password, found := basic(value); found && password != "" {
			return password, true
		}
	}
	return "", false
}

package auth

import (
	"crypto/subtle"
	"net/netip"
	"slices"
	"strings"
	"time"

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

	kindNone = "none" // in the trail: nobody that is known
)

// Codes of this package besides those of the protocol.
const (
	CodeUnclaimed      = wire.CodeUnclaimed
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

// Principal is who asks. It does not change; a change of rights makes a new one. A nil Principal may nothing.
type Principal struct {
	Kind   string
	ID     string // of the user or the key
	Name   string
	Role   string   // of a user
	Scopes []string // in their text form

	scopes []scope
	remote netip.Addr
	door   string
}

// May reports whether the principal may do a verb in a room to a name. It takes no lock and makes no garbage.
func (p *Principal) May(room, verb, name string) bool {
	if p == nil {
		return false
	}
	for i := range p.scopes {
		if p.scopes[i].allows(room, verb, name) {
			return true
		}
	}
	return false
}

// All reports whether the principal may do everything in a room.
func (p *Principal) All(room string) bool {
	return p != nil && slices.ContainsFunc(p.scopes, func(s scope) bool {
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

// lacks returns the first of some rights that the principal does not have itself.
func (p *Principal) lacks(rights []scope) (missing *scope) {
	for i := range rights {
		if p == nil || !slices.ContainsFunc(p.scopes, func(own scope) bool { return own.covers(&rights[i]) }) {
			return &rights[i]
		}
	}
	return nil
}

// is reports whether the principal is that user.
func (p *Principal) is(u *user) bool { return p != nil && p.Kind == KindUser && p.ID == u.ID }

// Credential is what a client shows.
type Credential struct {
	Token   string // "" = none
	Remote  netip.Addr
	Browser bool   // it is a page, or may be one
	Door    string // "worker" or "admin", for the trail
}

// Authenticate says who shows a credential. It takes no lock that a change holds, hashes no password and
// does no I/O, so an event loop may ask it. The errors are Denied AUTH_ERROR, the same for a credential
// that is wrong, revoked or expired, and Unavailable UNCLAIMED, which says how to claim.
func (a *Auth) Authenticate(c Credential) (*Principal, error) {
	p, why, target := a.authenticate(&c)
	if p != nil {
		return p, nil
	}
	a.stats.refused[why].Add(1)
	a.trail.Note(audit.Event{Actor: audit.Actor{Kind: kindNone}, Action: "credential.refuse", Target: target,
		Outcome: audit.Denied, Reason: why.String(), Remote: address(c.Remote), Door: c.Door})
	return nil, why.fault()
}

// authenticate says why nobody was recognised, and which key or session it was about, for the trail.
func (a *Auth) authenticate(c *Credential) (p *Principal, why refusal, target string) {
	now := a.o.Now()
	switch kind, public, secret := split(c.Token); kind {
	case "":
		switch {
		case a.claimed.Load():
			return nil, refusedNone, ""
		case c.Browser || !c.Remote.IsLoopback():
			return nil, refusedUnclaimed, ""
		}
		return &Principal{Kind: KindLoopback, Name: KindLoopback, Scopes: loopbackScopes, scopes: loopbackRights,
			remote: c.Remote, door: c.Door}, 0, ""
	case prefixLocal:
		if same(c.Token, a.local) {
			return &Principal{Kind: KindLocal, Name: KindLocal, Scopes: roles[RoleOwner], scopes: rights[RoleOwner],
				remote: c.Remote, door: c.Door}, 0, ""
		}
	case prefixAPI, prefixWorker:
		k, sum := a.index.keys.get(public), digestOf(secret)
		if k == nil || subtle.ConstantTimeCompare(sum[:], k.sum[:]) != 1 {
			break
		}
		if why := a.bars(k, now); why != refusedNot {
			return nil, why, k.Prefix
		}
		k.used.touch(now)
		return &Principal{Kind: KindKey, ID: k.ID, Name: k.Name, Scopes: k.Scopes, scopes: k.compiled,
			remote: c.Remote, door: c.Door}, 0, ""
	case prefixSession:
		s := a.index.sessions.get(digestOf(c.Token))
		if s == nil {
			break
		}
		u := a.index.users.get(s.User)
		switch {
		case u == nil:
			return nil, refusedWrong, s.ID
		case s.expired(now):
			return nil, refusedExpired, s.ID
		case u.Disabled:
			return nil, refusedDisabled, s.ID
		}
		s.used.touch(now)
		return &Principal{Kind: KindUser, ID: u.ID, Name: u.Name, Role: u.Role, Scopes: roles[u.Role],
			scopes: rights[u.Role], remote: c.Remote, door: c.Door}, 0, ""
	}
	return nil, refusedWrong, ""
}

// bars says why a key, whose secret is right, is good for nothing.
func (a *Auth) bars(k *Key, now time.Time) refusal {
	switch owner := a.index.owners.get(k.OwnerID); {
	case k.Revoked:
		return refusedRevoked
	case k.expired(now):
		return refusedExpired
	case owner != nil && owner.Disabled:
		return refusedDisabled
	}
	return refusedNot
}

// refusal is why a credential was not taken. The trail and the metrics tell; the client does not learn.
type refusal int

const (
	refusedNot refusal = iota // it was taken
	refusedWrong
	refusedNone
	refusedUnclaimed
	refusedRevoked
	refusedExpired
	refusedDisabled
	refusals
)

func (r refusal) String() string {
	return [refusals]string{"", "wrong", "none", "unclaimed", "revoked", "expired", "disabled"}[r]
}

// fault is what the client is told.
func (r refusal) fault() error {
	switch r {
	case refusedNone:
		return fault.New(fault.Denied, wire.CodeAuthError,
			"a credential is needed: give a key as Authorization: Bearer, or as password in the URL")
	case refusedUnclaimed:
		return unclaimed()
	}
	return fault.New(fault.Denied, wire.CodeAuthError, "the credential is not valid")
}

// loopbackScopes are what a program on this machine may do while there is no account: everything but
// identity.
var (
	loopbackScopes = []string{"engine:*", "flows:*", "sites:*", "secrets:*", "admin:read:metrics"}
	loopbackRights = mustScopes(loopbackScopes)
)

func unclaimed() error {
	return fault.New(fault.Unavailable, CodeUnclaimed,
		"this Plinth has no account yet: run plinth admin claim on its machine, or set PLINTH_BOOTSTRAP_NAME and "+
			"PLINTH_BOOTSTRAP_PASSWORD_FILE")
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

package auth

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// User is an account.
type User struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"` // canonical: lower case
	Email     string    `json:"email,omitempty"`
	Role      string    `json:"role"`
	Disabled  bool      `json:"disabled"`
	TOTP      bool      `json:"totp"` // a one-time code is asked for
	Created   time.Time `json:"created"`
	LastLogin time.Time `json:"last_login,omitzero"`
}

// NewUser describes an account to be made. Hash, a PHC string of argon2id, may take the place of Password.
type NewUser struct {
	Name, Email, Role, Password, Hash string
}

// UserChange says what changes; nil stays.
type UserChange struct {
	Email, Role *string
	Disabled    *bool
}

const (
	maxUsers = 10_000
	maxName  = 64
	maxEmail = 254
)

// canonical makes one name of all spellings, so that nobody counts twice or gets around a count.
func canonical(name string) (string, error) {
	n := strings.TrimSpace(name)
	if len(n) <= maxName {
		n = strings.Map(func(r rune) rune { // ASCII alone: other letters are refused, not made into these
			if r >= 'A' && r <= 'Z' {
				r += 'a' - 'A'
			}
			return r
		}, n)
	}
	if n == "" || len(n) > maxName || strings.ContainsFunc(n, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("._@-", r))
	}) {
		return "", fault.Newf(fault.Invalid, CodeBadName,
			"a name has 1 to %d of the characters a-z 0-9 . _ @ -", maxName)
	}
	return n, nil
}

func checkEmail(email string) error {
	at := strings.LastIndexByte(email, '@')
	if email == "" || at > 0 && at < len(email)-1 && len(email) <= maxEmail && !strings.ContainsAny(email,
		" \t\r\n<>\"") {
		return nil
	}
	return fault.New(fault.Invalid, CodeBadName, "that is no e-mail address")
}

func checkRole(role string) error {
	if roles[role] == nil {
		return fault.Newf(fault.Invalid, CodeBadRole, "no role %q; roles are %s", role, strings.Join(Roles(), ", "))
	}
	return nil
}

// make checks a new user and hashes the password.
func (a *Auth) make(ctx context.Context, n NewUser) (*user, error) {
	name, err := canonical(n.Name)
	if err != nil {
		return nil, err
	}
	if err := checkRole(n.Role); err != nil {
		return nil, err
	}
	if err := checkEmail(n.Email); err != nil {
		return nil, err
	}
	hash := n.Hash
	switch {
	case n.Hash != "" && n.Password != "":
		return nil, fault.New(fault.Invalid, CodeBadPassword, "give a password or its hash, not both")
	case n.Hash != "":
		if _, err := parsePHC(n.Hash); err != nil {
			return nil, err
		}
	default:
		if hash, err = a.hash(ctx, n.Password); err != nil {
			return nil, err
		}
	}
	return &user{User: User{ID: "u_" + newID(), Name: name, Email: n.Email, Role: n.Role,
		Created: a.o.Now().UTC().Truncate(time.Second)}, Hash: hash}, nil
}

// Users lists the accounts, sorted by name.
func (a *Auth) Users() []User {
	a.mu.RLock()
	all := make([]User, 0, len(a.state.Users))
	for _, u := range a.state.Users {
		all = append(all, u.User)
	}
	a.mu.RUnlock()
	slices.SortFunc(all, func(x, y User) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// User returns one account. The error is NotFound.
func (a *Auth) User(name string) (User, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	u, err := a.state.user(name)
	if err != nil {
		return User{}, err
	}
	return u.User, nil
}

func (s *state) user(name string) (*user, error) {
	n, err := canonical(name)
	if err == nil && s.Users[n] != nil {
		return s.Users[n], nil
	}
	return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no user %q", name)
}

// mayTouch says whether a principal may change a user, nil for a new one, or give a role, "" for none:
// owners are for owners, and nobody makes, or logs in as, somebody who may do more.
func mayTouch(by *Principal, u *user, role string) error {
	if err := by.needs("admin", "manage"); err != nil {
		return err
	}
	for _, r := range []string{role, roleOf(u)} {
		if r == RoleOwner && by.Kind != KindLocal && by.Role != RoleOwner {
			return fault.New(fault.Denied, wire.CodeForbidden, "only an owner can make, change or remove an owner")
		}
		if missing := by.lacks(rights[r]); missing != nil {
			return fault.Newf(fault.Denied, wire.CodeForbidden,
				"nobody can give or change more than they have: for the role %s you lack %s", r, missing)
		}
	}
	return nil
}

func roleOf(u *user) string {
	if u == nil {
		return ""
	}
	return u.Role
}

// CreateUser makes an account. The first one is made by Claim or Bootstrap.
func (a *Auth) CreateUser(ctx context.Context, by *Principal, n NewUser) (User, error) {
	if n.Role == "" {
		n.Role = RoleViewer
	}
	if err := mayTouch(by, nil, n.Role); err != nil {
		return User{}, err
	}
	if !a.Claimed() {
		return User{}, unclaimed()
	}
	u, err := a.make(ctx, n)
	if err != nil {
		return User{}, err
	}
	err = a.commit(ctx, event(by, "user.create", u.Name), func(s *state) ([]record, error) {
		if s.Users[u.Name] != nil {
			return nil, fault.Newf(fault.Conflict, CodeExists, "there is a user %s already", u.Name)
		}
		if len(s.Users) >= maxUsers {
			return nil, fault.Newf(fault.Limit, wire.CodeLimit, "there are %d users already, the limit", len(s.Users))
		}
		return []record{{User: u}}, nil
	})
	if err != nil {
		return User{}, err
	}
	return u.User, nil
}

// edit makes a change of one user durable, and tells the doors when it takes something away.
func (a *Auth) edit(ctx context.Context, by *Principal, action, name string,
	change func(s *state, u *user) ([]record, error)) (User, error) {
	var made User
	var gone []string
	err := a.commit(ctx, event(by, action, name), func(s *state) ([]record, error) {
		u, err := s.user(name)
		if err != nil {
			return nil, err
		}
		fresh := *u
		fresh.Recovery = slices.Clone(u.Recovery)
		more, err := change(s, &fresh)
		if err != nil {
			return nil, err
		}
		made = fresh.User
		if fresh.Role != u.Role || fresh.Disabled != u.Disabled || fresh.Hash != u.Hash {
			gone = append(gone, u.ID)
		}
		if fresh.Disabled {
			gone = append(gone, s.keysOf(u.ID)...)
		}
		return append([]record{{User: &fresh}}, more...), nil
	})
	if err != nil {
		return User{}, err
	}
	a.tell(gone...)
	return made, nil
}

// keysOf lists the keys that end with a user and are not revoked.
func (s *state) keysOf(owner string) (ids []string) {
	for _, k := range s.Keys {
		if k.OwnerID == owner && !k.Revoked {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// ChangeUser changes e-mail, role or whether the account is disabled. The last owner stays one.
func (a *Auth) ChangeUser(ctx context.Context, by *Principal, name string, c UserChange) (User, error) {
	return a.edit(ctx, by, "user.change", name, func(s *state, u *user) (more []record, err error) {
		role := u.Role
		if c.Role != nil {
			role = *c.Role
		}
		if err := mayTouch(by, u, role); err != nil {
			return nil, err
		}
		if err := checkRole(role); err != nil {
			return nil, err
		}
		disabled := u.Disabled
		if c.Disabled != nil {
			disabled = *c.Disabled
		}
		if u.Role == RoleOwner && (role != RoleOwner || disabled) && s.owners(u.Name) == 0 {
			return nil, fault.New(fault.Conflict, CodeLastOwner, "this is the last owner: make another one first")
		}
		if c.Email != nil {
			if err := checkEmail(*c.Email); err != nil {
				return nil, err
			}
			u.Email = *c.Email
		}
		u.Role, u.Disabled = role, disabled
		if disabled {
			more = append(more, record{EndSessionsOf: u.Name})
		}
		return more, nil
	})
}

// SetPassword gives a user another password and ends its sessions. old is asked of whoever changes their
// own: a session that somebody got hold of must not become an account.
func (a *Auth) SetPassword(ctx context.Context, by *Principal, name, old, password string) error {
	a.mu.RLock()
	u, err := a.state.user(name)
	a.mu.RUnlock()
	if err != nil {
		return err
	}
	own := by.is(u)
	if !own {
		if err := mayTouch(by, u, ""); err != nil { // before the hash, which is dear
			return err
		}
	} else if err := a.recheck(ctx, u, old); err != nil {
		return err
	}
	hash, err := a.hash(ctx, password)
	if err != nil {
		return err
	}
	_, err = a.edit(ctx, by, "user.password", name, func(_ *state, u *user) ([]record, error) {
		if !by.is(u) {
			if err := mayTouch(by, u, ""); err != nil {
				return nil, err
			}
		}
		u.Hash = hash
		return []record{{EndSessionsOf: u.Name}}, nil
	})
	return err
}

// recheck asks for the password of somebody who is logged in. Wrong ones count like those of logins.
func (a *Auth) recheck(ctx context.Context, u *user, password string) error {
	tracks := []track{nameTrack(u.Name)}
	if wait := a.calm.begin(a.o.Now(), tracks); wait > 0 {
		return later(wait)
	}
	ok, err := a.verify(ctx, u.Hash, password)
	if err != nil || ok {
		a.calm.end(tracks)
		return err
	}
	a.calm.failed(a.o.Now(), tracks)
	return fault.New(fault.Denied, wire.CodeForbidden, "the old password is not right")
}

// DeleteUser removes an account, its sessions and its keys. The last owner stays.
func (a *Auth) DeleteUser(ctx context.Context, by *Principal, name string) error {
	var gone []string
	err := a.commit(ctx, event(by, "user.delete", name), func(s *state) ([]record, error) {
		u, err := s.user(name)
		if err != nil {
			return nil, err
		}
		if err := mayTouch(by, u, ""); err != nil {
			return nil, err
		}
		if u.Role == RoleOwner && s.owners(u.Name) == 0 {
			return nil, fault.New(fault.Conflict, CodeLastOwner, "this is the last owner: make another one first")
		}
		gone = append(s.keysOf(u.ID), u.ID)
		return []record{{DropUser: u.Name}, {RevokeKeysOf: u.ID}}, nil
	})
	if err == nil {
		a.tell(gone...)
	}
	return err
}

// NewClaim makes the one-time token with which the first account is claimed, in the place of an older one.
// Only its hash is kept. The error is Conflict ALREADY_CLAIMED.
func (a *Auth) NewClaim(ctx context.Context) (token string, err error) {
	token = prefixClaim + newSecret()
	hash := hashOf(token)
	err = a.commit(ctx, audit.Event{Actor: audit.Actor{Kind: KindLocal}, Action: "claim.token"},
		func(s *state) ([]record, error) {
			if len(s.Users) > 0 {
				return nil, alreadyClaimed()
			}
			return []record{{Claim: &hash}}, nil
		})
	if err != nil {
		return "", err
	}
	return token, nil
}

func alreadyClaimed() error {
	return fault.New(fault.Conflict, CodeAlreadyClaimed, "there is an account already: log in, or ask an owner for one")
}

// Claim makes the first account, an owner. It takes the claim token, or the local token as credential. Of
// claims at once one wins; five claims by token are heard in a minute.
func (a *Auth) Claim(ctx context.Context, by Credential, token string, n NewUser) (User, error) {
	if a.Claimed() {
		return User{}, alreadyClaimed()
	}
	e := audit.Event{Actor: audit.Actor{Kind: kindNone}, Action: "claim", Target: n.Name,
		Remote: address(by.Remote), Door: by.Door}
	if by.Token != "" && same(by.Token, a.local) {
		e.Actor.Kind = KindLocal
		return a.first(ctx, e, n, func(*state) bool { return true })
	}
	hash := hashOf(token)
	right := func(s *state) bool { return s.Claim != "" && same(hash, s.Claim) }
	a.mu.Lock()
	heard, ok := a.limits.take(a.o.Now(), claimFailures), right(&a.state)
	a.mu.Unlock()
	if !heard {
		return User{}, later(time.Minute)
	}
	if !ok {
		e.Outcome, e.Reason = audit.Denied, "wrong token"
		a.trail.Note(e)
		return User{}, wrongClaim()
	}
	return a.first(ctx, e, n, right)
}

func wrongClaim() error {
	return fault.New(fault.Denied, wire.CodeForbidden,
		"the claim token is not right; make a new one with plinth admin claim-token")
}

// Bootstrap makes the first account where there is none; created is false when there is one already.
func (a *Auth) Bootstrap(ctx context.Context, n NewUser) (u User, created bool, err error) {
	if !a.Claimed() {
		u, err = a.first(ctx, audit.Event{Actor: audit.Actor{Kind: KindLocal}, Action: "bootstrap",
			Target: n.Name}, n, func(*state) bool { return true })
		if err == nil {
			return u, true, nil
		}
		if fault.KindOf(err) != fault.Conflict {
			return User{}, false, err
		}
	}
	if u, err := a.User(n.Name); err == nil {
		return u, false, nil
	}
	return User{}, false, nil
}

// first makes the first account, of several at once only one. The claim is looked at once more when the
// password has been hashed: another token may have been made meanwhile.
func (a *Auth) first(ctx context.Context, e audit.Event, n NewUser, right func(*state) bool) (User, error) {
	n.Role = RoleOwner
	u, err := a.make(ctx, n)
	if err != nil {
		return User{}, err
	}
	err = a.commit(ctx, e, func(s *state) ([]record, error) {
		if len(s.Users) > 0 {
			return nil, alreadyClaimed()
		}
		if !right(s) {
			return nil, wrongClaim()
		}
		return []record{{User: u}, {Claim: new(string)}}, nil
	})
	if err != nil {
		return User{}, err
	}
	a.tell("")
	return u.User, nil
}

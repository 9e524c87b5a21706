package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

const (
	sessionLife = 30 * 24 * time.Hour
	sessionIdle = 7 * 24 * time.Hour
	maxSessions = 50 // of one user: the oldest goes
)

// Session is one login of a user, as it is kept. Only Seen and the stamp of last use change.
type Session struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Hash    string    `json:"hash"` // of its token
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
	Remote  string    `json:"remote,omitempty"`

	sum  digest // Hash
	used stamp  // never before Seen
}

func (s *Session) compile() (err error) {
	if s.sum, err = parseDigest(s.Hash); err != nil {
		return fmt.Errorf("auth: read session %s: %w", s.ID, err)
	}
	s.used.touch(s.Seen)
	return nil
}

// expired reads nothing that changes under a lock.
func (s *Session) expired(now time.Time) bool {
	return !now.Before(s.Expires) || now.Unix()-s.used.Load() > int64(sessionIdle/time.Second)
}

// SessionView is a session as it may be shown.
type SessionView struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
	Remote  string    `json:"remote,omitempty"`
}

func (s *Session) view() SessionView {
	return SessionView{s.ID, s.User, s.Created, time.Unix(s.used.Load(), 0).UTC(), s.Expires, s.Remote}
}

// Login is what a person types.
type Login struct {
	Name, Password string
	Code           string // one-time or recovery code, where the account has one
	Remote         netip.Addr
}

// Login checks a password, and the code where there is one, and begins a session. The token is shown once.
// The errors are Denied AUTH_ERROR, which does not tell an unknown name from a wrong password, Denied
// CODE_NEEDED once the password was right, and Limit, which is a *LaterError when too many attempts have
// failed.
func (a *Auth) Login(ctx context.Context, in Login) (token string, s SessionView, err error) {
	name, bad := canonical(in.Name)
	e := audit.Event{Actor: audit.Actor{Kind: KindUser, Name: name}, Action: "login", Remote: address(in.Remote),
		Door: "admin"}
	tracks := append(addressTrack(in.Remote), nameTrack(name))
	if wait := a.calm.begin(a.o.Now(), tracks); wait > 0 {
		a.stats.lockedOut.Add(1)
		e.Outcome, e.Reason = audit.Denied, "locked out"
		a.trail.Note(e)
		return "", s, later(wait)
	}
	var u user
	if found := a.index.users.get(name); found != nil && bad == nil {
		u = *found
	}
	token, s, why, err := a.login(ctx, &u, in, e)
	if why != "" {
		a.calm.failed(a.o.Now(), tracks)
		a.stats.loginsFailed.Add(1)
		e.Actor.ID, e.Outcome, e.Reason = u.ID, audit.Denied, why
		a.trail.Note(e)
		return "", SessionView{}, fault.New(fault.Denied, wire.CodeAuthError, "name, password or code is not right")
	}
	if err == nil {
		a.calm.good(nameTrack(name))
		a.stats.logins.Add(1)
	}
	a.calm.end(tracks)
	return token, s, err
}

// login is Login of somebody who is not locked out. why is set when password or code is wrong.
func (a *Auth) login(ctx context.Context, u *user, in Login, e audit.Event) (token string, s SessionView,
	why string, err error) {
	ok, err := a.verify(ctx, u.Hash, in.Password)
	if err != nil {
		return "", s, "", err
	}
	if !ok || u.Disabled {
		return "", s, "wrong password, unknown or disabled", nil
	}
	if u.TOTP && in.Code == "" {
		return "", s, "", fault.New(fault.Denied, CodeNeedsCode, "a one-time code is needed: give it as code")
	}
	better, err := a.strengthen(ctx, u.Hash, in.Password)
	if err != nil {
		return "", s, "", err
	}
	now := a.o.Now()
	token = prefixSession + newSecret()
	n := &Session{ID: "s_" + newID(), User: u.Name, Hash: hashOf(token), Created: now.UTC(), Seen: now.UTC(),
		Expires: now.Add(sessionLife).UTC(), Remote: address(in.Remote)}
	if err := n.compile(); err != nil {
		return "", s, "", err
	}
	view := n.view()
	e.Actor.ID = u.ID
	err = a.commit(ctx, e, func(st *state) ([]record, error) {
		fresh := st.Users[u.Name]
		if fresh == nil || fresh.ID != u.ID || fresh.Disabled || fresh.Hash != u.Hash {
			return nil, errStale
		}
		changed := *fresh
		if fresh.TOTP && !changed.spend(in.Code, now) {
			return nil, errStale
		}
		changed.LastLogin, changed.Hash = n.Created, better
		records := []record{{User: &changed}, {Session: n}}
		return append(records, st.tooMany(u.Name)...), nil
	})
	if errors.Is(err, errStale) {
		return "", s, "wrong code, or the account has just changed", nil
	}
	if err != nil {
		return "", s, "", err
	}
	return token, view, "", nil
}

// errStale is the answer of a look at the state that ends a login which was right until then.
var errStale = errors.New("auth: the login is not good any more")

// tooMany ends the oldest session of a user who has as many as one may.
func (s *state) tooMany(of string) []record {
	mine := s.index.of[of]
	if len(mine) < maxSessions {
		return nil
	}
	var oldest *Session
	for _, x := range mine {
		if oldest == nil || x.Created.Before(oldest.Created) {
			oldest = x
		}
	}
	return []record{{EndSession: oldest.ID}}
}

// Logout ends the session of a token, and its connections. A token of no session is no error.
func (a *Auth) Logout(ctx context.Context, token string) error {
	n := a.index.sessions.get(digestOf(token))
	if n == nil {
		return nil
	}
	e := audit.Event{Actor: audit.Actor{Kind: KindUser, Name: n.User}, Action: "logout", Target: n.ID}
	if u := a.index.users.get(n.User); u != nil {
		e.Actor.ID = u.ID
	}
	err := a.commit(ctx, e, func(*state) ([]record, error) { return []record{{EndSession: n.ID}}, nil })
	if err == nil && e.Actor.ID != "" {
		a.tell(e.Actor.ID)
	}
	return err
}

// Sessions lists the sessions of a user that are not over, the newest first.
func (a *Auth) Sessions(of string) []SessionView {
	now, all := a.o.Now(), []SessionView{}
	of, _ = canonical(of)
	a.mu.RLock()
	for _, s := range a.index.of[of] {
		if !s.expired(now) {
			all = append(all, s.view())
		}
	}
	a.mu.RUnlock()
	slices.SortFunc(all, func(x, y SessionView) int { return y.Created.Compare(x.Created) })
	return all
}

// EndSession ends one session, and its connections: one's own, or that of a user whom one may change. A
// session of somebody else is NotFound for others.
func (a *Auth) EndSession(ctx context.Context, by *Principal, id string) error {
	var gone string
	err := a.commit(ctx, event(by, "session.end", id), func(s *state) ([]record, error) {
		n := s.Sessions[id]
		if n == nil || s.Users[n.User] == nil {
			return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no session %q", id)
		}
		u := s.Users[n.User]
		if !by.is(u) && mayTouch(by, u, "") != nil {
			return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no session %q", id)
		}
		gone = u.ID
		return []record{{EndSession: id}}, nil
	})
	if err == nil {
		a.tell(gone)
	}
	return err
}

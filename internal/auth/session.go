package auth

import (
	"context"
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

// Session is one login of a user.
type Session struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Hash    string    `json:"hash"` // of its token
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
	Remote  string    `json:"remote,omitempty"`

	used stamp
}

// seen is the last use that is known.
func (s *Session) seen() time.Time {
	if at := s.used.Load(); at > s.Seen.Unix() {
		return time.Unix(at, 0).UTC()
	}
	return s.Seen
}

func (s *Session) expired(now time.Time) bool {
	return !now.Before(s.Expires) || now.Sub(s.seen()) > sessionIdle
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
	return SessionView{s.ID, s.User, s.Created, s.seen(), s.Expires, s.Remote}
}

// Login is what a person types.
type Login struct {
	Name, Password string
	Code           string // one-time or recovery code, where the account has one
	Remote         netip.Addr
}

// Login checks a password, and the code where there is one, and begins a session. The token is shown once.
// The
// errors are Denied AUTH_ERROR, which does not tell an unknown name from a wrong password, Denied CODE_NEEDED
// once the password was right, and Limit.
func (a *Auth) Login(ctx context.Context, in Login) (token string, s SessionView, err error) {
	now := a.o.Now()
	name, bad := canonical(in.Name)
	e := audit.Event{Actor: audit.Actor{Kind: KindUser, Name: name}, Action: "login", Remote: in.Remote.String(),
		Door: "admin"}
	keys := []string{"name " + name, "from " + in.Remote.String()}
	a.mu.Lock()
	for _, k := range keys {
		if wait := a.calm.wait(k, now); wait > 0 {
			a.mu.Unlock()
			a.stats.lockedOut.Add(1)
			e.Outcome, e.Reason = audit.Denied, "locked out"
			a.trail.Note(e)
			return "", s, later(wait)
		}
	}
	var u user
	if found := a.state.Users[name]; found != nil && bad == nil {
		u = *found
	}
	a.mu.Unlock()
	ok, err := a.verify(ctx, u.Hash, in.Password)
	if err != nil {
		return "", s, err
	}
	wrong := func(why string, told error) (string, SessionView, error) {
		a.mu.Lock()
		for _, k := range keys {
			a.calm.failed(k, a.o.Now())
		}
		a.mu.Unlock()
		a.stats.loginsFailed.Add(1)
		e.Outcome, e.Reason = audit.Denied, why
		a.trail.Note(e)
		return "", SessionView{}, told
	}
	refused := fault.New(fault.Denied, wire.CodeAuthError, "name, password or code is not right")
	if !ok || u.Disabled {
		return wrong("wrong password, unknown or disabled", refused)
	}
	if u.TOTP && in.Code == "" {
		return "", s, fault.New(fault.Denied, CodeNeedsCode, "a one-time code is needed: give it as code")
	}
	token = prefixSession + newSecret()
	n := &Session{ID: "s_" + newID(), User: u.Name, Hash: hashOf(token), Created: now.UTC(), Seen: now.UTC(),
		Expires: now.Add(sessionLife).UTC(), Remote: in.Remote.String()}
	e.Actor.ID = u.ID
	err = a.commit(ctx, e, func(st *state) ([]record, error) {
		fresh := st.Users[u.Name]
		if fresh == nil || fresh.Disabled || fresh.Hash != u.Hash {
			return nil, refused
		}
		changed := *fresh
		if fresh.TOTP && !changed.spend(in.Code, now) {
			return nil, refused
		}
		changed.LastLogin = n.Created
		records := []record{{User: &changed}, {Session: n}}
		return append(records, st.tooMany(u.Name)...), nil
	})
	if err != nil {
		if fault.KindOf(err) == fault.Denied {
			return wrong("wrong code", refused)
		}
		return "", s, err
	}
	a.mu.Lock()
	for _, k := range keys[:1] {
		a.calm.good(k)
	}
	a.mu.Unlock()
	a.stats.logins.Add(1)
	return token, n.view(), nil
}

// tooMany ends the oldest session of a user who has as many as one may.
func (s *state) tooMany(of string) []record {
	n, oldest := 0, (*Session)(nil)
	for _, x := range s.Sessions {
		if x.User == of {
			n++
			if oldest == nil || x.Created.Before(oldest.Created) {
				oldest = x
			}
		}
	}
	if n < maxSessions {
		return nil
	}
	return []record{{EndSession: oldest.ID}}
}

// Logout ends the session of a token. A token of no session is no error.
func (a *Auth) Logout(ctx context.Context, token string) error {
	a.mu.RLock()
	s := a.sessions[hashOf(token)]
	a.mu.RUnlock()
	if s == nil {
		return nil
	}
	e := audit.Event{Actor: audit.Actor{Kind: KindUser, Name: s.User}, Action: "logout"}
	return a.commit(ctx, e, func(*state) ([]record, error) { return []record{{EndSession: s.ID}}, nil })
}

// Sessions lists the sessions of a user that are not over, the newest first.
func (a *Auth) Sessions(of string) []SessionView {
	now, all := a.o.Now(), []SessionView{}
	a.mu.RLock()
	for _, s := range a.state.Sessions {
		if s.User == of && !s.expired(now) {
			all = append(all, s.view())
		}
	}
	a.mu.RUnlock()
	slices.SortFunc(all, func(x, y SessionView) int { return y.Created.Compare(x.Created) })
	return all
}

// EndSession ends one session: one's own, or another's with admin:manage.
func (a *Auth) EndSession(ctx context.Context, by *Principal, id string) error {
	var user string
	err := a.commit(ctx, event(by, "session.end", id), func(s *state) ([]record, error) {
		n := s.Sessions[id]
		if n == nil || by.Name != n.User && !by.May("admin", "manage", "") {
			return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no session %q", id)
		}
		if u := s.Users[n.User]; u != nil {
			user = u.ID
		}
		return []record{{EndSession: id}}, nil
	})
	if err == nil {
		a.tell(user)
	}
	return err
}

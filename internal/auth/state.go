package auth

import (
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// state is all that is on disk. Its snapshot is its own JSON; the log holds lists of records. It is changed
// by apply and forget alone, so that the tables of the index follow.
type state struct {
	Users    map[string]*user    `json:"users"` // by name
	Keys     map[string]*Key     `json:"keys"`  // by id
	Sessions map[string]*Session `json:"sessions"`
	Claim    string              `json:"claim,omitempty"` // hash of the claim token

	index *index
}

// index is what Authenticate reads, without a lock. What its tables point to does not change but for atomic
// stamps: a change puts another in its place.
type index struct {
	users    *table[string, user] // by name
	owners   *table[string, user] // by id
	keys     *table[string, Key]  // by public prefix
	sessions *table[digest, Session]
	of       map[string]map[string]*Session // of a user, by id; for those who hold the lock
}

func newState() state {
	return state{Users: map[string]*user{}, Keys: map[string]*Key{}, Sessions: map[string]*Session{},
		index: &index{users: newTable[string, user](byText), owners: newTable[string, user](byText),
			keys: newTable[string, Key](byText), sessions: newTable[digest, Session](bySum),
			of: map[string]map[string]*Session{}}}
}

// user is a User with what nobody is shown.
type user struct {
	User
	Hash     string   `json:"hash"`               // PHC string
	Secret   string   `json:"totp,omitempty"`     // base32; of a confirmed or a pending one
	Counter  int64    `json:"counter,omitempty"`  // of the last code that was used
	Recovery []string `json:"recovery,omitempty"` // hashes
}

// record is one change. Exactly one field is set. A change that belongs together is one list of records in
// one entry of the log.
type record struct {
	User          *user    `json:"user,omitempty"` // made or changed: the whole user
	DropUser      string   `json:"drop_user,omitempty"`
	Key           *Key     `json:"key,omitempty"` // made or changed
	DropKey       string   `json:"drop_key,omitempty"`
	RevokeKeysOf  string   `json:"revoke_keys_of,omitempty"` // id of their owner
	Session       *Session `json:"session,omitempty"`
	EndSession    string   `json:"end_session,omitempty"`     // id
	EndSessionsOf string   `json:"end_sessions_of,omitempty"` // user's name
	Claim         *string  `json:"claim,omitempty"`
	Used          *use     `json:"used,omitempty"`
}

type use struct {
	Key     string    `json:"key,omitempty"`
	Session string    `json:"session,omitempty"`
	At      time.Time `json:"at"`
}

// read takes the state from a snapshot.
func (s *state) read(r io.Reader) error {
	fresh := newState()
	if err := json.NewDecoder(r).Decode(&fresh); err != nil {
		return fmt.Errorf("auth: read the snapshot: %w", err)
	}
	if fresh.Users == nil || fresh.Keys == nil || fresh.Sessions == nil {
		return fmt.Errorf("auth: read the snapshot: a table is missing")
	}
	for name, u := range fresh.Users {
		if u == nil || u.Name != name {
			return fmt.Errorf("auth: read the snapshot: user %q is empty or has another name", name)
		}
	}
	for id, k := range fresh.Keys {
		if k == nil || k.ID != id {
			return fmt.Errorf("auth: read the snapshot: key %q is empty or has another id", id)
		}
		if err := k.compile(); err != nil {
			return err
		}
	}
	for id, n := range fresh.Sessions {
		if n == nil || n.ID != id {
			return fmt.Errorf("auth: read the snapshot: session %q is empty or has another id", id)
		}
		if err := n.compile(); err != nil {
			return err
		}
	}
	fresh.fill()
	*s = fresh
	return nil
}

// fill makes the index of a state that was read.
func (s *state) fill() {
	s.index.users.fill(func(yield func(string, *user) bool) {
		for name, u := range s.Users {
			yield(name, u)
		}
	})
	s.index.owners.fill(func(yield func(string, *user) bool) {
		for _, u := range s.Users {
			yield(u.ID, u)
		}
	})
	s.index.keys.fill(func(yield func(string, *Key) bool) {
		for _, k := range s.Keys {
			yield(k.Prefix, k)
		}
	})
	s.index.sessions.fill(func(yield func(digest, *Session) bool) {
		for _, n := range s.Sessions {
			yield(n.sum, n)
		}
	})
	for _, n := range s.Sessions {
		s.index.add(n)
	}
}

// add notes whose session it is.
func (x *index) add(n *Session) {
	if x.of[n.User] == nil {
		x.of[n.User] = map[string]*Session{}
	}
	x.of[n.User][n.ID] = n
}

// replay applies one entry of the log.
func (s *state) replay(b []byte) error {
	var records []record
	if err := json.Unmarshal(b, &records); err != nil {
		return fmt.Errorf("auth: read a record: %w", err)
	}
	for i := range records {
		if k := records[i].Key; k != nil {
			if err := k.compile(); err != nil {
				return err
			}
		}
		if n := records[i].Session; n != nil {
			if err := n.compile(); err != nil {
				return err
			}
		}
		s.apply(&records[i])
	}
	return nil
}

// apply makes one change. It cannot fail: what is not there is not changed.
func (s *state) apply(r *record) {
	switch {
	case r.User != nil:
		s.Users[r.User.Name] = r.User
		s.index.users.put(r.User.Name, r.User)
		s.index.owners.put(r.User.ID, r.User)
	case r.DropUser != "":
		if u := s.Users[r.DropUser]; u != nil {
			s.index.users.put(u.Name, nil)
			s.index.owners.put(u.ID, nil)
		}
		delete(s.Users, r.DropUser)
		s.forgetOf(r.DropUser)
	case r.Key != nil:
		s.putKey(r.Key)
	case r.DropKey != "":
		if k := s.Keys[r.DropKey]; k != nil {
			s.index.keys.put(k.Prefix, nil)
			delete(s.Keys, r.DropKey)
		}
	case r.RevokeKeysOf != "":
		for _, k := range s.Keys {
			if k.OwnerID == r.RevokeKeysOf && !k.Revoked {
				s.putKey(k.revoked())
			}
		}
	case r.Session != nil:
		s.Sessions[r.Session.ID] = r.Session
		s.index.sessions.put(r.Session.sum, r.Session)
		s.index.add(r.Session)
	case r.EndSession != "":
		s.forget(s.Sessions[r.EndSession])
	case r.EndSessionsOf != "":
		s.forgetOf(r.EndSessionsOf)
	case r.Claim != nil:
		s.Claim = *r.Claim
	case r.Used != nil:
		if k := s.Keys[r.Used.Key]; k != nil {
			k.LastUsed = r.Used.At
		}
		if n := s.Sessions[r.Used.Session]; n != nil {
			n.Seen = r.Used.At
			n.used.touch(r.Used.At)
		}
	}
}

// putKey puts a key in the place of an older one.
func (s *state) putKey(k *Key) {
	if old := s.Keys[k.ID]; old != nil {
		k.used.Store(old.used.Load())
		if old.Prefix != k.Prefix {
			s.index.keys.put(old.Prefix, nil)
		}
	}
	s.Keys[k.ID] = k
	s.index.keys.put(k.Prefix, k)
}

// forget ends a session; nil is none.
func (s *state) forget(n *Session) {
	if n == nil {
		return
	}
	delete(s.Sessions, n.ID)
	s.index.sessions.put(n.sum, nil)
	delete(s.index.of[n.User], n.ID)
	if len(s.index.of[n.User]) == 0 {
		delete(s.index.of, n.User)
	}
}

func (s *state) forgetOf(name string) {
	for _, n := range s.index.of[name] {
		s.forget(n)
	}
}

// owners counts the users who can do everything and are not disabled, but for one.
func (s *state) owners(but string) (n int) {
	for _, u := range s.Users {
		if u.Role == RoleOwner && !u.Disabled && u.Name != but {
			n++
		}
	}
	return n
}

// stamp is a time of last use that readers set without a lock, in Unix seconds.
type stamp struct{ atomic.Int64 }

// touch sets the time of use. It writes at most once a second, so that readers on many cores do not fight.
func (s *stamp) touch(now time.Time) {
	if at := now.Unix(); s.Load() < at {
		s.Store(at)
	}
}

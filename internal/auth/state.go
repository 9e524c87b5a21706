package auth

import (
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// state is all that is on disk. Its snapshot is its own JSON; the log holds lists of records.
type state struct {
	Users    map[string]*user    `json:"users"` // by name
	Keys     map[string]*Key     `json:"keys"`  // by id
	Sessions map[string]*Session `json:"sessions"`
	Claim    string              `json:"claim,omitempty"` // hash of the claim token
	Made     uint64              `json:"made"`            // users ever made: ids are not used again
}

func newState() state {
	return state{Users: map[string]*user{}, Keys: map[string]*Key{}, Sessions: map[string]*Session{}}
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
// one
// entry of the log.
type record struct {
	User          *user    `json:"user,omitempty"` // made or changed: the whole user
	DropUser      string   `json:"drop_user,omitempty"`
	Key           *Key     `json:"key,omitempty"` // made or changed
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

func (s *state) read(r io.Reader) error {
	fresh := newState()
	if err := json.NewDecoder(r).Decode(&fresh); err != nil {
		return fmt.Errorf("auth: read the snapshot: %w", err)
	}
	if fresh.Users == nil || fresh.Keys == nil || fresh.Sessions == nil {
		return fmt.Errorf("auth: read the snapshot: a table is missing")
	}
	for _, u := range fresh.Users {
		if u == nil {
			return fmt.Errorf("auth: read the snapshot: an empty user")
		}
	}
	for _, k := range fresh.Keys {
		if k == nil {
			return fmt.Errorf("auth: read the snapshot: an empty key")
		}
		if err := k.compile(); err != nil {
			return err
		}
	}
	for _, n := range fresh.Sessions {
		if n == nil {
			return fmt.Errorf("auth: read the snapshot: an empty session")
		}
	}
	*s = fresh
	return nil
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
		s.apply(&records[i])
	}
	return nil
}

// apply makes one change. It cannot fail: what is not there is not changed.
func (s *state) apply(r *record) {
	switch {
	case r.User != nil:
		if s.Users[r.User.Name] == nil {
			s.Made++
		}
		s.Users[r.User.Name] = r.User
	case r.DropUser != "":
		delete(s.Users, r.DropUser)
		s.endSessions(r.DropUser)
	case r.Key != nil:
		if old := s.Keys[r.Key.ID]; old != nil {
			r.Key.used.Store(old.used.Load())
		}
		s.Keys[r.Key.ID] = r.Key
	case r.Session != nil:
		s.Sessions[r.Session.ID] = r.Session
	case r.EndSession != "":
		delete(s.Sessions, r.EndSession)
	case r.EndSessionsOf != "":
		s.endSessions(r.EndSessionsOf)
	case r.Claim != nil:
		s.Claim = *r.Claim
	case r.Used != nil:
		if k := s.Keys[r.Used.Key]; k != nil {
			k.LastUsed = r.Used.At
		}
		if n := s.Sessions[r.Used.Session]; n != nil {
			n.Seen = r.Used.At
		}
	}
}

func (s *state) endSessions(of string) {
	for id, n := range s.Sessions {
		if n.User == of {
			delete(s.Sessions, id)
		}
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

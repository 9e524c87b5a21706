package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Kinds of keys.
const (
	KeyAPI    = "api"    // for programs that use any door
	KeyWorker = "worker" // for workers: scopes of room engine only
)

const maxKeys = 10_000

// Key is a key without its secret.
type Key struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Prefix   string    `json:"prefix"` // what its text begins with
	Hash     string    `json:"hash"`
	Owner    string    `json:"owner"` // who made it
	Scopes   []string  `json:"scopes"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"`
	Revoked  bool      `json:"revoked"`

	compiled []scope
	used     stamp
	told     bool // that it has expired
}

// KeyView is a key as it may be shown.
type KeyView struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Prefix   string    `json:"prefix"`
	Owner    string    `json:"owner"`
	Scopes   []string  `json:"scopes"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"` // to the minute
	Status   string    `json:"status"`             // active, expired or revoked
}

// NewKey describes a key to be made.
type NewKey struct {
	Name    string
	Kind    string // api or worker
	Scopes  []string
	Expires time.Time // zero = never
}

func (k *Key) compile() (err error) {
	if k.compiled, err = parseScopes(k.Scopes); err != nil {
		return fmt.Errorf("auth: read key %s: %w", k.ID, err)
	}
	return nil
}

func (k *Key) expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// revoked returns the key as it is once it is revoked.
func (k *Key) revoked() *Key {
	return &Key{ID: k.ID, Name: k.Name, Kind: k.Kind, Prefix: k.Prefix, Hash: k.Hash, Owner: k.Owner,
		Scopes: k.Scopes, Created: k.Created, Expires: k.Expires, LastUsed: k.LastUsed, Revoked: true,
		compiled: k.compiled}
}

func (k *Key) view(now time.Time) KeyView {
	v := KeyView{ID: k.ID, Name: k.Name, Kind: k.Kind, Prefix: k.Prefix, Owner: k.Owner, Scopes: k.Scopes,
		Created: k.Created, Expires: k.Expires, LastUsed: k.LastUsed, Status: "active"}
	if at := k.used.Load(); at > k.LastUsed.Unix() {
		v.LastUsed = time.Unix(at, 0).UTC()
	}
	v.LastUsed = v.LastUsed.Truncate(time.Minute)
	switch {
	case k.Revoked:
		v.Status = "revoked"
	case k.expired(now):
		v.Status = "expired"
	}
	return v
}

// CreateKey makes a key and returns its text, which nobody can read again. Its scopes must be within those of
// whoever makes it.
func (a *Auth) CreateKey(ctx context.Context, by *Principal, n NewKey) (KeyView, string, error) {
	now := a.o.Now()
	if err := by.needs("admin", "manage"); err != nil {
		return KeyView{}, "", err
	}
	if !a.Claimed() {
		return KeyView{}, "", unclaimed()
	}
	name := strings.TrimSpace(n.Name)
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' ||
			r == 0x7f
	}) {
		return KeyView{}, "", fault.Newf(fault.Invalid, CodeBadName, "a key needs a name of 1 to %d bytes", maxName)
	}
	scopes, err := parseScopes(n.Scopes)
	if err != nil {
		return KeyView{}, "", err
	}
	prefix := prefixAPI
	switch n.Kind {
	case KeyAPI:
	case KeyWorker:
		prefix = prefixWorker
		for i, s := range scopes {
			if s.room != "engine" {
				return KeyView{}, "", fault.Newf(fault.Invalid, CodeBadScope,
					"a worker key has scopes of room engine only, not %s; make an api key for more", n.Scopes[i])
			}
		}
	default:
		return KeyView{}, "", fault.New(fault.Invalid, wire.CodeInvalidArguments, "kind must be api or worker")
	}
	for i := range scopes {
		if !slices.ContainsFunc(by.scopes, func(own scope) bool { return own.covers(&scopes[i]) }) {
			return KeyView{}, "", fault.Newf(fault.Denied, wire.CodeForbidden,
				"nobody can give more than they have: you lack %s", n.Scopes[i])
		}
	}
	if !n.Expires.IsZero() && !n.Expires.After(now) {
		return KeyView{}, "", fault.New(fault.Invalid, wire.CodeInvalidArguments,
			"the key would have expired already")
	}
	id, secret := newID(), newSecret()
	k := &Key{ID: "k_" + id, Name: name, Kind: n.Kind, Prefix: prefix + id, Hash: hashOf(secret), Owner: by.Name,
		Scopes: slices.Clone(n.Scopes), Created: now.UTC().Truncate(time.Second), Expires: n.Expires.UTC(),
		compiled: scopes}
	if n.Expires.IsZero() {
		k.Expires = time.Time{}
	}
	err = a.commit(ctx, event(by, "key.create", k.ID+" "+k.Name), func(s *state) ([]record, error) {
		if len(s.Keys) >= maxKeys {
			return nil, fault.Newf(fault.Limit, wire.CodeLimit, "there are %d keys already, the limit", len(s.Keys))
		}
		for _, other := range s.Keys {
			if other.Name == name && !other.Revoked && !other.expired(now) {
				return nil, fault.Newf(fault.Conflict, CodeExists, "there is an active key named %s; revoke it first", name)
			}
		}
		return []record{{Key: k}}, nil
	})
	if err != nil {
		return KeyView{}, "", err
	}
	return k.view(now), k.Prefix + "_" + secret, nil
}

// Keys lists all keys, the newest first.
func (a *Auth) Keys() []KeyView {
	now := a.o.Now()
	a.mu.RLock()
	all := make([]KeyView, 0, len(a.state.Keys))
	for _, k := range a.state.Keys {
		all = append(all, k.view(now))
	}
	a.mu.RUnlock()
	slices.SortFunc(all, func(x, y KeyView) int {
		if c := y.Created.Compare(x.Created); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return all
}

// Key returns one key by its id, its prefix, or the name of an active one. The error is NotFound.
func (a *Auth) Key(id string) (KeyView, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	k, err := a.state.key(id, a.o.Now())
	if err != nil {
		return KeyView{}, err
	}
	return k.view(a.o.Now()), nil
}

func (s *state) key(id string, now time.Time) (*Key, error) {
	if k := s.Keys[id]; k != nil {
		return k, nil
	}
	for _, k := range s.Keys {
		if k.Prefix == id || k.Name == id && !k.Revoked && !k.expired(now) {
			return k, nil
		}
	}
	return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no key %q", id)
}

// RevokeKey ends a key for good. Its connections are ended.
func (a *Auth) RevokeKey(ctx context.Context, by *Principal, id string) error {
	if err := by.needs("admin", "manage"); err != nil {
		return err
	}
	var gone string
	err := a.commit(ctx, event(by, "key.revoke", id), func(s *state) ([]record, error) {
		k, err := s.key(id, a.o.Now())
		if err != nil {
			return nil, err
		}
		gone = k.ID
		return []record{{Key: k.revoked()}}, nil
	})
	if err == nil {
		a.tell(gone)
	}
	return err
}

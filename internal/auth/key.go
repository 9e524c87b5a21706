package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Kinds of keys.
const (
	KeyAPI    = "api"    // for programs that use any door
	KeyWorker = "worker" // for workers: scopes of room engine only
)

const maxKeys = 10_000

// Key is a key without its secret, as it is kept. Only LastUsed and the stamps change.
type Key struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Prefix   string    `json:"prefix"` // what its text begins with
	Hash     string    `json:"hash"`
	Owner    string    `json:"owner"`              // who made it
	OwnerID  string    `json:"owner_id,omitempty"` // the user with whom it ends
	Scopes   []string  `json:"scopes"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"`
	Revoked  bool      `json:"revoked"`

	sum      digest // Hash
	compiled []scope
	used     stamp
	told     atomic.Bool // that it has expired
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
	if k.sum, err = parseDigest(k.Hash); err != nil {
		return fmt.Errorf("auth: read key %s: %w", k.ID, err)
	}
	k.used.touch(k.LastUsed)
	return nil
}

func (k *Key) expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// revoked returns the key as it is once it is revoked.
func (k *Key) revoked() *Key {
	return &Key{ID: k.ID, Name: k.Name, Kind: k.Kind, Prefix: k.Prefix, Hash: k.Hash, Owner: k.Owner,
		OwnerID: k.OwnerID, Scopes: k.Scopes, Created: k.Created, Expires: k.Expires, LastUsed: k.LastUsed,
		Revoked: true, sum: k.sum, compiled: k.compiled}
}

func (k *Key) view(now time.Time) KeyView {
	v := KeyView{ID: k.ID, Name: k.Name, Kind: k.Kind, Prefix: k.Prefix, Owner: k.Owner, Scopes: k.Scopes,
		Created: k.Created, Expires: k.Expires, LastUsed: k.LastUsed, Status: "active"}
	if at := k.used.Load(); at != 0 && at > k.LastUsed.Unix() {
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
// whoever makes it, and it ends with the account of whoever makes it.
func (a *Auth) CreateKey(ctx context.Context, by *Principal, n NewKey) (KeyView, string, error) {
	now := a.o.Now()
	if err := by.needs("admin", "manage"); err != nil {
		return KeyView{}, "", err
	}
	if !a.Claimed() {
		return KeyView{}, "", unclaimed()
	}
	k, secret, err := draw(by, n, now)
	if err != nil {
		return KeyView{}, "", err
	}
	v := k.view(now)
	err = a.commit(ctx, event(by, "key.create", k.ID+" "+k.Name), func(s *state) ([]record, error) {
		switch by.Kind {
		case KindUser:
			k.OwnerID = by.ID
		case KindKey: // what a key makes belongs to whom the key belongs
			if maker := s.Keys[by.ID]; maker != nil {
				k.OwnerID = maker.OwnerID
			}
		}
		for _, other := range s.Keys {
			if other.Name == k.Name && !other.Revoked && !other.expired(now) {
				return nil, fault.Newf(fault.Conflict, CodeExists,
					"there is an active key named %s; revoke it first", k.Name)
			}
			if other.Prefix == k.Prefix || other.ID == k.ID {
				return nil, fault.New(fault.Conflict, CodeExists, "two keys drew the same prefix; try again")
			}
		}
		more, err := s.room(now)
		return append(more, record{Key: k}), err
	})
	if err != nil {
		return KeyView{}, "", err
	}
	return v, k.Prefix + "_" + secret, nil
}

// draw checks what is asked for and draws a secret.
func draw(by *Principal, n NewKey, now time.Time) (*Key, string, error) {
	name := strings.TrimSpace(n.Name)
	if name == "" || len(name) > maxName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return nil, "", fault.Newf(fault.Invalid, CodeBadName, "a key needs a name of 1 to %d bytes", maxName)
	}
	scopes, err := parseScopes(n.Scopes)
	if err != nil {
		return nil, "", err
	}
	prefix := prefixAPI
	switch n.Kind {
	case KeyAPI:
	case KeyWorker:
		prefix = prefixWorker
		for i, s := range scopes {
			if s.room != "engine" {
				return nil, "", fault.Newf(fault.Invalid, CodeBadScope,
					"a worker key has scopes of room engine only, not %s; make an api key for more", n.Scopes[i])
			}
		}
	default:
		return nil, "", fault.New(fault.Invalid, wire.CodeInvalidArguments, "kind must be api or worker")
	}
	if missing := by.lacks(scopes); missing != nil {
		return nil, "", fault.Newf(fault.Denied, wire.CodeForbidden,
			"nobody can give more than they have: you lack %s", missing)
	}
	if !n.Expires.IsZero() && !n.Expires.After(now) {
		return nil, "", fault.New(fault.Invalid, wire.CodeInvalidArguments, "the key would have expired already")
	}
	id, secret := newID(), newSecret()
	k := &Key{ID: "k_" + id, Name: name, Kind: n.Kind, Prefix: prefix + id, Hash: hashOf(secret), Owner: by.Name,
		Scopes: slices.Clone(n.Scopes), Created: now.UTC().Truncate(time.Second)}
	if !n.Expires.IsZero() {
		k.Expires = n.Expires.UTC()
	}
	return k, secret, k.compile()
}

// room makes place for one more key: the oldest one that is good for nothing goes.
func (s *state) room(now time.Time) ([]record, error) {
	if len(s.Keys) < maxKeys {
		return nil, nil
	}
	var oldest *Key
	for _, k := range s.Keys {
		if (k.Revoked || k.expired(now)) && (oldest == nil || k.Created.Before(oldest.Created)) {
			oldest = k
		}
	}
	if oldest == nil {
		return nil, fault.Newf(fault.Limit, wire.CodeLimit, "there are %d active keys, the limit", len(s.Keys))
	}
	return []record{{DropKey: oldest.ID}}, nil
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

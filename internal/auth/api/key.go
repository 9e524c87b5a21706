package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
)

type keysOutput struct {
	Body struct {
		Keys []auth.KeyView `json:"keys"`
	}
}

type newKeyInput struct {
	Body struct {
		Name      string     `json:"name"`
		Kind      string     `json:"kind" enum:"api,worker"`
		Scopes    []string   `json:"scopes" doc:"room:verb or room:verb:prefix, such as engine:call:billing::"`
		Expires   *time.Time `json:"expires,omitempty"`
		ExpiresIn int64      `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"3155760000"`
	}
}

type keyOutput struct {
	Body struct {
		Key auth.KeyView `json:"key"`
	}
}

type newKeyOutput struct {
	Body struct {
		Key    auth.KeyView `json:"key"`
		Secret string       `json:"secret" doc:"the text of the key; nobody can read it again"`
	}
}

// keys adds the keys.
func (s *server) keys(h huma.API) {
	add(s, h, operation("list-keys", http.MethodGet, "/api/keys",
		"All keys, without their secrets", 200, read),
		func(ctx context.Context, _ *nothing) (*keysOutput, error) {
			out := new(keysOutput)
			out.Body.Keys = s.auth.Keys()
			return out, nil
		})
	add(s, h, operation("create-key", http.MethodPost, "/api/keys",
		"Make a key; its text is shown once", 201, manage),
		func(ctx context.Context, in *newKeyInput) (*newKeyOutput, error) {
			b := &in.Body
			n := auth.NewKey{Name: b.Name, Kind: b.Kind, Scopes: b.Scopes}
			switch {
			case b.Expires != nil && b.ExpiresIn != 0:
				return nil, fault.New(fault.Invalid, "INVALID_ARGUMENTS", "give expires or expires_in_seconds, not both")
			case b.Expires != nil:
				n.Expires = *b.Expires
			case b.ExpiresIn > 0:
				n.Expires = time.Now().Add(time.Duration(b.ExpiresIn) * time.Second)
			}
			k, secret, err := s.auth.CreateKey(ctx, by(ctx), n)
			if err != nil {
				return nil, err
			}
			out := new(newKeyOutput)
			out.Body.Key, out.Body.Secret = k, secret
			return out, nil
		})
	add(s, h, operation("get-key", http.MethodGet, "/api/keys/{id}",
		"One key, by id, prefix or name", 200, read),
		func(ctx context.Context, in *idInput) (*keyOutput, error) {
			k, err := s.auth.Key(in.ID)
			if err != nil {
				return nil, err
			}
			out := new(keyOutput)
			out.Body.Key = k
			return out, nil
		})
	add(s, h, operation("revoke-key", http.MethodDelete, "/api/keys/{id}",
		"Revoke a key for good, and end its connections", 204, manage),
		func(ctx context.Context, in *idInput) (*nothing, error) {
			return nil, s.auth.RevokeKey(ctx, by(ctx), in.ID)
		})
}

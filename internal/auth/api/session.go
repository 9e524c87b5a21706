package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/plinth-run/plinth/internal/auth"
)

type setupOutput struct {
	Body struct {
		Claimed bool `json:"claimed" doc:"whether there is an account"`
	}
}

type claimInput struct {
	Body struct {
		Token    string `json:"token,omitempty" doc:"the one-time token; not needed beside the local token"`
		Name     string `json:"name"`
		Email    string `json:"email,omitempty"`
		Password string `json:"password"`
	}
}

type userOutput struct {
	Body struct {
		User auth.User `json:"user"`
	}
}

type tokenOutput struct {
	Body struct {
		Token string `json:"token"`
		URL   string `json:"url" doc:"the page on which to claim, with the token in its fragment"`
	}
}

type bootstrapInput struct {
	Body struct {
		Name     string `json:"name"`
		Email    string `json:"email,omitempty"`
		Password string `json:"password,omitempty"`
		Hash     string `json:"hash,omitempty" doc:"argon2id hash in PHC form, in place of the password"`
	}
}

type bootstrapOutput struct {
	Body struct {
		Created bool       `json:"created"`
		User    *auth.User `json:"user"`
	}
}

// setup adds what makes the first account.
func (s *server) setup(h huma.API) {
	add(s, h, operation("get-setup", http.MethodGet, "/api/setup",
		"Whether there is an account", 200, nobody),
		func(context.Context, *nothing) (*setupOutput, error) {
			out := new(setupOutput)
			out.Body.Claimed = s.auth.Claimed()
			return out, nil
		})
	add(s, h, operation("claim", http.MethodPost, "/api/setup/claim",
		"Make the first account", 201, nobody),
		func(ctx context.Context, in *claimInput) (*userOutput, error) {
			u, err := s.auth.Claim(ctx, requestOf(ctx).credential, in.Body.Token,
				auth.NewUser{Name: in.Body.Name, Email: in.Body.Email, Password: in.Body.Password})
			if err != nil {
				return nil, err
			}
			out := new(userOutput)
			out.Body.User = u
			return out, nil
		})
	add(s, h, operation("create-claim-token", http.MethodPost, "/api/setup/claim-token",
		"Make a new claim token", 200, local),
		func(ctx context.Context, _ *nothing) (*tokenOutput, error) {
			token, err := s.auth.NewClaim(ctx)
			if err != nil {
				return nil, err
			}
			out := new(tokenOutput)
			out.Body.Token = token
			if s.o.Link != nil {
				out.Body.URL = s.o.Link(token)
			}
			return out, nil
		})
	add(s, h, operation("bootstrap", http.MethodPost, "/api/setup/bootstrap",
		"Make the first account if there is none", 200, local),
		func(ctx context.Context, in *bootstrapInput) (*bootstrapOutput, error) {
			u, created, err := s.auth.Bootstrap(ctx, auth.NewUser{Name: in.Body.Name, Email: in.Body.Email,
				Password: in.Body.Password, Hash: in.Body.Hash})
			if err != nil {
				return nil, err
			}
			out := new(bootstrapOutput)
			out.Body.Created = created
			if u.Name != "" {
				out.Body.User = &u
			}
			return out, nil
		})
}

type loginInput struct {
	Body struct {
		Name     string `json:"name"`
		Password string `json:"password"`
		Code     string `json:"code,omitempty" doc:"one-time or recovery code, where the account has one"`
	}
}

type loginOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      struct {
		Token   string           `json:"token" doc:"for programs; pages have it as cookie"`
		Session auth.SessionView `json:"session"`
		User    auth.User        `json:"user"`
	}
}

type logoutOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

type meOutput struct {
	Body struct {
		Kind   string   `json:"kind"`
		ID     string   `json:"id,omitempty"`
		Name   string   `json:"name"`
		Role   string   `json:"role,omitempty"`
		Scopes []string `json:"scopes"`
	}
}

type nameInput struct {
	Name string `path:"name" maxLength:"64"`
}

func (n *nameInput) user() string { return n.Name }

type sessionsOutput struct {
	Body struct {
		Sessions []auth.SessionView `json:"sessions"`
	}
}

type idInput struct {
	ID string `path:"id" maxLength:"64"`
}

func (s *server) cookie(ctx context.Context, value string, expires time.Time) http.Cookie {
	r := requestOf(ctx)
	return http.Cookie{Name: Cookie, Value: value, Path: "/", Expires: expires, HttpOnly: true,
		Secure: s.o.Secure || r.secure, SameSite: http.SameSiteStrictMode}
}

// sessions adds login, logout and what belongs to them.
func (s *server) sessions(h huma.API) {
	add(s, h, operation("login", http.MethodPost, "/api/login",
		"Begin a session", 200, nobody),
		func(ctx context.Context, in *loginInput) (*loginOutput, error) {
			token, n, err := s.auth.Login(ctx, auth.Login{Name: in.Body.Name, Password: in.Body.Password,
				Code: in.Body.Code, Remote: requestOf(ctx).credential.Remote})
			if err != nil {
				return nil, err
			}
			u, err := s.auth.User(n.User)
			if err != nil {
				return nil, err
			}
			out := &loginOutput{SetCookie: s.cookie(ctx, token, n.Expires)}
			out.Body.Token, out.Body.Session, out.Body.User = token, n, u
			return out, nil
		})
	add(s, h, operation("logout", http.MethodPost, "/api/logout",
		"End the session", 204, known),
		func(ctx context.Context, _ *nothing) (*logoutOutput, error) {
			if err := s.auth.Logout(ctx, requestOf(ctx).credential.Token); err != nil {
				return nil, err
			}
			return &logoutOutput{s.cookie(ctx, "", time.Unix(1, 0))}, nil
		})
	add(s, h, operation("get-me", http.MethodGet, "/api/me",
		"Who I am, and what I may do", 200, known),
		func(ctx context.Context, _ *nothing) (*meOutput, error) {
			p, out := by(ctx), new(meOutput)
			out.Body.Kind, out.Body.ID, out.Body.Name, out.Body.Role = p.Kind, p.ID, p.Name, p.Role
			out.Body.Scopes = p.Scopes
			return out, nil
		})
	add(s, h, operation("list-sessions", http.MethodGet, "/api/users/{name}/sessions",
		"The sessions of a user", 200, look),
		func(ctx context.Context, in *nameInput) (*sessionsOutput, error) {
			u, err := s.auth.User(in.Name)
			if err != nil {
				return nil, err
			}
			out := new(sessionsOutput)
			out.Body.Sessions = s.auth.Sessions(u.Name)
			return out, nil
		})
	add(s, h, operation("end-session", http.MethodDelete, "/api/sessions/{id}",
		"End a session", 204, known),
		func(ctx context.Context, in *idInput) (*nothing, error) {
			return nil, s.auth.EndSession(ctx, by(ctx), in.ID)
		})
}

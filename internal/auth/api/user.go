package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/plinth-run/plinth/internal/auth"
)

type usersOutput struct {
	Body struct {
		Users []auth.User `json:"users"`
	}
}

type newUserInput struct {
	Body struct {
		Name     string `json:"name"`
		Email    string `json:"email,omitempty"`
		Role     string `json:"role,omitempty" doc:"owner, admin, developer or viewer, which is the default"`
		Password string `json:"password,omitempty"`
		Hash     string `json:"hash,omitempty" doc:"argon2id hash in PHC form, in place of the password"`
	}
}

type changeInput struct {
	Name string `path:"name" maxLength:"64"`
	Body struct {
		Email    *string `json:"email,omitempty"`
		Role     *string `json:"role,omitempty"`
		Disabled *bool   `json:"disabled,omitempty"`
	}
}

type passwordInput struct {
	Name string `path:"name" maxLength:"64"`
	Body struct {
		Old      string `json:"old_password,omitempty" doc:"asked of those who change their own"`
		Password string `json:"password"`
	}
}

func (p *passwordInput) user() string { return p.Name }

type totpOutput struct {
	Body struct {
		Secret string `json:"secret"`
		URI    string `json:"uri" doc:"for an authenticator app"`
	}
}

type codeInput struct {
	Name string `path:"name" maxLength:"64"`
	Body struct {
		Code string `json:"code" maxLength:"64"`
	}
}

func (c *codeInput) user() string { return c.Name }

type recoveryOutput struct {
	Body struct {
		Codes []string `json:"recovery_codes" doc:"each good once; nobody can read them again"`
	}
}

// oneUser answers with a user.
func oneUser(u auth.User, err error) (*userOutput, error) {
	if err != nil {
		return nil, err
	}
	out := new(userOutput)
	out.Body.User = u
	return out, nil
}

// users adds the accounts.
func (s *server) users(h huma.API) {
	add(s, h, operation("list-users", http.MethodGet, "/api/users",
		"All accounts", 200, read),
		func(ctx context.Context, _ *nothing) (*usersOutput, error) {
			out := new(usersOutput)
			out.Body.Users = s.auth.Users()
			return out, nil
		})
	add(s, h, operation("create-user", http.MethodPost, "/api/users",
		"Make an account", 201, manage),
		func(ctx context.Context, in *newUserInput) (*userOutput, error) {
			b := &in.Body
			return oneUser(s.auth.CreateUser(ctx, by(ctx), auth.NewUser{Name: b.Name, Email: b.Email, Role: b.Role,
				Password: b.Password, Hash: b.Hash}))
		})
	add(s, h, operation("get-user", http.MethodGet, "/api/users/{name}",
		"One account", 200, look),
		func(ctx context.Context, in *nameInput) (*userOutput, error) {
			return oneUser(s.auth.User(in.Name))
		})
	add(s, h, operation("change-user", http.MethodPatch, "/api/users/{name}",
		"Change an account", 200, manage),
		func(ctx context.Context, in *changeInput) (*userOutput, error) {
			return oneUser(s.auth.ChangeUser(ctx, by(ctx), in.Name, auth.UserChange{Email: in.Body.Email,
				Role: in.Body.Role, Disabled: in.Body.Disabled}))
		})
	add(s, h, operation("delete-user", http.MethodDelete, "/api/users/{name}",
		"Remove an account, its sessions and keys", 204, manage),
		func(ctx context.Context, in *nameInput) (*nothing, error) {
			return nil, s.auth.DeleteUser(ctx, by(ctx), in.Name)
		})
	add(s, h, operation("set-password", http.MethodPut, "/api/users/{name}/password",
		"Set a password, and end the sessions", 204, mine),
		func(ctx context.Context, in *passwordInput) (*nothing, error) {
			return nil, s.auth.SetPassword(ctx, by(ctx), in.Name, in.Body.Old, in.Body.Password)
		})
	add(s, h, operation("start-totp", http.MethodPost, "/api/users/{name}/totp",
		"Begin the set-up of one-time codes", 200, mine),
		func(ctx context.Context, in *nameInput) (*totpOutput, error) {
			secret, uri, err := s.auth.StartTOTP(ctx, by(ctx), in.Name)
			if err != nil {
				return nil, err
			}
			out := new(totpOutput)
			out.Body.Secret, out.Body.URI = secret, uri
			return out, nil
		})
	add(s, h, operation("confirm-totp", http.MethodPost, "/api/users/{name}/totp/confirm",
		"Turn one-time codes on", 200, mine),
		func(ctx context.Context, in *codeInput) (*recoveryOutput, error) {
			codes, err := s.auth.ConfirmTOTP(ctx, by(ctx), in.Name, in.Body.Code)
			if err != nil {
				return nil, err
			}
			out := new(recoveryOutput)
			out.Body.Codes = codes
			return out, nil
		})
	add(s, h, operation("remove-totp", http.MethodDelete, "/api/users/{name}/totp",
		"Turn one-time codes off", 204, mine),
		func(ctx context.Context, in *nameInput) (*nothing, error) {
			return nil, s.auth.RemoveTOTP(ctx, by(ctx), in.Name)
		})
}

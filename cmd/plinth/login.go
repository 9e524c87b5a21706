package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// sessionPrefix is what the token of a session begins with, and a key does not.
const sessionPrefix = "ps_"

// loginRow is a session without its token, which is in the context.
type loginRow struct {
	Context string    `json:"context"`
	User    userRow   `json:"user"`
	Expires time.Time `json:"expires"`
}

// newLogin makes `plinth login`.
func newLogin(p *program) *cobra.Command {
	var file, codeFile string
	cmd := &cobra.Command{
		Use: "login NAME", Short: "Log in, and keep the session in the context in use", GroupID: groupLook,
		Long: "Begins a session of an account. Its token is kept in the context in use, readable by you alone, so that other verbs\n" +
			"act as that account until plinth logout or until it expires. Programs should have a key: plinth key create.",
		Example: "  plinth context add prod --url wss://plinth.example.org:49134\n  plinth login ann",
		Args:    args(1, 1, "the name of an account"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withOffice(func(o *office) error {
				named, err := p.sessionContext(o.door)
				if err != nil {
					return err
				}
				in := map[string]string{"name": given[0]}
				if in["password"], err = p.secret(cmd.Context(), file, "password", "--password-file", false); err != nil {
					return err
				}
				if codeFile != "" {
					if in["code"], err = p.secret(cmd.Context(), codeFile, "code", "--code-file", false); err != nil {
						return err
					}
				}
				return p.login(cmd.Context(), o, named, in)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password, - for the standard input")
	cmd.Flags().StringVar(&codeFile, "code-file", "", "file that holds a one-time code, - for the standard input")
	return p.prints(cmd, formObject, loginRow{})
}

// sessionContext is the context that takes a session. A key in it is not thrown away for one.
func (p *program) sessionContext(d *door) (*namedDoor, error) {
	named, err := p.contextInUse()
	switch {
	case err != nil:
		return nil, err
	case named == nil:
		return nil, usage("there is no context in use to keep the session in",
			"plinth context add NAME --url ws://HOST:49134; on the server's machine its local token is enough")
	case !sameHost(d.Admin, named.Admin) || !sameHost(d.URL, named.URL):
		return nil, usage("--url or --admin lead elsewhere than context "+named.Name, "use a context of that address")
	case named.Token != "" && !strings.HasPrefix(named.Token, sessionPrefix):
		return nil, usage("context "+named.Name+" has a key", "log in with another context: plinth context add NAME --use")
	}
	return named, nil
}

// login asks for a session, and for the code of an account that has one-time codes.
func (p *program) login(ctx context.Context, o *office, named *namedDoor, in map[string]string) error {
	o.door.token = "" // the account is the credential here
	var out struct {
		Token   string `json:"token"`
		Session struct {
			Expires time.Time `json:"expires"`
		} `json:"session"`
		User userRow `json:"user"`
	}
	err := o.ask(ctx, http.MethodPost, "/api/login", in, &out)
	one := (*house.Problem)(nil)
	if errors.As(err, &one) && one.Code == auth.CodeNeedsCode && in["code"] == "" {
		if in["code"], err = p.secret(ctx, "", "code", "--code-file", false); err != nil {
			return err
		}
		err = o.ask(ctx, http.MethodPost, "/api/login", in, &out)
	}
	if errors.As(err, &one) && one.Kind == fault.Denied {
		one.What, one.Do = "cannot log in as "+in["name"], "check the name, the password and the code"
	}
	if err != nil {
		return err
	}
	if err := p.keepToken(named.Name, out.Token); err != nil {
		return err
	}
	row := loginRow{named.Name, out.User, out.Session.Expires}
	p.note("logged in as %s until %s, in context %s", row.User.Name, row.Expires.Local().Format(time.DateTime),
		row.Context)
	if p.wantJSON() {
		return p.printJSON(row)
	}
	return nil
}

// keepToken puts a token into a context that is there.
func (p *program) keepToken(name, token string) error {
	f, err := p.contexts()
	if err != nil {
		return err
	}
	c := f.Contexts[name]
	if c == nil {
		return noContext(f, name)
	}
	c.Token = token
	return p.keepContexts(f)
}

// newLogout makes `plinth logout`.
func newLogout(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "logout", Short: "End the session of the context in use", GroupID: groupLook,
		Example: "  plinth logout\n  plinth logout --context prod", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withOffice(func(o *office) error {
				named, err := p.contextInUse()
				if err != nil {
					return err
				}
				if named == nil || !strings.HasPrefix(named.Token, sessionPrefix) {
					return p.finish("nothing: no session is kept in the context in use", false)
				}
				if !sameHost(o.door.Admin, named.Admin) {
					return usage("--admin leads elsewhere than context "+named.Name, "leave it out")
				}
				o.door.token = named.Token
				err = o.ask(cmd.Context(), http.MethodPost, "/api/logout", nil, nil)
				if one := (*house.Problem)(nil); errors.As(err, &one) && one.Code == codeAuth {
					err = nil // it had ended already
				}
				if err != nil {
					return err
				}
				if err := p.keepToken(named.Name, ""); err != nil {
					return err
				}
				return p.finish("end the session of context "+named.Name, false)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, done{})
}

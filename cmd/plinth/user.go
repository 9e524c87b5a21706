package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newUser makes `plinth user` with its verbs; alone it lists.
func newUser(p *program) *cobra.Command {
	list := p.newUserList()
	cmd := &cobra.Command{
		Use: "user", Short: "Manage accounts", GroupID: groupLook, Aliases: []string{"users"},
		Long: "Roles: owner may do everything; admin everything but touch owners; developer may read, call, register and write in all\n" +
			"rooms; viewer may read.",
		Example: "  plinth user\n  plinth user create bob --role developer --password-file secret.txt",
	}
	cmd.AddCommand(list, p.newUserInfo(), p.newUserCreate(), p.newUserChange(), p.newUserPassword(),
		p.newUserTOTP(), p.newUserRemove())
	alone(cmd, list)
	return cmd
}

func (p *program) newUserList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the accounts", Example: "  plinth user list --json",
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withOffice(func(o *office) error {
				rows, err := o.users(cmd.Context())
				if err != nil {
					return err
				}
				if p.wantJSON() {
					return printRows(p, rows)
				}
				if len(rows) == 0 {
					p.note("no accounts yet: plinth admin claim makes the first")
					return nil
				}
				t := p.table("name", "role", "state", "codes", "last login", "e-mail")
				for _, u := range rows {
					state := "active"
					if u.Disabled {
						state = "disabled"
					}
					t.Row(u.Name, u.Role, state, yes(u.TOTP), ago(u.LastLogin), u.Email)
				}
				_, err = t.WriteTo(p.out)
				return wrote(err)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formList, userRow{})
}

// ago is how long something is past.
func ago(at *time.Time) string {
	if at == nil || at.IsZero() {
		return "never"
	}
	d := time.Since(*at)
	switch {
	case d < time.Minute:
		return "just now"
	case d < 2*time.Hour:
		return d.Round(time.Minute).String()[:len(d.Round(time.Minute).String())-2] + " ago"
	case d < 48*time.Hour:
		return d.Round(time.Hour).String()[:len(d.Round(time.Hour).String())-4] + " ago"
	}
	return at.Format(time.DateOnly)
}

// printUser prints one account.
func (p *program) printUser(u userRow) error {
	if p.wantJSON() {
		return p.printJSON(u)
	}
	t := p.table("what", "value")
	t.Row("name", u.Name)
	t.Row("id", u.ID)
	t.Row("role", u.Role)
	t.Row("disabled", yes(u.Disabled))
	t.Row("one-time codes", yes(u.TOTP))
	t.Row("e-mail", first(u.Email, "-"))
	t.Row("made", u.Created.Format(time.RFC3339))
	t.Row("last login", ago(u.LastLogin))
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

// userPath is where an account is, or something of it.
func userPath(name string, rest ...string) string {
	return "/api/users/" + url.PathEscape(name) + strings.Join(rest, "")
}

// users lists the accounts.
func (o *office) users(ctx context.Context) ([]userRow, error) {
	out := struct {
		Users []userRow `json:"users"`
	}{[]userRow{}}
	err := o.ask(ctx, http.MethodGet, "/api/users", nil, &out)
	return out.Users, err
}

// askUser is ask about one account; a failure has the names that may have been meant.
func (o *office) askUser(ctx context.Context, name, method, path string, in, out any) error {
	return near(o.ask(ctx, method, path, in, out), name, func() (names []string, err error) {
		rows, err := o.users(ctx)
		for _, u := range rows {
			names = append(names, u.Name)
		}
		return names, err
	})
}

// oneUser asks for an answer that holds an account, and prints it.
func (p *program) oneUser(cmd *cobra.Command, name, method, path string, in any) error {
	return p.withOffice(func(o *office) error {
		var out struct {
			User userRow `json:"user"`
		}
		if err := o.askUser(cmd.Context(), name, method, path, in, &out); err != nil {
			return err
		}
		return p.printUser(out.User)
	})
}

func (p *program) newUserInfo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "info NAME", ValidArgsFunction: p.completeUsers,
		Short: "Show one account", Example: "  plinth user info ann", Args: args(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.oneUser(cmd, given[0], http.MethodGet, userPath(given[0]), nil)
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, userRow{})
}

func (p *program) newUserCreate() *cobra.Command {
	var role, email, file string
	var dry bool
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make an account", Args: args(1, 1, "a name"),
		Example: "  plinth user create bob --role developer\n  plinth user create bob --role viewer --password-file secret.txt",
		RunE: func(cmd *cobra.Command, given []string) error {
			if dry {
				return p.printUser(userRow{Name: given[0], Role: role, Email: email})
			}
			text, err := p.password(cmd.Context(), file)
			if err != nil {
				return err
			}
			return p.oneUser(cmd, given[0], http.MethodPost, "/api/users",
				map[string]string{"name": given[0], "role": role, "email": email, "password": text})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&role, "role", "viewer", "owner, admin, developer or viewer")
	cmd.Flags().StringVar(&email, "email", "", "e-mail address")
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password, - for the standard input")
	dryFlag(cmd, &dry)
	return p.prints(cmd, formObject, userRow{})
}

func (p *program) newUserChange() *cobra.Command {
	var role, email string
	var disable, enable bool
	cmd := &cobra.Command{
		Use: "change NAME", ValidArgsFunction: p.completeUsers,
		Short: "Change role or e-mail of an account, disable or enable it", Args: args(1, 1, "a name"),
		Example: "  plinth user change bob --role admin\n  plinth user change bob --disable",
		RunE: func(cmd *cobra.Command, given []string) error {
			in := map[string]any{}
			if cmd.Flags().Changed("role") {
				in["role"] = role
			}
			if cmd.Flags().Changed("email") {
				in["email"] = email
			}
			switch {
			case disable && enable:
				return usage("both --disable and --enable are given", "use one of the two")
			case disable || enable:
				in["disabled"] = disable
			case len(in) == 0:
				return usage("there is nothing to change", "give --role, --email, --disable or --enable")
			}
			return p.oneUser(cmd, given[0], http.MethodPatch, userPath(given[0]), in)
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&role, "role", "", "owner, admin, developer or viewer")
	cmd.Flags().StringVar(&email, "email", "", "e-mail address")
	cmd.Flags().BoolVar(&disable, "disable", false, "end its sessions and let it in no more")
	cmd.Flags().BoolVar(&enable, "enable", false, "let it in again")
	return p.prints(cmd, formObject, userRow{})
}

func (p *program) newUserPassword() *cobra.Command {
	var file, old string
	cmd := &cobra.Command{
		Use: "password NAME", ValidArgsFunction: p.completeUsers,
		Short: "Set a password, and end the sessions of the account", Args: args(1, 1, "a name"),
		Example: "  plinth user password bob --password-file secret.txt",
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withOffice(func(o *office) error {
				in := map[string]string{}
				var err error
				if old != "" {
					in["old_password"], err = p.secret(cmd.Context(), old, "old password", "--old-password-file", false)
					if err != nil {
						return err
					}
				}
				if in["password"], err = p.password(cmd.Context(), file); err != nil {
					return err
				}
				err = o.askUser(cmd.Context(), given[0], http.MethodPut, userPath(given[0], "/password"), in, nil)
				if err != nil {
					return err
				}
				return p.finish("set the password of "+given[0], false)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password, - for the standard input")
	cmd.Flags().StringVar(&old, "old-password-file", "", "file that holds the old one, to change your own")
	return p.prints(cmd, formObject, done{})
}

func (p *program) newUserRemove() *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "remove NAME", ValidArgsFunction: p.completeUsers,
		Short: "Remove an account, its sessions and its keys", Args: args(1, 1, "a name"),
		Example: "  plinth user remove bob\n  plinth user remove bob --yes",
		RunE: func(cmd *cobra.Command, given []string) error {
			what := "remove user " + given[0] + ", its sessions and its keys"
			if dry {
				return p.finish(what, true)
			}
			return p.withOffice(func(o *office) error {
				if err := p.sure(cmd.Context(), what, yes); err != nil {
					return err
				}
				err := o.askUser(cmd.Context(), given[0], http.MethodDelete, userPath(given[0]), nil, nil)
				if err != nil {
					return err
				}
				return p.finish(what, false)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	dryFlag(cmd, &dry)
	yesFlag(cmd, &yes)
	return p.prints(cmd, formObject, done{})
}

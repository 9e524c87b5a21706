package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// userRow is an account, as the admin door gives it.
type userRow struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Email     string     `json:"email,omitempty"`
	Role      string     `json:"role"`
	Disabled  bool       `json:"disabled"`
	TOTP      bool       `json:"totp"`
	Created   time.Time  `json:"created"`
	LastLogin *time.Time `json:"last_login,omitempty"`
}

// meRow is who one is at a door.
type meRow struct {
	Claimed bool     `json:"claimed"`
	Kind    string   `json:"kind"`
	ID      string   `json:"id,omitempty"`
	Name    string   `json:"name"`
	Role    string   `json:"role,omitempty"`
	Scopes  []string `json:"scopes"`
}

// newAdmin makes `plinth admin` with its verbs.
func newAdmin(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "admin", Short: "Claim a Plinth, and see who you are to it", GroupID: groupLook,
		Long: "While a Plinth has no account, programs on its machine may use it and nobody else. The first account closes every\n" +
			"door. Make it with claim, or without a hand with bootstrap.",
		Example: "  plinth admin claim --name ann\n  plinth admin status",
	}
	cmd.AddCommand(p.newClaim(), p.newClaimToken(), p.newBootstrap(), p.newStatus())
	return cmd
}

func (p *program) newClaim() *cobra.Command {
	var name, email, file, tokenFile string
	cmd := &cobra.Command{
		Use: "claim", Short: "Make the first account, an owner",
		Long: "Makes the first account. On the machine of the server the local token in its data folder is proof enough (say\n" +
			"--data when it is not ./plinth-data); elsewhere give the claim token of plinth admin claim-token. Of several\n" +
			"claims one wins.",
		Example: "  plinth admin claim --name ann --email ann@example.org\n" +
			"  plinth admin claim --name ann --password-file secret.txt --claim-token-file claim.txt",
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return usage("--name is missing", "such as --name ann")
			}
			return p.withOffice(func(o *office) error {
				claim, err := "", error(nil)
				if tokenFile != "" || o.door.token == "" && p.canAsk() {
					claim, err = p.secret(cmd.Context(), tokenFile, "claim token", "--claim-token-file", false)
				}
				if err != nil {
					return err
				}
				text, err := p.password(cmd.Context(), file)
				if err != nil {
					return err
				}
				var out struct {
					User userRow `json:"user"`
				}
				if err := o.ask(cmd.Context(), http.MethodPost, "/api/setup/claim", map[string]string{"token": claim,
					"name": name, "email": email, "password": text}, &out); err != nil {
					return err
				}
				p.note("account %s is made; every door asks for a credential now", out.User.Name)
				if p.wantJSON() {
					return p.printJSON(out.User)
				}
				return nil
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "name to log in with")
	cmd.Flags().StringVar(&email, "email", "", "e-mail address")
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password, - for the standard input")
	cmd.Flags().StringVar(&tokenFile, "claim-token-file", "", "file that holds the claim token")
	return p.prints(cmd, formObject, userRow{})
}

// tokenRow is a claim token; it is shown once.
type tokenRow struct {
	Token string `json:"token"`
	URL   string `json:"url"`
}

func (p *program) newClaimToken() *cobra.Command {
	cmd := &cobra.Command{
		Use: "claim-token", Short: "Make a new claim token, in the place of the older one",
		Example: "  plinth admin claim-token", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withOffice(func(o *office) error {
				var row tokenRow
				if err := o.ask(cmd.Context(), http.MethodPost, "/api/setup/claim-token", nil, &row); err != nil {
					return err
				}
				if p.wantJSON() {
					return p.printJSON(row)
				}
				if p.errFacts.Terminal && row.URL != "" { // for a person, not for a log
					p.note("give it to plinth admin claim, or open %s", row.URL)
				}
				return p.print(row.Token + "\n")
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, tokenRow{})
}

// bootstrapRow is what bootstrap did.
type bootstrapRow struct {
	Created bool     `json:"created"`
	User    *userRow `json:"user"`
}

func (p *program) newBootstrap() *cobra.Command {
	var name, email, file, hashFile string
	cmd := &cobra.Command{
		Use: "bootstrap", Short: "Make the first account if there is none, for scripts",
		Long: "Does what PLINTH_BOOTSTRAP_NAME and PLINTH_BOOTSTRAP_PASSWORD_FILE do at the start of a server. Where there is an\n" +
			"account already it says so and leaves with 0.",
		Example: "  plinth admin bootstrap --name ann --password-file secret.txt --json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return usage("--name is missing", "such as --name ann")
			}
			return p.withOffice(func(o *office) error {
				in := map[string]string{"name": name, "email": email}
				var err error
				if hashFile != "" {
					in["hash"], err = p.readSecret(hashFile)
				} else {
					in["password"], err = p.password(cmd.Context(), file)
				}
				if err != nil {
					return err
				}
				var row bootstrapRow
				if err := o.ask(cmd.Context(), http.MethodPost, "/api/setup/bootstrap", in, &row); err != nil {
					return err
				}
				if row.Created {
					p.note("account %s is made", name)
				} else {
					p.note("already done: there is an account")
				}
				if p.wantJSON() {
					return p.printJSON(row)
				}
				return nil
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "name to log in with")
	cmd.Flags().StringVar(&email, "email", "", "e-mail address")
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password, - for the standard input")
	cmd.Flags().StringVar(&hashFile, "hash-file", "", "file that holds the hash of plinth hash-password, in its place")
	return p.prints(cmd, formObject, bootstrapRow{})
}

func (p *program) newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show whether there is an account, and who you are",
		Example: "  plinth admin status --json", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withOffice(func(o *office) error {
				row := meRow{Scopes: []string{}}
				var setup struct {
					Claimed bool `json:"claimed"`
				}
				if err := o.ask(cmd.Context(), http.MethodGet, "/api/setup", nil, &setup); err != nil {
					return err
				}
				if err := o.ask(cmd.Context(), http.MethodGet, "/api/me", nil, &row); err != nil {
					return err
				}
				row.Claimed = setup.Claimed
				if p.wantJSON() {
					return p.printJSON(row)
				}
				t := p.table("what", "value")
				t.Row("admin door", o.door.Admin)
				t.Row("has an account", yes(row.Claimed))
				t.Row("you are", fmt.Sprintf("%s %s", row.Kind, row.Name))
				t.Row("by", first(o.door.from, "being on this machine"))
				for i, s := range row.Scopes {
					t.Row([]string{"you may", ""}[min(i, 1)], s)
				}
				_, err := t.WriteTo(p.out)
				return wrote(err)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, meRow{})
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

package main

import (
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// totpRow is what an authenticator app needs; it is shown once.
type totpRow struct {
	Secret string `json:"secret"`
	URI    string `json:"uri"`
}

// recoveryRow is what gets in without the app, each code once; it is shown once.
type recoveryRow struct {
	Codes []string `json:"recovery_codes"`
}

// newUserTOTP makes `plinth user totp` with its verbs.
func (p *program) newUserTOTP() *cobra.Command {
	cmd := &cobra.Command{
		Use: "totp", Short: "Ask an account for one-time codes when it logs in",
		Long: "One-time codes come from an authenticator app. Only the account itself can turn them on: log in as it first.\n" +
			"Whoever may manage accounts can turn them off, for somebody who has lost the app and the recovery codes.",
		Example: "  plinth login ann\n  plinth user totp start ann\n  plinth user totp confirm ann",
	}
	cmd.AddCommand(p.newTOTPStart(), p.newTOTPConfirm(), p.newTOTPRemove())
	return cmd
}

func (p *program) newTOTPStart() *cobra.Command {
	cmd := &cobra.Command{
		Use: "start NAME", Short: "Show the secret for an authenticator app; nothing is asked for yet",
		Example: "  plinth user totp start ann", Args: args(1, 1, "a name"), ValidArgsFunction: p.completeUsers,
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withOffice(func(o *office) error {
				var row totpRow
				err := o.askUser(cmd.Context(), given[0], http.MethodPost, userPath(given[0], "/totp"), nil, &row)
				if err != nil {
					return err
				}
				if p.wantJSON() {
					return p.printJSON(row)
				}
				p.note("add this to an authenticator app, then: plinth user totp confirm %s", given[0])
				return p.print("secret  " + row.Secret + "\nuri     " + row.URI + "\n")
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, totpRow{})
}

func (p *program) newTOTPConfirm() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "confirm NAME", Short: "Give a code of the app, and get recovery codes", Args: args(1, 1, "a name"),
		Example:           "  plinth user totp confirm ann\n  plinth user totp confirm ann --code-file - > recovery.txt",
		ValidArgsFunction: p.completeUsers,
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withOffice(func(o *office) error {
				code, err := p.secret(cmd.Context(), file, "code", "--code-file", false)
				if err != nil {
					return err
				}
				var row recoveryRow
				err = o.askUser(cmd.Context(), given[0], http.MethodPost, userPath(given[0], "/totp/confirm"),
					map[string]string{"code": strings.ReplaceAll(code, " ", "")}, &row)
				if err != nil {
					return err
				}
				if row.Codes == nil {
					row.Codes = []string{}
				}
				if p.wantJSON() {
					return p.printJSON(row)
				}
				p.note("one-time codes are on for %s. Keep these recovery codes: each is good once, and nobody can show "+
					"them again", given[0])
				return p.print(strings.Join(row.Codes, "\n") + "\n")
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&file, "code-file", "", "file that holds the code, - for the standard input")
	return p.prints(cmd, formObject, recoveryRow{})
}

func (p *program) newTOTPRemove() *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Ask for one-time codes no more", Args: args(1, 1, "a name"),
		Example: "  plinth user totp remove ann --yes", ValidArgsFunction: p.completeUsers,
		RunE: func(cmd *cobra.Command, given []string) error {
			what := "turn off one-time codes of " + given[0]
			if dry {
				return p.finish(what, true)
			}
			return p.withOffice(func(o *office) error {
				if err := p.sure(cmd.Context(), what, yes); err != nil {
					return err
				}
				err := o.askUser(cmd.Context(), given[0], http.MethodDelete, userPath(given[0], "/totp"), nil, nil)
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

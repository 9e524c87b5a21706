package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
)

// password reads a password: from --password-file, or twice from the terminal without an echo.
func (p *program) password(file string) (string, error) {
	if file != "" {
		text, err := p.readSecret(file)
		if err != nil {
			return "", usage("cannot read the password: "+err.Error(), "name a file that holds it and nothing else, or -")
		}
		return text, nil
	}
	in, ok := p.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", usage("a password is needed, and there is no terminal to ask at",
			"give it in a file: --password-file FILE, or - for the standard input")
	}
	ask := func(prompt string) (string, error) {
		if _, err := p.err.Write([]byte(prompt)); err != nil {
			return "", err
		}
		b, err := term.ReadPassword(int(in.Fd()))
		_, _ = p.err.Write([]byte("\n")) // the prompt's line; a stderr that is gone has no reader
		return string(b), err
	}
	one, err := ask("Password: ")
	if err != nil {
		return "", err
	}
	two, err := ask("Again: ")
	if err != nil {
		return "", err
	}
	if one != two {
		return "", usage("the two passwords differ", "try again")
	}
	return one, nil
}

// hashRow is what `plinth hash-password` prints.
type hashRow struct {
	Hash string `json:"hash"`
}

// newHashPassword makes `plinth hash-password`.
func newHashPassword(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "hash-password", Short: "Hash a password for PLINTH_BOOTSTRAP_PASSWORD_HASH", GroupID: groupLook,
		Long: "Prints the argon2id hash of a password. A hash can stand in a configuration, a password should not.",
		Example: "  plinth hash-password\n  plinth hash-password --password-file secret.txt\n" +
			"  printf '%s' \"$PASSWORD\" | plinth hash-password --password-file -",
		Args: args(0, 0, "no arguments: a password is no argument"),
		RunE: func(*cobra.Command, []string) error {
			text, err := p.password(file)
			if err != nil {
				return err
			}
			hash, err := auth.HashPassword(text)
			if err != nil {
				return usage(plain(err), "choose another")
			}
			if p.wantJSON() {
				return p.printJSON(hashRow{hash})
			}
			return p.print(hash + "\n")
		},
	}
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password, - for the standard input")
	return p.prints(cmd, formObject, hashRow{})
}

// plain is the message of an error without its code.
func plain(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

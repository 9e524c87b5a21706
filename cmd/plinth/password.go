package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
)

// password reads a password: from --password-file, or twice from the terminal without an echo.
func (p *program) password(ctx context.Context, file string) (string, error) {
	return p.secret(ctx, file, "password", "--password-file", true)
}

// secret reads a secret: from the file that a flag names, or from the terminal without an echo. One that is
// being chosen is asked for twice.
func (p *program) secret(ctx context.Context, file, what, flag string, chosen bool) (string, error) {
	if file != "" {
		text, err := p.readSecret(file)
		if err != nil {
			return "", usage("cannot read the "+what+": "+err.Error(), "name a file that holds it and nothing else, or -")
		}
		return text, nil
	}
	if !p.canAsk() {
		return "", usage("a "+what+" is needed, and there is no terminal to ask at",
			"give it in a file: "+flag+" FILE, or - for the standard input")
	}
	one, err := p.ask(ctx, strings.ToUpper(what[:1])+what[1:]+": ", false)
	if err != nil || !chosen {
		return one, err
	}
	two, err := p.ask(ctx, "Again: ", false)
	if err != nil {
		return "", err
	}
	if one != two {
		return "", usage("the two differ", "try again")
	}
	return one, nil
}

// canAsk reports whether a person sits at a terminal, where a prompt is seen and answered.
func (p *program) canAsk() bool {
	in, ok := p.in.(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && p.errFacts.Terminal
}

// ask puts a question on stderr and reads one line from the terminal. When ctx ends the terminal is put back
// as it was. The goroutine that reads ends with the process then: nothing can wake it.
func (p *program) ask(ctx context.Context, prompt string, echo bool) (string, error) {
	in, ok := p.in.(*os.File)
	if !ok {
		return "", errors.New("no terminal")
	}
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("ask at the terminal: %w", err)
	}
	if _, err := io.WriteString(p.err, prompt); err != nil {
		return "", fmt.Errorf("ask at the terminal: %w", err)
	}
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		if echo {
			text, err := bufio.NewReader(io.LimitReader(in, maxSecret)).ReadString('\n')
			got <- answer{strings.TrimRight(text, "\r\n"), err}
			return
		}
		b, err := term.ReadPassword(int(in.Fd()))
		got <- answer{string(b), err}
	}()
	select {
	case a := <-got:
		if !echo {
			_, _ = io.WriteString(p.err, "\n") // the prompt's line; a stderr that is gone has no reader
		}
		if a.err != nil {
			return "", usage("nothing was typed: "+a.err.Error(), "try again")
		}
		return a.text, nil
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), term.Restore(int(in.Fd()), before))
	}
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
			"  printf '%s' \"$PASSWORD\" | plinth hash-password",
		Args: args(0, 0, "no arguments: a password is no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && !p.canAsk() {
				file = "-" // it is a filter
			}
			text, err := p.password(cmd.Context(), file)
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

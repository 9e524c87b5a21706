package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plinth-run/plinth/cmd/plinth/screen"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// program is one run of the command: its streams, its environment, and the flags that all verbs share.
type program struct {
	in       io.Reader
	out, err io.Writer
	environ  []string

	outFacts, errFacts screen.Facts

	json     string // "", "true" or "lines"
	color    string
	progress string

	// where to find a running Plinth, and how to prove oneself; empty: see door
	url, admin, context, tokenFile, data string

	inRead bool // the standard input was read for a secret

	results map[*cobra.Command]result
}

func newProgram(in io.Reader, out, errOut io.Writer, environ []string) *program {
	p := &program{in: in, out: out, err: errOut, environ: environ,
		results: map[*cobra.Command]result{}}
	p.outFacts, p.errFacts = p.facts(out), p.facts(errOut)
	return p
}

func (p *program) facts(w io.Writer) screen.Facts {
	f := screen.Facts{Getenv: p.getenv}
	file, ok := w.(*os.File)
	if ok && term.IsTerminal(int(file.Fd())) {
		f.Terminal = true
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			f.Width = width
		}
	}
	return f
}

// getenv gives the last value of a variable, as the system does.
func (p *program) getenv(name string) string {
	value := ""
	for _, line := range p.environ {
		if text, ok := strings.CutPrefix(line, name+"="); ok {
			value = text
		}
	}
	return value
}

// run executes the command line and gives its exit code. What failed is on stderr by then.
func (p *program) run(ctx context.Context, args []string) int {
	root := newRoot(p)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	cause := house.Interrupted{}
	if errors.As(context.Cause(ctx), &cause) && (errors.Is(err, context.Canceled) || errors.As(err, &cause)) {
		err = &house.Problem{Kind: fault.Unavailable, Code: codeInterrupted, What: "stopped", Why: cause.Error(),
			Err: cause}
	}
	p.report(root, args, err)
	return exitCode(err)
}

func (p *program) wantJSON() bool  { return p.json != "" && p.json != "false" }
func (p *program) wantLines() bool { return p.json == "lines" }

func (p *program) outPaint() screen.Paint {
	return screen.Paint{On: screen.Colour(p.color, p.outFacts)}
}
func (p *program) errPaint() screen.Paint {
	return screen.Paint{On: screen.Colour(p.color, p.errFacts)}
}

// note writes a line for the person, to stderr. With --json or --progress quiet there are none.
func (p *program) note(format string, args ...any) {
	if p.wantJSON() || p.progress == screen.Quiet {
		return
	}
	_, _ = fmt.Fprintf(p.err, format+"\n", args...) // a stderr that is gone has no reader
}

// printJSON writes one value: on one line without a terminal, indented in one.
func (p *program) printJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	if p.outFacts.Terminal && !p.wantLines() {
		enc.SetIndent("", "  ")
	}
	return wrote(enc.Encode(v))
}

// printRows writes a list as one array, or one row a line with --json=lines. rows must not be nil.
func printRows[T any](p *program, rows []T) error {
	if !p.wantLines() {
		return p.printJSON(rows)
	}
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	for _, row := range rows {
		if err := enc.Encode(row); err != nil {
			return wrote(err)
		}
	}
	return nil
}

// table makes a table for the standard output.
func (p *program) table(head ...string) *screen.Table {
	return &screen.Table{Head: head, Paint: p.outPaint(), Width: p.outFacts.Width}
}

// print writes text to the standard output.
func (p *program) print(text string) error {
	_, err := io.WriteString(p.out, text)
	return wrote(err)
}

// wrote names a failed write to the standard output.
func wrote(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write the result: %w", err)
}

// usage is a fault in the command line: exit code 2.
func usage(what, do string, near ...string) error {
	return &house.Problem{Kind: fault.Invalid, Code: codeUsage, What: what, Do: do, Near: near}
}

// form says what a verb prints with --json.
type form string

// The forms. Lists may also come one row a line, with --json=lines.
const (
	formObject form = "object"
	formList   form = "list"
	formValue  form = "value" // whatever a function returned
	formText   form = "text"  // a script or a page: --json changes nothing
)

// result is what the reference says of a verb's output.
type result struct {
	form  form
	shape any // a zero value of the Go type, or nil
}

// prints notes what a verb prints, for the reference and the test that runs every verb.
func (p *program) prints(cmd *cobra.Command, f form, shape any) *cobra.Command {
	p.results[cmd] = result{f, shape}
	return cmd
}

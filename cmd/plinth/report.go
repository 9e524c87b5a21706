package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// problem is what stderr carries with --json when a verb fails: one object on one line.
type problem struct {
	What    string    `json:"what"`
	Why     string    `json:"why"`
	Do      string    `json:"do"`
	Code    string    `json:"code"`
	TraceID string    `json:"trace_id"` // "" when there was no call
	Near    []string  `json:"did_you_mean"`
	Exit    int       `json:"exit"`
	More    []problem `json:"more"` // further problems that were found at the same time
}

// report tells on stderr what failed: what, why, what to do, code and trace.
func (p *program) report(root *cobra.Command, args []string, err error) {
	all := house.Problems(err)
	if len(all) == 0 {
		all = []*house.Problem{unplanned(err)}
	}
	if p.wantJSON() || jsonInArgs(args) {
		first := asObject(all[0], err)
		for _, more := range all[1:] {
			first.More = append(first.More, asObject(more, err))
		}
		line, _ := json.Marshal(first) // plain texts: cannot fail
		_, _ = fmt.Fprintf(p.err, "%s\n", line)
		return
	}
	paint := p.errPaint()
	for _, one := range all {
		var b strings.Builder
		word := paint.Bad("error:")
		if one.Code == codePartly {
			word = paint.Warn("warning:")
		}
		fmt.Fprintf(&b, "%s %s\n", word, one.What)
		if one.Why != "" {
			fmt.Fprintf(&b, "  why:  %s\n", one.Why)
		}
		if do := advice(root, one); do != "" {
			fmt.Fprintf(&b, "  do:   %s\n", do)
		}
		fmt.Fprintf(&b, "  code: %s", one.Code)
		if one.Trace != "" {
			fmt.Fprintf(&b, "  trace: %s", one.Trace)
		}
		b.WriteByte('\n')
		_, _ = fmt.Fprint(p.err, b.String())
	}
}

// advice is what to do, with the names that may have been meant first.
func advice(root *cobra.Command, one *house.Problem) string {
	do := one.Do
	if do == "" && one.Code == codeUsage {
		do = "see " + root.CommandPath() + " help"
	}
	if len(one.Near) == 0 || strings.Contains(do, one.Near[0]) {
		return do
	}
	near := "did you mean " + strings.Join(one.Near, ", or ") + "?"
	if do == "" {
		return near
	}
	return near + " Or " + do
}

func asObject(one *house.Problem, err error) problem {
	near := one.Near
	if near == nil {
		near = []string{}
	}
	return problem{What: one.What, Why: one.Why, Do: one.Do, Code: one.Code, TraceID: one.Trace, Near: near,
		Exit: exitCode(err), More: []problem{}}
}

// unplanned makes a problem of an error that nobody has put into words.
func unplanned(err error) *house.Problem {
	one := &house.Problem{Kind: fault.KindOf(err), Code: fault.CodeOf(err), What: err.Error(), Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		one.Code = "TIMEOUT"
	}
	if one.Code == "" {
		one.Code = one.Kind.String()
	}
	return one
}

// jsonInArgs finds --json in a command line that could not be read to its end.
func jsonInArgs(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.ContainsFunc(args, func(a string) bool {
		return a == "--json" || strings.HasPrefix(a, "--json=") && a != "--json=false"
	})
}

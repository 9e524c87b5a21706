package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/wire"
)

// callTimeout is how long a call may take unless told otherwise.
const callTimeout = 30 * time.Second

// newCall makes `plinth call`.
func newCall(p *program) *cobra.Command {
	var data, metadata string
	var timeout time.Duration
	var r request
	cmd := &cobra.Command{
		Use:     "call NAME [KEY=VALUE ...]",
		Short:   "Call a function and print its result",
		GroupID: groupUse,
		Long: "Calls a function by name and prints what it returned as JSON: indented in a terminal, on one line otherwise.\n\n" +
			"The payload is an object made of KEY=VALUE arguments, or whole JSON from --data. A value is taken as JSON when it\n" +
			"is a number, true, false, null, an object, an array or a text in double quotes, and as text otherwise; KEY:=VALUE\n" +
			"demands JSON. A dot in a key goes one object deeper. A result that the function left out prints nothing.",
		Example: "  plinth call hello::greet name=Ann\n" +
			"  plinth call users::create name=Ann address.city=Bern tags:='[\"new\"]'\n" +
			"  plinth call users::import --data @users.json --timeout 5m\n" +
			"  echo '{\"name\":\"Ann\"}' | plinth call hello::greet --data -",
		Args:              args(1, -1, "the name of a function and KEY=VALUE pairs"),
		ValidArgsFunction: p.completeFunctions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.name = args[0]
			if err := p.payload(cmd, &r, args[1:], data, metadata); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return p.call(ctx, r, min(timeout, connectTimeout))
		},
	}
	flags := cmd.Flags()
	p.addressFlags(flags)
	flags.StringVar(&data, "data", "", "the whole payload: JSON, @file, or - for the standard input")
	flags.StringVar(&metadata, "metadata", "", "JSON that goes beside the payload: JSON, @file, or -")
	flags.StringVar(&r.namespace, "namespace", "", "namespace to look in; default is the engine's own")
	flags.DurationVar(&timeout, "timeout", callTimeout, "how long the call may take")
	flags.BoolVar(&r.void, "void", false, "do not wait for the outcome")
	return p.prints(cmd, formValue, nil)
}

// payload fills in what the call carries.
func (p *program) payload(cmd *cobra.Command, r *request, pairs []string, data, metadata string) (err error) {
	given := cmd.Flags().Changed("data")
	if given && len(pairs) > 0 {
		return usage("both --data and KEY=VALUE arguments are given", "use one of the two")
	}
	if data == "-" && metadata == "-" {
		return usage("both --data and --metadata read the standard input", "use @file for one of them")
	}
	if cmd.Flags().Changed("namespace") && strings.TrimSpace(r.namespace) == "" {
		return usage("the namespace is blank", "leave --namespace out for the default")
	}
	if given {
		r.payload, err = p.readJSON("data", data)
	} else {
		r.payload, err = payloadOf(pairs)
	}
	if err == nil && cmd.Flags().Changed("metadata") {
		r.metadata, err = p.readJSON("metadata", metadata)
	}
	return err
}

func (p *program) call(ctx context.Context, r request, patience time.Duration) error {
	c, err := p.connect(ctx, patience)
	if err != nil {
		return err
	}
	defer c.close()
	b, err := c.call(ctx, r)
	if err != nil {
		return c.suggest(ctx, err, r)
	}
	switch {
	case r.void:
		p.note("called %s; nobody waits for the outcome", r.name)
		return nil
	case b == nil:
		p.note("%s returned nothing", r.name)
		return nil
	}
	return p.printValue(b)
}

// printValue writes JSON as it came: indented in a terminal, on one line otherwise.
func (p *program) printValue(raw json.RawMessage) error {
	var b bytes.Buffer
	var err error
	if p.outFacts.Terminal && !p.wantLines() {
		err = json.Indent(&b, raw, "", "  ")
	} else {
		err = json.Compact(&b, raw)
	}
	if err != nil {
		return wrote(err)
	}
	b.WriteByte('\n')
	return p.print(b.String())
}

// suggestTimeout bounds the look for names that may have been meant.
const suggestTimeout = 500 * time.Millisecond

// suggest adds the nearest names to a function_not_found.
func (c *client) suggest(ctx context.Context, err error, r request) error {
	one := (*house.Problem)(nil)
	if !errors.As(err, &one) || one.Code != wire.CodeFunctionNotFound {
		return err
	}
	one.Do = "plinth functions lists what there is"
	ctx, cancel := context.WithTimeout(ctx, suggestTimeout)
	defer cancel()
	rows, listErr := c.functions(ctx, functionFilter{Internal: strings.HasPrefix(r.name, "engine::")})
	if listErr != nil {
		return err // the first failure is the one to tell
	}
	names := make([]string, 0, len(rows))
	for _, row := range rows {
		names = append(names, row.FunctionID)
	}
	one.Near = house.Nearest(r.name, names)
	return err
}

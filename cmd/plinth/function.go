package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// lookTimeout is how long a listing may take.
const lookTimeout = 10 * time.Second

// functionRow is one function, as engine::functions::list gives it.
type functionRow struct {
	FunctionID  string          `json:"function_id"`
	Namespace   string          `json:"namespace"`
	WorkerName  string          `json:"worker_name"`
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// functionDetail is one function whole, as engine::functions::info gives it.
type functionDetail struct {
	functionRow
	RequestSchema      json.RawMessage   `json:"request_schema,omitempty"`
	ResponseSchema     json.RawMessage   `json:"response_schema,omitempty"`
	RegisteredTriggers []json.RawMessage `json:"registered_triggers"`
	Calls              uint64            `json:"calls"`  // since the engine started
	Failed             uint64            `json:"failed"` // of these
}

// functionFilter is the input of engine::functions::list.
type functionFilter struct {
	Search   string `json:"search,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Worker   string `json:"worker,omitempty"`
	Internal bool   `json:"include_internal,omitempty"`
}

// functions lists what the engine can call.
func (c *client) functions(ctx context.Context, f functionFilter) ([]functionRow, error) {
	var answer struct {
		Functions []functionRow `json:"functions"`
	}
	err := c.ask(ctx, "engine::functions::list", f, &answer)
	if answer.Functions == nil {
		answer.Functions = []functionRow{}
	}
	return answer.Functions, err
}

// ask calls a function of the engine itself and reads its answer.
func (c *client) ask(ctx context.Context, name string, in, out any) error {
	payload, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("call of %s: %w", name, err)
	}
	b, err := c.call(ctx, request{name: name, payload: payload})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("answer of %s: %w", name, err)
	}
	return nil
}

// newFunctions makes `plinth functions` with its verbs; alone it lists.
func newFunctions(p *program) *cobra.Command {
	list := newFunctionList(p)
	cmd := &cobra.Command{
		Use: "functions", Short: "List the functions that can be called", GroupID: groupUse,
		Aliases: []string{"function"},
		Example: "  plinth functions\n  plinth functions info hello::greet",
	}
	cmd.AddCommand(list, newFunctionDetail(p), p.newFunctionAdd(), p.newFunctionRemove())
	alone(cmd, list)
	return cmd
}

// alone lets a noun without a verb do what its list does.
func alone(noun, list *cobra.Command) {
	noun.Flags().AddFlagSet(list.Flags())
	noun.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return group(cmd, args)
		}
		return list.RunE(cmd, args)
	}
	noun.Args = cobra.ArbitraryArgs
}

func newFunctionList(p *program) *cobra.Command {
	var f functionFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List the functions that can be called",
		Example: "  plinth functions list --search user\n  plinth functions list --json=lines",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				rows, err := c.functions(ctx, f)
				if err != nil {
					return err
				}
				return p.printFunctions(rows)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&f.Search, "search", "", "text that the name or description holds")
	cmd.Flags().StringVar(&f.Prefix, "prefix", "", "how the name begins")
	cmd.Flags().StringVar(&f.Worker, "worker", "", "name of the worker that hosts it")
	cmd.Flags().BoolVar(&f.Internal, "internal", false, "the engine's own functions too")
	return p.prints(cmd, formList, functionRow{})
}

func (p *program) printFunctions(rows []functionRow) error {
	if p.wantJSON() {
		return printRows(p, rows)
	}
	if len(rows) == 0 {
		p.note("no functions yet: connect a worker to %s", p.url)
		return nil
	}
	t := p.table("function", "namespace", "worker", "description")
	for _, r := range rows {
		t.Row(r.FunctionID, r.Namespace, r.WorkerName, r.Description)
	}
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

func newFunctionDetail(p *program) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use: "info NAME", Short: "Show one function whole", Example: "  plinth functions info hello::greet --json",
		Args:              args(1, 1, "the name of one function"),
		ValidArgsFunction: p.completeFunctions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				in := map[string]string{"function_id": args[0]}
				if namespace != "" {
					in["namespace"] = namespace
				}
				var d functionDetail
				if err := c.ask(ctx, "engine::functions::info", in, &d); err != nil {
					return c.missing(ctx, err, args[0])
				}
				return p.printFunction(d)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&namespace, "namespace", "", "namespace to look in")
	return p.prints(cmd, formObject, functionDetail{})
}

// missing turns a NOT_FOUND of the engine's listing into the words of a call of that function.
func (c *client) missing(ctx context.Context, err error, name string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	one := &house.Problem{Kind: fault.NotFound, Code: "function_not_found",
		What: "there is no function " + name, Err: err}
	for _, p := range house.Problems(err) {
		one.Trace = p.Trace
	}
	return c.suggest(ctx, one, request{name: name})
}

func (p *program) printFunction(d functionDetail) error {
	if d.RegisteredTriggers == nil {
		d.RegisteredTriggers = []json.RawMessage{}
	}
	if p.wantJSON() {
		return p.printJSON(d)
	}
	t := p.table()
	t.Width = 0
	for _, row := range [][2]string{
		{"function", d.FunctionID}, {"namespace", d.Namespace}, {"worker", d.WorkerName}, {"description",
			d.Description},
		{"takes", string(d.RequestSchema)}, {"gives", string(d.ResponseSchema)}, {"metadata", string(d.Metadata)},
		{"triggers", joinRaw(d.RegisteredTriggers)}, {"calls", fmt.Sprintf("%d, %d failed", d.Calls, d.Failed)},
	} {
		if row[1] != "" && row[1] != "null" {
			t.Row(row[0], row[1])
		}
	}
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

func joinRaw(list []json.RawMessage) string {
	texts := make([]string, len(list))
	for i, raw := range list {
		texts[i] = string(raw)
	}
	return strings.Join(texts, " ")
}

// withEngine runs a verb that looks at a running engine.
func (p *program) withEngine(ctx context.Context, look func(context.Context, *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	c, err := p.connect(ctx, connectTimeout)
	if err != nil {
		return err
	}
	defer c.close()
	return look(ctx, c)
}

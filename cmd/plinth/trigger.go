package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"
)

// triggerRow is one trigger, as engine::registered-triggers::list gives it.
type triggerRow struct {
	ID          string          `json:"id"`
	TriggerType string          `json:"trigger_type"`
	FunctionID  string          `json:"function_id"`
	Namespace   string          `json:"namespace"`
	WorkerName  string          `json:"worker_name"`
	Config      json.RawMessage `json:"config"`
	Summary     string          `json:"config_summary"`
	Status      string          `json:"status"`
	Error       json.RawMessage `json:"error,omitempty"`
}

// triggerDetail is one trigger whole, as engine::registered-triggers::info gives it.
type triggerDetail struct {
	triggerRow
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Trigger  json.RawMessage `json:"trigger"`
	Function json.RawMessage `json:"function"`
}

// triggerTypeRow is one trigger type, as engine::triggers::list gives it.
type triggerTypeRow struct {
	ID          string `json:"id"`
	Namespace   string `json:"namespace"`
	WorkerName  string `json:"worker_name"`
	Description string `json:"description"`
}

// triggerFilter is the input of both listings.
type triggerFilter struct {
	Search   string `json:"search,omitempty"`
	Type     string `json:"trigger_type,omitempty"`
	Function string `json:"function_id,omitempty"`
	Worker   string `json:"worker,omitempty"`
	Internal bool   `json:"include_internal,omitempty"`
}

// newTriggers makes `plinth triggers` with its verbs; alone it lists.
func newTriggers(p *program) *cobra.Command {
	list := p.newTriggerList()
	cmd := &cobra.Command{
		Use: "triggers", Short: "List the triggers and their types", GroupID: groupUse,
		Aliases: []string{"trigger"},
		Example: "  plinth triggers\n  plinth triggers types\n  plinth triggers info 2b1e5f9c-30c5-4c5e-9d6e-0b7a6b3c2d10",
	}
	cmd.AddCommand(list, p.newTriggerInfo(), p.newTriggerTypes())
	alone(cmd, list)
	return cmd
}

func (p *program) newTriggerList() *cobra.Command {
	var f triggerFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List which functions run when something happens", Args: args(0, 0, "no arguments"),
		Example: "  plinth triggers list --type cron\n  plinth triggers list --json=lines",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				out := struct {
					Rows []triggerRow `json:"registered_triggers"`
				}{}
				if err := c.ask(ctx, "engine::registered-triggers::list", f, &out); err != nil {
					return err
				}
				if out.Rows == nil {
					out.Rows = []triggerRow{}
				}
				if p.wantJSON() {
					return printRows(p, out.Rows)
				}
				if len(out.Rows) == 0 {
					p.note("no triggers yet: a worker registers them, or engine::register_trigger does")
					return nil
				}
				t := p.table("type", "function", "status", "worker", "config", "id")
				for _, r := range out.Rows {
					t.Row(r.TriggerType, r.FunctionID, r.Status, first(r.WorkerName, "-"), r.Summary, r.ID)
				}
				_, err := t.WriteTo(p.out)
				return wrote(err)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&f.Search, "search", "", "text that the id, type or function holds")
	cmd.Flags().StringVar(&f.Type, "type", "", "one trigger type")
	cmd.Flags().StringVar(&f.Function, "function", "", "one function")
	cmd.Flags().StringVar(&f.Worker, "worker", "", "name of the worker that registered them")
	cmd.Flags().BoolVar(&f.Internal, "internal", false, "those of the engine's own types too")
	return p.prints(cmd, formList, triggerRow{})
}

func (p *program) newTriggerInfo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "info ID", Short: "Show one trigger whole", Args: args(1, 1, "the id of a trigger"),
		Example: "  plinth triggers info 2b1e5f9c-30c5-4c5e-9d6e-0b7a6b3c2d10 --json",
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				var d triggerDetail
				in := map[string]string{"id": given[0]}
				if err := c.ask(ctx, "engine::registered-triggers::info", in, &d); err != nil {
					return err
				}
				if p.wantJSON() {
					return p.printJSON(d)
				}
				t := p.table("what", "value")
				t.Row("id", d.ID)
				t.Row("type", d.TriggerType)
				t.Row("function", d.FunctionID)
				t.Row("namespace", d.Namespace)
				t.Row("status", d.Status)
				t.Row("worker", first(d.WorkerName, "none: it stays until it is removed"))
				t.Row("config", string(d.Config))
				if d.Error != nil {
					t.Row("refused", string(d.Error))
				}
				_, err := t.WriteTo(p.out)
				return wrote(err)
			})
		},
	}
	p.engineFlags(cmd)
	return p.prints(cmd, formObject, triggerDetail{})
}

func (p *program) newTriggerTypes() *cobra.Command {
	var f triggerFilter
	cmd := &cobra.Command{
		Use: "types", Short: "List the trigger types that are offered", Args: args(0, 0, "no arguments"),
		Example: "  plinth triggers types --internal",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				out := struct {
					Rows []triggerTypeRow `json:"triggers"`
				}{}
				if err := c.ask(ctx, "engine::triggers::list", f, &out); err != nil {
					return err
				}
				if out.Rows == nil {
					out.Rows = []triggerTypeRow{}
				}
				if p.wantJSON() {
					return printRows(p, out.Rows)
				}
				if len(out.Rows) == 0 {
					p.note("no trigger types yet: a worker offers them")
					return nil
				}
				t := p.table("type", "namespace", "worker", "description")
				for _, r := range out.Rows {
					t.Row(r.ID, r.Namespace, r.WorkerName, r.Description)
				}
				_, err := t.WriteTo(p.out)
				return wrote(err)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&f.Search, "search", "", "text that the id or description holds")
	cmd.Flags().BoolVar(&f.Internal, "internal", false, "the engine's own types too")
	return p.prints(cmd, formList, triggerTypeRow{})
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// workerRow is one worker, as engine::workers::list gives it.
type workerRow struct {
	Name              string `json:"name"`
	Description       string `json:"description"`
	Version           string `json:"version"`
	ID                string `json:"id"`
	Namespace         string `json:"namespace"`
	Runtime           string `json:"runtime"`
	OS                string `json:"os"`
	Status            string `json:"status"`
	FunctionCount     int64  `json:"function_count"`
	ConnectedAtMS     int64  `json:"connected_at_ms"`
	ActiveInvocations int64  `json:"active_invocations"`
	Isolation         string `json:"isolation"`
	IPAddress         string `json:"ip_address"`
	PID               int64  `json:"pid,omitempty"` // in info only
}

// workerDetail is one worker whole, as engine::workers::info gives it.
type workerDetail struct {
	Worker             workerRow         `json:"worker"`
	Internal           bool              `json:"internal"`
	LatestMetrics      json.RawMessage   `json:"latest_metrics,omitempty"`
	Functions          []json.RawMessage `json:"functions"`
	TriggerTypes       []json.RawMessage `json:"trigger_types"`
	RegisteredTriggers []json.RawMessage `json:"registered_triggers"`
}

// workerFilter is the input of engine::workers::list.
type workerFilter struct {
	Search  string `json:"search,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	Status  string `json:"status,omitempty"`
}

func (c *client) workers(ctx context.Context, f workerFilter) ([]workerRow, error) {
	var answer struct {
		Workers []workerRow `json:"workers"`
	}
	err := c.ask(ctx, "engine::workers::list", f, &answer)
	if answer.Workers == nil {
		answer.Workers = []workerRow{}
	}
	return answer.Workers, err
}

// newWorkers makes `plinth workers` with its verbs; alone it lists.
func newWorkers(p *program) *cobra.Command {
	list := newWorkerList(p)
	cmd := &cobra.Command{
		Use: "workers", Short: "List the workers that are connected", GroupID: groupUse,
		Aliases: []string{"worker"},
		Example: "  plinth workers\n  plinth workers info greeter",
	}
	cmd.AddCommand(list, newWorkerDetail(p))
	alone(cmd, list)
	return cmd
}

func newWorkerList(p *program) *cobra.Command {
	var f workerFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List the workers that are connected",
		Example: "  plinth workers list --runtime node",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				rows, err := c.workers(ctx, f)
				if err != nil {
					return err
				}
				return p.printWorkers(rows)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&f.Search, "search", "", "text that the name or description holds")
	cmd.Flags().StringVar(&f.Runtime, "runtime", "", "language runtime, such as go or node")
	cmd.Flags().StringVar(&f.Status, "status", "", "status, such as available")
	return p.prints(cmd, formList, workerRow{})
}

func (p *program) printWorkers(rows []workerRow) error {
	if p.wantJSON() {
		return printRows(p, rows)
	}
	if len(rows) == 0 {
		p.note("no workers yet: connect one to %s", p.url)
		return nil
	}
	t := p.table("worker", "namespace", "runtime", "status", "functions", "active", "since", "address")
	for _, r := range rows {
		t.Row(r.Name, r.Namespace, r.Runtime, r.Status, strconv.FormatInt(r.FunctionCount, 10),
			strconv.FormatInt(r.ActiveInvocations, 10), since(r.ConnectedAtMS), r.IPAddress)
	}
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

// since writes a moment in the reader's own time zone.
func since(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).Format(time.DateTime)
}

func newWorkerDetail(p *program) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use: "info NAME", Short: "Show one worker whole", Example: "  plinth workers info greeter --json",
		Args:              args(1, 1, "the name of one worker"),
		ValidArgsFunction: p.completeWorkers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				in := map[string]string{"name": args[0]}
				if namespace != "" {
					in["namespace"] = namespace
				}
				var d workerDetail
				if err := c.ask(ctx, "engine::workers::info", in, &d); err != nil {
					return c.missingWorker(ctx, err, args[0])
				}
				return p.printWorker(d)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&namespace, "namespace", "", "namespace to look in")
	return p.prints(cmd, formObject, workerDetail{})
}

// missingWorker adds the nearest names to a NOT_FOUND.
func (c *client) missingWorker(ctx context.Context, err error, name string) error {
	one := (*house.Problem)(nil)
	if !errors.As(err, &one) || one.Kind != fault.NotFound {
		return err
	}
	one.What, one.Do = "there is no worker "+name, "plinth workers lists what is connected"
	rows, listErr := c.workers(ctx, workerFilter{})
	if listErr != nil {
		return err // the first failure is the one to tell
	}
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, r.Name)
	}
	one.Near = house.Nearest(name, names)
	return err
}

func (p *program) printWorker(d workerDetail) error {
	for _, list := range []*[]json.RawMessage{&d.Functions, &d.TriggerTypes, &d.RegisteredTriggers} {
		if *list == nil {
			*list = []json.RawMessage{}
		}
	}
	if p.wantJSON() {
		return p.printJSON(d)
	}
	w := d.Worker
	t := p.table()
	t.Width = 0
	for _, row := range [][2]string{
		{"worker", w.Name}, {"description", w.Description}, {"id", w.ID}, {"namespace", w.Namespace}, {"status",
			w.Status},
		{"runtime", w.Runtime + " " + w.Version}, {"system", w.OS}, {"process", strconv.FormatInt(w.PID, 10)},
		{"address", w.IPAddress}, {"since", since(w.ConnectedAtMS)},
		{"active", strconv.FormatInt(w.ActiveInvocations, 10)}, {"functions", joinNames(d.Functions)},
	} {
		if row[1] != "" {
			t.Row(row[0], row[1])
		}
	}
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

// joinNames lists the function ids of a worker, whether they come as texts or as rows.
func joinNames(list []json.RawMessage) string {
	names := make([]json.RawMessage, len(list))
	for i, raw := range list {
		var row functionRow
		var plain string
		switch {
		case json.Unmarshal(raw, &plain) == nil:
			names[i] = []byte(plain)
		case json.Unmarshal(raw, &row) == nil && row.FunctionID != "":
			names[i] = []byte(row.FunctionID)
		default:
			names[i] = raw
		}
	}
	slices.SortFunc(names, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	return joinRaw(names)
}

package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/engine/trigger"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
)

// typeRow is one trigger type in a listing (semantics section 5).
type typeRow struct {
	ID          string `json:"id"`
	Namespace   string `json:"namespace"`
	WorkerName  string `json:"worker_name"`
	Description string `json:"description"`
}

// typeDetail is a trigger type in full.
type typeDetail struct {
	typeRow
	ConfigSchema  json.RawMessage `json:"configuration_schema,omitempty"`
	RequestSchema json.RawMessage `json:"request_schema,omitempty"`
	Instances     int             `json:"instance_count"`
}

// bindingRow is one trigger in a listing.
type bindingRow struct {
	ID          string          `json:"id"`
	TriggerType string          `json:"trigger_type"`
	FunctionID  string          `json:"function_id"`
	Namespace   string          `json:"namespace"`
	WorkerName  string          `json:"worker_name"` // who bound it; empty: it has no owner
	Config      json.RawMessage `json:"config"`
	Summary     string          `json:"config_summary"`
	Status      string          `json:"status"` // active, parked or rejected
	Error       json.RawMessage `json:"error,omitempty"`
}

// bindingDetail is a trigger in full.
type bindingDetail struct {
	bindingRow
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Trigger  *typeDetail     `json:"trigger"`
	Function *functionRow    `json:"function"`
}

const summaryBytes = 80

func (e *Engine) typeRow(y *trigger.Type) typeRow {
	return typeRow{y.ID, y.Namespace, e.peerOf(y.Provider).Name(), y.Description}
}

func (e *Engine) typeDetail(y *trigger.Type) *typeDetail {
	n := &typeDetail{typeRow: e.typeRow(y), ConfigSchema: y.Config, RequestSchema: y.Payload}
	for _, s := range e.triggers.Bindings() {
		if s.Type == y {
			n.Instances++
		}
	}
	return n
}

func (e *Engine) bindingRow(s trigger.Status) bindingRow {
	r := bindingRow{ID: s.ID, TriggerType: s.Binding.Type, FunctionID: s.Function,
		Namespace: s.FunctionNamespace,
		Config:    s.Config, Summary: cut(string(s.Config), summaryBytes), Status: "active", Error: s.Failure}
	if r.Namespace == "" {
		r.Namespace = fn.Default
	}
	if s.Binder != nil {
		r.WorkerName = e.peerOf(s.Binder).Name()
	}
	switch {
	case s.Failure != nil:
		r.Status = "rejected"
	case s.Type == nil:
		r.Status = "parked"
	}
	return r
}

func (e *Engine) bindingRows(all []trigger.Status) []bindingRow {
	rows := make([]bindingRow, 0, len(all))
	for _, s := range all {
		rows = append(rows, e.bindingRow(s))
	}
	return rows
}

type triggerQuery struct {
	ID              string `json:"id"`
	Namespace       string `json:"namespace"`
	Search          string `json:"search"`
	Prefix          string `json:"prefix"`
	Worker          string `json:"worker"`
	TriggerType     string `json:"trigger_type"`
	FunctionID      string `json:"function_id"`
	IncludeInternal bool   `json:"include_internal"`
}

func (q *triggerQuery) finds(texts ...string) bool {
	s := strings.ToLower(q.Search)
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), s) })
}

// listTypes is engine::triggers::list.
func (e *Engine) listTypes(_ context.Context, q triggerQuery) (any, error) {
	rows := []typeRow{}
	for _, y := range e.triggers.Types() {
		r := e.typeRow(y)
		if (!y.Internal || q.IncludeInternal) && strings.HasPrefix(r.ID, q.Prefix) &&
			(q.Worker == "" || q.Worker == r.WorkerName) && (q.Namespace == "" || q.Namespace == r.Namespace) &&
			q.finds(r.ID, r.Description) {
			rows = append(rows, r)
		}
	}
	return map[string]any{"triggers": rows}, nil
}

// describeType is engine::triggers::info. Without a namespace the type in default wins, else the only one.
func (e *Engine) describeType(_ context.Context, q triggerQuery) (any, error) {
	if q.ID == "" {
		return nil, fault.New(fault.Invalid, wire.CodeInvalidArguments, "give the id of a trigger type")
	}
	var found []*trigger.Type
	for _, y := range e.triggers.Types() {
		if y.ID == q.ID && (q.Namespace == "" || q.Namespace == y.Namespace) {
			found = append(found, y)
		}
	}
	if i := slices.IndexFunc(found, func(y *trigger.Type) bool { return y.Namespace == fn.Default }); i > 0 {
		found = found[i : i+1]
	}
	switch {
	case len(found) == 0:
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no trigger type %s", q.ID)
	case len(found) > 1 && found[0].Namespace != fn.Default:
		var in []string
		for _, y := range found {
			in = append(in, y.Namespace)
		}
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "%s is in several namespaces: %s. Say which",
			q.ID, strings.Join(in, ", "))
	}
	return e.typeDetail(found[0]), nil
}

// listBindings is engine::registered-triggers::list. Triggers of the engine's own types count as internal.
func (e *Engine) listBindings(_ context.Context, q triggerQuery) (any, error) {
	rows := []bindingRow{}
	for _, s := range e.triggers.Bindings() {
		r := e.bindingRow(s)
		if (!reservedType(r.TriggerType) || q.IncludeInternal) && strings.HasPrefix(r.FunctionID, q.Prefix) &&
			(q.TriggerType == "" || q.TriggerType == r.TriggerType) &&
			(q.FunctionID == "" || q.FunctionID == r.FunctionID) && (q.Worker == "" || q.Worker == r.WorkerName) &&
			(q.Namespace == "" || q.Namespace == r.Namespace) && q.finds(r.ID, r.TriggerType, r.FunctionID) {
			rows = append(rows, r)
		}
	}
	return map[string]any{"registered_triggers": rows}, nil
}

// describeBinding is engine::registered-triggers::info.
func (e *Engine) describeBinding(_ context.Context, q triggerQuery) (any, error) {
	if q.ID == "" {
		return nil, fault.New(fault.Invalid, wire.CodeInvalidArguments, "give the id of a trigger")
	}
	s, ok := e.triggers.Find(q.ID)
	if !ok {
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no trigger %s", q.ID)
	}
	n := bindingDetail{bindingRow: e.bindingRow(s), Metadata: s.Metadata}
	if s.Type != nil {
		n.Trigger = e.typeDetail(s.Type)
	}
	if f := e.fn.Lookup([]byte(s.FunctionNamespace), []byte(s.Function)); f != nil {
		row := rowOf(f)
		n.Function = &row
	}
	return n, nil
}

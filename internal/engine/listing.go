package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
)

// functionRow is one function in a listing (semantics section 5).
type functionRow struct {
	FunctionID  string          `json:"function_id"`
	Namespace   string          `json:"namespace"`
	WorkerName  string          `json:"worker_name"`
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// functionInfo is a function in full.
type functionInfo struct {
	functionRow
	RequestSchema  json.RawMessage `json:"request_schema,omitempty"`
	ResponseSchema json.RawMessage `json:"response_schema,omitempty"`
	Triggers       []bindingRow    `json:"registered_triggers"`
	Replicas       []string        `json:"replicas,omitempty"` // worker names, where there are several
	Calls          uint64          `json:"calls"`
	Failed         uint64          `json:"failed"`
}

func rowOf(f *fn.Function) functionRow {
	return functionRow{f.Name, f.Namespace, f.Owner.Name(), f.Description, f.Metadata}
}

func (e *Engine) infoOf(f *fn.Function) functionInfo {
	n := functionInfo{functionRow: rowOf(f), RequestSchema: f.Request, ResponseSchema: f.Response,
		Triggers: e.bindingRows(e.triggers.To(f.Namespace, f.Name))}
	hosts := f.Replicated()
	for _, h := range hosts {
		calls, failed := h.Calls()
		n.Calls += calls
		n.Failed += failed
		if len(hosts) > 1 {
			n.Replicas = append(n.Replicas, h.Owner.Name())
		}
	}
	return n
}

type functionQuery struct {
	Search          string   `json:"search"`
	Prefix          string   `json:"prefix"`
	Worker          string   `json:"worker"`
	Workers         []string `json:"workers"`
	Namespace       string   `json:"namespace"`
	IncludeInternal bool     `json:"include_internal"`
}

// rank says how well a function fits a search; 0 = not at all, lower is better.
func (q *functionQuery) rank(f *fn.Function) int {
	name, s := strings.ToLower(f.Name), strings.ToLower(q.Search)
	switch {
	case s == "":
		return 1
	case strings.HasPrefix(name, s), slices.Contains(strings.Split(name, "::"), s):
		return 1
	case strings.Contains(name, s):
		return 2
	case strings.Contains(strings.ToLower(f.Description), s):
		return 3
	}
	return 0
}

func (q *functionQuery) takes(f *fn.Function) bool {
	worker := f.Owner.Name()
	return (!f.Internal || q.IncludeInternal) &&
		strings.HasPrefix(f.Name, q.Prefix) &&
		(q.Namespace == "" || q.Namespace == f.Namespace) &&
		(q.Worker == "" || q.Worker == worker) &&
		(len(q.Workers) == 0 || slices.Contains(q.Workers, worker))
}

// listFunctions is engine::functions::list: sorted by id, or by rank where a search is given.
func (e *Engine) listFunctions(_ context.Context, q functionQuery) (any, error) {
	type hit struct {
		row  functionRow
		rank int
	}
	var hits []hit
	e.fn.Each(func(f *fn.Function) bool {
		if q.takes(f) {
			if rank := q.rank(f); rank > 0 {
				hits = append(hits, hit{rowOf(f), rank})
			}
		}
		return true
	})
	slices.SortFunc(hits, func(a, b hit) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		if c := strings.Compare(a.row.FunctionID, b.row.FunctionID); c != 0 {
			return c
		}
		return strings.Compare(a.row.Namespace, b.row.Namespace)
	})
	rows := make([]functionRow, len(hits))
	for i := range hits {
		rows[i] = hits[i].row
	}
	return map[string]any{"functions": rows}, nil
}

type infoQuery struct {
	FunctionID  string   `json:"function_id"`
	FunctionIDs []string `json:"function_ids"`
	Namespace   string   `json:"namespace"`
}

const maxInfos = 32

// describeFunctions is engine::functions::info.
func (e *Engine) describeFunctions(_ context.Context, q infoQuery) (any, error) {
	if (q.FunctionID == "") == (len(q.FunctionIDs) == 0) || len(q.FunctionIDs) > maxInfos {
		return nil, fault.Newf(fault.Invalid, wire.CodeInvalidArguments,
			"give either function_id or function_ids (at most %d)", maxInfos)
	}
	if q.FunctionID != "" {
		f, err := e.resolve(q.FunctionID, q.Namespace)
		if err != nil {
			return nil, err
		}
		return e.infoOf(f), nil
	}
	rows := make([]any, 0, len(q.FunctionIDs))
	for _, id := range q.FunctionIDs {
		f, err := e.resolve(id, q.Namespace)
		if err != nil {
			rows = append(rows, map[string]string{"function_id": id, "error": "not_found"})
			continue
		}
		rows = append(rows, e.infoOf(f))
	}
	return map[string]any{"functions": rows}, nil
}

// resolve finds a function for introspection, which is looser than a call (protocol section 8): without
// a namespace the one in default wins, else the only one there is.
func (e *Engine) resolve(id, space string) (*fn.Function, error) {
	if space != "" {
		if f := e.fn.Lookup([]byte(space), []byte(id)); f != nil {
			return f, nil
		}
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no function %s in namespace %s", id, space)
	}
	if f := e.fn.Lookup(nil, []byte(id)); f != nil {
		return f, nil
	}
	switch in := e.fn.Spaces(id); len(in) {
	case 0:
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound, "no function %s", id)
	case 1:
		return e.resolve(id, in[0])
	default:
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound,
			"%s is in several namespaces: %s. Say which", id, strings.Join(in, ", "))
	}
}

// workerRow is one worker in a listing.
type workerRow struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"`
	ID          string `json:"id"`
	Namespace   string `json:"namespace"`
	Runtime     string `json:"runtime"`
	OS          string `json:"os"`
	Status      string `json:"status"`
	Functions   int    `json:"function_count"`
	ConnectedAt int64  `json:"connected_at_ms"`
	Active      int    `json:"active_invocations"`
	Isolation   string `json:"isolation"`
	IPAddress   string `json:"ip_address"`

	pid      int64
	internal bool
	peer     *fn.Peer
}

// inProcess lists the rooms of this process as workers.
func (e *Engine) inProcess() []workerRow {
	return []workerRow{{Name: "engine", Description: "Plinth's own functions", Version: e.cfg.Version,
		Namespace: fn.Default, Runtime: "engine", Status: "available", Functions: e.fn.Count(e.room),
		ConnectedAt: e.began.UnixMilli(), Isolation: "in-process", internal: true, peer: e.room}}
}

// workerRows returns every worker that has introduced itself with a pid.
func (e *Engine) workerRows() []workerRow {
	e.mu.RLock()
	rows := make([]workerRow, 0, len(e.workers)+1)
	for _, k := range e.workers {
		if n := k.card; n != nil && n.pid != 0 {
			rows = append(rows, workerRow{Name: n.name, Description: n.description, Version: n.version,
				ID: k.id.String(), Namespace: k.space, Runtime: n.runtime, OS: n.os, Status: "connected",
				ConnectedAt: k.since / 1e6, Isolation: n.isolation,
				IPAddress: k.sock.RemoteAddr().Addr().String(), pid: n.pid, peer: &k.peer})
		}
	}
	e.mu.RUnlock()
	for i := range rows {
		rows[i].Active, _ = e.fn.Under(rows[i].peer)
		rows[i].Functions = e.fn.Count(rows[i].peer)
	}
	rows = append(rows, e.inProcess()...)
	slices.SortFunc(rows, func(a, b workerRow) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return rows
}

type workerQuery struct {
	Search          string `json:"search"`
	Runtime         string `json:"runtime"`
	Status          string `json:"status"`
	Name            string `json:"name"`
	Namespace       string `json:"namespace"`
	IncludeInternal *bool  `json:"include_internal"`
}

// listWorkers is engine::workers::list.
func (e *Engine) listWorkers(_ context.Context, q workerQuery) (any, error) {
	out := []workerRow{}
	for _, w := range e.workerRows() {
		text := strings.ToLower(w.Name + " " + w.Description)
		if strings.Contains(text, strings.ToLower(q.Search)) && (q.Runtime == "" || q.Runtime == w.Runtime) &&
			(q.Status == "" || q.Status == w.Status) && (q.Namespace == "" || q.Namespace == w.Namespace) &&
			(q.IncludeInternal == nil || *q.IncludeInternal || !w.internal) {
			out = append(out, w)
		}
	}
	return map[string]any{"workers": out}, nil
}

// workerInfo is a worker in full.
type workerInfo struct {
	workerRow
	PID      int64 `json:"pid,omitempty"`
	Internal bool  `json:"internal"`
}

// describeWorker is engine::workers::info.
func (e *Engine) describeWorker(_ context.Context, q workerQuery) (any, error) {
	if q.Name == "" {
		return nil, fault.New(fault.Invalid, wire.CodeInvalidArguments, "give the name of a worker")
	}
	var found []workerRow
	for _, w := range e.workerRows() {
		if w.Name == q.Name && (q.Namespace == "" || q.Namespace == w.Namespace) {
			found = append(found, w)
		}
	}
	for _, w := range found {
		if len(found) == 1 || q.Namespace == "" && w.Namespace == fn.Default {
			return e.inFull(w), nil
		}
	}
	if len(found) > 0 {
		return nil, fault.Newf(fault.NotFound, wire.CodeNotFound,
			"worker %s is in several namespaces: say which", q.Name)
	}
	return nil, fault.New(fault.NotFound, wire.CodeNotFound, fmt.Sprintf("no worker %s", q.Name))
}

func (e *Engine) inFull(w workerRow) any {
	functions := []functionInfo{}
	for _, f := range e.fn.Functions(w.peer) {
		functions = append(functions, e.infoOf(f))
	}
	types, bindings := []typeRow{}, []bindingRow{}
	for _, y := range e.triggers.Types() {
		if e.peerOf(y.Provider) == w.peer {
			types = append(types, e.typeRow(y))
		}
	}
	for _, s := range e.triggers.Bindings() {
		if s.Binder != nil && e.peerOf(s.Binder) == w.peer {
			bindings = append(bindings, e.bindingRow(s))
		}
	}
	return map[string]any{"worker": workerInfo{w, w.pid, w.internal}, "functions": functions,
		"trigger_types": types, "registered_triggers": bindings}
}

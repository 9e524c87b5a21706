package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/plinth-run/plinth/internal/engine/httpfn"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// endpoint makes a target of a function that is an HTTP endpoint. Each call has a goroutine of the core.
func (e *Engine) endpoint(s *httpfn.Spec) fn.Target {
	return fn.Func(func(ctx context.Context, payload []byte) ([]byte, error) {
		call, _ := fn.Current(ctx)
		result, err := e.http.Do(ctx, s, &httpfn.Call{Function: call.Function, InvocationID: newUUID().String(),
			TraceID:     hex.EncodeToString(call.Trace.TraceID[:]),
			Traceparent: string(telemetry.AppendTraceparent(nil, call.Trace)), Payload: payload})
		if err != nil {
			return nil, err
		}
		return result, nil
	})
}

// openEndpoints opens the durable registrations and puts them into the table of functions.
func (e *Engine) openEndpoints() (err error) {
	e.http = httpfn.New(e.cfg.HTTP, httpfn.Options{Log: e.log})
	e.endpoints = e.fn.Room("http-functions")
	if e.cfg.Room == nil {
		return nil
	}
	if e.catalog, err = httpfn.OpenCatalog(e.cfg.Room, httpfn.CatalogOptions{Log: e.log}); err != nil {
		return fmt.Errorf("engine: open the HTTP functions: %w", err)
	}
	e.catalog.Each(func(n *httpfn.Entry) bool {
		if _, err := e.fn.Add(e.endpoints, e.specOf(n)); err != nil {
			e.log.Error("a stored HTTP function cannot be registered", "function", n.FunctionID, "error", err)
		}
		return true
	})
	return nil
}

// specOf is a stored registration in the words of the function core.
func (e *Engine) specOf(n *httpfn.Entry) fn.Spec {
	return fn.Spec{Namespace: n.Namespace, Name: n.FunctionID, Target: e.endpoint(n.Spec),
		Description: n.Description, Request: n.Request, Response: n.Response, Metadata: n.Metadata,
		Internal: marksOf(n.Metadata).Internal}
}

type endpointInput struct {
	FunctionID     string          `json:"function_id"`
	Namespace      string          `json:"namespace"`
	Invocation     json.RawMessage `json:"invocation"`
	Description    string          `json:"description"`
	RequestFormat  json.RawMessage `json:"request_format"`
	ResponseFormat json.RawMessage `json:"response_format"`
	Metadata       json.RawMessage `json:"metadata"`
}

var errNoCatalog = fault.New(fault.Unavailable, wire.CodeUnsupported,
	"this engine has no data folder: HTTP functions can be registered by workers only")

// addEndpoint is engine::http-functions::add: an HTTP function without an owner that outlives restarts. It is
// answered when the registration is on disk.
func (e *Engine) addEndpoint(ctx context.Context, in endpointInput) (any, error) {
	if e.catalog == nil {
		return nil, errNoCatalog
	}
	n := httpfn.Entry{Namespace: in.Namespace, FunctionID: in.FunctionID, Description: in.Description,
		Request: keepRaw(in.RequestFormat), Response: keepRaw(in.ResponseFormat), Metadata: keepRaw(in.Metadata)}
	if err := e.checkEndpoint(&n); err != nil {
		return nil, err
	}
	var bad *fault.Error
	if n.Spec, bad = httpfn.Parse(orEmpty(in.Invocation)); bad == nil {
		bad = e.http.Check(ctx, n.Spec)
	}
	if bad != nil {
		return nil, bad
	}
	e.enlist.Lock()
	defer e.enlist.Unlock()
	before, _ := e.catalog.Get(n.Namespace, n.FunctionID)
	if _, err := e.fn.Add(e.endpoints, e.specOf(&n)); err != nil {
		return nil, conflicted(err)
	}
	replaced, err := e.catalog.Put(context.WithoutCancel(ctx), n) // it may become durable whatever ctx does
	if err != nil {
		e.fn.Remove(e.endpoints, n.Namespace, n.FunctionID)
		if before != nil {
			_, again := e.fn.Add(e.endpoints, e.specOf(before))
			err = errors.Join(err, again)
		}
		return nil, err
	}
	e.news.functions()
	return map[string]any{"function_id": n.FunctionID, "namespace": n.Namespace, "replaced": replaced}, nil
}

// checkEndpoint holds a registration against the limits.
func (e *Engine) checkEndpoint(n *httpfn.Entry) error {
	b := &e.bounds
	if n.Namespace == "" {
		n.Namespace = fn.Default
	}
	n.Description = cut(n.Description, b.MaxDescriptionBytes)
	switch {
	case strings.TrimSpace(n.FunctionID) == "":
		return fault.New(fault.Invalid, wire.CodeInvalidArguments, "give function_id and invocation")
	case len(n.FunctionID) > b.MaxIDBytes:
		return over("function_id", b.MaxIDBytes)
	case strings.TrimSpace(n.Namespace) == "" || len(n.Namespace) > b.MaxNamespaceBytes:
		return fault.New(fault.Invalid, wire.CodeInvalidNamespace, "namespace is blank or too long")
	case len(n.Request) > b.MaxSchemaBytes || len(n.Response) > b.MaxSchemaBytes:
		return over("a schema", b.MaxSchemaBytes)
	case len(n.Metadata) > b.MaxMetadataBytes:
		return over("metadata", b.MaxMetadataBytes)
	}
	return nil
}

// conflicted is the error of a name that is taken, with its code for a caller.
func conflicted(err error) error {
	var c *fn.Conflict
	if errors.As(err, &c) {
		code := wire.CodeFunctionConflict
		if c.Owner == nil {
			code = wire.CodeReservedPrefix
		}
		return fault.New(fault.Conflict, code, c.Error())
	}
	return err
}

// removeEndpoint is engine::http-functions::remove.
func (e *Engine) removeEndpoint(ctx context.Context, in endpointInput) (any, error) {
	if e.catalog == nil {
		return nil, errNoCatalog
	}
	space := in.Namespace
	if space == "" {
		space = fn.Default
	}
	e.enlist.Lock()
	defer e.enlist.Unlock()
	removed, err := e.catalog.Remove(context.WithoutCancel(ctx), space, in.FunctionID)
	if err != nil {
		return nil, err
	}
	if removed {
		e.fn.Remove(e.endpoints, space, in.FunctionID)
		e.news.functions()
	}
	return map[string]bool{"removed": removed}, nil
}

// endpointRow is one HTTP function in a listing.
type endpointRow struct {
	FunctionID  string          `json:"function_id"`
	Namespace   string          `json:"namespace"`
	Description string          `json:"description,omitempty"`
	Invocation  json.RawMessage `json:"invocation"`
}

// listEndpoints is engine::http-functions::list.
func (e *Engine) listEndpoints(context.Context, struct{}) (any, error) {
	rows := []endpointRow{}
	if e.catalog != nil {
		e.catalog.Each(func(n *httpfn.Entry) bool {
			rows = append(rows, endpointRow{n.FunctionID, n.Namespace, n.Description, n.Spec.Append(nil)})
			return true
		})
	}
	return map[string]any{"functions": rows}, nil
}

// Sources are the folders that a backup must have.
func (e *Engine) Sources() map[string]store.Source {
	if e.catalog == nil {
		return nil
	}
	return map[string]store.Source{e.cfg.Room.Name() + "/" + httpfn.CatalogLog: e.catalog}
}

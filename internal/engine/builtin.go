package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// register adds the engine's own functions to the table.
func (e *Engine) register() error {
	for _, r := range e.builtins() {
		if _, err := e.fn.Add(e.room, fn.Spec{Name: r.name, Description: r.about, Target: r.target, Verb: r.verb,
			Internal: true}); err != nil {
			return err
		}
	}
	return nil
}

// builtin is one function of the engine. Those of VerbOpen are what the protocol itself needs: every
// connected worker may call them, whatever its key says (semantics section 19, infrastructure).
type builtin struct {
	verb        fn.Verb
	name, about string
	target      fn.Target
}

func (e *Engine) builtins() []builtin {
	rows := []builtin{
		{fn.VerbOpen, registerName, "Introduce a worker: name, runtime, namespace", fn.Quick(e.announce)},
		{fn.VerbRead, "engine::functions::list", "List functions", handle(e.listFunctions)},
		{fn.VerbRead, "engine::functions::info", "Describe one function, or up to 32",
			handle(e.describeFunctions)},
		{fn.VerbRead, "engine::workers::list", "List workers", handle(e.listWorkers)},
		{fn.VerbRead, "engine::workers::info", "Describe one worker", handle(e.describeWorker)},
		{fn.VerbRead, "engine::triggers::list", "List trigger types", handle(e.listTypes)},
		{fn.VerbRead, "engine::triggers::info", "Describe one trigger type", handle(e.describeType)},
		{fn.VerbRead, "engine::registered-triggers::list", "List triggers", handle(e.listBindings)},
		{fn.VerbRead, "engine::registered-triggers::info", "Describe one trigger", handle(e.describeBinding)},
		{fn.VerbRegister, "engine::register_trigger", "Bind a function to a trigger type, until it is removed",
			handle(e.registerTrigger)},
		{fn.VerbRegister, "engine::unregister_trigger", "Remove a trigger", handle(e.unregisterTrigger)},
		{fn.VerbManage, "engine::http-functions::add", "Register an HTTP endpoint as a function, for good",
			handle(e.addEndpoint)},
		{fn.VerbManage, "engine::http-functions::remove", "Remove such a function", handle(e.removeEndpoint)},
		{fn.VerbRead, "engine::http-functions::list", "List such functions", handle(e.listEndpoints)},
		{fn.VerbOpen, "engine::channels::create", "Make a channel: one end writes, the other reads",
			handle(e.createChannel)},
		{fn.VerbOpen, "engine::baggage::get", "Read one member of the call's baggage", handle(baggageGet)},
		{fn.VerbOpen, "engine::baggage::set", "Check a member that is to be set in the baggage",
			handle(baggageSet)},
		{fn.VerbOpen, "engine::baggage::get_all", "Read the call's baggage", handle(baggageAll)},
		{fn.VerbRead, "engine::health::check", "Tell whether the engine is well", handle(e.health)},
	}
	for _, level := range []string{"trace", "debug", "info", "warn", "error"} {
		rows = append(rows, builtin{fn.VerbOpen, "engine::log::" + level, "Write a log record at level " + level,
			handle(func(ctx context.Context, in logInput) (any, error) { return e.logRecord(ctx, level, in) })})
	}
	return rows
}

// handle makes a handler of a typed function; an absent or null payload is the zero In.
func handle[In any](f func(context.Context, In) (any, error)) fn.Target {
	return fn.Func(func(ctx context.Context, payload []byte) ([]byte, error) {
		var in In
		if err := json.Unmarshal(orEmpty(payload), &in); err != nil {
			return nil, fault.Newf(fault.Invalid, wire.CodeDeserialization, "the payload does not fit: %v", err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	})
}

type logInput struct {
	Message     string          `json:"message"`
	Data        json.RawMessage `json:"data"`
	TraceID     string          `json:"trace_id"`
	SpanID      string          `json:"span_id"`
	ServiceName string          `json:"service_name"`
}

// severity of each engine::log function.
func severity(level string) telemetry.Severity {
	switch level {
	case "trace":
		return telemetry.SeverityTrace
	case "debug":
		return telemetry.SeverityDebug
	case "warn":
		return telemetry.SeverityWarn
	case "error":
		return telemetry.SeverityError
	}
	return telemetry.SeverityInfo
}

// logRecord keeps a log record of a worker in the log ring. It does not go to Plinth's own output: a
// worker's payload does not belong there.
func (e *Engine) logRecord(ctx context.Context, level string, in logInput) (any, error) {
	i, _ := fn.Current(ctx)
	service := in.ServiceName
	if service == "" && i.Caller != nil {
		service = i.Caller.Name()
	}
	r := telemetry.Log{Time: telemetry.Now(), Severity: severity(level), Body: in.Message, Service: service,
		Trace: i.Trace.TraceID, Span: i.Trace.SpanID}
	if !wire.IsNull(in.Data) {
		r.Attributes = in.Data
		if in.Data[0] != '{' {
			r.Attributes = append(append([]byte(`{"data":`), in.Data...), '}')
		}
	}
	if c, ok := telemetry.ParseTraceparent([]byte("00-" + in.TraceID + "-" + in.SpanID + "-01")); ok {
		r.Trace, r.Span = c.TraceID, c.SpanID
	}
	e.cfg.Logs.Record(&r)
	return nil, nil
}

type channelInput struct {
	BufferSize int `json:"buffer_size"`
}

// createChannel is engine::channels::create. The channel goes with the worker that made it.
func (e *Engine) createChannel(ctx context.Context, in channelInput) (any, error) {
	call, _ := fn.Current(ctx)
	var owner any
	if k, ok := connOf(call.Caller); ok {
		owner = k
	}
	writer, reader, err := e.channels.Create(owner, in.BufferSize)
	if err != nil {
		return nil, err
	}
	return map[string]any{"writer": writer, "reader": reader}, nil
}

type baggageInput struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func baggageGet(ctx context.Context, in baggageInput) (any, error) {
	i, _ := fn.Current(ctx)
	if v, ok := telemetry.Baggage(i.Baggage)[in.Key]; ok {
		return map[string]any{"value": v}, nil
	}
	return map[string]any{"value": nil}, nil
}

// baggageSet answers as the protocol's documents say. Baggage belongs to the caller's own context, which a
// function on another machine cannot change, so the note says where to set it.
func baggageSet(_ context.Context, in baggageInput) (any, error) {
	if in.Key == "" {
		return nil, fault.New(fault.Invalid, wire.CodeInvalidArguments, "key is missing")
	}
	return map[string]any{"success": true,
		"note": "baggage travels with a call: set it in the baggage of the calls that you make"}, nil
}

func baggageAll(ctx context.Context, _ struct{}) (any, error) {
	i, _ := fn.Current(ctx)
	all := telemetry.Baggage(i.Baggage)
	if all == nil {
		all = map[string]string{}
	}
	return map[string]any{"baggage": all}, nil
}

// health reports what stands; the components are named as the protocol's documents name them.
func (e *Engine) health(context.Context, struct{}) (any, error) {
	status := "healthy"
	if e.draining.Load() {
		status = "draining"
	}
	part := func(detail string) map[string]string {
		return map[string]string{"status": "healthy", "details": detail}
	}
	spans := e.cfg.Spans.Stats()
	return map[string]any{
		"status": status, "version": e.cfg.Version, "timestamp": time.Now().UnixMilli(),
		"components": map[string]any{
			"otel": part(fmt.Sprintf("%d messages dropped, %d unreadable", e.inbox.dropped.Load(),
				e.inbox.bad.Load())),
			"metrics": part("Prometheus text at /metrics"),
			"logs":    part("kept in a ring"),
			"spans":   part(fmt.Sprintf("%d recorded, %d overwritten", spans.Recorded, spans.Overwritten)),
		},
	}, nil
}

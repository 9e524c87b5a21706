package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/plinth-run/plinth/internal/engine/trigger"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire"
)

// party is a connection seen as one that offers trigger types and binds functions to them.
type party conn

// Deliver sends a binding to the worker that offers its type.
func (p *party) Deliver(l *loop.Loop, b *trigger.Binding) {
	f := wire.Frame{Type: wire.TypeRegisterTrigger, ID: []byte(b.ID), TriggerType: []byte(b.Type),
		FunctionID: []byte(b.Function), Config: b.Config, Metadata: b.Metadata}
	if b.FunctionNamespace != "" && b.FunctionNamespace != fn.Default {
		f.Namespace = []byte(b.FunctionNamespace)
	}
	(*conn)(p).sendFrom(l, &f)
}

// Retract tells the worker that a binding is gone.
func (p *party) Retract(l *loop.Loop, b *trigger.Binding) {
	(*conn)(p).sendFrom(l, &wire.Frame{Type: wire.TypeUnregisterTrigger, ID: []byte(b.ID),
		TriggerType: []byte(b.Type)})
}

// Failed forwards a provider's refusal to the worker that bound the function.
func (p *party) Failed(l *loop.Loop, b *trigger.Binding, fail []byte) {
	k := (*conn)(p)
	k.sendFrom(l, &wire.Frame{Type: wire.TypeTriggerRegistrationResult, ID: []byte(b.ID),
		TriggerType: []byte(b.Type), FunctionID: k.bare(b.Function), Error: fail})
}

// bound takes a provider's answer. An answer of somebody else is ignored and counted.
func (k *conn) bound(f *wire.Frame) {
	var fail []byte
	if f.Failed() {
		fail = keepRaw(f.Error)
		if fail[0] != '{' {
			fail = wire.AppendError(nil, wire.ParseError(f.Error))
		}
	}
	if !k.engine.triggers.Answer(k.sock.Loop(), (*party)(k), string(f.ID), fail) {
		k.engine.stats.ignored.Add(1)
	}
}

// offer makes the worker the provider of a trigger type.
func (k *conn) offer(f *wire.Frame) *fault.Error {
	b := &k.engine.bounds
	space, err := k.spaceOf(f)
	switch {
	case err != nil:
		return err
	case len(f.ID) == 0:
		return fault.New(fault.Invalid, wire.CodeInvalidArguments, "a trigger type needs an id")
	case len(f.ID) > b.MaxIDBytes:
		return over("id", b.MaxIDBytes)
	case len(f.TriggerRequestFormat) > b.MaxSchemaBytes:
		return over("trigger_request_format", b.MaxSchemaBytes)
	case len(f.CallRequestFormat) > b.MaxSchemaBytes:
		return over("call_request_format", b.MaxSchemaBytes)
	}
	y := trigger.Type{Namespace: space, ID: string(f.ID), Provider: (*party)(k),
		Description: cut(string(f.Description), b.MaxDescriptionBytes),
		Config:      keepRaw(f.TriggerRequestFormat), Payload: keepRaw(f.CallRequestFormat)}
	if reservedType(y.ID) {
		return fault.Newf(fault.Denied, wire.CodeReservedPrefix, "trigger type %s belongs to Plinth", y.ID)
	}
	if err := k.mayOffer(space, y.ID); err != nil {
		return err
	}
	return k.engine.triggers.Offer(k.sock.Loop(), y)
}

// spaceOf returns the namespace that a registration names, else the worker's own.
func (k *conn) spaceOf(f *wire.Frame) (string, *fault.Error) {
	if f.BadNamespace || f.Namespace != nil && wire.Blank(f.Namespace) {
		return "", fault.New(fault.Invalid, wire.CodeInvalidNamespace,
			"namespace must be a text that is not blank; leave it out for the worker's own")
	}
	if f.Namespace == nil {
		return k.space, nil
	}
	return string(f.Namespace), nil
}

// mayOffer asks whether the worker may be the provider of a trigger type: a session is told so by the auth
// function, a key by its scopes.
func (k *conn) mayOffer(space, id string) *fault.Error {
	if k.session == nil {
		return k.mayRegister(space, id)
	}
	if err := k.session.MayRegister(space); err != nil {
		return err
	}
	return k.session.MayRegisterTriggerType()
}

// mayRegister asks the principal's access.
func (k *conn) mayRegister(space, name string) *fault.Error {
	if k.peer.Principal.Access == nil {
		return nil
	}
	return k.peer.Principal.Access.Register(space, name)
}

// bind binds a function to a trigger type.
func (k *conn) bind(f *wire.Frame) *fault.Error {
	b := &k.engine.bounds
	switch {
	case f.BadNamespace || f.Namespace != nil && wire.Blank(f.Namespace),
		f.BadTriggerNamespace || f.TriggerNamespace != nil && wire.Blank(f.TriggerNamespace):
		return fault.New(fault.Invalid, wire.CodeInvalidNamespace,
			"namespace and trigger_namespace must be texts that are not blank; leave them out for default")
	case len(f.ID) == 0 || len(f.TriggerType) == 0 || len(f.FunctionID) == 0:
		return fault.New(fault.Invalid, wire.CodeTriggerFailed,
			"registertrigger needs id, trigger_type and function_id")
	}
	n := trigger.Binding{ID: string(f.ID), Type: string(f.TriggerType),
		TypeNamespace: string(f.TriggerNamespace),
		Function:      k.prefixed(f.FunctionID), FunctionNamespace: string(f.Namespace), Config: keepRaw(f.Config),
		Metadata: keepRaw(f.Metadata), Namespace: k.space, Binder: (*party)(k), Since: time.Now()}
	if err := checkBinding(&n, b); err != nil {
		return err
	}
	if k.session != nil {
		if err := k.session.MayRegisterTrigger(n.Type); err != nil {
			return err
		}
	}
	if err := mayBind(&k.peer.Principal, &n); err != nil {
		return err
	}
	_, err := k.engine.triggers.Bind(k.sock.Loop(), &n, false)
	return err
}

// checkBinding holds a binding against the limits.
func checkBinding(n *trigger.Binding, b *wire.Bounds) *fault.Error {
	switch {
	case len(n.ID) > b.MaxIDBytes:
		return over("id", b.MaxIDBytes)
	case len(n.Type) > b.MaxIDBytes:
		return over("trigger_type", b.MaxIDBytes)
	case len(n.Function) > b.MaxIDBytes:
		return over("function_id", b.MaxIDBytes)
	case len(n.Config) > b.MaxSchemaBytes:
		return over("config", b.MaxSchemaBytes)
	case len(n.Metadata) > b.MaxMetadataBytes:
		return over("metadata", b.MaxMetadataBytes)
	case len(n.TypeNamespace) > b.MaxNamespaceBytes || len(n.FunctionNamespace) > b.MaxNamespaceBytes:
		return over("namespace", b.MaxNamespaceBytes)
	}
	if n.Config == nil {
		n.Config = []byte("{}")
	}
	return nil
}

// mayBind asks whether a principal may have a function called by events: it must be allowed to register it
// or to call it.
func mayBind(who *fn.Principal, n *trigger.Binding) *fault.Error {
	if who.Access == nil {
		return nil
	}
	space := n.FunctionNamespace
	if space == "" {
		space = fn.Default
	}
	if who.Access.Register(space, n.Function) == nil {
		return nil
	}
	return who.Access.Call(&fn.Function{Spec: fn.Spec{Namespace: space, Name: n.Function}})
}

// unbind takes a binding back.
func (k *conn) unbind(f *wire.Frame) {
	if !k.engine.triggers.Unbind(k.sock.Loop(), (*party)(k), string(f.ID), string(f.TriggerType)) {
		k.engine.stats.ignored.Add(1)
	}
}

// refuseBinding tells a binder that the engine itself refused.
func (k *conn) refuseBinding(f *wire.Frame, err *fault.Error) {
	k.engine.stats.rejected.Add(1)
	k.complain("trigger not registered", "trigger_type", clipText(f.TriggerType), "function",
		clipText(f.FunctionID), "code", err.Code, "error", err.Message)
	k.send(&wire.Frame{Type: wire.TypeTriggerRegistrationResult, ID: f.ID, TriggerType: f.TriggerType,
		FunctionID: f.FunctionID, Error: wire.AppendError(nil, &wire.Error{Code: err.Code, Message: err.Message})})
}

// answerWithin is how long engine::register_trigger waits for a provider.
const answerWithin = 10 * time.Second

type triggerInput struct {
	ID               string          `json:"id"`
	TriggerType      string          `json:"trigger_type"`
	FunctionID       string          `json:"function_id"`
	Namespace        string          `json:"namespace"`
	TriggerNamespace string          `json:"trigger_namespace"`
	Config           json.RawMessage `json:"config"`
	Metadata         json.RawMessage `json:"metadata"`
}

// registerTrigger is engine::register_trigger: a binding without an owner, which stays until it is removed.
// It waits for the provider's answer; one that does not come is taken for a yes.
func (e *Engine) registerTrigger(ctx context.Context, in triggerInput) (any, error) {
	if in.TriggerType == "" || in.FunctionID == "" {
		return nil, fault.New(fault.Invalid, wire.CodeInvalidArguments, "give trigger_type and function_id")
	}
	call, _ := fn.Current(ctx)
	n := trigger.Binding{ID: newUUID().String(), Type: in.TriggerType, TypeNamespace: in.TriggerNamespace,
		Function: in.FunctionID, FunctionNamespace: in.Namespace, Config: keepRaw(in.Config),
		Metadata: keepRaw(in.Metadata), Namespace: fn.Default, Since: time.Now()}
	if k, ok := connOf(call.Caller); ok && k.space != "" {
		n.Namespace = k.space
		if n.FunctionNamespace == "" {
			n.FunctionNamespace = k.space
		}
	}
	if err := checkBinding(&n, &e.bounds); err != nil {
		return nil, err
	}
	if err := mayBind(&call.Principal, &n); err != nil {
		return nil, err
	}
	answered, err := e.triggers.Bind(nil, &n, true)
	if err != nil {
		return nil, err
	}
	if s, _ := e.triggers.Find(n.ID); s.Type != nil {
		late := time.NewTimer(answerWithin)
		defer late.Stop()
		select {
		case <-answered:
		case <-late.C:
			e.log.Warn("trigger provider gave no answer; the trigger is kept", "trigger_type", n.Type, "id", n.ID)
		case <-ctx.Done():
		}
	}
	if s, _ := e.triggers.Find(n.ID); s.Failure != nil {
		e.triggers.Unbind(nil, nil, n.ID, "")
		w := wire.ParseError(s.Failure)
		return nil, fault.New(fault.Invalid, w.Code, w.Message)
	}
	return map[string]string{"id": n.ID}, nil
}

// unregisterTrigger is engine::unregister_trigger: it removes a trigger without an owner, or the caller's
// own.
func (e *Engine) unregisterTrigger(ctx context.Context, in triggerInput) (any, error) {
	if in.ID == "" {
		return nil, fault.New(fault.Invalid, wire.CodeUnregisterFailed, "give the id of the trigger")
	}
	call, _ := fn.Current(ctx)
	s, ok := e.triggers.Find(in.ID)
	if ok && s.Binder == nil {
		if err := mayBind(&call.Principal, s.Binding); err != nil {
			return nil, err
		}
	}
	removed := e.triggers.Unbind(nil, nil, in.ID, in.TriggerType)
	if k, isConn := connOf(call.Caller); !removed && isConn {
		removed = e.triggers.Unbind(nil, (*party)(k), in.ID, in.TriggerType)
	}
	return map[string]bool{"removed": removed}, nil
}

// connOf returns the connection behind a peer.
func connOf(p *fn.Peer) (*conn, bool) {
	if p == nil {
		return nil, false
	}
	k, ok := p.Data.(*conn)
	return k, ok
}

// peerOf returns the peer behind a party.
func (e *Engine) peerOf(p trigger.Party) *fn.Peer {
	if k, ok := p.(*party); ok {
		return &(*conn)(k).peer
	}
	return e.room
}

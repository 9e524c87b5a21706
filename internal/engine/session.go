package engine

import (
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// askWithin is how long an auth function or a hook may take. Meanwhile its connection is not read.
const askWithin = 10 * time.Second

// rules is the access of a connection that came through a listener with rules (semantics section 19): what
// its key allows, where it needed one, and what the rules and the auth function allow.
type rules struct {
	base    fn.Access // nil: everything
	policy  *rbac.Policy
	session *rbac.Session // nil: the listener has no auth function
}

// Call asks both.
func (a *rules) Call(f *fn.Function) *fault.Error {
	if a.base != nil {
		if err := a.base.Call(f); err != nil {
			return err
		}
	}
	return a.policy.MayCall(a.session, f.Namespace, f.Name, f.Metadata)
}

// Register asks both whether a function may be registered.
func (a *rules) Register(space, name string) *fault.Error {
	if a.base != nil {
		if err := a.base.Register(space, name); err != nil {
			return err
		}
	}
	if a.session == nil {
		return nil
	}
	if err := a.session.MayRegister(space); err != nil {
		return err
	}
	return a.session.MayRegisterFunction()
}

// ask calls a function on the engine's own behalf; then runs once, on any goroutine.
func (e *Engine) ask(k *conn, function string, payload []byte, then func(result []byte, err *fault.Error)) {
	f := e.fn.Lookup(nil, []byte(function))
	if f == nil {
		then(nil, e.fn.NotFound(fn.Default, function))
		return
	}
	c := e.fn.Acquire()
	c.Function, c.Caller, c.Loop, c.Payload = f, e.room, k.sock.Loop(), payload
	c.Deadline = k.sock.Loop().Now() + int64(askWithin)
	c.Done = asked(then)
	e.fn.Invoke(c)
}

// asked hands the outcome of a call on.
type asked func(result []byte, err *fault.Error)

// Complete copies the result, which is lent.
func (a asked) Complete(_ *fn.Call, o fn.Outcome) {
	a(append([]byte(nil), o.Result...), o.Error())
}

// admission has the listener's auth function decide on a connection. Until it has, nothing is read.
func (k *conn) admission(r ws.Request) {
	k.phase = admitting
	done := k.wait()
	policy := k.door.Rules
	input := rbac.AuthInput(r.Headers(), r.Query, k.sock.RemoteAddr().Addr().String())
	k.engine.ask(k, policy.AuthFunction, input, func(result []byte, err *fault.Error) {
		done(func() {
			var session *rbac.Session
			if err == nil {
				session, err = rbac.ParseSession(result)
			}
			if err != nil {
				k.engine.log.Info("connection refused by the auth function", "function", policy.AuthFunction,
					"listener", k.door.Name, "code", err.Code, "error", err.Message)
				k.turnAway(401, "the auth function of this listener refuses the connection")
				return
			}
			k.session = session
			k.peer.Principal = fn.Principal{Kind: "worker", Name: anonymous,
				Access: &rules{policy: policy, session: session}}
			k.enter(&r)
		})
	})
}

// context is what the auth function wants hooks and middleware to be told.
func (k *conn) context() []byte {
	if k.session == nil {
		return nil
	}
	return k.session.Context()
}

// prefixed returns an id as the table has it, for a worker whose session has a prefix.
func (k *conn) prefixed(id []byte) string {
	if k.session == nil {
		return string(id)
	}
	return k.session.Add(string(id))
}

// bare returns an id as the worker knows it.
func (k *conn) bare(id string) []byte {
	if k.session == nil {
		return []byte(id)
	}
	return k.session.Strip([]byte(id))
}

// hooked returns the hook that decides on a registration; "" when there is none.
func (k *conn) hooked(t wire.Type) string {
	r := k.door.Rules
	if r == nil {
		return ""
	}
	switch t {
	case wire.TypeRegisterFunction:
		return r.OnFunction
	case wire.TypeRegisterTrigger:
		return r.OnTrigger
	case wire.TypeRegisterTriggerType:
		return r.OnTriggerType
	}
	return ""
}

// consult has a hook decide on a registration, and applies what it answers. Meanwhile nothing is read, so
// that
// registrations take effect in the order of their arrival.
func (k *conn) consult(hook string, f *wire.Frame, raw []byte) {
	kept := append([]byte(nil), raw...)
	input := k.asRegistration(f).Input(k.space, k.context())
	done := k.wait()
	k.engine.ask(k, hook, input, func(result []byte, err *fault.Error) {
		done(func() {
			var again wire.Frame
			if again.Scan(kept) != nil {
				return // it was a good frame before
			}
			r := k.asRegistration(&again)
			if err == nil {
				err = r.Apply(result)
			}
			if err != nil {
				k.deny(&again, fault.Newf(fault.Denied, wire.CodeForbidden, "%s does not allow it: %s", hook,
					err.Message))
				return
			}
			change(&again, r)
			k.apply(&again)
		})
	})
}

// asRegistration is what a hook is asked about.
func (k *conn) asRegistration(f *wire.Frame) *rbac.Registration {
	r := &rbac.Registration{Description: string(f.Description), RequestFormat: f.RequestFormat,
		ResponseFormat: f.ResponseFormat, Config: f.Config, Metadata: f.Metadata}
	switch f.Type {
	case wire.TypeRegisterFunction:
		r.FunctionID = string(f.ID)
	case wire.TypeRegisterTriggerType:
		r.TriggerTypeID = string(f.ID)
		r.Config, r.RequestFormat = f.TriggerRequestFormat, f.CallRequestFormat
	case wire.TypeRegisterTrigger:
		r.TriggerID, r.TriggerType, r.FunctionID = string(f.ID), string(f.TriggerType), string(f.FunctionID)
	}
	return r
}

// change puts what a hook answered into the frame.
func change(f *wire.Frame, r *rbac.Registration) {
	f.Description, f.RequestFormat, f.ResponseFormat = []byte(r.Description), r.RequestFormat, r.ResponseFormat
	f.Config, f.Metadata = r.Config, r.Metadata
	switch f.Type {
	case wire.TypeRegisterFunction:
		f.ID = []byte(r.FunctionID)
	case wire.TypeRegisterTriggerType:
		f.ID = []byte(r.TriggerTypeID)
		f.TriggerRequestFormat, f.CallRequestFormat = r.Config, r.RequestFormat
	case wire.TypeRegisterTrigger:
		f.ID, f.TriggerType, f.FunctionID = []byte(r.TriggerID), []byte(r.TriggerType), []byte(r.FunctionID)
	}
}

// engineOwned reports whether a function is the engine's: middleware does not see calls of those.
func engineOwned(function string) bool { return strings.HasPrefix(function, "engine::") }

// mediate has the listener's middleware answer a call that is allowed; it calls the target itself, if it
// likes. The middleware runs on the engine's behalf, since the caller may not be allowed to call it.
func (k *conn) mediate(c *fn.Call, f *wire.Frame) {
	e, target := k.engine, c.Function
	if a := k.peer.Principal.Access; a != nil {
		if err := a.Call(target); err != nil {
			e.fn.Invoke(c) // refused there once more, with its span and its counter
			return
		}
	}
	middleware := e.fn.Lookup(nil, []byte(k.door.Rules.Middleware))
	if middleware == nil {
		e.fn.Drop(c)
		k.refuse(f.InvocationID, f.FunctionID, fault.Newf(fault.Unavailable, wire.CodeFunctionNotFound,
			"the middleware %s of this listener is not there", k.door.Rules.Middleware))
		return
	}
	c.Payload = rbac.MiddlewareInput(target.Name, f.Data, f.Action, k.context(), target.Namespace)
	c.Function, c.Principal = middleware, &e.room.Principal
	c.Done = &mediated{k, target.Name}
	e.fn.Invoke(c)
}

// mediated waits for a middleware's answer and gives it as that of the function that was called.
type mediated struct {
	conn     *conn
	function string
}

// Complete relays the outcome.
func (m *mediated) Complete(c *fn.Call, o fn.Outcome) {
	if len(c.Tag()) == 0 {
		(*caller)(m.conn).Complete(c, o)
		return
	}
	m.conn.reply(c.Loop, c.Tag(), []byte(m.function), o)
}

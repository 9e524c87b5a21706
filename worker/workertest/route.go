package workertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
	"github.com/plinth-run/plinth/worker"
)

const registerName = "engine::workers::register"

// judge asks the interceptor.
func (e *Engine) judge(l *link, f *wire.Frame, text []byte, toWorker bool) Verdict {
	e.mu.Lock()
	ask, name := e.intercept, l.name
	e.mu.Unlock()
	if ask == nil {
		return Pass
	}
	function := f.FunctionID
	if function == nil {
		function = f.ID
	}
	return ask(Message{Worker: name, ToWorker: toWorker, Type: f.Type, Function: string(function),
		Invocation: string(f.InvocationID), Text: text})
}

// route handles one frame of a worker; b is its text.
func (e *Engine) route(l *link, f *wire.Frame, b []byte) {
	switch f.Type {
	case wire.TypeInvocationResult:
		e.result(f)
	case wire.TypeInvokeFunction:
		e.invoke(l, f)
	case wire.TypePing:
		l.send(&wire.Frame{Type: wire.TypePong})
	case wire.TypeReattach:
		e.reattach(f)
	case wire.TypeTriggerRegistrationResult:
		e.trigger(l, f, b)
	case wire.TypeRegisterFunction, wire.TypeUnregisterFunction, wire.TypeRegisterTriggerType,
		wire.TypeUnregisterTriggerType, wire.TypeRegisterTrigger, wire.TypeUnregisterTrigger:
		e.mu.Lock()
		if !l.announced {
			l.held = append(l.held, slices.Clone(b))
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		e.registration(l, f, b)
	}
}

// registration files or removes a function, a trigger type or a trigger; text is that of f.
func (e *Engine) registration(l *link, f *wire.Frame, text []byte) {
	if f.Type != wire.TypeRegisterFunction && f.Type != wire.TypeUnregisterFunction {
		e.trigger(l, f, text)
		return
	}
	e.mu.Lock()
	k := key{l.namespace, string(f.ID)}
	if f.Type == wire.TypeUnregisterFunction {
		e.unhost(k, l)
		e.mu.Unlock()
		return
	}
	var card struct{ Replicas bool }
	_ = json.Unmarshal(f.Metadata, &card) // what does not fit stays false
	var owner *link
	for _, h := range e.functions[k] {
		if h.link != l && !(h.replicas && card.Replicas) {
			owner = h.link
		}
	}
	if !e.rejected[k.name] && owner == nil {
		e.unhost(k, l)
		e.functions[k] = append(e.functions[k], host{l, card.Replicas})
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	no := wire.Frame{Type: wire.TypeRegistrationRejected, Code: []byte(wire.CodeFunctionConflict),
		Namespace: []byte(k.namespace), FunctionID: []byte(k.name), OwnerWorkerID: []byte{}}
	if owner != nil {
		no.OwnerWorkerID = []byte(owner.id)
	}
	l.send(&no)
}

// unhost removes a host of a function. Caller holds mu.
func (e *Engine) unhost(k key, l *link) {
	e.functions[k] = slices.DeleteFunc(e.functions[k], func(h host) bool { return h.link == l })
	if len(e.functions[k]) == 0 {
		delete(e.functions, k)
	}
}

// pick returns who runs a call, nil if nobody hosts the function: replicas take turns. Caller holds mu.
func (e *Engine) pick(k key) *link {
	all := e.functions[k]
	if len(all) == 0 {
		return nil
	}
	next := all[0]
	copy(all, all[1:])
	all[len(all)-1] = next
	return next.link
}

// announce is engine::workers::register.
func (e *Engine) announce(l *link, f *wire.Frame) {
	var card struct {
		Name, Namespace string
		Features        []string
	}
	_ = json.Unmarshal(f.Data, &card) // what does not fit stays empty
	e.mu.Lock()
	for _, other := range e.links {
		if other != l && other.announced && other.name == card.Name && other.namespace == space(card.Namespace) &&
			len(card.Features) > 0 {
			e.mu.Unlock()
			l.send(&wire.Frame{Type: wire.TypeRegistrationRejected, Code: []byte(wire.CodeWorkerConflict),
				Namespace: []byte(space(card.Namespace)), WorkerName: []byte(card.Name), OwnerWorkerID: []byte(other.id)})
			return
		}
	}
	if !l.announced {
		l.announced, l.namespace = true, space(card.Namespace)
	}
	l.name = card.Name
	held := l.held
	l.held = nil
	e.mu.Unlock()
	var h wire.Frame
	for _, b := range held {
		if h.Scan(b) == nil {
			e.registration(l, &h, b)
		}
	}
}

// reattach retires the connection that a worker had before.
func (e *Engine) reattach(f *wire.Frame) {
	e.mu.Lock()
	var old *link
	for _, l := range e.links {
		if l.id == string(f.PreviousWorkerID) && l.token == string(f.ReattachToken) {
			old = l
		}
	}
	e.mu.Unlock()
	if old != nil {
		old.cut()
		e.teardown(old)
	}
}

// invoke routes a call.
func (e *Engine) invoke(l *link, f *wire.Frame) {
	name, id := string(f.FunctionID), string(f.InvocationID)
	if name == registerName {
		e.announce(l, f)
		if id != "" {
			e.answer(l, id, name, []byte(`{"success":true}`), nil)
		}
		return
	}
	if name == createName {
		e.createChannel(l, f)
		return
	}
	action, _ := wire.ParseAction(f.Action)
	waits := id != "" && action == wire.ActionCall
	e.mu.Lock()
	host, own := e.pick(key{space(string(f.Namespace)), name}), e.builtin[name]
	e.next++
	n := e.next
	out := wire.Frame{Type: wire.TypeInvokeFunction, FunctionID: f.FunctionID, Data: f.Data,
		Metadata: f.Metadata, Traceparent: f.Traceparent, Baggage: f.Baggage, Caller: l.caller(f)}
	if host != nil && waits {
		e.pending[n] = pending{caller: l, id: id, function: name, host: host}
		out.InvocationID = strconv.AppendUint(nil, n, 16)
	}
	e.mu.Unlock()
	switch {
	case own != nil:
		e.builtIn(l, f, own, waits)
	case host == nil:
		if id != "" {
			e.answer(l, id, name, nil, &wire.Error{Code: wire.CodeFunctionNotFound, Message: fmt.Sprintf(
				"no function %s in namespace %s", name, space(string(f.Namespace)))})
		}
		return
	default:
		host.send(&out)
	}
	if action == wire.ActionEnqueue && id != "" {
		e.answer(l, id, name, fmt.Appendf(nil, `{"messageReceiptId":"receipt-%d"}`, n), nil)
	}
}

// caller is what a host learns of the caller. The caller holds mu.
func (l *link) caller(f *wire.Frame) []byte {
	own := struct {
		WorkerID     string `json:"worker_id"`
		WorkerName   string `json:"worker_name"`
		FunctionID   string `json:"function_id,omitempty"`
		InvocationID string `json:"invocation_id,omitempty"`
	}{WorkerID: l.id, WorkerName: l.name}
	if f.Caller != nil {
		_ = json.Unmarshal(f.Caller, &own) // what does not fit stays empty
	}
	own.WorkerID, own.WorkerName = l.id, l.name
	b, err := json.Marshal(own)
	if err != nil {
		return nil
	}
	return b
}

// builtIn runs a function of the engine itself, on a goroutine of the engine's tasks.
func (e *Engine) builtIn(l *link, f *wire.Frame, h worker.Handler, waits bool) {
	name, id, payload := string(f.FunctionID), string(f.InvocationID), slices.Clone(f.Data)
	e.tasks.Go(func() {
		result, err := h(e.ctx, payload)
		if !waits {
			return
		}
		var out *wire.Error
		if err != nil {
			out = &wire.Error{Code: wire.CodeInvocationFailed, Message: err.Error()}
			var coded *worker.Error
			if errors.As(err, &coded) {
				out.Code, out.Message = coded.Code, coded.Message
			}
		}
		e.answer(l, id, name, result, out)
	})
}

func (e *Engine) answer(l *link, id, function string, result []byte, err *wire.Error) {
	f := wire.Frame{Type: wire.TypeInvocationResult, InvocationID: []byte(id), FunctionID: []byte(function),
		Result: result}
	if err != nil {
		f.Result, f.Error = nil, wire.AppendError(nil, err)
	}
	l.send(&f)
}

// result relays an outcome to the caller.
func (e *Engine) result(f *wire.Frame) {
	n, err := strconv.ParseUint(string(f.InvocationID), 16, 64)
	if err != nil {
		return
	}
	e.mu.Lock()
	p, ok := e.pending[n]
	delete(e.pending, n)
	e.mu.Unlock()
	if !ok || p.caller == nil {
		return
	}
	p.caller.send(&wire.Frame{Type: wire.TypeInvocationResult, InvocationID: []byte(p.id),
		FunctionID: []byte(p.function), Result: f.Result, Error: f.Error})
}

// teardown forgets a link: its functions, the calls it made, and the calls it hosts, which fail.
func (e *Engine) teardown(l *link) {
	e.mu.Lock()
	e.links = slices.DeleteFunc(e.links, func(x *link) bool { return x == l })
	for k := range e.functions {
		e.unhost(k, l)
	}
	for _, p := range e.pipes {
		if p.owner == l {
			p.sever(ws.CloseGoingAway, "the owner of the channel left")
		}
	}
	var failed []pending
	for n, p := range e.pending {
		if p.caller == l || p.host == l {
			delete(e.pending, n)
		}
		if p.host == l && p.caller != l {
			failed = append(failed, p)
		}
	}
	e.mu.Unlock()
	e.leave(l)
	for _, p := range failed {
		e.answer(p.caller, p.id, p.function, nil, &wire.Error{Code: wire.CodeInvocationStopped,
			Message: "the worker " + strings.TrimSpace(l.name) + " that hosts " + p.function + " has gone"})
	}
}

package workertest

import (
	"slices"

	"github.com/plinth-run/plinth/wire"
)

// binding is a trigger. Guarded by Engine.mu.
type binding struct {
	id       string
	kind     string
	space    string // where its type is sought before "default"
	function string
	text     []byte // registertrigger, as it came
	owner    *link
	provider *link // nil: nobody offers the type
}

// Trigger reports whether a trigger type is offered, and how many triggers its provider has.
func (e *Engine) Trigger(kind string) (offered bool, triggers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range e.kinds {
		offered = offered || k.name == kind
	}
	for _, b := range e.bindings {
		if b.kind == kind && b.provider != nil {
			triggers++
		}
	}
	return offered, triggers
}

// trigger handles the frames of triggers; b is the text of f.
func (e *Engine) trigger(l *link, f *wire.Frame, text []byte) {
	switch id := string(f.ID); f.Type {
	case wire.TypeRegisterTriggerType:
		e.offer(l, f)
	case wire.TypeUnregisterTriggerType:
		e.mu.Lock()
		if k := (key{e.spaceOf(l, f.Namespace), id}); e.kinds[k] == l {
			delete(e.kinds, k)
			e.park(func(b *binding) bool { return b.provider == l && b.kind == id })
		}
		e.mu.Unlock()
	case wire.TypeRegisterTrigger:
		e.bind(l, f, text)
	case wire.TypeUnregisterTrigger:
		e.unbind(func(b *binding) bool { return b.owner == l && b.id == id })
	case wire.TypeTriggerRegistrationResult:
		e.mu.Lock()
		b := e.bindings[id]
		e.mu.Unlock()
		if b != nil && f.Failed() {
			b.owner.send(&wire.Frame{Type: f.Type, ID: f.ID, TriggerType: []byte(b.kind),
				FunctionID: []byte(b.function), Error: f.Error})
		}
	}
}

// spaceOf returns the namespace of a frame. Caller holds mu.
func (e *Engine) spaceOf(l *link, given []byte) string {
	if given != nil {
		return string(given)
	}
	return l.namespace
}

// offer files a trigger type and delivers the triggers that wait for it.
func (e *Engine) offer(l *link, f *wire.Frame) {
	e.mu.Lock()
	k := key{e.spaceOf(l, f.Namespace), string(f.ID)}
	if e.rejected[k.name] || e.kinds[k] != nil && e.kinds[k] != l {
		e.mu.Unlock()
		l.send(&wire.Frame{Type: wire.TypeTriggerRegistrationResult, TriggerType: f.ID,
			Error: wire.AppendError(nil, &wire.Error{Code: wire.CodeTriggerFailed,
				Message: "the trigger type " + k.name + " is refused"})})
		return
	}
	e.kinds[k] = l
	var waiting []*binding
	for _, b := range e.bindings {
		if b.kind == k.name && b.provider == nil && (b.space == k.namespace || k.namespace == "default") {
			b.provider = l
			waiting = append(waiting, b)
		}
	}
	e.mu.Unlock()
	for _, b := range waiting {
		l.deliver(b)
	}
}

// deliver sends a trigger to its provider.
func (l *link) deliver(b *binding) {
	var f wire.Frame
	if f.Scan(b.text) == nil {
		f.TriggerNamespace = nil
		l.send(&f)
	}
}

// bind files a trigger.
func (e *Engine) bind(l *link, f *wire.Frame, text []byte) {
	e.mu.Lock()
	b := &binding{id: string(f.ID), kind: string(f.TriggerType), function: string(f.FunctionID),
		space: e.spaceOf(l, f.TriggerNamespace), text: slices.Clone(text), owner: l}
	if old := e.bindings[b.id]; old != nil && old.owner != l {
		e.mu.Unlock()
		l.send(&wire.Frame{Type: wire.TypeTriggerRegistrationResult, ID: f.ID, TriggerType: f.TriggerType,
			FunctionID: f.FunctionID, Error: wire.AppendError(nil, &wire.Error{Code: wire.CodeTriggerFailed,
				Message: "another worker has a trigger " + b.id})})
		return
	}
	if b.provider = e.kinds[key{b.space, b.kind}]; b.provider == nil {
		b.provider = e.kinds[key{"default", b.kind}]
	}
	e.bindings[b.id] = b
	e.mu.Unlock()
	if b.provider != nil {
		b.provider.deliver(b)
	}
}

// unbind removes triggers and tells their providers.
func (e *Engine) unbind(which func(b *binding) bool) {
	e.mu.Lock()
	var gone []*binding
	for id, b := range e.bindings {
		if which(b) {
			delete(e.bindings, id)
			gone = append(gone, b)
		}
	}
	e.mu.Unlock()
	for _, b := range gone {
		if b.provider != nil {
			b.provider.send(&wire.Frame{Type: wire.TypeUnregisterTrigger, ID: []byte(b.id),
				TriggerType: []byte(b.kind)})
		}
	}
}

// park lets triggers wait for another provider. Caller holds mu.
func (e *Engine) park(which func(b *binding) bool) {
	for _, b := range e.bindings {
		if which(b) {
			b.provider = nil
		}
	}
}

// leave forgets what a link offered and bound.
func (e *Engine) leave(l *link) {
	e.unbind(func(b *binding) bool { return b.owner == l })
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, provider := range e.kinds {
		if provider == l {
			delete(e.kinds, k)
		}
	}
	e.park(func(b *binding) bool { return b.provider == l })
}

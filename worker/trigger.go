package worker

import (
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire"
)

// Trigger has a function called when something happens: the worker that offers the trigger type calls it.
type Trigger struct {
	Type     string // id of the trigger type
	Function string // what is called; any worker may host it
	Config   any    // says of what to tell, as JSON; its shape is that of the type. nil: none
	Metadata any    // as JSON; the function finds it in Current at every call. nil: none

	// Namespace is that of the function. Default: that of the worker.
	Namespace string
	// TypeNamespace is where the type is offered. Default: that of the worker, then "default".
	TypeNamespace string
}

// TriggerFailure is a trigger or a trigger type that was refused, by the engine or by the provider. A trigger
// stays registered: it is offered again when its type is, and on every connection.
type TriggerFailure struct {
	ID       string // of the trigger; empty: the trigger type is refused
	Type     string
	Function string
	Err      *Error
}

// TriggerHandle is a registered trigger.
type TriggerHandle struct {
	worker *Worker
	id     string
	kind   string
	frame  []byte
}

// ID returns the id the trigger has in listings and in TriggerFailure.
func (h *TriggerHandle) ID() string { return h.id }

// Unregister takes the trigger back, and reports whether it was registered.
func (h *TriggerHandle) Unregister() bool {
	w := h.worker
	w.mu.Lock()
	i := slices.Index(w.triggers, h)
	if i < 0 {
		w.mu.Unlock()
		return false
	}
	w.triggers = slices.Delete(w.triggers, i, i+1)
	w.announce((&wire.Frame{Type: wire.TypeUnregisterTrigger, ID: []byte(h.id),
		TriggerType: []byte(h.kind)}).Append(nil))
	return true
}

const maxTriggers = 10_000

// RegisterTrigger binds a function to a trigger type, at once or when the worker connects, and again on every
// connection. A type that nobody offers yet is waited for. What the engine or the provider refuses is told by
// Options.OnTriggerFailed.
func (w *Worker) RegisterTrigger(t Trigger) (*TriggerHandle, error) {
	h := &TriggerHandle{worker: w, id: randomID(), kind: t.Type}
	f := wire.Frame{Type: wire.TypeRegisterTrigger, ID: []byte(h.id), TriggerType: []byte(t.Type),
		FunctionID: []byte(t.Function)}
	if space := first(t.Namespace, w.opts.Namespace); space != "" {
		f.Namespace = []byte(space)
	}
	if t.TypeNamespace != "" {
		f.TriggerNamespace = []byte(t.TypeNamespace)
	}
	err := errors.Join(checkName(t.Type), checkName(t.Function), fillValue(&f.Config, t.Config),
		fillValue(&f.Metadata, t.Metadata))
	if err == nil {
		h.frame = f.Append(nil)
		err = w.fits(h.frame)
	}
	if err != nil {
		return nil, fmt.Errorf("worker: register a trigger of type %q for %q: %w", t.Type, t.Function, err)
	}
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		return nil, &Error{Code: CodeClosed, Message: "register a trigger: the worker has ended"}
	case len(w.triggers) >= maxTriggers:
		w.mu.Unlock()
		return nil, fmt.Errorf("worker: a worker has at most %d triggers", maxTriggers)
	}
	w.triggers = append(w.triggers, h)
	w.announce(h.frame)
	return h, nil
}

// fillValue sets a raw field of a frame to v as JSON; nil leaves it absent.
func fillValue(field *[]byte, v any) error {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !utf8.Valid(raw) {
		return errors.New("a config or the metadata is no UTF-8")
	}
	*field = raw
	return nil
}

func checkName(name string) error {
	if strings.TrimSpace(name) == "" || len(name) > maxName || !utf8.ValidString(name) {
		return fmt.Errorf("a name has 1 to %d bytes of UTF-8", maxName)
	}
	return nil
}

// randomID returns an id that no other trigger has.
func randomID() string {
	var b [16]byte
	_, _ = crand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// triggerFailed reports a refusal that the engine sent.
func (w *Worker) triggerFailed(f *wire.Frame) {
	e := wire.ParseError(f.Error)
	if e == nil {
		return
	}
	t := TriggerFailure{ID: string(f.ID), Type: string(f.TriggerType), Function: string(f.FunctionID),
		Err: &Error{Code: e.Code, Message: e.Message, Stack: e.Stacktrace}}
	w.log.Error("trigger refused", "id", t.ID, "type", t.Type, "function", t.Function, "error", t.Err)
	if w.opts.OnTriggerFailed != nil {
		w.opts.OnTriggerFailed(t)
	}
}

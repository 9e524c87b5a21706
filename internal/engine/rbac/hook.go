package rbac

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Registration is what a hook is asked about and may change. Members that a kind of registration does not
// have are empty. Raw members are JSON.
type Registration struct {
	FunctionID     string
	TriggerID      string
	TriggerType    string
	TriggerTypeID  string
	Description    string
	RequestFormat  json.RawMessage
	ResponseFormat json.RawMessage
	Config         json.RawMessage
	Metadata       json.RawMessage
}

// field is a member of a registration: a text or a raw value.
type field struct {
	name string
	text *string
	raw  *json.RawMessage
	id   bool // it can be replaced, but neither taken away nor added
}

// fields lists the members under the names that hooks know them by.
func (r *Registration) fields() [9]field {
	return [9]field{
		{name: "function_id", text: &r.FunctionID, id: true},
		{name: "trigger_id", text: &r.TriggerID, id: true},
		{name: "trigger_type", text: &r.TriggerType, id: true},
		{name: "trigger_type_id", text: &r.TriggerTypeID, id: true},
		{name: "description", text: &r.Description},
		{name: "request_format", raw: &r.RequestFormat},
		{name: "response_format", raw: &r.ResponseFormat},
		{name: "config", raw: &r.Config},
		{name: "metadata", raw: &r.Metadata},
	}
}

// Input is the question to a hook: the registration's members that are not empty, with namespace and context
// beside them.
func (r *Registration) Input(namespace string, context []byte) []byte {
	b := []byte{'{'}
	for _, f := range r.fields() {
		switch {
		case f.text != nil && *f.text != "":
			b = append(wire.AppendString(b, f.name), ':')
			b = append(wire.AppendString(b, *f.text), ',')
		case f.raw != nil && len(*f.raw) > 0:
			b = append(wire.AppendString(b, f.name), ':')
			b = append(append(b, *f.raw...), ',')
		}
	}
	b = append(b, `"namespace":`...)
	b = append(wire.AppendString(b, namespace), `,"context":`...)
	return append(append(b, orEmpty(context)...), '}')
}

// Apply takes a hook's answer: an object allows, with the members that it names in place of what was asked;
// anything else denies, and leaves the registration as it was. Null leaves a member as it was, and members
// that no registration has, namespace and context among them, change nothing. Ids cannot be taken away or
// added, only replaced. The error is Denied with code FORBIDDEN.
func (r *Registration) Apply(answer []byte) *fault.Error {
	changed := *r
	fields := changed.fields()
	err := error(nil)
	if len(answer) > maxAnswer {
		err = fmt.Errorf("it is larger than %d bytes", maxAnswer)
	} else {
		err = members(answer, func(name string, value json.RawMessage) error {
			for _, f := range fields {
				if f.name == name && !wire.IsNull(value) {
					return f.set(value)
				}
			}
			return nil
		})
	}
	if err != nil {
		return fault.Newf(fault.Denied, wire.CodeForbidden, "the hook's answer does not allow it: %w", err)
	}
	*r = changed
	return nil
}

// set puts a value of an answer in place.
func (f field) set(value json.RawMessage) error {
	if f.raw != nil {
		*f.raw = value
		return nil
	}
	text, err := textOf(value)
	switch {
	case err != nil:
		return err
	case f.id && (*f.text == "" || strings.TrimSpace(text) == ""):
		return errors.New("an id cannot be taken away or added")
	}
	*f.text = text
	return nil
}

// MiddlewareInput is the call that a middleware gets: {function_id, payload, action, context, namespace}. An
// absent payload or action is null, an absent context is {}.
func MiddlewareInput(function string, payload, action, context []byte, namespace string) []byte {
	b := make([]byte, 0, 128+len(function)+len(payload)+len(action)+len(context)+len(namespace))
	b = append(b, `{"function_id":`...)
	b = append(wire.AppendString(b, function), `,"payload":`...)
	b = append(append(b, orNull(payload)...), `,"action":`...)
	b = append(append(b, orNull(action)...), `,"context":`...)
	b = append(append(b, orEmpty(context)...), `,"namespace":`...)
	return append(wire.AppendString(b, namespace), '}')
}

func orEmpty(context []byte) []byte {
	if len(context) == 0 {
		return []byte("{}")
	}
	return context
}

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

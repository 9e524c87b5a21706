package rbac

import (
	"bytes"
	"encoding/json"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Registration is what a hook is asked about and may change. Members that a kind of registration does not
// have
// are empty.
type Registration struct {
	FunctionID     string          `json:"function_id,omitempty"`
	TriggerID      string          `json:"trigger_id,omitempty"`
	TriggerType    string          `json:"trigger_type,omitempty"`
	TriggerTypeID  string          `json:"trigger_type_id,omitempty"`
	Description    string          `json:"description,omitempty"`
	RequestFormat  json.RawMessage `json:"request_format,omitempty"`
	ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	Config         json.RawMessage `json:"config,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
}

// Input is the question to a hook: the registration, with namespace and context beside its members.
func (r *Registration) Input(namespace string, context []byte) []byte {
	b, err := json.Marshal(struct {
		*Registration
		Namespace string          `json:"namespace"`
		Context   json.RawMessage `json:"context"`
	}{r, namespace, orEmpty(context)})
	if err != nil {
		return []byte("{}") // raw values come out of a frame that was checked
	}
	return b
}

// Apply takes a hook's answer: an object allows, with the members that it names in place of what was asked;
// anything else denies. Ids cannot be taken away, only replaced.
func (r *Registration) Apply(answer []byte) *fault.Error {
	if trimmed := bytes.TrimSpace(answer); len(trimmed) == 0 || trimmed[0] != '{' {
		return fault.New(fault.Denied, wire.CodeForbidden, "the hook's answer is no object")
	}
	changed := *r
	if err := json.Unmarshal(answer, &changed); err != nil {
		return fault.Newf(fault.Denied, wire.CodeForbidden, "the hook's answer cannot be used: %v", err)
	}
	for _, id := range []struct{ was, is string }{{r.FunctionID, changed.FunctionID}, {r.TriggerID,
		changed.TriggerID},
		{r.TriggerType, changed.TriggerType}, {r.TriggerTypeID, changed.TriggerTypeID}} {
		if (id.was == "") != (id.is == "") {
			return fault.New(fault.Denied, wire.CodeForbidden, "the hook's answer takes an id away, or adds one")
		}
	}
	*r = changed
	return nil
}

// MiddlewareInput is the call that a middleware gets: {function_id, payload, action, context, namespace}.
func MiddlewareInput(function string, payload, action, context []byte, namespace string) []byte {
	b := append([]byte(nil), `{"function_id":`...)
	b = wire.AppendString(b, function)
	for _, m := range []struct {
		name string
		raw  []byte
	}{{`,"payload":`, payload}, {`,"action":`, action}, {`,"context":`, orEmpty(context)}} {
		b = append(b, m.name...)
		if m.raw == nil {
			m.raw = []byte("null")
		}
		b = append(b, m.raw...)
	}
	b = append(b, `,"namespace":`...)
	b = wire.AppendString(b, namespace)
	return append(b, '}')
}

func orEmpty(context []byte) []byte {
	if context == nil {
		return []byte("{}")
	}
	return context
}

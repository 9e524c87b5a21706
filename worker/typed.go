package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/plinth-run/plinth/wire"
)

// None stands for no value: as the In of a handler for no payload (whatever comes is ignored), as the Out
// of a handler for no result, as the Out of CallAs for a result of no interest.
type None struct{}

// Handle registers a handler of Go types. The payload is read as encoding/json reads it into an In (an absent
// payload is the zero In); one that does not fit fails its call with deserialization_error and the handler
// is not run. The formats of request and response are the JSON Schemas of In and Out, unless Formats
// gives others; types without a schema, such as recursive ones, get none.
func Handle[In, Out any](
	w *Worker, name string, h func(ctx context.Context, in In) (Out, error), opts ...FunctionOption,
) error {
	if h == nil {
		return w.RegisterWith(name, nil, opts...)
	}
	inferred := Formats(w.schema(name, reflect.TypeFor[In]()), w.schema(name, reflect.TypeFor[Out]()))
	return w.RegisterWith(name, func(ctx context.Context, payload []byte) ([]byte, error) {
		var in In
		if err := decode(payload, &in); err != nil {
			return nil, &Error{Code: wire.CodeDeserializationError, cause: err,
				Message: fmt.Sprintf("the payload does not fit %s: %v", name, err)}
		}
		out, err := h(ctx, in)
		if err != nil {
			return nil, err
		}
		raw, trusted, err := encode(out)
		if err == nil && !trusted && raw != nil && !validJSON(new(wire.Frame), raw) {
			err = errors.New("it is no JSON in UTF-8")
		}
		if err != nil {
			return nil, &Error{Code: wire.CodeSerializationError, cause: err,
				Message: fmt.Sprintf("the result of %s: %v", name, err)}
		}
		return raw, nil
	}, append([]FunctionOption{inferred, func(f *function) { f.trusted = true }}, opts...)...)
}

// encode turns a value into JSON; nil and None are absent. trusted is false for JSON that was not made here.
func encode(v any) (raw []byte, trusted bool, err error) {
	switch v := v.(type) {
	case nil, None:
		return nil, true, nil
	case json.RawMessage:
		return v, false, nil
	}
	raw, err = json.Marshal(v)
	return raw, true, err
}

// decode reads JSON into out, whose type is that of a pointer; absent JSON leaves it as it is.
func decode(raw []byte, out any) error {
	switch out := out.(type) {
	case *None:
		return nil
	case *json.RawMessage:
		if raw != nil {
			*out = bytes.Clone(raw)
		}
		return nil
	}
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// schema returns the JSON Schema of a Go type, nil if it has none.
func (w *Worker) schema(name string, t reflect.Type) json.RawMessage {
	switch t {
	case reflect.TypeFor[None](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return nil
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err == nil {
		open(s)
		var raw []byte
		if raw, err = json.Marshal(s); err == nil && len(raw) <= maxSchema {
			return raw
		}
	}
	w.log.Debug("function has a format without a schema", "function", name, "type", t.String(), "error", err)
	return nil
}

// open lets the objects of a schema have members that the type does not know: encoding/json skips them, and
// a caller that is newer than the function may send them.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 || s.Type == "object" {
		if p := s.AdditionalProperties; p != nil && p.Not != nil {
			s.AdditionalProperties = nil
		}
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
	open(s.AdditionalProperties)
}

package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

// textKeys and rawKeys tie the fields of Frame to their keys on the wire. TestEveryFieldHasAKey holds
// them to the struct.
var textKeys = map[string]string{
	"ID": "id", "FunctionID": "function_id", "InvocationID": "invocation_id", "Namespace": "namespace",
	"TriggerNamespace": "trigger_namespace", "WorkerID": "worker_id", "ReattachToken": "reattach_token",
	"PreviousWorkerID": "previous_worker_id", "Description": "description", "Name": "name",
	"ParentServiceID": "parent_service_id", "TriggerType": "trigger_type", "Traceparent": "traceparent",
	"Baggage": "baggage", "Observer": "observer", "Code": "code", "WorkerName": "worker_name",
	"OwnerWorkerID": "owner_worker_id",
}

var rawKeys = map[string]string{
	"Data": "data", "Result": "result", "Error": "error", "Metadata": "metadata", "Action": "action",
	"Invocation": "invocation", "RequestFormat": "request_format", "ResponseFormat": "response_format",
	"Observe": "observe", "LocalDispatch": "local_dispatch", "Config": "config",
	"TriggerRequestFormat": "trigger_request_format", "CallRequestFormat": "call_request_format",
	"Features": "features", "Caller": "caller",
}

// typeKeys lists for each type the keys that Append writes besides the type (protocol sections 3 to 9).
var typeKeys = map[wire.Type]string{
	wire.TypeInvokeFunction: "invocation_id function_id namespace traceparent baggage observer action caller " +
		"metadata data",
	wire.TypeInvocationResult: "invocation_id function_id traceparent baggage error result",
	wire.TypePing:             "",
	wire.TypePong:             "",
	wire.TypeWorkerRegistered: "worker_id reattach_token features",
	wire.TypeReattach:         "previous_worker_id reattach_token",
	wire.TypeRegisterFunction: "id namespace description request_format response_format metadata invocation " +
		"observe local_dispatch",
	wire.TypeUnregisterFunction:    "id namespace",
	wire.TypeRegisterService:       "id namespace name parent_service_id description",
	wire.TypeRegisterTriggerType:   "id namespace description trigger_request_format call_request_format",
	wire.TypeUnregisterTriggerType: "id namespace description trigger_request_format call_request_format",
	wire.TypeRegisterTrigger: "id trigger_type function_id namespace trigger_namespace config " +
		"metadata",
	wire.TypeUnregisterTrigger: "id trigger_type function_id namespace trigger_namespace config " +
		"metadata",
	wire.TypeTriggerRegistrationResult: "id trigger_type function_id namespace error",
	wire.TypeRegistrationRejected:      "code namespace worker_name function_id owner_worker_id",
	wire.TypeError:                     "error",
}

// get returns the field of a frame that has a name.
func get(f *wire.Frame, field string) []byte {
	return reflect.ValueOf(f).Elem().FieldByName(field).Bytes()
}

func set(f *wire.Frame, field string, v []byte) {
	reflect.ValueOf(f).Elem().FieldByName(field).SetBytes(v)
}

func TestEveryFieldHasAKey(t *testing.T) {
	frame := reflect.TypeFor[wire.Frame]()
	n := 0
	for i := range frame.NumField() {
		field := frame.Field(i)
		if !field.IsExported() || field.Type.Kind() != reflect.Slice {
			continue
		}
		n++
		_, text := textKeys[field.Name]
		_, raw := rawKeys[field.Name]
		if text == raw {
			t.Errorf("%s is in no or both tables", field.Name)
		}
	}
	if n != len(textKeys)+len(rawKeys) {
		t.Errorf("%d fields, %d keys", n, len(textKeys)+len(rawKeys))
	}
}

// reference reads a message with encoding/json, as the protocol says; ok is false for what is no frame.
func reference(b []byte) (f wire.Frame, ok bool) {
	if !json.Valid(b) || nesting(b) > wire.MaxDepth || bytes.TrimLeft(b, " \t\r\n")[0] != '{' {
		return f, false
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		panic(fmt.Sprintf("valid and cannot be read: %v", err))
	}
	for field, key := range textKeys {
		set(&f, field, referenceText(m[key]))
	}
	for field, key := range rawKeys {
		if raw, given := m[key]; given {
			set(&f, field, raw)
		}
	}
	f.Type = wire.ParseType(referenceText(m["type"]))
	_, given := m["namespace"]
	f.BadNamespace = given && f.Namespace == nil
	_, given = m["trigger_namespace"]
	f.BadTriggerNamespace = given && f.TriggerNamespace == nil
	return f, true
}

func referenceText(raw json.RawMessage) []byte {
	if len(raw) == 0 || raw[0] != '"' {
		return nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		panic(fmt.Sprintf("valid string cannot be read: %v", err))
	}
	return []byte(s)
}

// nesting returns how deep the containers of valid JSON nest.
func nesting(b []byte) (deepest int) {
	depth, inside := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// differences tells how two frames differ; absent and empty are not the same.
func differences(want, got *wire.Frame) string {
	var list []string
	if want.Type != got.Type {
		list = append(list, fmt.Sprintf("Type is %v, want %v", got.Type, want.Type))
	}
	if want.BadNamespace != got.BadNamespace || want.BadTriggerNamespace != got.BadTriggerNamespace {
		list = append(list, fmt.Sprintf("bad namespaces are %v %v, want %v %v",
			got.BadNamespace, got.BadTriggerNamespace, want.BadNamespace, want.BadTriggerNamespace))
	}
	for _, keys := range []map[string]string{textKeys, rawKeys} {
		for field := range keys {
			w, g := get(want, field), get(got, field)
			if !bytes.Equal(w, g) || (w == nil) != (g == nil) {
				list = append(list, fmt.Sprintf("%s is %s, want %s", field, shown(g), shown(w)))
			}
		}
	}
	return strings.Join(list, "; ")
}

func shown(b []byte) string {
	switch {
	case b == nil:
		return "absent"
	case len(b) > 200:
		return fmt.Sprintf("%q… of %d bytes", b[:200], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// agree checks one message against the reference and returns what Scan said.
func agree(t *testing.T, f *wire.Frame, b []byte) bool {
	t.Helper()
	before := bytes.Clone(b)
	err := f.Scan(b)
	if !bytes.Equal(b, before) {
		t.Errorf("Scan changed its bytes %q", before)
	}
	want, ok := reference(b)
	if (err == nil) != ok {
		t.Errorf("Scan(%s): %v, encoding/json accepts: %v", shown(b), err, ok)
		return false
	}
	if err != nil {
		return false
	}
	if diff := differences(&want, f); diff != "" {
		t.Errorf("Scan(%s): %s", shown(b), diff)
	}
	for _, keys := range []map[string]string{textKeys, rawKeys} {
		for field := range keys {
			if v := get(f, field); len(v) != cap(v) {
				t.Errorf("Scan(%s): an append to %s would change the bytes behind it", shown(b), field)
			}
		}
	}
	return true
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

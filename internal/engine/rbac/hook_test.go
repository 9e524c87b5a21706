package rbac_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
)

func TestEachKindOfRegistrationIsAskedWithItsMembers(t *testing.T) {
	for want, r := range map[string]rbac.Registration{
		`{"function_id":"a::b","request_format":{"type":"x"},"response_format":true,"namespace":"n\"s","context":{"t":1}}`: {
			FunctionID: "a::b", RequestFormat: []byte(`{"type":"x"}`), ResponseFormat: []byte(`true`)},
		`{"function_id":"a::b","trigger_id":"t","trigger_type":"cron","config":{},"metadata":null,"namespace":"n\"s","context":{"t":1}}`: {
			FunctionID: "a::b", TriggerID: "t", TriggerType: "cron", Config: []byte(`{}`), Metadata: []byte(`null`)},
		`{"trigger_type_id":"k","description":"d","namespace":"n\"s","context":{"t":1}}`: {
			TriggerTypeID: "k", Description: "d"},
	} {
		got := r.Input(`n"s`, []byte(`{"t":1}`))
		if string(got) != want || !json.Valid(got) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		before := r
		if err := r.Apply(got); err != nil || !reflect.DeepEqual(r, before) {
			t.Errorf("an answer that repeats the question: %v, %+v", err, r)
		}
		if err := r.Apply([]byte(`{"description":null,"config":null,"function_id":null,"metadata":null}`)); err != nil ||
			!reflect.DeepEqual(r, before) {
			t.Errorf("an answer of nulls: %v, %+v", err, r)
		}
		if err := r.Apply([]byte(` {} `)); err != nil || !reflect.DeepEqual(r, before) {
			t.Errorf("an empty answer: %v, %+v", err, r)
		}
	}
}

func TestMiddlewareIsToldTheWholeCall(t *testing.T) {
	for want, got := range map[string][]byte{
		`{"function_id":"a::\"b","payload":{"x":1},"action":{"type":"void"},"context":[1],"namespace":"ns"}`: rbac.MiddlewareInput(
			`a::"b`, []byte(`{"x":1}`), []byte(`{"type":"void"}`), []byte(`[1]`), "ns"),
		`{"function_id":"f","payload":null,"action":null,"context":{},"namespace":"default"}`: rbac.MiddlewareInput("f",
			nil, []byte{}, nil, "default"),
	} {
		if string(got) != want || !json.Valid(got) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestHooksReplaceMembers(t *testing.T) {
	r := rbac.Registration{FunctionID: "a::b", Description: "d", Metadata: []byte(`{"x":1}`)}
	want := `{"function_id":"a::b","description":"d","metadata":{"x":1},"namespace":"ns","context":{}}`
	if got := string(r.Input("ns", nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := r.Apply([]byte(`{"function_id":"c::d","metadata":{"y":2},"other":1}`)); err != nil {
		t.Fatal(err)
	}
	if r.FunctionID != "c::d" || r.Description != "d" || string(r.Metadata) != `{"y":2}` {
		t.Errorf("got %+v", r)
	}
	for _, answer := range []string{``, `null`, `false`, `"no"`, `[]`, `{"function_id":7}`, `{"function_id":""}`,
		`{"trigger_id":"t"}`, `{`, `{"function_id":" "}`,
		`{"description":["d"]}`, `{"description":"x","description":"y"}`, `{} x`, "{\"metadata\":\"\xff\"}",
		`{"description":"` + strings.Repeat("x", 4<<20) + `"}`} {
		before := r
		if err := r.Apply([]byte(answer)); err == nil || err.Kind != fault.Denied {
			t.Errorf("%.50s: got %v", answer, err)
		}
		if !reflect.DeepEqual(r, before) {
			t.Errorf("%.50s: a denied answer changed the registration", answer)
		}
	}
}

// FuzzHook reads any answer of a hook.
func FuzzHook(f *testing.F) {
	f.Add(`{"function_id":"x","config":{"a":1}}`)
	f.Fuzz(func(t *testing.T, answer string) {
		r := rbac.Registration{FunctionID: "a::b"}
		if r.Apply([]byte(answer)) == nil && !json.Valid(r.Input("ns", nil)) {
			t.Errorf("%q made %+v", answer, r)
		}
		if r.FunctionID == "" {
			t.Errorf("%q took the id away", answer)
		}
	})
}

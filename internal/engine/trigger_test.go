package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/wire"
)

// provider connects a worker that offers trigger type hook.
func (r *rig) provider(name, more string) *client {
	r.t.Helper()
	c := r.dial()
	c.say(`{"type":"registertriggertype","id":"hook","description":"Hooks","trigger_request_format":{"type":"object"}` +
		more + `}`)
	c.announce(name, "")
	return c
}

// text is a frame as JSON without its type, for comparisons.
func (f frame) text() string {
	delete(f, "type")
	b, _ := json.Marshal(f)
	return string(b)
}

const bindOne = `{"type":"registertrigger","id":"t-1","trigger_type":"hook","function_id":"sink::log",` +
	`"config":{"path":"/x"},"metadata":{"why":"test"},"message_type":"registertrigger"}`

func TestATriggerReachesItsProvider(t *testing.T) {
	r := start(t)
	provider := r.provider("provider", "")
	binder := r.worker("binder", "sink::log")
	binder.say(bindOne)
	want := `{"config":{"path":"/x"},"function_id":"sink::log","id":"t-1","metadata":{"why":"test"},"trigger_type":"hook"}`
	if got := provider.want("registertrigger").text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	provider.say(`{"type":"triggerregistrationresult","id":"t-1","trigger_type":"hook","function_id":"sink::log"}`)
	id := provider.ask("sink::log", `{"event":1}`)
	if f := binder.answer(`"seen"`); f["data"].(map[string]any)["event"] != 1.0 {
		t.Errorf("the function got %v", f)
	}
	if out := provider.result(id); out["result"] != "seen" {
		t.Errorf("the provider got %v", out)
	}
	binder.say(`{"type":"unregistertrigger","id":"t-1","trigger_type":"hook"}`)
	if got := provider.want("unregistertrigger").text(); got != `{"id":"t-1","trigger_type":"hook"}` {
		t.Errorf("got %s", got)
	}
}

func TestATriggerWaitsUntilItsTypeIsOffered(t *testing.T) {
	r := start(t)
	binder := r.worker("binder", "sink::log")
	binder.say(bindOne)
	if got := rows(binder.call("engine::registered-triggers::list", ""), "registered_triggers",
		"status"); len(got) != 1 ||
		got[0] != "parked" {
		t.Fatalf("got %q", got)
	}
	first := r.provider("first", "")
	first.want("registertrigger")
	first.nc.Close()
	second := r.provider("second", "")
	if f := second.want("registertrigger"); f.str("id") != "t-1" {
		t.Errorf("got %v", f)
	}
	second.say(`{"type":"unregistertriggertype","id":"hook","description":"Hooks"}`)
	second.call("engine::health::check", "")
	out := binder.call("engine::registered-triggers::info", `{"id":"t-1"}`)["result"].(map[string]any)
	if out["status"] != "parked" || out["trigger"] != nil {
		t.Errorf("got %v", out)
	}
}

func TestOnlyAProvidersRefusalIsForwarded(t *testing.T) {
	r := start(t)
	provider, binder := r.provider("provider", ""), r.worker("binder", "sink::log")
	binder.say(bindOne)
	provider.want("registertrigger")
	binder.say(`{"type":"triggerregistrationresult","id":"t-1","error":{"code":"x","message":"forged"}}`)
	provider.say(`{"type":"triggerregistrationresult","id":"t-1","trigger_type":"hook","function_id":"sink::log"}`)
	provider.say(`{"type":"triggerregistrationresult","id":"t-1","trigger_type":"hook","function_id":"sink::log",` +
		`"error":{"code":"trigger_registration_failed","message":"bad config"}}`)
	want := `{"error":{"code":"trigger_registration_failed","message":"bad config"},"function_id":"sink::log","id":"t-1","trigger_type":"hook"}`
	if got := binder.want("triggerregistrationresult").text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	out := binder.call("engine::registered-triggers::info", `{"id":"t-1"}`)["result"].(map[string]any)
	if out["status"] != "rejected" {
		t.Errorf("got %v", out)
	}
	provider.say(`{"type":"registertriggertype","id":"hook","description":"again"}`)
	provider.want("registertrigger") // the intent is kept
}

func TestABindersTriggersGoWithIt(t *testing.T) {
	r := start(t)
	provider, binder := r.provider("provider", ""), r.worker("binder", "sink::log")
	binder.say(bindOne)
	provider.want("registertrigger")
	binder.nc.Close()
	if f := provider.want("unregistertrigger"); f.str("id") != "t-1" {
		t.Errorf("got %v", f)
	}
	if got := rows(provider.call("engine::registered-triggers::list", ""), "registered_triggers",
		"id"); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestTriggersAreHeldUntilTheWorkerIsAnnounced(t *testing.T) {
	r := start(t)
	provider := r.provider("provider", `,"namespace":"ns"`)
	binder := r.dial()
	binder.say(bindOne)
	binder.announce("binder", `,"namespace":"ns"`)
	if f := provider.want("registertrigger"); f.str("id") != "t-1" {
		t.Errorf("got %v", f)
	}
}

func TestBadTriggersAreAnswered(t *testing.T) {
	r := start(t, func(c *engine.Config) { c.Bounds.MaxIDBytes = 32 })
	c := r.worker("w")
	for name, probe := range map[string][2]string{
		"no function":     {`"id":"a","trigger_type":"hook"`, wire.CodeTriggerFailed},
		"no type":         {`"id":"a","function_id":"x::y"`, wire.CodeTriggerFailed},
		"blank namespace": {`"id":"a","trigger_type":"hook","function_id":"x::y","namespace":" "`, wire.CodeInvalidNamespace},
		"null namespace":  {`"id":"a","trigger_type":"hook","function_id":"x::y","trigger_namespace":null`, wire.CodeInvalidNamespace},
		"long id":         {`"id":"0123456789abcdef0123456789abcdef0","trigger_type":"hook","function_id":"x::y"`, wire.CodeLimit},
	} {
		c.say(`{"type":"registertrigger",` + probe[0] + `}`)
		if got := c.want("triggerregistrationresult").code(); got != probe[1] {
			t.Errorf("%s: got %q, want %q", name, got, probe[1])
		}
	}
	c.say(`{"type":"registertriggertype","id":"engine::mine","description":""}`)
	if got := c.want("triggerregistrationresult").code(); got != wire.CodeReservedPrefix {
		t.Errorf("a type of the engine: got %q", got)
	}
	other := r.worker("other")
	other.say(`{"type":"registertrigger","id":"same","trigger_type":"hook","function_id":"x::y"}`)
	other.call("engine::health::check", "")
	c.say(`{"type":"registertrigger","id":"same","trigger_type":"hook","function_id":"x::y"}`)
	if got := c.want("triggerregistrationresult").code(); got != wire.CodeTriggerFailed {
		t.Errorf("another worker's id: got %q", got)
	}
}

func TestATriggerWithoutAnOwnerStays(t *testing.T) {
	r := start(t)
	provider, caller := r.provider("provider", ""), r.worker("caller")
	ask := caller.ask("engine::register_trigger", `{"trigger_type":"hook","function_id":"sink::log","config":{"a":1}}`)
	f := provider.want("registertrigger")
	provider.say(`{"type":"triggerregistrationresult","id":"` + f.str("id") + `","trigger_type":"hook","function_id":"sink::log"}`)
	out := caller.result(ask)["result"].(map[string]any)
	if out["id"] != f.str("id") {
		t.Fatalf("got %v for %v", out, f)
	}
	caller.nc.Close()
	other := r.worker("other")
	if got := rows(other.call("engine::registered-triggers::list", `{"trigger_type":"hook"}`),
		"registered_triggers", "id"); len(got) != 1 {
		t.Fatalf("got %q", got)
	}
	gone := other.call("engine::unregister_trigger", `{"id":"`+f.str("id")+`","trigger_type":"hook"}`)
	if gone["result"].(map[string]any)["removed"] != true {
		t.Errorf("got %v", gone)
	}
	provider.want("unregistertrigger")
	gone = other.call("engine::unregister_trigger", `{"id":"`+f.str("id")+`"}`)
	if gone["result"].(map[string]any)["removed"] != false {
		t.Errorf("got %v", gone)
	}
}

func TestAProvidersRefusalIsTheAnswerOfRegisterTrigger(t *testing.T) {
	r := start(t)
	provider, caller := r.provider("provider", ""), r.worker("caller")
	ask := caller.ask("engine::register_trigger", `{"trigger_type":"hook","function_id":"sink::log"}`)
	f := provider.want("registertrigger")
	provider.say(`{"type":"triggerregistrationresult","id":"` + f.str("id") + `","error":{"code":"bad_path","message":"no"}}`)
	if out := caller.result(ask); out.code() != "bad_path" || out.message() != "no" {
		t.Errorf("got %v", out)
	}
	if got := rows(caller.call("engine::registered-triggers::list", ""), "registered_triggers",
		"id"); len(got) != 0 {
		t.Errorf("a refused trigger was kept: %q", got)
	}
	if out := caller.call("engine::register_trigger", `{"trigger_type":"nobody","function_id":"x::y"}`); out.code() != "" {
		t.Errorf("a type that nobody offers yet parks: got %v", out)
	}
}

func TestTriggerTypesAreListed(t *testing.T) {
	r := start(t)
	provider, binder := r.provider("provider", `,"call_request_format":{"type":"string"}`), r.worker("binder")
	binder.say(bindOne)
	provider.want("registertrigger")
	if got := rows(binder.call("engine::triggers::list", ""), "triggers", "id"); strings.Join(got,
		" ") != "hook" {
		t.Errorf("got %q", got)
	}
	all := rows(binder.call("engine::triggers::list", `{"include_internal":true}`), "triggers", "id")
	if strings.Join(all, " ") != "engine::functions-available engine::workers-available hook" {
		t.Errorf("got %q", all)
	}
	out := binder.call("engine::triggers::info", `{"id":"hook"}`)["result"].(map[string]any)
	if out["instance_count"] != 1.0 || out["worker_name"] != "provider" || out["configuration_schema"] == nil ||
		out["request_schema"] == nil || out["namespace"] != "default" {
		t.Errorf("got %v", out)
	}
	if code := binder.call("engine::triggers::info", `{"id":"none"}`).code(); code != wire.CodeNotFound {
		t.Errorf("got %q", code)
	}
	row := rows(binder.call("engine::registered-triggers::list", `{"worker":"binder"}`), "registered_triggers",
		"config_summary")
	if len(row) != 1 || row[0] != `{"path":"/x"}` {
		t.Errorf("got %q", row)
	}
	info := binder.call("engine::workers::info", `{"name":"provider"}`)
	if got := rows(info, "trigger_types", "id"); len(got) != 1 || got[0] != "hook" {
		t.Errorf("got %v", info)
	}
	binder.say(`{"type":"registerfunction","id":"sink::log"}`)
	info = binder.call("engine::functions::info", `{"function_id":"sink::log"}`)
	if got := rows(info, "registered_triggers", "id"); len(got) != 1 || got[0] != "t-1" {
		t.Errorf("got %v", info)
	}
}

func TestWorkersHearOfWorkersAndFunctions(t *testing.T) {
	r := start(t)
	w := r.worker("watcher", "watch::workers", "watch::functions", "watch::no")
	w.say(`{"type":"registertrigger","id":"1","trigger_type":"engine::workers-available","function_id":"watch::workers","config":{},"metadata":{"m":1}}`)
	w.say(`{"type":"registertrigger","id":"2","trigger_type":"engine::functions-available","function_id":"watch::functions","config":{}}`)
	w.call("engine::health::check", "")
	next := func(function string) frame {
		for {
			f := w.want("invokefunction")
			w.say(`{"type":"invocationresult","invocation_id":"` + f.str("invocation_id") + `","function_id":"x"}`)
			if f.str("function_id") == function {
				return f
			}
		}
	}
	other := r.worker("other", "other::f")
	f := next("watch::workers")
	if data := f["data"].(map[string]any); data["event"] != "worker_connected" ||
		data["worker_id"] != other.id ||
		f["metadata"].(map[string]any)["m"] != 1.0 {
		t.Errorf("got %v", f)
	}
	f = next("watch::functions")
	if data, _ := json.Marshal(f["data"]); !strings.Contains(string(data), "other::f") ||
		f["data"].(map[string]any)["event"] != "functions_changed" {
		t.Errorf("got %v", f)
	}
	other.announce("renamed", "")
	if got := next("watch::workers")["data"].(map[string]any)["event"]; got != "worker_metadata_updated" {
		t.Errorf("got %v", got)
	}
	other.nc.Close()
	if got := next("watch::workers")["data"].(map[string]any)["event"]; got != "worker_disconnected" {
		t.Errorf("got %v", got)
	}
}

func TestAConditionOfTheEnginesTriggersIsAsked(t *testing.T) {
	r := start(t)
	w := r.worker("watcher", "watch::workers", "watch::only")
	w.say(`{"type":"registertrigger","id":"1","trigger_type":"engine::workers-available","function_id":"watch::workers","config":{"condition_function_id":"watch::only"}}`)
	w.call("engine::health::check", "")
	for _, verdict := range []string{"false", `"maybe"`} {
		other := r.worker("other-" + verdict[:1])
		f := w.want("invokefunction")
		if f.str("function_id") != "watch::only" || f["data"].(map[string]any)["worker_id"] != other.id {
			t.Fatalf("got %v", f)
		}
		w.say(`{"type":"invocationresult","invocation_id":"` + f.str("invocation_id") + `","function_id":"x","result":` + verdict + `}`)
	}
	if f := w.want("invokefunction"); f.str("function_id") != "watch::workers" {
		t.Errorf("got %v: only an explicit false says no", f)
	}
}

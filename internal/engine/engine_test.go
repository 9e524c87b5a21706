package engine_test

import (
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

func TestACallGoesToItsHostAndBack(t *testing.T) {
	r := start(t)
	host, caller := r.worker("host", "math::add"), r.dial()
	id := caller.ask("math::add", `{"a":1}`)
	in := host.answer(`{"c":3}`)
	if in.str("invocation_id") == id || in["action"] != nil || in["namespace"] != nil {
		t.Errorf("host got %v", in)
	}
	if d := in["data"].(map[string]any); d["a"] != 1.0 || len(d) != 1 {
		t.Errorf("payload changed on the way: %v", d)
	}
	if in.str("traceparent") == "" || in.str("baggage") != "iii.function.id=math%3A%3Aadd" &&
		in.str("baggage") != "iii.function.id=math::add" {
		t.Errorf("trace context: %v %v", in["traceparent"], in["baggage"])
	}
	out := caller.result(id)
	if out.str("function_id") != "math::add" || out["result"].(map[string]any)["c"] != 3.0 ||
		out["error"] != nil {
		t.Errorf("caller got %v", out)
	}
}

func TestAbsentAndNullAreKeptApart(t *testing.T) {
	r := start(t)
	host, caller := r.worker("host", "c::x"), r.dial()
	for _, c := range []struct{ data, result string }{{"", ""}, {"null", "null"}, {"0", "false"}} {
		id := caller.ask("c::x", c.data)
		in := host.answer(c.result)
		if _, has := in["data"]; has != (c.data != "") {
			t.Errorf("data %q: host got %v", c.data, in)
		}
		out := caller.result(id)
		if _, has := out["result"]; has != (c.result != "") {
			t.Errorf("result %q: caller got %v", c.result, out)
		}
	}
}

func TestAHostsErrorIsRelayedWhole(t *testing.T) {
	r := start(t)
	host, caller := r.worker("host", "c::x"), r.dial()
	id := caller.ask("c::x", "{}")
	in := host.want("invokefunction")
	host.send(`{"type":"invocationresult","invocation_id":%q,"function_id":"c::x","error":{"code":"invocation_failed","message":"kaboom","stacktrace":"at x"}}`, in.str("invocation_id"))
	out := caller.result(id)
	e := out["error"].(map[string]any)
	if e["code"] != "invocation_failed" || e["message"] != "kaboom" || e["stacktrace"] != "at x" {
		t.Errorf("got %v", out)
	}
	id = caller.ask("c::x", "{}")
	in = host.want("invokefunction")
	host.send(`{"type":"invocationresult","invocation_id":%q,"function_id":"c::x","error":"odd"}`, in.str("invocation_id"))
	if out := caller.result(id); out.code() != wire.CodeUnknown {
		t.Errorf("malformed error body: got %v", out)
	}
}

func TestActions(t *testing.T) {
	r := start(t)
	host, caller := r.worker("host", "c::x"), r.dial()
	caller.send(`{"type":"invokefunction","function_id":"c::x","data":1,"action":{"type":"void"}}`)
	if in := host.answer("1"); in["data"] != 1.0 {
		t.Errorf("void: host got %v", in)
	}
	caller.send(`{"type":"invokefunction","invocation_id":"q","function_id":"c::x","data":1,"action":{"type":"enqueue","queue":"jobs"}}`)
	if out := caller.result("q"); out.code() != wire.CodeEnqueueError || out.message() == "" {
		t.Errorf("enqueue: got %v", out)
	}
	caller.send(`{"type":"invokefunction","invocation_id":"v","function_id":"c::x","data":1,"action":{"type":"void"}}`)
	host.answer("1")
	if out := caller.call("no::such", "{}"); out.code() != wire.CodeFunctionNotFound {
		t.Errorf("a void call with an id was answered, or the next call failed otherwise: %v", out)
	}
	caller.send(`{"type":"invokefunction","invocation_id":"u","function_id":"c::x","action":{"type":"later"}}`)
	if out := caller.result("u"); out.code() != wire.CodeInvalidArguments {
		t.Errorf("unknown action: got %v", out)
	}
}

func TestNotFoundSaysWhere(t *testing.T) {
	r := start(t)
	w := r.dial()
	w.send(`{"type":"registerfunction","id":"x::y"}`)
	w.announce("w", `,"namespace":"orders"`)
	caller := r.dial()
	out := caller.call("x::y", "{}")
	if out.code() != wire.CodeFunctionNotFound || !strings.HasPrefix(out.message(), "Function x::y not found in namespace default.") ||
		!strings.Contains(out.message(), "orders") {
		t.Errorf("got %v", out)
	}
	caller.send(`{"type":"invokefunction","invocation_id":"n","function_id":"x::y","namespace":"orders"}`)
	w.answer("1")
	if out := caller.result("n"); out["result"] != 1.0 {
		t.Errorf("in its namespace: got %v", out)
	}
	for _, bad := range []string{`null`, `5`, `""`, `"  "`} {
		caller.send(`{"type":"invokefunction","invocation_id":"b","function_id":"x::y","namespace":%s}`, bad)
		if out := caller.result("b"); out.code() != wire.CodeInvalidNamespace {
			t.Errorf("namespace %s: got %v", bad, out)
		}
	}
}

func TestTheFirstOwnerKeepsAFunction(t *testing.T) {
	r := start(t)
	first, second := r.worker("first", "x::y"), r.dial()
	second.send(`{"type":"registerfunction","id":"x::y"}`)
	second.send(`{"type":"registerfunction","id":"engine::mine"}`)
	second.send(`{"type":"registerfunction","id":"state::set"}`)
	second.announce("second", "")
	// The refusals came before the answer of announce, which was read past; ask again to see them.
	second.send(`{"type":"registerfunction","id":"x::y"}`)
	f := second.want("registrationrejected")
	if f.str("code") != wire.CodeFunctionConflict || f.str("function_id") != "x::y" ||
		f.str("namespace") != "default" ||
		f.str("owner_worker_id") != first.id {
		t.Errorf("got %v", f)
	}
	second.send(`{"type":"registerfunction","id":"engine::mine"}`)
	if f := second.want("registrationrejected"); f["owner_worker_id"] != "" ||
		f.str("function_id") != "engine::mine" {
		t.Errorf("got %v", f)
	}
	first.send(`{"type":"unregisterfunction","id":"x::y"}`)
	first.call("no::such", "") // in order behind it
	second.send(`{"type":"registerfunction","id":"x::y"}`)
	caller := r.dial()
	second.call("no::such", "")
	id := caller.ask("x::y", "1")
	second.answer("2")
	if out := caller.result(id); out["result"] != 2.0 {
		t.Errorf("after the owner gave it up: %v", out)
	}
	second.send(`{"type":"unregisterfunction","id":"other::one"}`)
}

func TestEarlyCallsWaitBehindHeldRegistrations(t *testing.T) {
	r := start(t)
	w := r.dial()
	w.send(`{"type":"registerfunction","id":"c::own"}`)
	id := w.ask("c::own", `{"early":true}`)
	w.send(`{"type":"invokefunction","function_id":"engine::workers::register","data":{"name":"w","pid":1},"action":{"type":"void"}}`)
	if in := w.answer("1"); in["data"].(map[string]any)["early"] != true {
		t.Errorf("got %v", in)
	}
	if out := w.result(id); out["result"] != 1.0 {
		t.Errorf("got %v", out)
	}
}

func TestACallBeforeTheIntroductionIsRoutedAtOnce(t *testing.T) {
	r := start(t)
	host := r.worker("host", "c::x")
	w := r.dial()
	id := w.ask("c::x", "5")
	host.answer("6")
	if out := w.result(id); out["result"] != 6.0 {
		t.Errorf("got %v", out)
	}
}

func TestAWorkerThatNeverIntroducesItselfIsServedInDefault(t *testing.T) {
	r := start(t, grace(100))
	w := r.dial()
	w.send(`{"type":"registerfunction","id":"c::own"}`)
	id := w.ask("c::own", "1")
	w.answer("2")
	if out := w.result(id); out["result"] != 2.0 {
		t.Errorf("got %v", out)
	}
}

func TestPingIsAnswered(t *testing.T) {
	r := start(t)
	w := r.dial()
	w.send(`{"type":"ping"}`)
	w.want("pong")
}

func TestUnknownFramesAreIgnored(t *testing.T) {
	r := start(t)
	w := r.dial()
	for _, s := range []string{``, `  `, `{"type":"sparkle"}`, `{}`, `{"type":7}`, `[]`, `{"type":"observe","id":"o"}`,
		`{"type":"invocationresult","invocation_id":"nobody","function_id":"x","result":1}`, `{"type":"pong"}`, `not json`,
		`{"type":"registerfunction"}`, `{"type":"reattach","previous_worker_id":"x"}`} {
		w.send("%s", s)
	}
	w.send(`{"type":"ping"}`)
	w.want("pong")
}

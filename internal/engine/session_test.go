package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/wire"
)

// exposed starts an engine with a second listener that has rules.
func exposed(t *testing.T, p rbac.Policy, expose ...string) *rig {
	t.Helper()
	for _, text := range expose {
		rule, err := rbac.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Expose = append(p.Expose, rule)
	}
	return start(t, func(c *engine.Config) {
		c.More = []engine.Listener{{Name: "public", Listen: "127.0.0.1:0", Rules: &p}}
	})
}

// answers serves functions of a trusted worker until the test ends.
func (r *rig) answers(name string, functions map[string]func(data map[string]any) (result string,
	code string)) {
	r.t.Helper()
	var ids []string
	for id := range functions {
		ids = append(ids, id)
	}
	c := r.worker(name, ids...)
	go func() { // ends with the connection, which the test closes
		for {
			f, err := c.read()
			if err != nil {
				return
			}
			handler := functions[f.str("function_id")]
			if handler == nil {
				continue
			}
			data, _ := f["data"].(map[string]any)
			result, code := handler(data)
			answer := `{"type":"invocationresult","invocation_id":"` + f.str("invocation_id") + `","function_id":"x"`
			if code != "" {
				answer += `,"error":{"code":"` + code + `","message":"said ` + code + `"}}`
			} else {
				answer += `,"result":` + result + `}`
			}
			if _, err := c.nc.Write(text(answer)); err != nil {
				return
			}
		}
	}()
}

func TestTheAuthFunctionDecidesWhoComesIn(t *testing.T) {
	r := exposed(t, rbac.Policy{AuthFunction: "auth::check"})
	asked := make(chan map[string]any, 8)
	r.answers("auth", map[string]func(map[string]any) (string, string){
		"auth::check": func(in map[string]any) (string, string) {
			asked <- in
			headers, _ := in["headers"].(map[string]any)
			if headers["authorization"] == "Bearer good" {
				return `{"allowed_functions":["open::f"],"context":{"tenant":"acme"}}`, ""
			}
			return "", "denied"
		},
		"open::f":   func(map[string]any) (string, string) { return `"open"`, "" },
		"closed::f": func(map[string]any) (string, string) { return `"closed"`, "" },
	})
	c := r.openAt(r.public, "/?tenant=acme&tag=a&tag=b", "Authorization: Bearer good")
	in := <-asked
	query, _ := json.Marshal(in["query_params"])
	if string(query) != `{"tag":["a","b"],"tenant":["acme"]}` || in["ip_address"] != "127.0.0.1" {
		t.Errorf("the auth function was asked %v", in)
	}
	c.announce("guest", "")
	for function, want := range map[string]string{"open::f": "", "closed::f": wire.CodeForbidden,
		"no::such": wire.CodeForbidden, "engine::functions::list": wire.CodeForbidden, "engine::log::info": "",
		"engine::channels::create": ""} {
		if got := c.call(function, `{"message":"m"}`); got.code() != want {
			t.Errorf("%s: got %q %s, want %q", function, got.code(), got.message(), want)
		}
	}
	for _, path := range []string{"/", "/otel"} {
		head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
		if got := statusAt(t, r.public, head); got != "401" {
			t.Errorf("%s without a credential: got %s, want 401", path, got)
		}
		<-asked
	}
}

func TestASessionsPrefixIsPutOnAndTakenOff(t *testing.T) {
	r := exposed(t, rbac.Policy{AuthFunction: "auth::check"}, "engine::*")
	r.answers("auth", map[string]func(map[string]any) (string, string){
		"auth::check": func(map[string]any) (string, string) {
			return `{"function_registration_prefix":"acme","allowed_trigger_types":["hook"]}`, ""
		},
	})
	provider := r.provider("provider", "")
	c := r.openAt(r.public, "/")
	c.announce("guest", "")
	c.send(`{"type":"registerfunction","id":"billing::charge"}`)
	c.send(`{"type":"registertrigger","id":"t","trigger_type":"hook","function_id":"billing::charge"}`)
	if f := provider.want("registertrigger"); f.str("function_id") != "acme::billing::charge" {
		t.Errorf("the provider got %v", f)
	}
	id := provider.ask("acme::billing::charge", "1")
	if f := c.answer("2"); f.str("function_id") != "billing::charge" {
		t.Errorf("the worker was called %v", f)
	}
	if out := provider.result(id); out["result"] != 2.0 || out.str("function_id") != "acme::billing::charge" {
		t.Errorf("got %v", out)
	}
	c.send(`{"type":"registertrigger","id":"u","trigger_type":"other","function_id":"billing::charge"}`)
	if f := c.want("triggerregistrationresult"); f.code() != wire.CodeForbidden ||
		f.str("function_id") != "billing::charge" {
		t.Errorf("a type that is not allowed: got %v", f)
	}
	c.send(`{"type":"registertriggertype","id":"mine","description":""}`)
	if f := c.want("triggerregistrationresult"); f.code() != wire.CodeForbidden {
		t.Errorf("types are not allowed by default: got %v", f)
	}
	r.worker("thief", "acme::billing::refund")
	if got := registers(c, "billing::refund", ""); got != wire.CodeFunctionConflict {
		t.Errorf("got %q", got)
	}
	c.send(`{"type":"unregisterfunction","id":"billing::charge"}`)
	c.call("engine::health::check", "")
	if out := provider.call("acme::billing::charge", ""); out.code() != wire.CodeFunctionNotFound {
		t.Errorf("got %v", out)
	}
}

func TestHooksDecideOnRegistrationsInTheOrderOfArrival(t *testing.T) {
	r := exposed(t, rbac.Policy{AuthFunction: "auth::check", OnFunction: "hook::function",
		OnTrigger: "hook::trigger", OnTriggerType: "hook::type"}, "*")
	asked := make(chan map[string]any, 16)
	r.answers("auth", map[string]func(map[string]any) (string, string){
		"auth::check": func(map[string]any) (string, string) {
			return `{"allow_trigger_type_registration":true,"context":{"tenant":"acme"}}`, ""
		},
		"hook::function": func(in map[string]any) (string, string) {
			asked <- in
			if id, _ := in["function_id"].(string); strings.HasPrefix(id, "bad::") {
				return `false`, ""
			}
			return `{"description":"by the hook"}`, ""
		},
		"hook::trigger": func(in map[string]any) (string, string) {
			asked <- in
			return `{"config":{"path":"/changed"}}`, ""
		},
		"hook::type": func(in map[string]any) (string, string) { asked <- in; return "", "never" },
	})
	provider := r.provider("provider", "")
	c := r.openAt(r.public, "/")
	c.send(`{"type":"registerfunction","id":"good::f"}`)
	c.send(`{"type":"registerfunction","id":"bad::f"}`)
	c.send(`{"type":"registertrigger","id":"t","trigger_type":"hook","function_id":"good::f","config":{"path":"/x"}}`)
	c.send(`{"type":"registertriggertype","id":"mine","description":""}`)
	c.ask("engine::workers::register", `{"name":"guest","pid":1}`)
	if f := c.want("registrationrejected"); f.str("function_id") != "bad::f" ||
		f.str("code") != wire.CodeForbidden {
		t.Errorf("got %v", f)
	}
	if f := c.want("triggerregistrationresult"); f.str("trigger_type") != "mine" ||
		f.code() != wire.CodeForbidden {
		t.Errorf("got %v", f)
	}
	if f := provider.want("registertrigger"); f["config"].(map[string]any)["path"] != "/changed" {
		t.Errorf("got %v", f)
	}
	first := <-asked
	if c, _ := first["context"].(map[string]any); c["tenant"] != "acme" || first["namespace"] != "default" {
		t.Errorf("the hook was asked %v", first)
	}
	out := provider.call("engine::functions::info", `{"function_id":"good::f"}`)["result"].(map[string]any)
	if out["description"] != "by the hook" {
		t.Errorf("got %v", out)
	}
}

func TestMiddlewareAnswersInPlaceOfTheTarget(t *testing.T) {
	r := exposed(t, rbac.Policy{AuthFunction: "auth::check", Middleware: "mw::all"}, "shop::*", "engine::*")
	asked := make(chan map[string]any, 16)
	r.answers("auth", map[string]func(map[string]any) (string, string){
		"auth::check": func(map[string]any) (string, string) { return `{"context":{"tenant":"acme"}}`, "" },
		"mw::all":     func(in map[string]any) (string, string) { asked <- in; return `"by the middleware"`, "" },
		"shop::f":     func(map[string]any) (string, string) { return `"by the target"`, "" },
		"other::f":    func(map[string]any) (string, string) { return `"other"`, "" },
	})
	c := r.openAt(r.public, "/")
	c.announce("guest", "")
	out := c.call("shop::f", `{"a":1}`)
	if out["result"] != "by the middleware" || out.str("function_id") != "shop::f" {
		t.Errorf("got %v", out)
	}
	in, _ := json.Marshal(<-asked)
	want := `{"action":null,"context":{"tenant":"acme"},"function_id":"shop::f","namespace":"default","payload":{"a":1}}`
	if string(in) != want {
		t.Errorf("the middleware got\n%s, want\n%s", in, want)
	}
	if out := c.call("other::f", ""); out.code() != wire.CodeForbidden {
		t.Errorf("a call that is not allowed: got %v", out)
	}
	if out := c.call("engine::health::check", ""); out.code() != "" {
		t.Errorf("the engine's own functions: got %v", out)
	}
	if len(asked) != 0 {
		t.Errorf("the middleware was asked %d times more", len(asked))
	}
}

func TestAnAuthFunctionThatFailsLetsNobodyIn(t *testing.T) {
	r := exposed(t, rbac.Policy{AuthFunction: "auth::missing"})
	head := "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	if got := statusAt(t, r.public, head); got != "401" {
		t.Errorf("without the function: got %s", got)
	}
	r.answers("auth", map[string]func(map[string]any) (string, string){
		"auth::missing": func(map[string]any) (string, string) { return `{"allowed_functions":7}`, "" }})
	if got := statusAt(t, r.public, head); got != "401" {
		t.Errorf("with an answer that makes no sense: got %s", got)
	}
}

func TestAListenerWithoutRulesIsNotTouchedByThoseOfAnother(t *testing.T) {
	r := exposed(t, rbac.Policy{}, "shop::*")
	host := r.worker("host", "shop::f", "other::f")
	host.serve()
	inner, outer := r.dial(), r.openAt(r.public, "/")
	inner.announce("inner", "")
	outer.announce("outer", "")
	for function, want := range map[string]string{"shop::f": "", "other::f": wire.CodeForbidden} {
		if got := outer.call(function, "").code(); got != want {
			t.Errorf("%s through the listener with rules: got %q, want %q", function, got, want)
		}
		if got := inner.call(function, "").code(); got != "" {
			t.Errorf("%s through the main one: got %q", function, got)
		}
	}
}

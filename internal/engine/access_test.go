package engine_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// narrow lets a principal register and call what begins with it.
type narrow string

func (n narrow) Call(f *fn.Function) *fault.Error {
	if f.Verb == fn.VerbCall && strings.HasPrefix(f.Name, string(n)) || f.Verb == fn.VerbRegister {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden, "the key lacks engine:%s:%s", f.Verb, f.Name)
}

func (n narrow) Register(_, name string) *fault.Error {
	if strings.HasPrefix(name, string(n)) {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden, "the key lacks engine:register:%s", name)
}

// guarded starts an engine that knows some keys.
func guarded(t *testing.T) *rig {
	return start(t, func(c *engine.Config) {
		c.Authenticate = func(a engine.Attempt) (fn.Principal, *fault.Error) {
			if a.Remote != netip.MustParseAddr("127.0.0.1") {
				return fn.Principal{}, fault.Newf(fault.Internal, "TEST", "asked about %s", a.Remote)
			}
			switch a.Authorization {
			case "Bearer all":
				return fn.Principal{Kind: "key", ID: "k1", Name: "all"}, nil
			case "Bearer billing":
				return fn.Principal{Kind: "key", ID: "k2", Name: "billing", Access: narrow("billing::")}, nil
			case "Bearer scope":
				return fn.Principal{}, fault.New(fault.Denied, wire.CodeForbidden, "the key lacks room engine")
			case "Bearer flood":
				return fn.Principal{}, fault.New(fault.Limit, wire.CodeLimit, "too many")
			case "Bearer early":
				return fn.Principal{}, fault.New(fault.Unavailable, "UNCLAIMED", "no account yet")
			case "":
				if !a.Browser {
					return fn.Principal{Kind: "loopback", Name: "loopback"}, nil
				}
			}
			return fn.Principal{}, fault.New(fault.Denied, wire.CodeAuthError, "not with this credential")
		}
	})
}

func TestEverySocketAsksForTheCredential(t *testing.T) {
	r := guarded(t)
	write, _ := r.dial().refs()
	for _, path := range []string{"/", "/otel", write} {
		for line, want := range map[string]string{
			"": "101", "Authorization: Bearer all": "101", "Authorization: Bearer wrong": "401",
			"Authorization: Bearer scope": "403", "Authorization: Bearer flood": "429",
			"Authorization: Bearer early": "503", "Sec-Fetch-Site: none": "401", "Origin: http://localhost": "403",
		} {
			if path == write && (line == "" || strings.HasPrefix(line, "Sec-") || want == "101") {
				continue // the key of the end is credential enough
			}
			head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + line + "\r\n\r\n"
			if line == "" {
				head = strings.TrimSuffix(head, "\r\n")
			}
			if got := status(t, r, head); got != want {
				t.Errorf("%s with %q: got %s, want %s", path, line, got, want)
			}
		}
	}
}

func TestAKeyReachesWhatItsScopesName(t *testing.T) {
	r := guarded(t)
	all := r.open("/", "Authorization: Bearer all")
	for _, id := range []string{"billing::charge", "other::thing"} {
		all.send(`{"type":"registerfunction","id":%q}`, id)
	}
	all.announce("all", "")
	all.serve()
	c := r.open("/", "Authorization: Bearer billing")
	c.announce("billing", "")
	for function, want := range map[string]string{
		"billing::charge": "", "other::thing": wire.CodeForbidden, "engine::functions::list": wire.CodeForbidden,
		"engine::log::info": "", "engine::channels::create": "",
	} {
		if got := c.call(function, `{"message":"m"}`).code(); got != want {
			t.Errorf("%s: got %q, want %q", function, got, want)
		}
	}
	if got := registers(c, "billing::refund", ""); got != "" {
		t.Errorf("its own prefix: %q", got)
	}
	if got := registers(c, "other::more", ""); got != wire.CodeForbidden {
		t.Errorf("another prefix: %q", got)
	}
	for function, want := range map[string]string{"billing::charge": "", "other::thing": wire.CodeForbidden} {
		out := c.call("engine::register_trigger", fmt.Sprintf(`{"trigger_type":"hook","function_id":%q}`, function))
		if out.code() != want {
			t.Errorf("a trigger for %s: got %q, want %q", function, out.code(), want)
		}
	}
	c.send(`{"type":"registertrigger","id":"t","trigger_type":"hook","function_id":"other::thing"}`)
	if got := c.want("triggerregistrationresult").code(); got != wire.CodeForbidden {
		t.Errorf("got %q", got)
	}
	c.send(`{"type":"registertriggertype","id":"hook","description":""}`)
	if got := c.want("triggerregistrationresult").code(); got != wire.CodeForbidden {
		t.Errorf("got %q", got)
	}
	if got := r.metric("plinth_calls_denied_total"); got != "2" {
		t.Errorf("%s calls counted as denied", got)
	}
}

func TestAHostHearsOnWhoseBehalfItIsCalled(t *testing.T) {
	r := guarded(t)
	host := r.open("/", "Authorization: Bearer all")
	host.send(`{"type":"registerfunction","id":"billing::charge"}`)
	host.announce("host", `,"features":["caller"]`)
	c := r.open("/", "Authorization: Bearer billing")
	c.ask("billing::charge", "")
	caller, _ := host.want("invokefunction")["caller"].(map[string]any)
	who, _ := caller["principal"].(map[string]any)
	if who["kind"] != "key" || who["name"] != "billing" {
		t.Errorf("got %v", caller)
	}
}

func TestARevokedPrincipalLosesItsConnections(t *testing.T) {
	r := guarded(t)
	stay := r.open("/", "Authorization: Bearer all")
	stay.want("workerregistered")
	write, _ := stay.refs()
	var gone []*client
	for _, path := range []string{"/", "/otel"} {
		gone = append(gone, r.open(path, "Authorization: Bearer billing"))
	}
	gone[0].want("workerregistered")
	pipe := r.open(write, "Authorization: Bearer billing")
	r.Revoke("k2")
	for _, c := range gone {
		if ev, err := c.event(); err != nil || ev.Kind != ws.KindClose || ev.Code != ws.ClosePolicy {
			t.Errorf("got %v %d, %v", ev.Kind, ev.Code, err)
		}
	}
	if _, err := pipe.event(); err == nil {
		t.Error("an end of a channel stayed open")
	}
	early := r.dial() // before there was an account
	r.Revoke("")
	if ev, err := early.event(); err != nil || ev.Code != ws.ClosePolicy {
		t.Errorf("got %v %d, %v", ev.Kind, ev.Code, err)
	}
	if out := stay.call("engine::health::check", ""); out.code() != "" {
		t.Errorf("somebody else was hit: %v", out)
	}
}

func TestReplicasShareTheCallsOfAName(t *testing.T) {
	r := start(t)
	host := func(name, metadata string) *client {
		c := r.dial()
		c.say(`{"type":"registerfunction","id":"x::y","metadata":` + metadata + `}`)
		c.announce(name, "")
		return c
	}
	a, b := host("a", `{"replicas":true}`), host("b", `{"replicas":true}`)
	if got := registers(r.worker("single"), "x::y", ""); got != wire.CodeFunctionConflict {
		t.Errorf("a host without the flag: got %q", got)
	}
	caller := r.worker("caller")
	for range 4 {
		caller.ask("x::y", "")
	}
	for range 2 {
		a.answer(`"a"`)
		b.answer(`"b"`)
	}
	count := map[any]int{}
	for range 4 {
		count[caller.want("invocationresult")["result"]]++
	}
	if count["a"] != 2 || count["b"] != 2 {
		t.Errorf("got %v", count)
	}
	out := caller.call("engine::functions::info", `{"function_id":"x::y"}`)["result"].(map[string]any)
	if fmt.Sprint(out["replicas"]) != "[a b]" || out["calls"] != 4.0 {
		t.Errorf("got %v", out)
	}
	caller.ask("x::y", "")
	caller.ask("x::y", "")
	a.want("invokefunction")
	b.want("invokefunction")
	a.nc.Close()
	b.nc.Close()
	for range 2 {
		if got := caller.want("invocationresult").code(); got != wire.CodeInvocationStopped {
			t.Errorf("got %q", got)
		}
	}
}

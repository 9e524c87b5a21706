package rbac_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

func TestASessionThatIsNotUnderstoodIsRefused(t *testing.T) {
	many, _ := json.Marshal(make([]string, 10_001))
	for _, text := range []string{``, `null`, `true`, `[]`, `"yes"`, `{"allowed_functions":"a"}`, `{"namespaces":["a"]}`,
		`{"allow_function_registration":"yes"}`, `{"allowed_trigger_types":{}}`, `{"namespaces":{" ":[]}}`,
		`{"allowed_functions":["a",null]}`, `{"allowed_functions":["a",7]}`, `{"forbidden_functions":[""]}`,
		`{"forbidden_functions":["match(\"a"]}`, `{"forbidden_functions":["a"],"forbidden_functions":[]}`,
		`{"namespaces":{"ns":"a"}}`, `{"namespaces":{"ns":[" "]}}`, `{"namespaces":{"ns":[],"ns":["*"]}}`,
		`{"allow_trigger_type_registration":1}`, `{} {}`, "{\"context\":\"\xff\"}", `{"function_registration_prefix":"::"}`,
		`{"function_registration_prefix":"a*"}`, `{"x":"` + strings.Repeat("x", 4<<20) + `"}`,
		`{"allowed_functions":["` + strings.Repeat("x", 5000) + `"]}`,
		`{"function_registration_prefix":"` + strings.Repeat("x", 129) + `"}`,
		`{"function_registration_prefix":"a b"}`, `{"function_registration_prefix":7}`,
		`{"allowed_functions":` + string(many) + `}`, `{"context":"` + strings.Repeat("x", 70_000) + `"}`, `{`} {
		if _, err := rbac.ParseSession([]byte(text)); err == nil || err.Code != wire.CodeAuthError {
			t.Errorf("%.60s: got %v", text, err)
		}
	}
}

func TestNullAndUnknownMembersOfASessionAreAsGoodAsAbsent(t *testing.T) {
	s := session(t, ` {"namespaces":null,"allowed_functions":null,"forbidden_functions":null,
		"allowed_trigger_types":null,"allow_trigger_type_registration":null,"allow_function_registration":null,
		"function_registration_prefix":null,"context":null,"Forbidden_Functions":["engine::log::info"],"x":[{}]} `)
	if s.MayRegister("ns") != nil || s.MayRegisterFunction() != nil || s.MayRegisterTrigger("cron") != nil ||
		s.MayRegisterTriggerType() == nil || s.Add("f") != "f" || string(s.Context()) != "{}" {
		t.Errorf("got %+v", s)
	}
	if err := new(rbac.Policy).MayCall(s, "default", "engine::log::info", nil); err != nil {
		t.Error(err)
	}
}

func TestASessionTakesAsMuchAsItsBounds(t *testing.T) {
	list := make([]string, 10_000)
	for i := range list {
		list[i] = "a"
	}
	text, err := json.Marshal(map[string]any{"allowed_functions": list, "context": strings.Repeat("x", 64<<10-2),
		"function_registration_prefix": strings.Repeat("p", 128)})
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, string(text))
	if len(s.Context()) != 64<<10 || len(s.Add("")) != 130 {
		t.Errorf("got %d bytes of context, a prefix of %d", len(s.Context()), len(s.Add("")))
	}
}

func TestASessionBoundToNoNamespaceRegistersNowhere(t *testing.T) {
	err := session(t, `{"namespaces":{}}`).MayRegister("default")
	if err == nil || err.Code != wire.CodeForbidden {
		t.Errorf("got %v", err)
	}
	if err := session(t, `{"allowed_trigger_types":[]}`).MayRegisterTrigger("cron"); err == nil {
		t.Error("a trigger type that is not in an empty list is allowed")
	}
}

func TestRegistrationsFollowTheSession(t *testing.T) {
	free := session(t, `{"unknown":1}`)
	bound := session(t, `{"namespaces":{"ns":[]},"allowed_trigger_types":["cron"],"allow_trigger_type_registration":true,
		"allow_function_registration":false,"function_registration_prefix":"acme::","context":{"a":1}}`)
	for name, c := range map[string]struct {
		err   *fault.Error
		allow bool
	}{
		"free, any namespace":       {free.MayRegister("ns"), true},
		"free, function":            {free.MayRegisterFunction(), true},
		"free, any type":            {free.MayRegisterTrigger("cron"), true},
		"free, no new trigger type": {free.MayRegisterTriggerType(), false},
		"bound, its namespace":      {bound.MayRegister("ns"), true},
		"bound, another namespace":  {bound.MayRegister("default"), false},
		"bound, function":           {bound.MayRegisterFunction(), false},
		"bound, its type":           {bound.MayRegisterTrigger("cron"), true},
		"bound, another type":       {bound.MayRegisterTrigger("http"), false},
		"bound, new trigger type":   {bound.MayRegisterTriggerType(), true},
	} {
		if (c.err == nil) != c.allow {
			t.Errorf("%s: got %v", name, c.err)
		}
	}
	if got := bound.Add("x::y"); got != "acme::x::y" {
		t.Errorf("got %q", got)
	}
	if got := string(bound.Strip([]byte("acme::x::y"))); got != "x::y" {
		t.Errorf("got %q", got)
	}
	for _, id := range []string{"acme:x", "other::x", "acm", ""} {
		if got := string(bound.Strip([]byte(id))); got != id {
			t.Errorf("%q without the prefix became %q", id, got)
		}
	}
	if got := free.Add("x::y"); got != "x::y" || string(free.Strip([]byte("x::y"))) != "x::y" {
		t.Errorf("got %q without a prefix", got)
	}
	if string(bound.Context()) != `{"a":1}` || string(free.Context()) != `{}` {
		t.Errorf("contexts %s, %s", bound.Context(), free.Context())
	}
}

func TestAuthFunctionsAreAskedInTheirWords(t *testing.T) {
	got := string(rbac.AuthInput(map[string]string{"authorization": "x"}, "a=1&a=2&b=%20", "::1"))
	want := `{"headers":{"authorization":"x"},"ip_address":"::1","query_params":{"a":["1","2"],"b":[" "]}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(rbac.AuthInput(nil, "%zz", "::1")); !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
}

// FuzzSession reads any answer of an auth function: it never panics, and what it takes decides.
func FuzzSession(f *testing.F) {
	f.Add(`{"allowed_functions":["a::*"]}`, "a::b")
	f.Add(`{"namespaces":{"default":["*"]},"forbidden_functions":["a"]}`, "a")
	f.Fuzz(func(t *testing.T, answer, function string) {
		s, err := rbac.ParseSession([]byte(answer))
		if err != nil {
			return
		}
		_ = new(rbac.Policy).MayCall(s, "default", function, nil)
		if got := string(s.Strip([]byte(s.Add(function)))); got != function {
			t.Errorf("%q came back as %q", function, got)
		}
		if !json.Valid(s.Context()) {
			t.Errorf("context %q", s.Context())
		}
	})
}

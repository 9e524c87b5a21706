package rbac_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

func rule(t testing.TB, text string) rbac.Rule {
	t.Helper()
	r, err := rbac.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func session(t testing.TB, text string) *rbac.Session {
	t.Helper()
	s, err := rbac.ParseSession([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACallIsDecidedInTheOrderOfTheLists(t *testing.T) {
	p := &rbac.Policy{Expose: []rbac.Rule{rule(t, `match("shop::*")`), rule(t,
		`{"match":"x::*","namespace":"ns"}`),
		rule(t, `{"metadata":{"public":true,"tier":"match(\"gold*\")"}}`)}}
	s := session(t, `{"namespaces":{"ns":["a::*","match(\"b::*::c\")"],"default":["granted::f"]},
		"allowed_functions":["allowed::f","many::*"],"forbidden_functions":["shop::secret","granted::f","engine::log::*"]}`)
	for _, c := range []struct {
		space, function, metadata string
		with, without             bool
	}{
		{"default", "shop::list", "", true, true},
		{"default", "shop::secret", "", false, true}, // forbidden wins over exposed
		{"default", "granted::f", "", false, false},  // and over a grant
		{"ns", "shop::list", "", false, false},       // a rule without a namespace means default
		{"ns", "shop::secret", "", false, false},
		{"ns", "x::y", "", true, true},
		{"ns", "a::anything", "", true, false},
		{"ns", "b::1::2::c", "", true, false},
		{"ns", "b::1::2::d", "", false, false},
		{"default", "a::anything", "", false, false},
		{"default", "allowed::f", "", true, false},
		{"ns", "allowed::f", "", false, false}, // allowed_functions is about default
		{"default", "many::x", "", true, false},
		{"default", "engine::channels::create", "", true, true},
		{"default", "engine::log::info", "", false, true}, // forbidden comes first
		{"default", "engine::functions::list", "", false, false},
		{"ns", "engine::channels::create", "", false, false},
		{"default", "other::f", `{"public":true,"tier":"golden"}`, true, true},
		{"default", "other::f", `{"public":true,"tier":"silver"}`, false, false},
		{"default", "other::f", `{"public":"true","tier":"gold"}`, false, false},
		{"default", "other::f", `{"tier":"gold"}`, false, false},
		{"default", "other::f", `"no object"`, false, false},
	} {
		for _, who := range []struct {
			s    *rbac.Session
			want bool
		}{{s, c.with}, {nil, c.without}} {
			err := p.MayCall(who.s, c.space, c.function, []byte(c.metadata))
			if (err == nil) != who.want {
				t.Errorf("%s in %s, session %v: got %v", c.function, c.space, who.s != nil, err)
			}
			if err != nil && (err.Kind != fault.Denied || err.Code != wire.CodeForbidden ||
				!strings.Contains(err.Message, c.function)) {
				t.Errorf("the refusal of %s is %+v", c.function, err)
			}
		}
	}
}

func TestRulesThatMakeNoSenseAreErrors(t *testing.T) {
	for _, text := range []string{"", " ", `match(shop)`, `{"match":"a"`, `{}`, `{"match":"a","metadata":{"b":1}}`,
		`{"match":"a","name":"b"}`, `{"metadata":{}}`, `{"match":"a","namespace":" "}`, `{"match":7}`,
		`{"match":"a"} more`, strings.Repeat("x", 5000), `{"match":""}`} {
		if _, err := rbac.ParseRule(text); err == nil {
			t.Errorf("%.40q was taken for a rule", text)
		}
	}
}

func TestASessionThatIsNotUnderstoodIsRefused(t *testing.T) {
	many, _ := json.Marshal(make([]string, 10_001))
	for _, text := range []string{``, `null`, `true`, `[]`, `"yes"`, `{"allowed_functions":"a"}`, `{"namespaces":["a"]}`,
		`{"allow_function_registration":"yes"}`, `{"allowed_trigger_types":{}}`, `{"namespaces":{" ":[]}}`,
		`{"function_registration_prefix":"a b"}`, `{"function_registration_prefix":7}`,
		`{"allowed_functions":` + string(many) + `}`, `{"context":"` + strings.Repeat("x", 70_000) + `"}`, `{`} {
		if _, err := rbac.ParseSession([]byte(text)); err == nil || err.Code != wire.CodeAuthError {
			t.Errorf("%.60s: got %v", text, err)
		}
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
		`{"trigger_id":"t"}`, `{`} {
		before := r
		if err := r.Apply([]byte(answer)); err == nil || err.Kind != fault.Denied {
			t.Errorf("%s: got %v", answer, err)
		}
		if r.FunctionID != before.FunctionID {
			t.Errorf("%s: a denied answer changed the registration", answer)
		}
	}
}

// FuzzPattern holds matching against a regular expression.
func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{{"a::*", "a::b"}, {"*", ""}, {"a*b*c", "aXbYc"}, {"", ""}, {"**a", "ba"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		r, err := rbac.ParseRule(pattern)
		if err != nil || strings.HasPrefix(strings.TrimSpace(pattern), "{") || strings.HasPrefix(pattern,
			"match(") {
			return
		}
		pattern = strings.TrimSpace(pattern)
		re, err := regexp.Compile(`^(?s:` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `)$`)
		if err != nil {
			return
		}
		if got := r.Matches("default", text, nil); got != re.MatchString(text) {
			t.Errorf("%q against %q: got %v", pattern, text, got)
		}
	})
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

func BenchmarkMayCall(b *testing.B) {
	var list []string
	for i := range 9_990 {
		list = append(list, fmt.Sprintf("service-%d::f", i))
	}
	text, _ := json.Marshal(map[string]any{"allowed_functions": list, "forbidden_functions": []string{"x::*"}})
	s, p := session(b, string(text)), new(rbac.Policy)
	b.ReportAllocs()
	for b.Loop() {
		if p.MayCall(s, "default", "service-9989::f", nil) != nil {
			b.Fatal("denied")
		}
	}
}

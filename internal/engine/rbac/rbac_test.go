package rbac_test

import (
	"encoding/json"
	"fmt"
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
		"allowed_functions":["allowed::f","many::*"],"forbidden_functions":["shop::secret","granted::f","engine::log::*","match(\"*::secret\")"]}`)
	for _, c := range []struct {
		space, function, metadata string
		with, without             bool
	}{
		{"default", "shop::list", "", true, true},
		{"default", "shop::secret", "", false, true}, // forbidden wins over exposed
		{"default", "granted::f", "", false, false},  // and over a grant
		{"ns", "a::secret", "", false, false},        // in every namespace
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
		{"default", "engine::workers::register", "", true, true},
		{"default", "engine::baggage::get", "", true, true},
		{"default", "engine::baggage::set", "", true, true},
		{"default", "engine::baggage::get_all", "", true, true},
		{"default", "engine::baggage::clear", "", false, false},
		{"default", "engine::log::trace", "", false, true},
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

func TestARefusalSaysWhichListToChange(t *testing.T) {
	p := new(rbac.Policy)
	s := session(t, `{"forbidden_functions":["a::b"]}`)
	for _, c := range []struct {
		s               *rbac.Session
		space, function string
		want, other     string
	}{
		{s, "default", "a::b", "forbidden_functions", "allowed_functions"},
		{s, "ns", "a::b", "forbidden_functions", "namespaces.ns"},
		{s, "default", "c::d", "allowed_functions", "namespaces"},
		{s, "ns", "c::d", "namespaces.ns", "allowed_functions"},
		{nil, "default", "c::d", "expose_functions", "auth result"},
		{nil, "ns", "c::d", "expose_functions", "auth result"},
	} {
		err := p.MayCall(c.s, c.space, c.function, nil)
		if err == nil || !strings.Contains(err.Message, c.want) || strings.Contains(err.Message, c.other) {
			t.Errorf("%s in %s: %v, want a word of %s and none of %s", c.function, c.space, err, c.want, c.other)
		}
	}
}

// crowd is a session with as many grants as there can be, and a policy with rules of each kind.
func crowd(t testing.TB) (*rbac.Session, *rbac.Policy) {
	t.Helper()
	var list []string
	for i := range 9_000 {
		list = append(list, fmt.Sprintf("service-%d::f", i))
	}
	for i := range 900 {
		list = append(list, fmt.Sprintf("team-%d::*", i))
	}
	for i := range 90 {
		list = append(list, fmt.Sprintf("site-%d::*::read", i))
	}
	text, err := json.Marshal(map[string]any{"allowed_functions": list, "forbidden_functions": []string{"x::*"},
		"namespaces": map[string]any{"ns": []string{"granted::*"}}})
	if err != nil {
		t.Fatal(err)
	}
	return session(t, string(text)), &rbac.Policy{Expose: []rbac.Rule{rule(t, "open::*"),
		rule(t, `{"metadata":{"public":true,"tier":"match(\"gold*\")","level":3.5}}`)}}
}

// cases are calls that the crowd allows, one for each way.
var cases = []struct{ name, space, function, metadata string }{
	{"exact", "default", "service-8999::f", ""},
	{"prefix", "default", "team-899::anything", ""},
	{"pattern", "default", "site-89::1::read", ""},
	{"grant", "ns", "granted::f", ""},
	{"infrastructure", "default", "engine::log::info", ""},
	{"exposed", "default", "open::f", ""},
	{"metadata", "default", "other::f", `{"owner":{"a":[1,"]"]},"public":true,"tier":"golden","level":3.50}`},
}

func TestAnAllowedCallTakesNoMemory(t *testing.T) {
	s, p := crowd(t)
	for _, c := range cases {
		metadata := []byte(c.metadata)
		if n := testing.AllocsPerRun(100, func() {
			if err := p.MayCall(s, c.space, c.function, metadata); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func BenchmarkMayCall(b *testing.B) {
	s, p := crowd(b)
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			metadata := []byte(c.metadata)
			b.ReportAllocs()
			for b.Loop() {
				if p.MayCall(s, c.space, c.function, metadata) != nil {
					b.Fatal("denied")
				}
			}
		})
	}
}

package rbac_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/rbac"
)

func TestRulesThatMakeNoSenseAreErrors(t *testing.T) {
	for _, text := range []string{"", " ", `match(shop)`, `{"match":"a"`, `{}`, `{"match":"a","metadata":{"b":1}}`,
		`{"match":"a","name":"b"}`, `{"metadata":{}}`, `{"match":"a","namespace":" "}`, `{"match":7}`,
		`{"match":"a"} more`, `{"match":"a"}}`, `{"Match":"a"}`,
		`{"match":"a","match":"b"}`, `{"match":"match(a)"}`, `{"match":null}`, `{"match":"a","namespace":null}`,
		`{"metadata":null}`, `{"metadata":{"a":1,"a":2}}`, `{"metadata":{"a":"match(gold)"}}`, `{"metadata":[1]}`,
		`match("")`, `match("a"b")`, `match("a`, `match()`, `a b`, "{\"match\":\"\xff\"}",
		`{"metadata":{` + strings.TrimSuffix(strings.Repeat(`"k":1,`, 65), ",") + `}}`, strings.Repeat("x", 9000), `{"match":""}`} {
		if _, err := rbac.ParseRule(text); err == nil {
			t.Errorf("%.40q was taken for a rule", text)
		}
	}
}

func TestMetadataRulesCompareValues(t *testing.T) {
	for _, c := range []struct {
		rule, metadata string
		want           bool
	}{
		{`{"a":true}`, `{"a":true}`, true}, {`{"a":true}`, ` { "b" : [1,{"a":2}] , "a" : true } `, true},
		{`{"a":true}`, `{"a":false}`, false}, {`{"a":true}`, `{"a":"true"}`, false}, {`{"a":true}`, `{"A":true}`, false},
		{`{"a":true}`, `{"b":{"a":true}}`, false}, {`{"a":true}`, `{}`, false}, {`{"a":true}`, ``, false},
		{`{"a":true}`, `[{"a":true}]`, false}, {`{"a":true}`, `null`, false}, {`{"a":true}`, `{"a":true`, false},
		{`{"a":null}`, `{"a":null}`, true}, {`{"a":null}`, `{}`, false}, {`{"a":null}`, `{"a":0}`, false},
		{`{"a":1}`, `{"a":1}`, true}, {`{"a":1}`, `{"a":1.0}`, true}, {`{"a":1.5e1}`, `{"a":15}`, true},
		{`{"a":1}`, `{"a":"1"}`, false}, {`{"a":0}`, `{"a":-0}`, true}, {`{"a":-1}`, `{"a":1}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false}, // equal as float64
		{`{"a":9007199254740993}`, `{"a":9007199254740993}`, true},
		{`{"a":1e999}`, `{"a":1e999}`, false}, // no number that anybody has
		{`{"a":"gold"}`, `{"a":"gold"}`, true}, {`{"a":"gold"}`, `{"a":"golden"}`, false},
		{`{"a":"gold"}`, `{"a":"g\u006fld"}`, true}, {`{"a":"g\u006fld"}`, `{"a":"gold"}`, true},
		{`{"a":"gold"}`, `{"\u0061":"gold"}`, true}, {`{"a":"x\"y"}`, `{"a":"x\"y"}`, true},
		{`{"a":"gold*"}`, `{"a":"golden"}`, false}, // a pattern is written match("…")
		{`{"a":"match(\"gold*\")"}`, `{"a":"golden"}`, true}, {`{"a":"match(\"gold*\")"}`, `{"a":"old"}`, false},
		{`{"a":"match(\"gold*\")"}`, `{"a":["golden"]}`, false}, {`{"a":"match(\"*\")"}`, `{"a":7}`, false},
		{`{"a":["x",{"b":1}]}`, `{"a":["x",{"b":1.0}]}`, true}, {`{"a":["x"]}`, `{"a":["x","y"]}`, false},
		{`{"a":{}}`, `{"a":[]}`, false}, {`{"a":{"b":1,"c":2}}`, `{"a":{"c":2,"b":1}}`, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":1,"a":1}`, false}, {`{"a":1}`, `{"a":2,"a":1}`, false}, // twice is ambiguous
		{`{"a":1}`, `{"b":1,"b":2,"a":1}`, true},
	} {
		r := rule(t, `{"metadata":`+c.rule+`}`)
		if got := r.Matches("default", "any::f", []byte(c.metadata)); got != c.want {
			t.Errorf("%s for %s: got %v", c.rule, c.metadata, got)
		}
		if r.Matches("ns", "any::f", []byte(c.metadata)) {
			t.Errorf("%s matches in a namespace that it does not name", c.rule)
		}
	}
	var none rbac.Rule
	if none.Matches("", "f", []byte(`{}`)) || none.Matches("default", "f", nil) {
		t.Error("no rule at all matches something")
	}
}

// FuzzRule reads any rule and holds it against any metadata: neither panics, and where a rule is about
// metadata, what matches has the members with equal values also for encoding/json.
func FuzzRule(f *testing.F) {
	f.Add(`{"metadata":{"a":1}}`, `{"a":1}`)
	f.Fuzz(func(t *testing.T, text, metadata string) {
		r, err := rbac.ParseRule(text)
		if err != nil || !r.Matches("default", "", []byte(metadata)) || !json.Valid([]byte(metadata)) {
			return
		}
		var want struct{ Metadata map[string]any }
		if json.Unmarshal([]byte(text), &want) != nil || want.Metadata == nil {
			return
		}
		var has map[string]any
		if err := json.Unmarshal([]byte(metadata), &has); err != nil {
			t.Fatalf("%q matches %q, which is no object: %v", text, metadata, err)
		}
		for key, v := range want.Metadata {
			if s, ok := v.(string); ok && strings.HasPrefix(s, "match(") {
				_, ok = has[key].(string)
				if !ok {
					t.Errorf("%q matches %q, where %s is no text", text, metadata, key)
				}
			} else if got, ok := has[key]; !ok || !reflect.DeepEqual(got, v) {
				t.Errorf("%q matches %q, where %s is %v", text, metadata, key, got)
			}
		}
	})
}

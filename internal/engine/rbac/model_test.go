package rbac_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plinth-run/plinth/internal/engine/rbac"
)

// model is a session and the rules of a listener as plain lists, decided on word by word as semantics
// section 19 says it.
type model struct {
	Namespaces map[string][]string `json:"namespaces,omitempty"`
	Allowed    []string            `json:"allowed_functions"`
	Forbidden  []string            `json:"forbidden_functions"`
	expose     []exposed
	asked      bool // there is an auth function
}

type exposed struct {
	Match     string         `json:"match,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
}

// like holds a text against a pattern by means of a regular expression.
func like(pattern, text string) bool {
	if inner, ok := strings.CutPrefix(pattern, `match("`); ok {
		pattern = strings.TrimSuffix(inner, `")`)
	}
	expression := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`)
	return regexp.MustCompile(`^(?s:` + expression + `)$`).MatchString(text)
}

func anyLike(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return like(p, text) })
}

func (m *model) allows(space, function string, metadata map[string]any) bool {
	builtIn := []string{"engine::channels::create", "engine::workers::register", "engine::log::info",
		"engine::log::warn", "engine::log::error", "engine::log::debug", "engine::log::trace",
		"engine::baggage::get", "engine::baggage::set", "engine::baggage::get_all"}
	if m.asked {
		if anyLike(m.Forbidden, function) {
			return false
		}
		if anyLike(m.Namespaces[space], function) || space == "default" && anyLike(m.Allowed, function) {
			return true
		}
	}
	if space == "default" && slices.Contains(builtIn, function) {
		return true
	}
	return slices.ContainsFunc(m.expose, func(e exposed) bool {
		if e.Namespace != space && (e.Namespace != "" || space != "default") {
			return false
		}
		if e.Metadata == nil {
			return like(e.Match, function)
		}
		for key, want := range e.Metadata {
			has, there := metadata[key]
			text, isText := has.(string)
			pattern, _ := want.(string)
			switch {
			case strings.HasPrefix(pattern, "match("):
				if !isText || !like(pattern, text) {
					return false
				}
			case !there || has != want:
				return false
			}
		}
		return true
	})
}

// drawn makes models whose parts meet often: few letters, few names.
type drawn struct{ *rapid.T }

func (d drawn) function() string {
	return rapid.OneOf(rapid.StringMatching(`[ab]{1,2}::[ab]{1,3}`),
		rapid.SampledFrom([]string{"engine::log::info", "engine::baggage::set", "engine::baggage::none"})).
		Draw(d.T, "function")
}

func (d drawn) pattern() string {
	p := rapid.OneOf(rapid.StringMatching(`[ab*]{0,3}::[ab*]{1,3}`), rapid.StringMatching(`[ab:]{1,3}\*`),
		rapid.Just("*"), rapid.Just("engine::*")).Draw(d.T, "pattern")
	if rapid.IntRange(0, 4).Draw(d.T, "wrapped") == 0 {
		return `match("` + p + `")`
	}
	return p
}

func (d drawn) list(most int) []string {
	list := make([]string, rapid.IntRange(0, most).Draw(d.T, "length"))
	for i := range list {
		list[i] = d.pattern()
	}
	return list
}

func (d drawn) space() string {
	return rapid.SampledFrom([]string{"default", "ns", "other"}).Draw(d.T, "namespace")
}

func (d drawn) metadata(rule bool) map[string]any {
	values := []any{true, false, nil, 1.0, 2.5, "gold", "golden"}
	if rule {
		values = append(values, `match("gold*")`, `match("*e*")`)
	}
	m := map[string]any{}
	for range rapid.IntRange(1, 3).Draw(d.T, "members") {
		key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(d.T, "key")
		m[key] = rapid.SampledFrom(values).Draw(d.T, "value")
	}
	return m
}

func (d drawn) model() *model {
	m := &model{Allowed: d.list(2), Forbidden: d.list(1), asked: rapid.Bool().Draw(d.T, "asked")}
	for range rapid.IntRange(0, 2).Draw(d.T, "namespaces") {
		if m.Namespaces == nil {
			m.Namespaces = map[string][]string{}
		}
		m.Namespaces[d.space()] = d.list(3)
	}
	for range rapid.IntRange(0, 2).Draw(d.T, "rules") {
		e := exposed{Match: d.pattern()}
		if rapid.Bool().Draw(d.T, "about metadata") {
			e = exposed{Metadata: d.metadata(true)}
		}
		if rapid.Bool().Draw(d.T, "named") {
			e.Namespace = d.space()
		}
		m.expose = append(m.expose, e)
	}
	return m
}

func TestDecisionsAreThoseOfTheModel(t *testing.T) {
	var yes, no int
	rapid.Check(t, func(t *rapid.T) {
		d := drawn{t}
		m := d.model()
		var p rbac.Policy
		for _, e := range m.expose {
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			r, err := rbac.ParseRule(string(text))
			if err != nil {
				t.Fatal(err)
			}
			p.Expose = append(p.Expose, r)
		}
		var s *rbac.Session
		if m.asked {
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			parsed, refused := rbac.ParseSession(text)
			if refused != nil {
				t.Fatal(refused)
			}
			s = parsed
		}
		for range 20 {
			space, function, has := d.space(), d.function(), d.metadata(false)
			metadata, err := json.Marshal(has)
			if err != nil {
				t.Fatal(err)
			}
			got, want := p.MayCall(s, space, function, metadata) == nil, m.allows(space, function, has)
			if got != want {
				t.Fatalf("%s in %s with %s: got %v, want %v", function, space, metadata, got, want)
			}
			if got {
				yes++
			} else {
				no++
			}
		}
	})
	if yes < 100 || no < 100 {
		t.Errorf("the draw is lopsided: %d allowed, %d denied", yes, no)
	}
}

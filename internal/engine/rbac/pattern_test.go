package rbac_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/rbac"
)

func TestPatternsAreAnchoredAndStarsStandForAnyRun(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a::b", "a::b", true}, {"a::b", "a::bc", false}, {"a::b", "xa::b", false}, {"a::b", "a::B", false},
		{"*", "anything", true}, {"*", "", true}, {"**", "", true},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false},
		{"ab*bc", "abc", false}, {"*ab*", "aab", true}, {"*aab*ab", "aaab", false}, {"*ab*ab", "abab", true},
		{"a.c", "abc", false}, {"a?c", "abc", false}, {"[a]", "a", false}, {"é*", "éa", true},
		{`match("a::*")`, "a::b", true}, {`match("a::b")`, "a::bc", false}, {" a::* ", "a::b", true},
	} {
		r := rule(t, c.pattern)
		if got := r.Matches("default", c.text, nil); got != c.want {
			t.Errorf("%q against %q: got %v", c.pattern, c.text, got)
		}
	}
}

// TestMatchingTakesTimeInProportionToTheText would not end in this century with a matcher that goes back.
func TestMatchingTakesTimeInProportionToTheText(t *testing.T) {
	text := strings.Repeat("a", 1<<20)
	for _, pattern := range []string{strings.Repeat("a*", 2000) + "b", strings.Repeat("*a", 2000) + "*b*",
		"*" + strings.Repeat("a", 2000) + "b*" + strings.Repeat("a", 2000) + "c"} {
		r := rule(t, pattern)
		if r.Matches("default", text, nil) {
			t.Errorf("%.20s… matches", pattern)
		}
	}
	r := rule(t, strings.Repeat("a*", 2000))
	if !r.Matches("default", text, nil) {
		t.Error("it does not match")
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

package auth

import (
	"strings"
	"testing"
)

func TestEveryRoleHasScopesThatCanBeRead(t *testing.T) {
	for name, texts := range roles {
		if all, err := parseScopes(texts); err != nil || len(all) != len(texts) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(roles) != len(Roles()) {
		t.Errorf("roles %v", Roles())
	}
}

func FuzzScope(f *testing.F) {
	f.Add("engine:call:billing::", "billing::x")
	f.Add("*:*", "")
	f.Fuzz(func(t *testing.T, text, name string) {
		s, err := parseScope(text)
		if err != nil {
			return
		}
		if s.allows("engine", "call", name) && !strings.HasPrefix(name, s.prefix) {
			t.Errorf("%q allows %q", text, name)
		}
		if !s.covers(&s) {
			t.Errorf("%q does not cover itself", text)
		}
	})
}

func FuzzPHC(f *testing.F) {
	f.Add("$argon2id$v=19$m=64,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parsePHC(text)
		if err != nil {
			return
		}
		if again, err := parsePHC(h.String()); err != nil || again.String() != h.String() {
			t.Errorf("%q became %q, %v", text, h, err)
		}
	})
}

// FuzzRecord reads any entry of the log, and any snapshot: it never panics.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`[{"user":{"name":"ann","role":"owner"}},{"claim":""}]`))
	f.Add([]byte(`{"users":{},"keys":{},"sessions":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newState()
		_ = s.replay(b)
		_ = s.read(strings.NewReader(string(b)))
		_ = s.owners("")
	})
}

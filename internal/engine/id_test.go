package engine

import (
	"strconv"
	"strings"
	"testing"
)

// FuzzParseID: a text is taken only when it is how the engine itself writes that number.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"0", "1", "ffffffffffffffff", "00", "01", "F", "10000000000000000", "", "x",
		"1 "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseID(b)
		if err == nil && strconv.FormatUint(n, idBase) != string(b) {
			t.Errorf("%q was taken for %x", b, n)
		}
		if want, bad := strconv.ParseUint(string(b), idBase, 64); err != nil && bad == nil &&
			strconv.FormatUint(want, idBase) == string(b) {
			t.Errorf("%q was refused", b)
		}
	})
}

// FuzzParseUUID: what is taken reads back the same, but for case.
func FuzzParseUUID(f *testing.F) {
	f.Add([]byte("0b0f5a1e-5a54-4a4b-9d4e-2b1f9c1a7e11"))
	f.Add([]byte("0B0F5A1E-5A54-4A4B-9D4E-2B1F9C1A7E11"))
	f.Add([]byte("0b0f5a1e5a544a4b9d4e2b1f9c1a7e11"))
	f.Add([]byte("0b0f5a1e-5a54-4a4b-9d4e-2b1f9c1a7e1g"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, ok := parseUUID(b); ok && u.String() != strings.ToLower(string(b)) {
			t.Errorf("%q reads back as %s", b, u)
		}
	})
}

func TestNewUUIDsAreVersion4(t *testing.T) {
	seen := map[uuid]bool{}
	for range 1000 {
		u := newUUID()
		s := u.String()
		if s[14] != '4' || !strings.ContainsRune("89ab", rune(s[19])) || seen[u] {
			t.Fatalf("%s is no version 4, or came twice", s)
		}
		seen[u] = true
		if back, ok := parseUUID([]byte(s)); !ok || back != u {
			t.Fatalf("%s does not read back", s)
		}
	}
}

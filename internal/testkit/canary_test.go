package testkit

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCanariesDifferAndRepeat(t *testing.T) {
	a, again, b := NewCanary(1), NewCanary(1), NewCanary(2)
	seen := map[string]bool{}
	for i := range Canaries {
		if a.Value(i) != again.Value(i) || a.Value(i) == b.Value(i) || seen[a.Value(i)] {
			t.Fatal(a.Value(i))
		}
		seen[a.Value(i)] = true
	}
}

func TestCanaryIsFoundInEveryForm(t *testing.T) {
	c := NewCanary(3)
	for i := range Canaries {
		v := c.Value(i)
		quoted, err := json.Marshal(map[string]string{"password": v})
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string]string{
			"raw":   v,
			"json":  string(quoted),
			"hex":   hex.EncodeToString([]byte(v)),
			"HEX":   strings.ToUpper(hex.EncodeToString([]byte(v))),
			"query": url.QueryEscape(v),
			"path":  url.PathEscape(v),
			"each":  string(everyByte([]byte(v), "%%%02X")),
			"\\u":   string(everyByte([]byte(v), `\u%04x`)),
		}
		for skip := range 7 {
			padded := strings.Repeat("?", skip) + v + strings.Repeat("!", i%4)
			forms[fmt.Sprint("base64 ", skip)] = base64.StdEncoding.EncodeToString([]byte(padded))
			forms[fmt.Sprint("base64 url ", skip)] = base64.RawURLEncoding.EncodeToString([]byte(padded))
		}
		for name, text := range forms {
			seen := c.Find([]byte("before " + text + " after"))
			if len(seen) != 1 || seen[0].Offset < 7 || seen[0].Offset > 7+20 {
				t.Errorf("canary %d as %s in %q: %v", i, name, text, seen)
			}
			if name == "raw" && seen[0].Value != i {
				t.Errorf("canary %d is taken for %d", i, seen[0].Value)
			}
		}
	}
	if seen := c.Find([]byte("plinth, canary, and nothing else")); len(seen) != 0 {
		t.Error(seen)
	}
}

func TestCanaryIsFoundAcrossChunks(t *testing.T) {
	c := NewCanary(4)
	for _, at := range []int{0, chunk - 10, chunk, chunk + overlap - 15, 3*chunk - 1} {
		b := make([]byte, 3*chunk+100)
		copy(b[at:], c.Value(9))
		seen, err := c.FindReader(bytes.NewReader(b))
		if err != nil || len(seen) != 1 || seen[0].Offset != int64(at) {
			t.Errorf("at %d: %v %v", at, seen, err)
		}
	}
	if _, err := c.FindReader(iotest.ErrReader(os.ErrPermission)); err == nil {
		t.Error("an error of reading passes for nothing found")
	}
}

func TestCanaryIsFoundInAFolder(t *testing.T) {
	c := NewCanary(5)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a/clean": "nothing", "a/b/log": "x " + c.Value(7), "a/b/" + mark: "in the name",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := c.FindDir(dir)
	if err != nil || len(seen) != 2 {
		t.Fatal(seen, err)
	}
	for _, s := range seen {
		if !strings.Contains(s.String(), "raw") || filepath.Dir(s.File) != filepath.Join(dir, "a", "b") {
			t.Error(s)
		}
	}
	if _, err := c.FindDir(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a missing folder passes for a clean one")
	}
}

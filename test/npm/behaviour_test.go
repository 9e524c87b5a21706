package npm_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// row is a line of the table: a behaviour, the script that has a test of it, and the test's name.
var row = regexp.MustCompile(`^\| (.+) \| ([a-z]+) \| (.+) \|$`)

// TestEveryBehaviourNamesATestThatIsThere keeps BEHAVIOURS.md true.
func TestEveryBehaviourNamesATestThatIsThere(t *testing.T) {
	page, err := os.ReadFile("BEHAVIOURS.md")
	if err != nil {
		t.Fatal(err)
	}
	cited := map[string]int{}
	for line := range strings.Lines(string(page)) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[2] == "script" {
			continue
		}
		behaviour, script, name := m[1], m[2], m[3]
		text, err := os.ReadFile(script + ".test.mjs")
		if err != nil {
			t.Errorf("%s: %v", behaviour, err)
			continue
		}
		cited[script]++
		// A name is quoted in one of three ways, and may go on behind what the page has of it.
		if !regexp.MustCompile("test\\([`'\"]" + regexp.QuoteMeta(name)).Match(text) {
			t.Errorf("%s: %s.test.mjs has no test %q", behaviour, script, name)
		}
	}
	scripts, err := filepath.Glob("*.test.mjs")
	if err != nil || len(cited) < 10 {
		t.Fatalf("the page cites %d scripts: %v", len(cited), err)
	}
	for _, file := range scripts {
		if script := strings.TrimSuffix(file, ".test.mjs"); cited[script] == 0 {
			t.Errorf("no behaviour cites %s", file)
		}
	}
}

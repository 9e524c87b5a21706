package npm_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryMetricIsDocumented reads the page of a running engine.
func TestEveryMetricIsDocumented(t *testing.T) {
	e := serve(t, need(t))
	page, err := fetch("http://" + e.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	histogram := regexp.MustCompile(`_(bucket|sum|count)$`)
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^((?:plinth|iii)_\w+)`).FindAllStringSubmatch(page, -1) {
		name := strings.Replace(m[1], "plinth_telemetry_logs_", "plinth_telemetry_spans_", 1)
		if strings.Contains(name, "_duration_") {
			name = histogram.ReplaceAllString(name, "")
		}
		if !seen[name] && !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md does not explain %s", name)
		}
		seen[name] = true
	}
	if len(seen) < 30 {
		t.Errorf("the page names only %d metrics:\n%s", len(seen), page)
	}
}

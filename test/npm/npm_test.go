package npm_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// settings are what the engine of a script is started with, beside the defaults.
func settings(script string) []string {
	if script == "toolarge" {
		return []string{"PLINTH_ENGINE_LIMITS_MAX_MESSAGE_BYTES=8MiB"}
	}
	return nil
}

// TestPublicSDK runs every script. Each of their tests is a subtest here.
func TestPublicSDK(t *testing.T) {
	bin := need(t)
	scripts, err := filepath.Glob("*.test.mjs")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts here: %v", err)
	}
	for _, script := range scripts {
		name := strings.TrimSuffix(script, ".test.mjs")
		t.Run(name, func(t *testing.T) {
			e := serve(t, bin, settings(name)...)
			if err := e.reachable(); err != nil {
				t.Fatal(err)
			}
			p := listen(t, e)
			l := levers(t, e, p)
			run(t, script, "TEST_WORKERS=ws://"+e.workers,
				"TEST_PROXY=ws://"+p.lis.Addr().String(), "TEST_LEVERS="+l.URL)
		})
	}
}

// run runs one script under Node's test runner and gives each of its results a subtest.
func run(t *testing.T, script string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test-reporter=tap", script)
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if ctx.Err() != nil {
		t.Errorf("%s did not end; it said:\n%s\n%s", script, out, errs.String())
		return
	}
	results := parseTAP(string(out))
	if len(results) == 0 {
		t.Errorf("%s reported no test: %v\n%s\n%s", script, err, out, errs.String())
		return
	}
	failed := false
	for _, r := range results {
		failed = failed || !r.ok
		t.Run(r.name, func(t *testing.T) {
			if !r.ok {
				t.Error(r.text)
			}
		})
	}
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || !failed) {
		t.Errorf("%s: %v\n%s\n%s", script, err, out, errs.String())
	}
}

type result struct {
	ok   bool
	name string
	text string // the explanation that follows a failure
}

var tapLine = regexp.MustCompile(`^(ok|not ok) \d+ - (.*)$`)

// parseTAP reads the top-level results of Node's TAP output. A skipped or pending test counts as
// failed: nothing is skipped here.
func parseTAP(out string) (results []result) {
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if m := tapLine.FindStringSubmatch(line); m != nil {
			skipped := strings.Contains(m[2], " # SKIP") || strings.Contains(m[2], " # TODO")
			results = append(results, result{ok: m[1] == "ok" && !skipped, name: m[2], text: line + "\n"})
		} else if n := len(results); n > 0 && strings.HasPrefix(line, "  ") {
			results[n-1].text += line + "\n"
		}
	}
	return results
}

func TestResultsOfScriptsAreRead(t *testing.T) {
	got := parseTAP(`TAP version 13
# Subtest: one
ok 1 - one
  ---
  duration_ms: 1
  ...
not ok 2 - two
  ---
  error: 'boom'
  ...
ok 3 - three # SKIP
1..3
`)
	if len(got) != 3 || !got[0].ok || got[1].ok || !strings.Contains(got[1].text, "boom") || got[2].ok {
		t.Errorf("read %+v", got)
	}
}

package npm_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// settings are what the engine of a script is started with, beside the defaults: environment variables.
// public is the address of a second listener, for the scripts that want one.
func settings(script, public string) []string {
	const engine = "PLINTH_ENGINE_"
	switch script {
	case "toolarge":
		return []string{engine + "LIMITS_MAX_MESSAGE_BYTES=8MiB"}
	case "httpfn":
		return []string{engine + "HTTP_BLOCK_PRIVATE=false", engine + "HTTP_REQUIRE_HTTPS=false",
			"NPM_HTTP_TOKEN=token-of-the-test", "NPM_HTTP_API_KEY=api-key-of-the-test",
			"NPM_HTTP_SECRET=secret-of-the-test"}
	case "rbac":
		const listener = engine + "LISTENERS_PUBLIC_"
		return []string{listener + "LISTEN=" + public, listener + "AUTH_FUNCTION=guard::auth",
			listener + `EXPOSE={"metadata":{"public":true}}`,
			listener + "MIDDLEWARE=guard::middleware",
			listener + "ON_FUNCTION_REGISTRATION=guard::on-function",
			listener + "ON_TRIGGER_REGISTRATION=guard::on-trigger",
			listener + "ON_TRIGGER_TYPE_REGISTRATION=guard::on-type"}
	}
	return nil
}

// free returns an address of this machine that nobody listens on now.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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
			public := free(t)
			e := serve(t, bin, settings(name, public)...)
			if err := e.reachable(); err != nil {
				t.Fatal(err)
			}
			p := listen(t, e)
			l := levers(t, e, p)
			run(t, script, "TEST_WORKERS=ws://"+e.workers, "TEST_PUBLIC=ws://"+public,
				"TEST_PROXY=ws://"+p.lis.Addr().String(), "TEST_LEVERS="+l.URL,
				"TEST_ADMIN=http://"+e.admin, "TEST_DATA="+e.data)
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

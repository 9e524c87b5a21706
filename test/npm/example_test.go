package npm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestExamplesAnswerFromTheShell does what the README tells a new user: start the example, then call its
// function with plinth call.
func TestExamplesAnswerFromTheShell(t *testing.T) {
	bin := need(t)
	for name, program := range map[string]func() *exec.Cmd{
		"hello-node": func() *exec.Cmd { return exec.Command("node", "hello.mjs") },
		"hello-go": func() *exec.Cmd {
			own := filepath.Join(t.TempDir(), "hello-go")
			build := exec.Command("go", "build", "-o", own, "../../examples/hello-go")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			return exec.Command(own)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, bin)
			p := program()
			p.Dir = "../../examples/" + name
			p.Env = append(os.Environ(), "III_URL=ws://"+e.workers)
			said := &tail{}
			p.Stdout, p.Stderr = said, said
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				p.Process.Signal(os.Interrupt)
				if err := p.Wait(); err != nil && name == "hello-go" {
					t.Errorf("the example ended with %v:\n%s", err, said)
				}
			}()
			out, err := greeted(bin, e)
			if err != nil {
				t.Fatalf("%v\nthe example said:\n%s", err, said)
			}
			var answer struct{ Message string }
			if err := json.Unmarshal(out, &answer); err != nil || answer.Message != "Hello, Ann!" {
				t.Errorf("plinth call printed %q", out)
			}
		})
	}
}

// greeted calls the example's function until it is there.
func greeted(bin string, e *engine) ([]byte, error) {
	for end := time.Now().Add(patience); ; {
		var errs strings.Builder
		call := exec.Command(bin, "call", "hello::greet", "name=Ann")
		call.Env = append(os.Environ(),
			"PLINTH_URL=ws://"+e.workers, "NO_COLOR=1")
		call.Dir = os.TempDir()
		call.Stderr = &errs
		out, err := call.Output()
		if err == nil {
			return out, nil
		}
		if !strings.Contains(errs.String(), "function_not_found") || time.Now().After(end) {
			return nil, fmt.Errorf("plinth call: %w\n%s", err, errs.String())
		}
	}
}

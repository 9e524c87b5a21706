package testkit

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

type runner func(ctx context.Context) error

func (r runner) Run(ctx context.Context) error { return r(ctx) }

func TestStartStopAcceptsWhatEndsWithItsContext(t *testing.T) {
	Leaks(t)
	StartStop(t, func() (Runner, error) {
		return runner(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}), nil
	})
	StartStop(t, func() (Runner, error) {
		return runner(func(context.Context) error { return nil }), nil
	})
}

// broken are checks that must fail. Each runs in a process of its own, because a test cannot expect another
// to.
var broken = map[string]func(t *testing.T){
	"an error of Run": func(t *testing.T) {
		StartStop(t, func() (Runner, error) {
			return runner(func(context.Context) error { return errors.New("not the context's") }), nil
		})
	},
	"no runner": func(t *testing.T) {
		StartStop(t, func() (Runner, error) { return nil, errors.New("no place for its files") })
	},
	"a leaked goroutine": func(t *testing.T) {
		Leaks(t)
		forever := make(chan struct{})
		go func() { <-forever }() // never ends: that is the point
	},
}

const brokenEnv = "PLINTH_TESTKIT_BROKEN"

func TestBroken(t *testing.T) {
	check := broken[os.Getenv(brokenEnv)]
	if check == nil {
		t.Skip("for TestChecksCanFail")
	}
	check(t)
}

func TestChecksCanFail(t *testing.T) {
	for name := range broken {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$")
		cmd.Env = append(os.Environ(), brokenEnv+"="+name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--- FAIL: TestBroken") {
			t.Errorf("%s passes: %v\n%s", name, err, out)
		}
	}
}

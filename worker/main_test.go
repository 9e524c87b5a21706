package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

const engineVariable = "WORKER_TEST_ENGINE"

// TestMain lets the test binary be the engine of a benchmark, in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv(engineVariable) == "" {
		os.Exit(m.Run())
	}
	e := workertest.Open()
	url, err := e.URL()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(url)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is done
	e.Close()
}

// outside starts an engine in another process and returns its URL.
func outside(b *testing.B) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), engineVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(url)
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// start runs a worker until the test ends.
func start(t testing.TB, url string, opts worker.Options, setup func(*worker.Worker) error) *worker.Worker {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = silent()
	}
	w, err := worker.New(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	if setup != nil {
		if err := setup(w); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run of %s: %v", w.Name(), err)
		}
	})
	if err := w.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

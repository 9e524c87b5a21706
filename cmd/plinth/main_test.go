package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

var update = flag.Bool("update", false, "write golden files and reference pages anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"plinth": main})
}

// TestSessions plays the sessions of testdata/script. Beside the usual commands a session has:
//
//	server [flags]  runs plinth serve on ports of its own, and sets $URL, $ADMIN and PLINTH_URL
//	worker          connects a worker with the functions of demo below
//	stop            ends the server and checks that it drained
//	code N CMD      runs a command that must leave with code N; codes N,M CMD with one of them
func TestSessions(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
			env.Setenv("TZ", "UTC")
			env.Values[serverKey{}] = new(server)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": startServer, "worker": startWorker, "stop": stopServer, "code": runForCode, "codes": runForCode,
		},
	})
}

// runForCode runs a command and checks how it leaves.
func runForCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND [ARGUMENT ...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if left := (*exec.ExitError)(nil); errors.As(err, &left) {
		code = left.ExitCode()
	} else {
		ts.Check(err)
	}
	if !slices.Contains(strings.Split(args[0], ","), strconv.Itoa(code)) {
		ts.Fatalf("left with %d, want %s\n%s", code, args[0], ts.ReadFile("stderr"))
	}
}

// server is the running `plinth serve` of a session.
type server struct {
	cmd    *exec.Cmd
	errors strings.Builder
	ended  chan struct{} // closed when the process is gone
}

type serverKey struct{}

func startServer(ts *testscript.TestScript, neg bool, args []string) {
	s, ok := ts.Value(serverKey{}).(*server)
	if neg || !ok {
		ts.Fatalf("unsupported: ! server")
	}
	*s = server{ended: make(chan struct{})}
	s.cmd = exec.Command("plinth", append([]string{"serve", "--json", "--data", "data",
		"--engine-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Dir = ts.MkAbs(".")
	s.cmd.Stderr = &s.errors
	out, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	line, readErr := bufio.NewReader(out).ReadString('\n')
	go func() { // ends with the process
		_ = s.cmd.Wait() // its state is read from ProcessState
		close(s.ended)
	}()
	ts.Defer(func() {
		_ = s.cmd.Process.Kill() // it may be gone already
		<-s.ended
	})
	if readErr != nil {
		<-s.ended
		ts.Fatalf("no banner: %v: %s", readErr, s.errors.String())
	}
	var b house.Banner
	ts.Check(json.Unmarshal([]byte(line), &b))
	ts.Setenv("URL", b.Workers)
	ts.Setenv("PLINTH_URL", b.Workers)
	ts.Setenv("ADMIN", b.Admin)
	ts.Setenv("ENGINE_ADDRESS", strings.TrimPrefix(b.Workers, "ws://"))
	ts.Setenv("ADMIN_ADDRESS", strings.TrimPrefix(b.Admin, "http://"))
}

// stopServer ends the server of the session as an operator would, and keeps its log in server.stderr.
func stopServer(ts *testscript.TestScript, neg bool, _ []string) {
	s, ok := ts.Value(serverKey{}).(*server)
	if !ok || s.cmd == nil {
		ts.Fatalf("no server runs")
	}
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.ended
	ts.Check(os.WriteFile(ts.MkAbs("server.stderr"), []byte(s.errors.String()), 0o600))
	if clean := s.cmd.ProcessState.ExitCode() == 0; clean == neg {
		ts.Fatalf("the server left with %v: %s", s.cmd.ProcessState, s.errors.String())
	}
}

// startWorker connects a worker with a few functions.
func startWorker(ts *testscript.TestScript, neg bool, _ []string) {
	if neg {
		ts.Fatalf("unsupported: ! worker")
	}
	stop, err := demo(ts.Getenv("URL"))
	ts.Check(err)
	ts.Defer(stop)
}

// demo runs a worker called greeter until stop.
func demo(url string) (stop func(), err error) {
	w, err := worker.New(url, worker.Options{Name: "greeter", Description: "says hello", Grace: -1,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	type person struct {
		Name string `json:"name"`
	}
	err = errors.Join(
		worker.Handle(w, "hello::greet", func(_ context.Context, in person) (string, error) {
			return "Hello, " + in.Name + "!", nil
		}, worker.Description("greets a person")),
		w.Register("hello::echo", func(_ context.Context, in []byte) ([]byte, error) { return in, nil }),
		w.Register("hello::nothing", func(context.Context, []byte) ([]byte, error) { return nil, nil }),
		w.Register("hello::null", func(context.Context, []byte) ([]byte, error) { return []byte("null"), nil }),
		w.Register("hello::meta", func(ctx context.Context, _ []byte) ([]byte, error) {
			call, _ := worker.Current(ctx)
			return call.Metadata(), nil
		}),
		w.Register("hello::trace", func(ctx context.Context, _ []byte) ([]byte, error) {
			call, _ := worker.Current(ctx)
			return nil, worker.Errorf("TRACED", "%s", call.Traceparent())
		}),
		w.Register("hello::fail", func(context.Context, []byte) ([]byte, error) {
			return nil, worker.Errorf("NO_MONEY", "the account is empty")
		}),
		w.Register("hello::hang", func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	limit, done := context.WithTimeout(ctx, 20*time.Second) // an engine that is gone fails the test
	defer done()
	if err := w.Ready(limit); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

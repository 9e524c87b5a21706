package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/internal/bench/load/loadtest"
)

// This test binary is also the programs that the tests start: its first argument says which.
const (
	roleRelay = "act-as-relay"  // a server
	roleMute  = "act-as-mute"   // a server that never says where it listens
	roleFail  = "act-as-fail"   // a server that does not start
	roleHog   = "act-as-hog"    // a server that takes memory once somebody connects
	roleLoad  = "act-as-load"   // a load process
	roleDumb  = "act-as-dumb"   // a load process that says nothing
	roleLiar  = "act-as-liar"   // a load process that tells of steps nobody asked for
	roleDeath = "act-as-corpse" // a load process that fails in the middle
	roleCopy  = "act-as-copy"   // what channels are measured against
	roleDoor  = "act-as-door"   // a server with an admin door
)

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "act-as-") {
		// The race detector would keep each child for another second after its end.
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := act(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func act(ctx context.Context, role string, args []string) error {
	switch role {
	case roleRelay:
		return actRelay(ctx, args, &loadtest.Relay{})
	case roleHog:
		var held [][]byte
		return actRelay(ctx, args, &loadtest.Relay{Fault: func(n int64) loadtest.Fault {
			if n > 100 {
				b := make([]byte, 4<<20)
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1
				}
				held = append(held, b)
			}
			return loadtest.Fault{}
		}})
	case roleMute:
		leave(args)
		fmt.Println("hello")
		fmt.Println(`{"workers":"nowhere"}`)
		<-ctx.Done()
	case roleFail:
		return fmt.Errorf("the port is taken")
	case roleCopy:
		return Copy(ctx, os.Stdout)
	case roleDoor:
		return actDoor(ctx, args)
	case roleLoad:
		return Load(ctx, os.Stdin, os.Stdout)
	case roleDumb:
		return fmt.Errorf("no tongue")
	case roleLiar:
		ev := load.Event{Kind: load.KindResult, Step: 7, Result: &load.Result{}}
		return json.NewEncoder(os.Stdout).Encode(ev)
	case roleDeath:
		e := json.NewEncoder(os.Stdout)
		_ = e.Encode(load.Event{Kind: load.KindReady})
		_ = e.Encode(load.Event{Kind: load.KindResult, Result: &load.Result{Calls: 5, Seconds: 1}})
		_ = e.Encode(load.Event{Kind: load.KindFailed, Error: "it broke"})
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return nil
}

// leave writes this process's id and its folder to where a test looks for them.
func leave(args []string) {
	folder, _ := os.Getwd()
	text := strconv.Itoa(os.Getpid()) + " " + folder + " " + os.Getenv("PLINTH_ODD")
	if len(args) > 0 {
		_ = os.WriteFile(args[0], []byte(text), 0o600)
	}
}

func actRelay(ctx context.Context, args []string, r *loadtest.Relay) error {
	leave(args)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	fmt.Println("starting")
	fmt.Printf("{\"workers\":\"ws://%s\"}\n", l.Addr())
	r.Serve(l)
	return nil
}

// actDoor is a relay with an admin door that knows accounts, keys and logins by their shape.
func actDoor(ctx context.Context, args []string) error {
	leave(args)
	if err := os.MkdirAll("auth", 0o700); err != nil {
		return err
	}
	if err := os.WriteFile("auth/local.token", []byte("pl_local\n"), 0o600); err != nil {
		return err
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	local := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer pl_local" {
				http.Error(w, "who are you", http.StatusUnauthorized)
				return
			}
			fmt.Fprint(w, answer)
		}
	}
	mux.HandleFunc("POST /api/setup/bootstrap", local(`{"created":true}`))
	mux.HandleFunc("POST /api/keys", local(`{"key":{},"secret":"wk_key"}`))
	mux.HandleFunc("POST /api/login", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go s.Serve(admin)
	context.AfterFunc(ctx, func() { l.Close(); s.Close() })
	fmt.Printf("{\"workers\":\"ws://%s\",\"admin\":\"http://%s\"}\n", l.Addr(), admin.Addr())
	(&loadtest.Relay{}).Serve(l)
	return nil
}

// program is this binary in a role; it leaves its process id in the file.
func program(t *testing.T, role string) (p Program, left string) {
	t.Helper()
	left = filepath.Join(t.TempDir(), "left")
	return Program{Name: role, Path: os.Args[0], Args: []string{role, left}}, left
}

// gone fails the test if the process that left the file is still there.
func gone(t *testing.T, left string) {
	t.Helper()
	b, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	text, rest, _ := strings.Cut(string(b), " ")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Errorf("process %d is still there", pid)
	}
	folder, _, _ := strings.Cut(rest, " ")
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("its folder %s is still there: %v", folder, err)
	}
}

// session runs loads in this binary.
func session(rounds int) Session {
	return Session{Rounds: rounds, Load: []string{os.Args[0], roleLoad}}
}

// small is a case of two short steps.
func small(name string, p Program, inFlight ...int) Case {
	c := Case{Scenario: "calls", Name: name, Program: p}
	c.Job = load.Job{Dialect: DialectFrames, Callers: 1, Hosts: 1, Payload: 64}
	for _, n := range inFlight {
		c.Job.Steps = append(c.Job.Steps, CallStep(n, 40*time.Millisecond))
	}
	return c
}

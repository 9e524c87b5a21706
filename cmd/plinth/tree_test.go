package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
)

// verbs calls do with every command that does something.
func verbs(cmd *cobra.Command, do func(*cobra.Command)) {
	if cmd.Runnable() {
		do(cmd)
	}
	for _, c := range cmd.Commands() {
		verbs(c, do)
	}
}

// samples are arguments with which each verb prints its result. A verb that is not here fails the test.
func samples(port string) map[string][]string {
	here := []string{"--engine-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data", port}
	return map[string][]string{
		"plinth serve":           here,
		"plinth call":            {"hello::echo", `a=[1]`},
		"plinth functions":       {},
		"plinth functions list":  {},
		"plinth functions info":  {"hello::greet"},
		"plinth workers":         {},
		"plinth workers list":    {},
		"plinth workers info":    {"greeter"},
		"plinth config":          {},
		"plinth config validate": {},
		"plinth config schema":   {},
		"plinth doctor":          here,
		"plinth bench":           {"--list"},
		"plinth version":         {},
		"plinth help exit-codes": {},
	}
}

// serving runs `plinth serve` in this process with a worker, and gives the URL of the engine.
func serving(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		p := newProgram(strings.NewReader(""), write, io.Discard, nil)
		code := p.run(ctx, []string{"serve", "--json", "--engine-listen", "127.0.0.1:0", "--admin-listen",
			"127.0.0.1:0",
			"--data", filepath.Join(dir, "data")})
		_ = write.Close()
		ended <- code
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("the server left with %d", code)
		}
	})
	var b house.Banner
	if err := json.NewDecoder(read).Decode(&b); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // ends with the server
	stop, err := demo(b.Workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return b.Workers
}

func TestEveryVerbPrintsJSON(t *testing.T) {
	url := serving(t)
	given := samples(filepath.Join(t.TempDir(), "data"))
	model := newProgram(nil, nil, nil, nil)
	verbs(newRoot(model), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		what, known := model.results[cmd]
		if path == "plinth" || what.form == formText {
			return
		}
		if !known && !cmd.HasSubCommands() {
			t.Errorf("%s does not say what it prints", path)
		}
		args, ok := given[path]
		if !ok {
			t.Errorf("%s has no sample arguments", path)
			return
		}
		if path == "plinth bench" {
			what.shape = nil // of the list of scenarios; the session bench.txtar measures
		}
		for _, mode := range []string{"--json", "--json=lines"} {
			t.Run(strings.ReplaceAll(path, " ", "_")+mode, func(t *testing.T) {
				out := runOnce(t, url, append(append(strings.Fields(path)[1:], args...), mode))
				judge(t, what, mode, out)
			})
		}
	})
}

// runOnce runs a verb and ends it after its first output, as serve goes on for ever.
func runOnce(t *testing.T, url string, args []string) []byte {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut bytes.Buffer
	var w io.Writer = &out
	if args[0] == "serve" {
		w = after{&out, cancel}
	}
	p := newProgram(strings.NewReader(""), w, &errOut, []string{"PLINTH_URL=" + url, "HOME=" + t.TempDir()})
	code := p.run(ctx, args)
	if code != exitDone && (args[0] != "doctor" || code == exitUsage) {
		t.Fatalf("left with %d: %s", code, errOut.String())
	}
	if code == exitDone && errOut.Len() > 0 && args[0] != "serve" {
		t.Errorf("stderr has %q", errOut.String())
	}
	return out.Bytes()
}

// after calls do once something was written.
type after struct {
	io.Writer
	do func()
}

func (a after) Write(b []byte) (int, error) {
	defer a.do()
	return a.Writer.Write(b)
}

// judge reads the output into the documented type, strictly, and looks for lists that are null.
func judge(t *testing.T, what result, mode string, out []byte) {
	t.Helper()
	docs := [][]byte{bytes.TrimSpace(out)}
	if mode == "--json=lines" {
		docs = bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	} else if what.form == formList && (len(out) == 0 || out[0] != '[') {
		t.Fatalf("not a list: %s", out)
	}
	for _, doc := range docs {
		if !json.Valid(doc) {
			t.Fatalf("not JSON: %s", doc)
		}
		if what.shape == nil || mode == "--json=lines" && what.form == formObject {
			continue
		}
		target := reflect.New(reflect.TypeOf(what.shape))
		if what.form == formList && mode == "--json" {
			target = reflect.New(reflect.SliceOf(reflect.TypeOf(what.shape)))
		}
		d := json.NewDecoder(bytes.NewReader(doc))
		d.DisallowUnknownFields()
		if err := d.Decode(target.Interface()); err != nil {
			t.Errorf("not of the documented shape: %v: %s", err, doc)
		}
		if path := nullList(target.Elem(), "$"); path != "" {
			t.Errorf("%s is null, not a list: %s", path, doc)
		}
	}
}

// nullList finds a slice that is nil, below v. Raw JSON is not a list.
func nullList(v reflect.Value, path string) string {
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		return ""
	}
	switch v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			return path
		}
		for i := range v.Len() {
			if bad := nullList(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); bad != "" {
				return bad
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if bad := nullList(v.Field(i), path+"."+v.Type().Field(i).Name); bad != "" {
				return bad
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return nullList(v.Elem(), path)
		}
	}
	return ""
}

func TestEveryVerbExplainsItself(t *testing.T) {
	verbs(newRoot(newProgram(nil, nil, nil, nil)), func(cmd *cobra.Command) {
		switch {
		case cmd.Short == "":
			t.Errorf("%s has no short text", cmd.CommandPath())
		case cmd.HasParent() && cmd.Example == "" && cmd.Name() != "exit-codes":
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
			if len(line) > 120 {
				t.Errorf("%s: a line of %d columns", cmd.CommandPath(), len(line))
			}
		}
	})
}

func TestNoFlagTakesASecret(t *testing.T) {
	verbs(newRoot(newProgram(nil, nil, nil, nil)), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, word := range []string{"token", "password", "secret", "passphrase", "credential"} {
				if strings.Contains(f.Name, word) && !strings.HasSuffix(f.Name, "-file") {
					t.Errorf("%s --%s: a secret on the command line is seen by everyone", cmd.CommandPath(), f.Name)
				}
			}
		})
	})
}

func TestExitCodesFollowTheKind(t *testing.T) {
	problem := func(kind fault.Kind, code string) error {
		return fmt.Errorf("around: %w", &house.Problem{Kind: kind, Code: code, What: "x"})
	}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"nothing":     {nil, 0},
		"plain":       {errors.New("x"), 1},
		"internal":    {problem(fault.Internal, "x"), 1},
		"invalid":     {problem(fault.Invalid, "x"), 2},
		"not found":   {problem(fault.NotFound, "x"), 3},
		"denied":      {problem(fault.Denied, "x"), 4},
		"conflict":    {problem(fault.Conflict, "x"), 5},
		"timeout":     {problem(fault.Timeout, "x"), 6},
		"unavailable": {problem(fault.Unavailable, "x"), 7},
		"limit":       {problem(fault.Limit, "x"), 7},
		"partly":      {problem(fault.Internal, codePartly), 8},
		"interrupted": {problem(fault.Unavailable, codeInterrupted), 130},
		"a fault":     {fault.New(fault.NotFound, "x", "y"), 3},
		"a deadline":  {fmt.Errorf("x: %w", context.DeadlineExceeded), 6},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	seen := map[int]bool{}
	for _, row := range exitCodes() {
		if seen[row.Code] {
			t.Errorf("%d is explained twice", row.Code)
		}
		seen[row.Code] = true
	}
}

func TestCodesOfCallsHaveTheirKind(t *testing.T) {
	for code, want := range map[string]fault.Kind{
		wire.CodeFunctionNotFound: fault.NotFound, wire.CodeNotFound: fault.NotFound,
		wire.CodeForbidden: fault.Denied,
		wire.CodeTimeout:   fault.Timeout, wire.CodeInvocationTimeout: fault.Timeout,
		wire.CodeHostOverloaded: fault.Limit, wire.CodeDraining: fault.Unavailable,
		wire.CodeInvocationStopped: fault.Unavailable, wire.CodeMessageTooLarge: fault.Limit,
		wire.CodeWorkerConflict: fault.Conflict, worker.CodeInvalidJSON: fault.Invalid,
		wire.CodeInvocationFailed: fault.Internal, wire.CodeOutcomeUnknown: fault.Internal,
		"NO_MONEY": fault.Internal,
	} {
		if got := kindOfCode(code); got != want {
			t.Errorf("%s: got %v, want %v", code, got, want)
		}
	}
}

func TestInterruptedCallLeavesWith130(t *testing.T) {
	url := serving(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	var errOut bytes.Buffer
	p := newProgram(strings.NewReader(""), io.Discard, &errOut, []string{"PLINTH_URL=" + url})
	cancel(house.Interrupted{Signal: os.Interrupt})
	if code := p.run(ctx, []string{"call", "hello::hang"}); code != exitInterrupted {
		t.Errorf("left with %d: %s", code, errOut.String())
	}
	if !strings.Contains(errOut.String(), "interrupt") {
		t.Errorf("said %q", errOut.String())
	}
}

func TestTraceIDOfAFailureIsTheOneThatTheFunctionSaw(t *testing.T) {
	url := serving(t)
	var errOut bytes.Buffer
	p := newProgram(strings.NewReader(""), io.Discard, &errOut, []string{"PLINTH_URL=" + url})
	if code := p.run(t.Context(), []string{"call", "hello::trace", "--json"}); code != exitFailed {
		t.Errorf("left with %d", code)
	}
	var told problem
	if err := json.Unmarshal(errOut.Bytes(), &told); err != nil {
		t.Fatal(err)
	}
	if len(told.TraceID) != 32 || !strings.HasPrefix(told.Why, "00-"+told.TraceID+"-") {
		t.Errorf("told %s, the function saw %q", told.TraceID, told.Why)
	}
}

func TestVoidCallArrivesThoughNobodyWaits(t *testing.T) {
	url := serving(t)
	arrived := make(chan string, 1)
	w, err := worker.New(url, worker.Options{Name: "listener", Grace: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Register("listener::hear", func(_ context.Context, in []byte) ([]byte, error) {
		arrived <- string(in)
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if err := w.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		p := newProgram(strings.NewReader(""), io.Discard, io.Discard, []string{"PLINTH_URL=" + url})
		if code := p.run(t.Context(), []string{"call", "listener::hear", "--void", fmt.Sprintf("n=%d",
			i)}); code != exitDone {
			t.Fatalf("left with %d", code)
		}
		if got, want := <-arrived, fmt.Sprintf(`{"n":%d}`, i); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// refusing fails every write, as a full disk or a closed pipe does.
type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestResultThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"help", "exit-codes"}, {"config"},
		{"config", "--json=lines"}, {"completion", "bash"}} {
		var errOut bytes.Buffer
		p := newProgram(strings.NewReader(""), refusing{}, &errOut, nil)
		if code := p.run(t.Context(), args); code != exitFailed || !strings.Contains(errOut.String(), "no room") {
			t.Errorf("%v: left with %d: %s", args, code, errOut.String())
		}
	}
}

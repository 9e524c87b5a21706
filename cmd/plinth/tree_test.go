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
		"plinth serve":             here,
		"plinth call":              {"hello::echo", `a=[1]`},
		"plinth functions":         {},
		"plinth functions list":    {},
		"plinth functions info":    {"hello::greet"},
		"plinth functions add":     {"hook::send", "--endpoint", "https://example.org/hook"},
		"plinth functions remove":  {"hook::send", "--dry-run"},
		"plinth triggers":          {},
		"plinth triggers list":     {},
		"plinth triggers info":     {"TRIGGER"},
		"plinth triggers types":    {"--internal"},
		"plinth key":               {},
		"plinth key list":          {},
		"plinth key create":        {"FRESH", "--scope", "engine:call:fresh::"},
		"plinth key info":          {"sample"},
		"plinth key revoke":        {"sample", "--dry-run"},
		"plinth user":              {},
		"plinth user list":         {},
		"plinth user info":         {"ann"},
		"plinth user create":       {"bob", "--dry-run"},
		"plinth user change":       {"ann", "--email", "ann@example.org"},
		"plinth user password":     {"ann", "--password-file", "PASSWORD"},
		"plinth user remove":       {"ann", "--dry-run"},
		"plinth user totp start":   {"ann"},
		"plinth user totp confirm": {"ann", "--code-file", "-"},
		"plinth user totp remove":  {"ann", "--dry-run"},
		"plinth login":             {"ann", "--password-file", "PASSWORD", "--context", "kept"},
		"plinth logout":            {"--context", "kept"},
		"plinth admin claim-token": {},
		"plinth admin claim":       {"--name", "ann", "--password-file", "PASSWORD"},
		"plinth admin bootstrap":   {"--name", "ann", "--password-file", "PASSWORD"},
		"plinth admin status":      {},
		"plinth audit":             {},
		"plinth audit list":        {"--action", "key"},
		"plinth context":           {},
		"plinth context list":      {},
		"plinth context add":       {"prod", "--url", "wss://plinth.example.org:49134"},
		"plinth context use":       {"none"},
		"plinth context show":      {},
		"plinth context remove":    {"kept"},
		"plinth backup create":     {"RESTORED"},
		"plinth backup verify":     {"BACKUP"},
		"plinth backup restore":    {"BACKUP", "RESTORED"},
		"plinth hash-password":     {"--password-file", "PASSWORD"},
		"plinth workers":           {},
		"plinth workers list":      {},
		"plinth workers info":      {"greeter"},
		"plinth config":            {},
		"plinth config validate":   {},
		"plinth config schema":     {},
		"plinth doctor":            here,
		"plinth bench":             {"--list"},
		"plinth version":           {},
		"plinth help exit-codes":   {},
	}
}

// running is a `plinth serve` in this process.
type running struct{ url, admin, data string }

// environ is what verbs are given to find it.
func (s running) environ(home string) []string {
	return []string{"PLINTH_URL=" + s.url, "PLINTH_ADMIN=" + s.admin, "PLINTH_DATA=" + s.data, "HOME=" + home}
}

// serve runs a server until the test ends.
func serve(t *testing.T) running {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		p := newProgram(strings.NewReader(""), write, io.Discard, nil)
		code := p.run(ctx, []string{"serve", "--json", "--engine-listen", "127.0.0.1:0", "--admin-listen",
			"127.0.0.1:0", "--data", data})
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
	return running{b.Workers, b.Admin, data}
}

// serving runs a server with a worker, and gives the URL of the engine.
func serving(t *testing.T) string {
	t.Helper()
	s := serve(t)
	stop, err := demo(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s.url
}

// do runs a verb that must succeed, and gives what it printed.
func (s running) do(t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	p := newProgram(strings.NewReader("correct horse battery"), &out, &errOut, s.environ(t.TempDir()))
	if code := p.run(t.Context(), args); code != exitDone {
		t.Fatalf("%v left with %d: %s", args, code, errOut.String())
	}
	return out.String()
}

// furnished is a server with one of everything that verbs look at, and what stands for the words in samples.
func furnished(t *testing.T) (s running, words map[string]string) {
	t.Helper()
	s = serve(t)
	s.do(t, "admin", "claim", "--name", "ann", "--password-file", "-")
	s.do(t, "key", "create", "sample", "--scope", "engine:call:x::")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	s.do(t, "backup", "create", backup)
	var made struct{ ID string }
	bound := s.do(t, "call", "engine::register_trigger", "trigger_type=hook", "function_id=hello::echo")
	if err := json.Unmarshal([]byte(bound), &made); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(s.data, "auth", "local.token"))
	if err != nil {
		t.Fatal(err)
	}
	u := strings.Replace(s.url, "ws://", "ws://test:"+strings.TrimSpace(string(token))+"@", 1)
	stop, err := demo(u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s, map[string]string{"PASSWORD": secret, "BACKUP": backup, "TRIGGER": made.ID}
}

func TestEveryVerbPrintsJSON(t *testing.T) {
	here, words := furnished(t)
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
			if !cmd.HasSubCommands() {
				t.Errorf("%s has no sample arguments", path)
			}
			return
		}
		if path == "plinth user totp start" || path == "plinth user totp confirm" {
			return // for the account itself: see TestOneTimeCodesAreSetUpAndThenAskedFor
		}
		if path == "plinth bench" {
			what.shape = nil // of the list of scenarios; the session bench.txtar measures
		}
		for _, mode := range []string{"--json", "--json=lines"} {
			t.Run(strings.ReplaceAll(path, " ", "_")+mode, func(t *testing.T) {
				at := here
				if path == "plinth admin claim" || path == "plinth admin claim-token" {
					at = serve(t) // of those, each server takes one
				}
				words["FRESH"], words["RESTORED"] = "fresh"+strings.Trim(mode, "-"), filepath.Join(t.TempDir(), "new")
				line := append(strings.Fields(path)[1:], args...)
				for i, w := range line {
					if word, ok := words[w]; ok {
						line[i] = word
					}
				}
				out := runOnce(t, at, append(line, mode))
				judge(t, what, mode, out)
			})
		}
	})
}

// runOnce runs a verb and ends it after its first output, as serve goes on for ever.
func runOnce(t *testing.T, s running, args []string) []byte {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut bytes.Buffer
	var w io.Writer = &out
	if args[0] == "serve" {
		w = after{&out, cancel}
	}
	home, environ := t.TempDir(), []string(nil)
	if args[0] != "serve" && args[0] != "doctor" { // those have a folder of their own
		environ = s.environ(home)
	}
	keeper := newProgram(strings.NewReader(""), io.Discard, io.Discard, []string{"HOME=" + home})
	if err := keeper.keepContexts(&contextFile{Contexts: map[string]*namedDoor{
		"kept": {URL: s.url, Admin: s.admin}}}); err != nil {
		t.Fatal(err)
	}
	p := newProgram(strings.NewReader(""), w, &errOut, environ)
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

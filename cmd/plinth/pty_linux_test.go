package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal of 100 columns.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// inTerminal runs the program with some of its streams on a terminal ("out", "err", both) and the others
// on pipes. It gives what came out of each; the terminal is under "tty".
func inTerminal(t *testing.T, streams, environ, args []string) map[string]string {
	t.Helper()
	path, err := exec.LookPath("plinth")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := openTerminal(t)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains([]string{"CI", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"}, name) ||
			strings.HasPrefix(name, "PLINTH_")
	})
	cmd.Env = append(append(cmd.Env, "TERM=xterm"), environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Stdin = theirs
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if slices.Contains(streams, "out") {
		cmd.Stdout = theirs
	}
	if slices.Contains(streams, "err") {
		cmd.Stderr = theirs
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close() // the child has its own
	var screen bytes.Buffer
	if _, err := io.Copy(&screen, ours); err != nil && !errors.Is(err, unix.EIO) { // EIO: the child is gone
		t.Fatal(err)
	}
	_ = cmd.Wait() // its output tells whether it did what it should
	return map[string]string{"tty": screen.String(), "out": out.String(), "err": errOut.String()}
}

func TestTerminalIsColouredUnlessToldOtherwise(t *testing.T) {
	const colour = "\x1b["
	for _, c := range []struct {
		environ []string
		flags   []string
		want    bool
	}{
		{nil, nil, true},
		{[]string{"TERM=dumb"}, nil, false},
		{[]string{"NO_COLOR=1"}, nil, false},
		{[]string{"CI=true"}, nil, false},
		{[]string{"CLICOLOR=0"}, nil, false},
		{[]string{"TERM=dumb", "CLICOLOR_FORCE=1"}, nil, true},
		{nil, []string{"--color=never"}, false},
		{[]string{"NO_COLOR=1"}, []string{"--color=always"}, true},
	} {
		got := inTerminal(t, []string{"out", "err"}, c.environ, append([]string{"help", "exit-codes"}, c.flags...))
		if !strings.Contains(got["tty"], "not allowed") || strings.Contains(got["tty"], colour) != c.want {
			t.Errorf("%v %v: got %q", c.environ, c.flags, got["tty"])
		}
	}
}

func TestEachStreamIsJudgedByItself(t *testing.T) {
	const colour = "\x1b["
	got := inTerminal(t, []string{"out"}, nil, []string{"serv"})
	if strings.Contains(got["err"], colour) || !strings.HasPrefix(got["err"], "error: ") || got["tty"] != "" {
		t.Errorf("errors on a pipe: %q, terminal %q", got["err"], got["tty"])
	}
	got = inTerminal(t, []string{"err"}, nil, []string{"serv"})
	if !strings.Contains(got["tty"], colour) || got["out"] != "" {
		t.Errorf("errors on a terminal: %q, out %q", got["tty"], got["out"])
	}
	got = inTerminal(t, []string{"err"}, nil, []string{"help", "exit-codes"})
	if strings.Contains(got["out"], colour) || got["tty"] != "" || !strings.HasPrefix(got["out"], "CODE") {
		t.Errorf("result on a pipe: %q, terminal %q", got["out"], got["tty"])
	}
}

func TestJSONIsIndentedInATerminalOnly(t *testing.T) {
	url := "PLINTH_URL=" + serving(t)
	args := []string{"call", "hello::echo", "a.b=1"}
	got := inTerminal(t, []string{"out", "err"}, []string{url}, args)
	if want := "{\r\n  \"a\": {\r\n    \"b\": 1\r\n  }\r\n}\r\n"; got["tty"] != want {
		t.Errorf("terminal: got %q", got["tty"])
	}
	got = inTerminal(t, []string{"err"}, []string{url}, args)
	if want := "{\"a\":{\"b\":1}}\n"; got["out"] != want {
		t.Errorf("pipe: got %q", got["out"])
	}
	got = inTerminal(t, []string{"out", "err"}, []string{url}, []string{"functions", "list"})
	for line := range strings.Lines(got["tty"]) {
		if n := len([]rune(strings.TrimSpace(line))); n > 100+len("\x1b[1m\x1b[0m")*4 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
}

func TestProgressIsABarInATerminalOnly(t *testing.T) {
	args := []string{"bench", "calls", "--quick", "--step", "300ms", "--in-flight", "1", "--out", ""}
	got := inTerminal(t, []string{"err"}, nil, args)
	if !strings.Contains(got["tty"], "\x1b[") || !strings.Contains(got["tty"], "[1/1] calls") {
		t.Errorf("no bar in %q", got["tty"])
	}
	if strings.Contains(got["out"], "\x1b") || !strings.Contains(got["out"], "in flight") {
		t.Errorf("the result is %q", got["out"])
	}
	got = inTerminal(t, []string{"out"}, nil, args)
	if strings.Contains(got["err"], "\x1b") || !strings.Contains(got["err"], ", done\n") {
		t.Errorf("not plain: %q", got["err"])
	}
	got = inTerminal(t, []string{"out", "err"}, []string{"CI=1"}, args)
	if strings.Contains(got["tty"], "\x1b") {
		t.Errorf("a bar in a CI log: %q", got["tty"])
	}
}

func TestNothingAsksInATerminal(t *testing.T) {
	got := inTerminal(t, []string{"out", "err"}, nil, []string{"call", "hello::greet", "--url", "ws://127.0.0.1:1"})
	if !strings.Contains(got["tty"], "connection refused") {
		t.Errorf("got %q", got["tty"])
	}
}

func TestCompletionInAShellWithTerminal(t *testing.T) {
	url := "PLINTH_URL=" + serving(t)
	home := "HOME=" + t.TempDir()
	got := inTerminal(t, []string{"out", "err"}, []string{url, home}, []string{"__complete", "call", "hello::g"})
	if !strings.Contains(got["tty"], "hello::greet\tgreets a person") {
		t.Errorf("got %q", got["tty"])
	}
	got = inTerminal(t, []string{"out"}, []string{"PLINTH_URL=ws://127.0.0.1:1", "XDG_CACHE_HOME=/nowhere"},
		[]string{"__complete", "call", ""})
	if strings.Contains(got["tty"]+got["err"], "refused") || strings.Contains(got["tty"], "::") {
		t.Errorf("a failure was told: %q, %q", got["tty"], got["err"])
	}
}

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// say is what a person types when a question is on the screen.
type say struct {
	question string
	answer   string
	hidden   bool // once the terminal shows nothing of what is typed
}

// converse runs the program in a terminal and answers its questions. It gives the exit code, what was on the
// screen, and whether the terminal shows again what is typed.
func converse(t *testing.T, environ, args []string, talk ...say) (code int, screen string, echo bool) {
	t.Helper()
	path, err := exec.LookPath("plinth")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := openTerminal(t)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append([]string{"TERM=xterm", "HOME=" + t.TempDir()}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	chunk := make([]byte, 4096)
	read := func() bool {
		n, err := ours.Read(chunk)
		seen.Write(chunk[:n])
		if err != nil && !errors.Is(err, unix.EIO) && !errors.Is(err, io.EOF) { // EIO: the child is gone
			t.Fatal(err)
		}
		return err == nil
	}
	from := 0
	for _, s := range talk {
		for !strings.Contains(seen.String()[from:], s.question) {
			if !read() {
				t.Fatalf("no %q in %q", s.question, seen.String())
			}
		}
		from = seen.Len()
		for tick := time.NewTicker(time.Millisecond); s.hidden && echoes(t, ours); <-tick.C {
		}
		if _, err := io.WriteString(ours, s.answer); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { // ends with the child
		_ = cmd.Wait() // its state is read from ProcessState
		echo = echoes(t, ours)
		_ = theirs.Close() // held open until here, for its settings
		close(done)
	}()
	for read() {
	}
	<-done
	return cmd.ProcessState.ExitCode(), seen.String(), echo
}

// echoes reports whether a terminal shows what is typed.
func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Error(err)
		return false
	}
	return settings.Lflag&unix.ECHO != 0
}

func TestPasswordIsAskedForTwiceAndNeverShown(t *testing.T) {
	const password = "correct horse battery"
	code, screen, echo := converse(t, nil, []string{"hash-password"},
		say{"Password: ", password + "\n", true}, say{"Again: ", password + "\n", true})
	if code != exitDone || !echo || !strings.Contains(screen, "$argon2id$") ||
		strings.Contains(screen, "horse") {
		t.Errorf("left with %d, echo %t: %q", code, echo, screen)
	}
	code, screen, echo = converse(t, nil, []string{"hash-password"},
		say{"Password: ", password + "\n", true}, say{"Again: ", "another\n", true})
	if code != exitUsage || !echo || !strings.Contains(screen, "the two differ") ||
		strings.Contains(screen, "another\r") {
		t.Errorf("left with %d, echo %t: %q", code, echo, screen)
	}
}

func TestInterruptedPromptLeavesTheTerminalAsItWas(t *testing.T) {
	code, screen, echo := converse(t, nil, []string{"hash-password"}, say{"Password: ", "\x03", true})
	if code != exitInterrupted || !echo {
		t.Errorf("left with %d, echo %t: %q", code, echo, screen)
	}
}

func TestFirstAccountIsMadeAtTheTerminal(t *testing.T) {
	s := serve(t)
	token := strings.TrimSpace(s.do(t, "admin", "claim-token"))
	environ := []string{"PLINTH_URL=" + s.url, "PLINTH_ADMIN=" + s.admin, "PLINTH_DATA=" + t.TempDir()}
	code, screen, _ := converse(t, environ,
		[]string{"admin", "claim", "--name", "ann"}, say{"Claim token: ", token + "\n", true},
		say{"Password: ", "correct horse battery\n", true}, say{"Again: ", "correct horse battery\n", true})
	if code != exitDone || !strings.Contains(screen, "account ann is made") ||
		strings.Contains(screen, token) || strings.Contains(screen, "horse") {
		t.Errorf("left with %d: %q", code, screen)
	}
}

func TestWhatCannotBeUndoneIsAskedForAtTheTerminal(t *testing.T) {
	s := serve(t)
	s.do(t, "admin", "claim", "--name", "ann", "--password-file", "-")
	s.do(t, "key", "create", "k", "--scope", "engine:read")
	environ := s.environ(t.TempDir())
	for _, answer := range []string{"\n", "no\n", "y\n"} {
		code, screen, _ := converse(t, environ, []string{"key", "revoke", "k"}, say{"Type yes: ", answer, false})
		if code != exitFailed || !strings.Contains(screen, "nothing was done") {
			t.Errorf("%q: left with %d: %q", answer, code, screen)
		}
	}
	if out := s.do(t, "key", "list", "--json"); !strings.Contains(out, `"status":"active"`) {
		t.Errorf("got %s", out)
	}
	code, screen, _ := converse(t, environ, []string{"key", "revoke", "k"}, say{"Type yes: ", "Yes\n", false})
	if code != exitDone {
		t.Errorf("left with %d: %q", code, screen)
	}
	if out := s.do(t, "key", "list", "--json"); !strings.Contains(out, `"status":"revoked"`) {
		t.Errorf("got %s", out)
	}
	code, screen, _ = converse(t, environ, []string{"user", "remove", "bob", "--yes"})
	if code != exitNotFound {
		t.Errorf("left with %d: %q", code, screen)
	}
}

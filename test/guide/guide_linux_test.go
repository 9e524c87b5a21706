// Package guide_test runs the commands of the guides as a reader would, in one shell each, against a built
// plinth: blocks of kind sh must succeed, and blocks of kind console must print what they show, where …
// stands for anything. Blocks of another kind are files that a line before them names, or are for the eye.
package guide_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guidePort is the address that the guides give their second listener.
const guidePort = "127.0.0.1:49135"

// patience bounds one command.
const patience = 90 * time.Second

func TestGuidesRunAsWritten(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "plinth")
	build := exec.Command("go", "build", "-o", bin, "github.com/plinth-run/plinth/cmd/plinth")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, name := range []string{"keys", "rbac"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../docs/guides", name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, filepath.Dir(bin))
			steps := parse(string(text))
			if len(steps) < 5 {
				t.Fatalf("found %d steps", len(steps))
			}
			for _, step := range steps {
				s.take(step)
				if t.Failed() {
					break
				}
			}
		})
	}
}

// step is one command of a guide, or a file that it shows.
type step struct {
	line    int
	command string
	output  []string // what a console block shows; nil: anything, but the command must succeed
	file    string   // a file to write, in place of a command
	text    string
}

var named = regexp.MustCompile("Save (?:this|it) as `([a-z./-]+)`")

// parse takes the steps out of a page.
func parse(page string) (steps []step) {
	kind, file := "", ""
	var text strings.Builder
	begin := 0
	for i, line := range strings.Split(page, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && kind == "":
			kind, begin = fence+" ", i+2
			text.Reset()
		case isFence:
			switch strings.TrimSpace(kind) {
			case "sh":
				steps = append(steps, step{line: begin, command: text.String()})
			case "console":
				steps = append(steps, console(text.String(), begin)...)
			default:
				if file != "" {
					steps = append(steps, step{line: begin, file: file, text: text.String()})
				}
			}
			kind, file = "", ""
		case kind != "":
			text.WriteString(line + "\n")
		default:
			if m := named.FindStringSubmatch(line); m != nil {
				file = m[1]
			}
		}
	}
	return steps
}

func console(text string, line int) (steps []step) {
	for i, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if c, ok := strings.CutPrefix(l, "$ "); ok {
			steps = append(steps, step{line: line + i, command: c, output: []string{}})
		} else if len(steps) > 0 {
			last := &steps[len(steps)-1]
			last.output = append(last.output, l)
		}
	}
	return steps
}

// shell is one sh that runs the commands of a guide, with everything that they start.
type shell struct {
	t   *testing.T
	dir string
	in  io.WriteCloser
	out *bufio.Reader
	end *os.File // what out reads

	public string // stands for the address of the guides' second listener
}

func open(t *testing.T, bin string) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	work := "go 1.26.0\n\nuse " + mustAbs(t, "../..") + "\n" // the examples are run by their import path
	if err := os.WriteFile(filepath.Join(s.dir, "go.work"), []byte(work), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-u")
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	workers, admin, public := free(t), free(t), free(t)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PLINTH_") || strings.HasPrefix(v, "III_") || strings.HasPrefix(v, "PATH=")
	}), "PATH="+bin+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+t.TempDir(), "PLINTH_URL=ws://"+workers,
		"PLINTH_ENGINE_LISTEN="+workers, "PLINTH_ADMIN_LISTEN="+admin, "PLINTH_ADMIN=http://"+admin)
	s.public = public
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	s.in, s.out, s.end = in, bufio.NewReader(r), r
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // the group may be gone already
		in.Close()
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		r.Close()
	})
	return s
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// free finds a port that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// take does one step.
func (s *shell) take(p step) {
	s.t.Helper()
	if p.file != "" {
		if err := os.WriteFile(filepath.Join(s.dir, p.file), []byte(strings.ReplaceAll(p.text, guidePort,
			s.public)),
			0o600); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	got, status := s.run(strings.ReplaceAll(p.command, guidePort, s.public))
	if p.output == nil {
		if status != "0" {
			s.t.Errorf("line %d: %s\nended with %s and printed\n%s", p.line, p.command, status, got)
		}
		return
	}
	var pattern strings.Builder
	for _, l := range p.output {
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(l), "…", ".*") + "\n")
	}
	want := regexp.MustCompile(`^(?s:` + strings.TrimRight(pattern.String(), "\n") + `)\n*$`)
	if !want.MatchString(got) {
		s.t.Errorf("line %d: %s\nprinted\n%s\nand the guide shows\n%s", p.line, p.command, got,
			strings.Join(p.output, "\n"))
	}
}

// run runs a command and returns what it printed and its exit code.
func (s *shell) run(command string) (output, status string) {
	s.t.Helper()
	const mark = "@@@ended "
	if _, err := fmt.Fprintf(s.in, "{ %s\n}\necho \"%s$?\"\n", strings.TrimSuffix(command, "\n"),
		mark); err != nil {
		s.t.Fatal(err)
	}
	if err := s.end.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s\ndid not end; it printed\n%s", command, b.String())
		}
		if before, code, ok := strings.Cut(line, mark); ok {
			b.WriteString(before)
			return b.String(), strings.TrimSpace(code)
		}
		b.WriteString(line)
	}
}

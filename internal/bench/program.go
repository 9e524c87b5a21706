package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Program is a server that can be measured: one to start, or with Target one that runs already.
type Program struct {
	Name string   `json:"name"`
	Path string   `json:"path,omitempty"`
	Args []string `json:"args,omitempty"` // "{data}" stands for a new, empty folder
	Env  []string `json:"env,omitempty"`  // "{free}" stands for a free address, one for the whole program
	// MemoryFlag caps the memory where no control group can be had; the number of bytes follows it.
	MemoryFlag string `json:"memory_flag,omitempty"`
	Dialect    string `json:"dialect,omitempty"` // none: frames
	Target     string `json:"target,omitempty"`  // ws://host:port; its cost cannot be read
}

// Engine is the program that a Plinth executable is when it serves.
func Engine(path string) Program {
	return Program{
		Name: "plinth",
		Path: path,
		Args: []string{
			"serve", "--json", "--data", "{data}",
			"--engine-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		},
		MemoryFlag: "--memory",
	}
}

// How long a server may take to say where it listens, and to end.
const (
	bannerTime = 20 * time.Second
	graceTime  = 3 * time.Second
)

// server is a program that runs. Its owner calls stop.
type server struct {
	child   *proc.Child // nil: it runs elsewhere
	address string
	admin   string // host:port; "": it told none
	free    string // what "{free}" stood for; "": nothing
	folder  string
	stderr  *tail
	note    string // what could not be had as asked
}

// pid returns 0 for a server that this process did not start.
func (s *server) pid() int {
	if s.child == nil {
		return 0
	}
	return s.child.PID()
}

// site is where the server can be reached.
func (s *server) site() Site {
	return Site{Workers: s.address, Admin: s.admin, Free: s.free, Folder: s.folder}
}

// launch starts a program on the given processors, under a cap of memory if that is not 0, and waits
// until it says where it listens.
func launch(ctx context.Context, p Program, cpus []int, memory int64) (*server, error) {
	if p.Target != "" {
		return &server{address: p.Target, note: "a running server: its cost is unknown"}, nil
	}
	folder, err := os.MkdirTemp("", "plinth-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a data folder: %w", err)
	}
	s := &server{folder: folder, stderr: &tail{}}
	if err := s.start(ctx, p, cpus, memory); err != nil {
		s.stop()
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return s, nil
}

func (s *server) start(ctx context.Context, p Program, cpus []int, memory int64) error {
	path, err := exec.LookPath(p.Path)
	if err == nil {
		path, err = filepath.Abs(path) // it will run in another folder
	}
	if err != nil {
		return err
	}
	env, err := s.environ(p.Env)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	c := proc.Command{
		Path: path, Env: env, CPUs: cpus, Memory: memory, Stdout: w, Stderr: s.stderr,
		// Neither a file nor a variable of whoever runs this may change what is measured.
		Folder: s.folder, Without: "PLINTH_",
	}
	for _, a := range p.Args {
		c.Args = append(c.Args, strings.ReplaceAll(a, "{data}", s.folder))
	}
	s.child, err = startCapped(c, p.MemoryFlag, &s.note)
	_ = w.Close() // the child has its own
	if err != nil {
		_ = r.Close()
		return err
	}
	found := make(chan banner, 1)
	go readBanner(r, found) // ends with the child's standard output
	timer := time.NewTimer(bannerTime)
	defer timer.Stop()
	select {
	case b, ok := <-found:
		if !ok {
			s.child.Stop(graceTime)
			return fmt.Errorf("it ended before it said where it listens: %w%s", s.child.Err(), s.stderr.quote())
		}
		s.address, s.admin = b.Workers, b.Admin
		return nil
	case <-timer.C:
		return fmt.Errorf("it has not said where it listens within %v%s", bannerTime, s.stderr.quote())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// environ fills in a free address where one is asked for. Somebody else may take it before the program does,
// which then fails to start.
func (s *server) environ(env []string) ([]string, error) {
	const mark = "{free}"
	if !slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, mark) }) {
		return env, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free address: %w", err)
	}
	s.free = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free address: %w", err)
	}
	filled := slices.Clone(env)
	for i := range filled {
		filled[i] = strings.ReplaceAll(filled[i], mark, s.free)
	}
	return filled, nil
}

// startCapped starts under a control group, or with the program's own flag where there can be none.
func startCapped(c proc.Command, flag string, note *string) (*proc.Child, error) {
	child, err := proc.Start(c)
	if err == nil || c.Memory == 0 || !isUnsupported(err) {
		return child, err
	}
	if flag == "" {
		return nil, err
	}
	*note = fmt.Sprintf("no control group can be had here: capped by %s alone", flag)
	c.Args = append(c.Args, flag, fmt.Sprint(c.Memory))
	c.Memory = 0
	return proc.Start(c)
}

// stop ends the server, waits for it and removes its folder.
func (s *server) stop() {
	if s.child != nil {
		s.child.Stop(graceTime)
	}
	if s.folder != "" {
		_ = os.RemoveAll(s.folder) // in the folder for temporary files, at worst
	}
}

// banner is what a server tells of itself, as host:port each.
type banner struct {
	Workers string `json:"workers"`
	Admin   string `json:"admin"`
}

// readBanner sends the first banner that a line of r tells, and closes found at the end of r.
func readBanner(r io.ReadCloser, found chan<- banner) {
	defer r.Close()
	defer close(found)
	lines := bufio.NewReaderSize(r, 64<<10)
	told := false
	for {
		line, err := lines.ReadSlice('\n')
		if !told {
			if b, ok := parseBanner(line); ok {
				found <- b
				told = true
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// parseBanner reads {"workers":"host:port or URL"}; other members may stand beside, and "admin" is read.
func parseBanner(line []byte) (b banner, ok bool) {
	if json.Unmarshal(line, &b) != nil {
		return b, false
	}
	b.Workers, ok = hostPort(b.Workers)
	b.Admin, _ = hostPort(b.Admin)
	return b, ok
}

func hostPort(address string) (string, bool) {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", false
	}
	return address, true
}

// tail keeps the end of what a program says to standard error. Its methods may be called at once.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if len(t.b) > 2*tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	return len(b), nil
}

// quote returns what was said, for the end of an error message.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.b))
	if s == "" {
		return ""
	}
	return "; it said: " + s
}

package npm_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait for another process. The race detector and two busy cores are slow.
const patience = 60 * time.Second

// built is the program under test, built once for all tests of the package.
var built = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("TEST_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	dir, err := os.MkdirTemp("", "plinth-npm-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "plinth")
	args := []string{"build", "-o", bin}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/plinth-run/plinth/cmd/plinth")...)
	if out, err := build.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build plinth: %w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("TEST_BIN") == "" {
		if bin, err := built(); err == nil {
			os.RemoveAll(filepath.Dir(bin))
		}
	}
	os.Exit(code)
}

// need returns the program under test, or skips where there is no Node and nobody insists.
func need(t *testing.T) string {
	t.Helper()
	missing := ""
	if _, err := exec.LookPath("node"); err != nil {
		missing = "no node here"
	}
	for _, dir := range []string{".", "../../examples/hello-node"} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules/iii-sdk/package.json")); err != nil {
			missing = "the npm packages are not installed: npm ci in test/npm and examples/hello-node"
		}
	}
	if missing != "" {
		if os.Getenv("TEST_NPM") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// engine is one `plinth serve`. Its address outlives a restart.
type engine struct {
	bin  string
	env  []string
	data string

	workers, admin string // host:port, fixed after the first start
	cmd            *exec.Cmd
	gone           chan struct{} // closed when the process has ended and its output is read
	log            *tail
}

// banner is what `plinth serve --json` prints first.
type banner struct {
	Admin   string `json:"admin"`
	Workers string `json:"workers"`
}

func serve(t *testing.T, bin string, env ...string) *engine {
	t.Helper()
	e := &engine{bin: bin, env: env, data: filepath.Join(t.TempDir(), "data"), log: &tail{},
		workers: "127.0.0.1:0", admin: "127.0.0.1:0"}
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the engine said:\n%s", e.log)
		}
		if s := e.log.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") {
			t.Errorf("the engine ended badly:\n%s", s)
		}
	})
	return e
}

// start starts the process and waits for its banner. It does not fail the test, for it also runs on
// the goroutine of a lever.
func (e *engine) start() error {
	e.cmd = exec.Command(e.bin, "serve", "--json", "--data", e.data,
		"--engine-listen", e.workers, "--admin-listen", e.admin)
	e.cmd.Env = append(append(os.Environ(), "NO_COLOR=1"), e.env...)
	e.cmd.Stderr = e.log
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := e.cmd.Start(); err != nil {
		return fmt.Errorf("start plinth: %w", err)
	}
	first := make(chan string, 1)
	e.gone = make(chan struct{})
	go func() { // ends with the process
		defer close(e.gone)
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		first <- line
		io.Copy(e.log, r)
		e.cmd.Wait()
	}()
	select {
	case line := <-first:
		var b banner
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			<-e.gone
			return fmt.Errorf("plinth serve printed no banner but %q: %w\n%s", line, err, e.log)
		}
		workers, admin := strings.TrimPrefix(b.Workers, "ws://"), strings.TrimPrefix(b.Admin, "http://")
		if strings.HasSuffix(e.workers, ":0") {
			e.workers, e.admin = workers, admin
		}
		if workers != e.workers || admin != e.admin {
			return fmt.Errorf("plinth listens on %s and %s, not on %s and %s", workers, admin, e.workers, e.admin)
		}
		return nil
	case <-time.After(patience):
		e.cmd.Process.Kill()
		return fmt.Errorf("plinth serve printed no banner within %v\n%s", patience, e.log)
	}
}

// stop ends the process by a signal. SIGTERM must end it in order.
func (e *engine) stop(s os.Signal) error {
	if err := e.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("stop plinth: %w\n%s", err, e.log)
	}
	select {
	case <-e.gone:
	case <-time.After(patience):
		e.cmd.Process.Kill()
		return fmt.Errorf("plinth did not stop within %v of %v", patience, s)
	}
	if code := e.cmd.ProcessState.ExitCode(); s == syscall.SIGTERM && code != 0 {
		return fmt.Errorf("plinth stopped with exit code %d\n%s", code, e.log)
	}
	return nil
}

func (e *engine) again(s os.Signal) error {
	if err := e.stop(s); err != nil {
		return err
	}
	return e.start()
}

// reachable tells whether the worker listener takes connections.
func (e *engine) reachable() error {
	c, err := net.DialTimeout("tcp", e.workers, patience)
	if err == nil {
		err = c.Close()
	}
	return err
}

// tail keeps the last 64 KiB of what is written to it. Any goroutine may write.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	if over := l.b.Len() - 64<<10; over > 0 {
		l.b.Next(over)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/loop"
)

const starving = "PLINTH_LOOP_TEST_STARVING"

// TestWithoutDescriptorsAcceptWaitsAndRecovers runs in a process of its own, whose limit of descriptors it
// lowers.
func TestWithoutDescriptorsAcceptWaitsAndRecovers(t *testing.T) {
	if os.Getenv(starving) != "" {
		starve(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), starving+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// lines is a writer that many may write to and that counts lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func starve(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		log := &lines{}
		cfg.Loops, cfg.Log = 1, slog.New(slog.NewTextHandler(log, nil))
		g := loop.New(cfg)
		addr := serve(t, g, always(&hooks{data: echo}))
		nc := dial(t, addr) // so that all that is made lazily is there
		write(t, nc, "before")
		expect(t, nc, "before")
		var old syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		fill := fillDescriptors(t)
		// One descriptor is left for the client's side, none for the server's.
		last := fill[len(fill)-1]
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		hungry, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer hungry.Close()
		write(t, hungry, "bread")
		until(func() bool { return log.count("cannot accept") == 1 })
		before := g.Stats().Batches
		write(t, nc, "during")
		expect(t, nc, "during")
		var ticks int
		done := make(chan struct{})
		g.Loops()[0].Every(50e6, func() {
			if ticks++; ticks == 6 {
				close(done)
			}
		})
		<-done
		if n := g.Stats().Batches - before; n > 60 {
			t.Errorf("%d batches in 300 ms: the loop spins", n)
		}
		for _, f := range fill[:len(fill)-1] {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		expect(t, hungry, "bread")
		if n := log.count("cannot accept"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// fillDescriptors lowers the limit and opens files until none is left.
func fillDescriptors(t *testing.T) []*os.File {
	t.Helper()
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var fill []*os.File
	for {
		f, err := os.Open("/dev/null")
		if errors.Is(err, syscall.EMFILE) {
			return fill
		}
		if err != nil {
			t.Fatal(fmt.Errorf("fill descriptors: %w", err))
		}
		fill = append(fill, f)
	}
}

func TestAcceptedSocketsDoNotDelaySmallWrites(t *testing.T) {
	g := loop.New(loop.Config{Loops: 2})
	_, c := one(t, g, &hooks{})
	v, err := syscall.GetsockoptInt(c.FD(), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
	if err != nil || v == 0 {
		t.Errorf("TCP_NODELAY is %d, %v", v, err)
	}
}

func TestAConnectionThatIsResetWhilePausedCostsNothing(t *testing.T) {
	g := loop.New(loop.Config{Loops: 1})
	closed := make(chan error, 1)
	nc, c := one(t, g, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
	c.Pause()
	write(t, nc, "unread")
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	before := g.Stats().Batches
	for range 100 {
		on(c.Loop(), func() {})
	}
	if n := g.Stats().Batches - before; n > 250 {
		t.Errorf("%d batches for 100 functions: the loop spins", n)
	}
	if err := nc.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := <-closed; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Closed with %v", err)
	}
}

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// role makes this test binary act as one of the programs that the tests start.
const role = "PLINTH_PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "wait": // until it is asked to end
		c := make(chan os.Signal, 1)
		signal.Notify(c, os.Interrupt, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
	case "deaf": // to every request to end
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "parent": // of another one, which it leaves behind
		k, err := Start(Command{Path: os.Args[0], Env: []string{role + "=wait"}})
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(k.PID())
		<-k.Done()
	case "fail":
		fmt.Fprintln(os.Stderr, "no luck")
		os.Exit(3)
	case "where":
		cpus, err := CPUs()
		fmt.Println(FormatCPUs(cpus), runtime.GOMAXPROCS(0), err)
	case "hog": // takes memory until somebody minds
		var held [][]byte
		for range 1 << 12 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
		}
		fmt.Println(len(held))
	}
}

// start starts this binary in a role, and returns it with its output.
func start(t *testing.T, as string, c Command) (*Child, *bufio.Reader) {
	t.Helper()
	r, w := io.Pipe()
	c.Path, c.Stdout = os.Args[0], w
	// The race detector would keep each child for another second after its end.
	c.Env = []string{role + "=" + as, "GORACE=atexit_sleep_ms=0"}
	k, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the child
		<-k.Done()
		w.Close()
	}()
	t.Cleanup(func() { k.Stop(0); r.Close() })
	return k, bufio.NewReader(r)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q and ended: %v", s, err)
	}
	return strings.TrimSpace(s)
}

// gone tells whether no process has this id any more.
func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	return p.Signal(syscall.Signal(0)) != nil
}

func TestStopEndsAProgramThatListens(t *testing.T) {
	k, out := start(t, "wait", Command{})
	line(t, out)
	k.Stop(time.Minute)
	if !gone(k.PID()) {
		t.Fatalf("process %d is still there", k.PID())
	}
	if err := k.Err(); err != nil {
		t.Fatalf("a stop that was asked for reads as %v", err)
	}
	k.Stop(time.Minute) // again: nothing to do
}

func TestStopKillsAProgramThatDoesNotListen(t *testing.T) {
	in, keep := io.Pipe()
	defer keep.Close()
	k, out := start(t, "deaf", Command{Stdin: in})
	line(t, out)
	stopped := make(chan struct{})
	go func() { k.Stop(time.Millisecond); close(stopped) }()
	// The copy of standard input ends once the pipe does; the process is gone before that.
	for !gone(k.PID()) {
		runtime.Gosched()
	}
	keep.Close()
	<-stopped
}

func TestStopMayBeCalledByManyAtOnce(t *testing.T) {
	k, out := start(t, "wait", Command{})
	line(t, out)
	done := make(chan struct{})
	for range 8 {
		go func() { k.Stop(time.Minute); done <- struct{}{} }()
	}
	for range 8 {
		<-done
	}
	if !gone(k.PID()) {
		t.Fatalf("process %d is still there", k.PID())
	}
}

func TestAProgramThatFailsSaysSo(t *testing.T) {
	var stderr bytes.Buffer
	k, _ := start(t, "fail", Command{Stderr: &stderr})
	if err := k.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("got %v, want exit status 3", err)
	}
	if stderr.String() != "no luck\n" {
		t.Fatalf("standard error: %q", stderr.String())
	}
	if k.Killed() {
		t.Fatal("a plain failure reads as killed by the kernel")
	}
}

func TestAMissingProgramIsAnError(t *testing.T) {
	if _, err := Start(Command{Path: "./no-such-program"}); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v, want one that says it does not exist", err)
	}
}

func TestAPinnedProgramCountsItsOwnProcessorsOnly(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("programs are pinned on Linux only")
	}
	before, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := before[len(before)-1]
	_, out := start(t, "where", Command{CPUs: []int{last}})
	if got, want := line(t, out), fmt.Sprintf("%d 1 <nil>", last); got != want {
		t.Fatalf("the child runs at %q, want %q", got, want)
	}
	after, err := CPUs()
	if err != nil || !slices.Equal(before, after) {
		t.Fatalf("the parent's processors were %v and are %v now, %v", before, after, err)
	}
}

func TestPinningToAProcessorThatIsNotThereIsAnError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("programs are pinned on Linux only")
	}
	k, err := Start(Command{Path: os.Args[0], CPUs: []int{maxCPUs - 1}})
	if err == nil {
		k.Stop(0)
		t.Fatal("the program started")
	}
}

func TestTheKernelStopsAProgramOverItsCapAndWeSaySo(t *testing.T) {
	const limit = 64 << 20
	g, err := newCage(limit)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.remove()
	k, _ := start(t, "hog", Command{Memory: limit})
	if !k.Killed() {
		t.Fatalf("the program took 4 GiB under a cap of 64 MiB and ended with %v", k.Err())
	}
	if k.Err() == nil {
		t.Fatal("being killed reads as a clean exit")
	}
}

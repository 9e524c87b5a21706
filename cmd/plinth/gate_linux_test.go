package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The gates of CL-17: what a start costs before main, and what the smallest verbs hold.
const (
	maxInitTotal   = 7.0       // ms, of all packages
	maxInitPackage = 1.0       // ms, of one
	maxInitHuma    = 1.8       // ms: it compiles its patterns whether an API is asked for or not
	maxInitBytes   = 512 << 10 // allocated before main
	maxRSS         = 16 << 20
)

// executable builds the program as a user would have it.
func executable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plinth")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// smallest are the verbs that must be light.
func smallest() [][]string {
	return [][]string{{"version"}, {"completion", "bash"}, {"__complete", "call", ""}}
}

func TestStartIsLight(t *testing.T) {
	path := executable(t)
	t.Run("init", func(t *testing.T) { lightInit(t, path) })
	for _, args := range smallest() {
		t.Run(args[0], func(t *testing.T) {
			got := peakMemory(t, path, args...)
			t.Logf("%d KiB", got>>10)
			if got > maxRSS {
				t.Errorf("plinth %s holds %d bytes, at most %d", strings.Join(args, " "), got, maxRSS)
			}
		})
	}
}

// lightInit runs the program until every package had one start within its bound: a start that was
// disturbed by others is no fault of ours, and the least of several is what the work really takes.
func lightInit(t *testing.T, path string) {
	least := map[string]float64{}
	var total float64
	var heavy []string
	for range 150 {
		cmd := exec.CommandContext(t.Context(), path, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace bytes.Buffer
		cmd.Stderr = &trace
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		bytesUsed := readTrace(t, trace.String(), least)
		if bytesUsed > maxInitBytes {
			t.Fatalf("packages allocate %d bytes before main, at most %d", bytesUsed, maxInitBytes)
		}
		total, heavy = 0, nil
		for name, ms := range least {
			total += ms
			most := maxInitPackage
			if strings.HasPrefix(name, "github.com/danielgtaylor/huma/") {
				most = maxInitHuma
			}
			if ms > most {
				heavy = append(heavy, fmt.Sprintf("%s %.2f ms", name, ms))
			}
		}
		if total <= maxInitTotal && len(heavy) == 0 {
			t.Logf("%.2f ms, %d bytes", total, bytesUsed)
			return
		}
	}
	t.Errorf("init takes %.2f ms, at most %.1f; packages above %.1f ms: %v", total, maxInitTotal, maxInitPackage, heavy)
}

// readTrace keeps the least time of each package and gives the bytes allocated by all. A line is
// "init os @0.37 ms, 0.02 ms clock, 432 bytes, 9 allocs".
func readTrace(t *testing.T, trace string, least map[string]float64) (bytesUsed int64) {
	t.Helper()
	line := regexp.MustCompile(`^init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes, \d+ allocs$`)
	found := 0
	for text := range strings.Lines(trace) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			continue
		}
		found++
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(m[3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		bytesUsed += n
		if before, ok := least[m[1]]; !ok || ms < before {
			least[m[1]] = ms
		}
	}
	if found < 10 {
		t.Fatalf("no init trace in %q", trace)
	}
	return bytesUsed
}

// peakMemory is the most memory that a run of the program held. The rusage of a child would count its
// parent, from which it was forked, so the child is stopped at its end and asked.
func peakMemory(t *testing.T, path string, args ...string) int64 {
	t.Helper()
	runtime.LockOSThread() // a traced child obeys one thread
	defer runtime.UnlockOSThread()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "PLINTH_URL=ws://127.0.0.1:1", "HOME="+t.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	wait := func() {
		t.Helper()
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
			t.Fatal(err)
		}
	}
	wait() // at exec
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_EXITKILL); err != nil {
		t.Fatal(err)
	}
	var peak int64
	for signal := 0; ; {
		if err := unix.PtraceCont(pid, signal); err != nil {
			t.Fatal(err)
		}
		wait()
		signal = 0
		switch {
		case status.Exited(), status.Signaled():
			if peak == 0 || !status.Exited() || status.ExitStatus() != 0 {
				t.Fatalf("ended with %v, peak %d", status, peak)
			}
			return peak
		case status.TrapCause() == unix.PTRACE_EVENT_EXIT:
			peak = highWater(t, pid)
		case status.Stopped() && status.StopSignal() != unix.SIGTRAP:
			signal = int(status.StopSignal())
		}
	}
}

// highWater reads VmHWM of a process.
func highWater(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := firstNumber(kib)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

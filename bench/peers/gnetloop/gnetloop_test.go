//go:build linux

package gnetloop

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plinth-run/plinth/internal/bench/proc"
)

var (
	rounds = flag.Int("rounds", 1, "rounds over all servers and loads")
	length = flag.Duration("length", 100*time.Millisecond, "time of one measurement")
	only   = flag.String("only", "loop,loop,gnet,goroutine", "servers, by comma; one twice is an A/A control")
)

const message = 64 // bytes

// A shape is a load: conns connections, each with depth messages in flight.
type shape struct{ conns, depth int }

var shapes = []shape{{1, 1}, {64, 1}, {512, 1}, {8, 8}, {8, 64}}

func TestMain(m *testing.M) {
	if name := os.Getenv("GNETLOOP_SERVER"); name != "" {
		if err := serve(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// TestEveryServerEchoesUnderEveryLoad fails when a server loses or spoils a byte, and prints what they cost.
func TestEveryServerEchoesUnderEveryLoad(t *testing.T) {
	cpus, err := proc.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	server, client, _ := proc.Split(cpus, 1)
	if _, err := proc.Raise(4096); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set unix.CPUSet
	for _, n := range client {
		set.Set(n)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	names := strings.Split(*only, ",")
	results := make(map[string][]result)
	for range *rounds {
		for i, name := range names {
			addr, child, stop := start(t, name, server)
			for _, s := range shapes {
				key := fmt.Sprintf("%d %s %v", i, name, s)
				results[key] = append(results[key], drive(t, addr, child.PID(), s))
			}
			stop()
		}
	}
	t.Logf("%-16s %6s %6s %16s %16s %14s", "server", "conns", "depth", "cpu us (min)", "us/message", "messages/s")
	for _, s := range shapes {
		for i, name := range names {
			r := results[fmt.Sprintf("%d %s %v", i, name, s)]
			cpu := spread(r, func(r result) float64 { return r.cpu })
			wall := spread(r, func(r result) float64 { return r.wall })
			t.Logf("%-16s %6d %6d %8.2f (%5.2f) %8.2f (%5.2f) %14.0f", name, s.conns, s.depth,
				cpu[len(cpu)/2], cpu[0], wall[len(wall)/2], wall[0], 1e6/wall[len(wall)/2])
		}
	}
}

// result is what a message cost, in microseconds: of the server's processor, and of time.
type result struct{ cpu, wall float64 }

func spread(r []result, f func(result) float64) []float64 {
	var v []float64
	for _, r := range r {
		v = append(v, f(r))
	}
	slices.Sort(v)
	return v
}

// start starts a server and returns its address and what ends it.
func start(t *testing.T, name string, cpus []int) (string, *proc.Child, func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdin, hold, err := os.Pipe() // a pipe of the kernel, which needs no goroutine that copies
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	child, err := proc.Start(proc.Command{
		Path: self, Env: []string{"GNETLOOP_SERVER=" + name}, CPUs: cpus,
		Stdin: stdin, Stdout: stdout, Stderr: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		hold.Close()
		child.Stop(time.Second)
		out.Close()
	})
	t.Cleanup(stop)
	stdin.Close()
	stdout.Close()
	addr, err := address(out)
	if err != nil {
		t.Fatal(err)
	}
	return addr, child, stop
}

// drive keeps the messages of s in flight for a while: what comes back is sent again.
func drive(t *testing.T, addr string, pid int, s shape) result {
	t.Helper()
	ep, fds := connect(t, addr, s)
	defer func() {
		for _, fd := range append(fds, ep) {
			unix.Close(fd)
		}
	}()
	buf := make([]byte, 64<<10)
	fill(buf)
	for _, fd := range fds {
		if n, err := unix.Write(fd, buf[:s.depth*message]); err != nil || n != s.depth*message {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	events := make([]unix.EpollEvent, 256)
	at := make(map[int32]int, len(fds))
	run := func(d time.Duration) (total int) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			n, err := unix.EpollWait(ep, events, 1000)
			if n == 0 || err != nil && err != unix.EINTR {
				t.Fatalf("no answer in a second: %v", err)
			}
			for _, ev := range events[:max(n, 0)] {
				n, err := unix.Read(int(ev.Fd), buf)
				if err != nil || n <= 0 {
					t.Fatalf("read: %d, %v", n, err)
				}
				check(t, buf[:n], at[ev.Fd])
				at[ev.Fd] = (at[ev.Fd] + n) % message
				if m, err := unix.Write(int(ev.Fd), buf[:n]); err != nil || m != n {
					t.Fatalf("write: %d, %v", m, err)
				}
				total += n
			}
		}
		return total
	}
	run(*length / 5)
	before, err := proc.CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	messages := float64(run(*length)) / message
	wall := time.Since(begin)
	after, err := proc.CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	return result{cpu: float64((after - before).Nanoseconds()) / 1e3 / messages, wall: float64(wall.Nanoseconds()) / 1e3 / messages}
}

// fill writes messages of which each byte tells its place; check sees that none is lost.
func fill(b []byte) {
	for i := range b {
		b[i] = byte(i % message)
	}
}

func check(t *testing.T, b []byte, at int) {
	t.Helper()
	if int(b[0]) != at || int(b[len(b)-1]) != (at+len(b)-1)%message {
		t.Fatalf("bytes %d to %d came where %d to %d were due", b[0], b[len(b)-1], at, (at+len(b)-1)%message)
	}
}

func connect(t *testing.T, addr string, s shape) (int, []int) {
	t.Helper()
	sa := resolve(t, addr)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	fds := make([]int, s.conns)
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
		if err := unix.Connect(fd, sa); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			t.Fatal(err)
		}
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			t.Fatal(err)
		}
	}
	return ep, fds
}

func resolve(t *testing.T, addr string) unix.Sockaddr {
	t.Helper()
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
}

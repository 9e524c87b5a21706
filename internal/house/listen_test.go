package house

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
)

func TestAddressesAreChecked(t *testing.T) {
	for _, ok := range []string{"127.0.0.1:0", "[::1]:8081", "localhost:1", ":8081", "0.0.0.0:1", "[::]:1",
		"box.example:65535"} {
		if err := Address(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for address, why := range map[string]string{
		"8081": "must be an address", "127.0.0.1": "must be an address", "127.0.0.1:": "no port",
		"127.0.0.1:99999": "no port", "127.0.0.1:http": "no port", "127.0.0.1:080": "plain number",
		"": "must be an address", "http://box:1": "must be an address", "a b:1": "must be an address",
	} {
		if err := Address(address); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want %q", address, err, why)
		}
	}
}

func TestWideAddressesAreToldApart(t *testing.T) {
	s := &Setting{Key: "admin.listen"}
	for _, address := range []string{"127.0.0.1:0", "127.8.9.1:65535", "[::1]:8081", "localhost:1",
		"LOCALHOST.:1", "[::ffff:127.0.0.1]:1"} {
		if Wide(address) || WideProblem(s, address) != nil {
			t.Errorf("%s is wide", address)
		}
	}
	for address, why := range map[string]string{
		":8081": "every network", "0.0.0.0:1": "every network", "[::]:1": "every network",
		"10.0.0.1:1": "not a loopback", "example.com:1": "not a loopback", "localhost.evil.com:1": "not a loopback",
		"128.0.0.1:1": "not a loopback", "": "", "nonsense": "",
	} {
		all := Problems(WideProblem(s, address))
		if !Wide(address) || len(all) != 1 || all[0].Code != CodeNotLoopback ||
			!strings.Contains(all[0].Why, why) || !strings.Contains(all[0].Do, "plinth admin claim") ||
			!strings.Contains(all[0].What, "admin.listen") {
			t.Errorf("%s: got %+v", address, all)
		}
	}
}

func TestPortInUseNamesItsOwner(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	address := l.Addr().String()
	_, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err == nil {
		t.Fatal("the port could be had twice")
	}
	s := &Setting{Key: "engine.listen"}
	all := Problems(fmt.Errorf("engine: %w", ListenProblem(err, s, address)))
	if len(all) != 1 {
		t.Fatalf("got %v", err)
	}
	p := all[0]
	if p.Kind != fault.Conflict || p.Code != CodePortInUse ||
		p.What != "cannot listen on "+address+" (engine.listen)" {
		t.Errorf("got %+v", p)
	}
	if !strings.Contains(p.Do, "--engine-listen or PLINTH_ENGINE_LISTEN") || !errors.Is(p, syscall.EADDRINUSE) && runtime.GOOS != "windows" {
		t.Errorf("got %+v", p)
	}
	if runtime.GOOS == "linux" && !strings.HasPrefix(p.Why, fmt.Sprintf("process %d (", os.Getpid())) {
		t.Errorf("got %q", p.Why)
	}
	if runtime.GOOS == "linux" && PortOwner("127.0.0.1:0").PID != 0 {
		t.Error("a port of nobody has an owner")
	}
}

func TestOtherFailuresToListenAreTold(t *testing.T) {
	s := &Setting{Key: "admin.listen"}
	for _, c := range []struct {
		err error
		why string
	}{
		{&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}, "may not listen"},
		{&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)},
			"does not have that address"},
		{&net.OpError{Op: "listen", Err: os.NewSyscallError("socket", syscall.EMFILE)}, "too many open files"},
	} {
		all := Problems(ListenProblem(c.err, s, "127.0.0.1:80"))
		if len(all) != 1 || !strings.Contains(all[0].Why, c.why) || all[0].Do == "" ||
			all[0].Kind != fault.Unavailable {
			t.Errorf("%v: got %+v", c.err, all)
		}
	}
	other := errors.New("not about listening")
	if got := ListenProblem(other, s, "x"); got != other {
		t.Errorf("got %v", got)
	}
	if ListenProblem(nil, s, "x") != nil {
		t.Error("nothing wrong gives a problem")
	}
}

func TestFolderIsMadeAndProved(t *testing.T) {
	s := &Setting{Key: KeyFolder}
	path := filepath.Join(t.TempDir(), "a", "b")
	if err := CheckFolder(path, s); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if runtime.GOOS != "windows" {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
	}
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "below")} {
		all := append(Problems(CheckFolder(bad, s)), Problems(ProbeFolder(bad, s))...)
		if len(all) != 2 || !strings.Contains(all[0].Why+all[1].Why, "is a file") || !strings.Contains(all[0].Do,
			"--data or PLINTH_DATA") {
			t.Errorf("%s: got %+v", bad, all)
		}
	}
}

func TestProbeOfAFolderLeavesNothingBehind(t *testing.T) {
	s := &Setting{Key: KeyFolder}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "a", "b")} {
		if err := ProbeFolder(path, s); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if got := LookAtFolder(filepath.Join(dir, "a", "b")).Nearest(); got != dir {
		t.Errorf("got %s", got)
	}
}

func TestFolderProblemsSayWhatHelps(t *testing.T) {
	s := &Setting{Key: KeyFolder}
	for name, c := range map[string]struct {
		err  error
		kind fault.Kind
		code string
		why  string
	}{
		"locked": {fault.New(fault.Conflict, "LOCKED", "held"), fault.Conflict, CodeFolderLocked,
			"another Plinth"},
		"full": {&fs.PathError{Op: "write", Err: syscall.ENOSPC}, fault.Unavailable, CodeDiskFull, "full"},
		"read-only": {&fs.PathError{Op: "mkdir", Err: syscall.EROFS}, fault.Unavailable, CodeFolderRefused,
			"read-only"},
		"permission": {&fs.PathError{Op: "open", Err: fs.ErrPermission}, fault.Unavailable,
			CodeFolderRefused, "may not write"},
		"other": {errors.New("odd"), fault.Unavailable, CodeFolderRefused, "odd"},
	} {
		all := Problems(FolderProblem(c.err, s, "/srv/x"))
		if len(all) != 1 || all[0].Kind != c.kind || all[0].Code != c.code || !strings.Contains(all[0].Why,
			c.why) || all[0].Do == "" {
			t.Errorf("%s: got %+v", name, all)
		}
	}
}

func TestFolderForTemporaryFilesDoesNotPersist(t *testing.T) {
	if got := LookAtFolder(filepath.Join(t.TempDir(), "not", "yet")); got.Persists || got.Note == "" {
		t.Errorf("got %+v", got)
	}
}

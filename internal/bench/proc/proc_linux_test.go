package proc

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestReadingOneselfGivesPlausibleFigures(t *testing.T) {
	pid := os.Getpid()
	before, err := CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	for sum, i := 0, 0; i < 1_000_000; i++ {
		sum += i
	}
	after, err := CPU(pid)
	if err != nil || after <= before {
		t.Errorf("the clock of the process stood at %v and then at %v, %v", before, after, err)
	}
	u, err := Read(pid)
	if err != nil || u.Threads < 1 || u.RSS < 1<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	rss, err := RSS(pid)
	if err != nil || rss < 1<<20 {
		t.Errorf("resident bytes %d, %v", rss, err)
	}
}

func TestOpenDescriptorsAreCounted(t *testing.T) {
	pid := os.Getpid()
	before, err := Descriptors(pid)
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for range 40 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	if after, err := Descriptors(pid); err != nil || after != before+len(files) {
		t.Fatalf("%d descriptors became %d with %d more open, %v", before, after, len(files), err)
	}
}

func TestAProcessThatIsNotThereIsAnError(t *testing.T) {
	const pid = maxPID
	for _, pid := range []int{-1, 0, maxPID, maxPID + 1, 1 << 30} {
		if _, err := CPU(pid); err == nil {
			t.Errorf("process %d has a processor clock", pid)
		}
	}
	if _, err := Read(pid); err == nil {
		t.Error("it has usage")
	}
	if _, err := RSS(pid); err == nil {
		t.Error("it has memory")
	}
	if _, err := Descriptors(pid); err == nil {
		t.Error("it has descriptors")
	}
}

func TestRaisingTheDescriptorLimitNeverLowersIt(t *testing.T) {
	now, err := Raise(1)
	if err != nil || now < 1 {
		t.Fatalf("limit %d, %v", now, err)
	}
	if again, err := Raise(now); err != nil || again < now {
		t.Fatalf("limit %d after asking for %d, %v", again, now, err)
	}
}

func TestStatLinesAreCountedFromTheLastParenthesis(t *testing.T) {
	line := "42 (a) R (b) S 1 2 3 4 5 6 7 8 9 10 250 13 14 15 16 17 9 19 20"
	got, err := parseStat([]byte(line))
	want := Usage{User: 2500 * time.Millisecond, System: 130 * time.Millisecond, Threads: 9}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestBrokenStatLinesAreRefused(t *testing.T) {
	for _, line := range []string{
		"", "1 a S", "1 (a) S 1 2", "1 (a) S 1 2 3 4 5 6 7 8 9 10 x 13 14 15 16 17 9",
	} {
		if u, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q reads as %+v", line, u)
		}
	}
}

func TestRollupGivesResidentBytes(t *testing.T) {
	n, ok := parseRollup([]byte("0-1 ---p [rollup]\nRss:            1632 kB\nPss: 3 kB\n"))
	if n != 1632<<10 || !ok {
		t.Fatalf("got %d, %v", n, ok)
	}
	for _, bad := range []string{"", "Pss: 3 kB\n", "Rss: many kB\n"} {
		if n, ok := parseRollup([]byte(bad)); ok {
			t.Errorf("%q reads as %d", bad, n)
		}
	}
}

func TestMembershipOfBothVersionsIsRead(t *testing.T) {
	for _, c := range []struct{ text, unified, memory string }{
		{"0::/user.slice\n", "/user.slice", ""},
		{"5:cpu,memory:/box\n1:name=systemd:/\n0::/\n", "/", "/box"},
		{"4:memory:/a:b\n", "", "/a:b"},
		{"nonsense\n", "", ""},
	} {
		if unified, memory := parseMembership([]byte(c.text)); unified != c.unified || memory != c.memory {
			t.Errorf("%q: got %q, %q; want %q, %q", c.text, unified, memory, c.unified, c.memory)
		}
	}
}

func TestKillsOfTheKernelAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		"": 0,
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n":     2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n": 1,
		"oom_kill many\n": 0,
	} {
		if got := countKills([]byte(text)); got != want {
			t.Errorf("%q: %d kills, want %d", text, got, want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) R (b) S 1 2 3 4 5 6 7 8 9 10 250 13 14 15 16 17 9 19 20"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseStat(b)
		_, _ = parseRollup(b)
		_, _ = parseMembership(b)
		_ = countKills(b)
	})
}

func TestAProgramEndsWithTheProcessThatStartedIt(t *testing.T) {
	k, out := start(t, "parent", Command{})
	orphan, err := strconv.Atoi(line(t, out))
	if err != nil {
		t.Fatal(err)
	}
	k.Stop(0) // a kill: it cannot clean up
	for {
		// Where nobody waits for orphans a dead one stays as a zombie.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", orphan))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		runtime.Gosched()
	}
}

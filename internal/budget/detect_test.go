package budget

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

func TestDetectReadsTheTightestBound(t *testing.T) {
	const gib = 1 << 30
	machine8 := "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files   map[string]string
		machine int64
		limit   int64
		from    string
	}{
		"nothing tells": {nil, 0, fallback, "a guess, since the system does not tell"},
		"other system":  {nil, gib, gib / 4 * 3, "three quarters of the machine"},
		"machine": {map[string]string{"proc/meminfo": "MemTotal:  1048576 kB\n"}, 0, gib / 4 * 3,
			"three quarters of the machine"},
		"large machine": {map[string]string{"proc/meminfo": machine8}, 0, most, "the most that is taken unasked"},
		"version 2": {map[string]string{"proc/meminfo": machine8, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0,
			gib / 4 * 3, "three quarters of the cgroup"},
		"version 2, a parent is tighter": {map[string]string{"proc/meminfo": machine8,
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
			"sys/fs/cgroup/a/memory.max": "536870912\n"}, 0, gib / 8 * 3, "three quarters of the cgroup"},
		"version 2, in a namespace": {map[string]string{"proc/meminfo": machine8, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.high": "1073741824\n"}, 0,
			gib / 4 * 3, "three quarters of the cgroup"},
		"version 2, no limit": {map[string]string{"proc/meminfo": "MemTotal: 1048576 kB\n",
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0, gib / 4 * 3,
			"three quarters of the machine"},
		"version 1": {map[string]string{"proc/meminfo": machine8,
			"proc/self/cgroup":                           "5:cpu,cpuacct:/x\n4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, 0, gib / 4 * 3,
			"three quarters of the cgroup"},
		"version 1, no limit": {map[string]string{"proc/meminfo": "MemTotal: 1048576 kB\n",
			"proc/self/cgroup":                           "4:hugetlb,memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, gib / 4 * 3,
			"three quarters of the machine"},
		"outside of the namespace": {map[string]string{"proc/meminfo": machine8,
			"proc/self/cgroup":           "0::/../../x\n",
			"sys/fs/cgroup/x/memory.max": "1073741824\n"}, 0, gib / 4 * 3, "three quarters of the cgroup"},
		"nonsense": {map[string]string{"proc/meminfo": "MemTotal: x kB\nMemTotal: 99999999999999999999 kB\n",
			"proc/self/cgroup": "0\n::::\n0::\x00\n", "sys/fs/cgroup/memory.max": "-4\n"}, 0, fallback,
			"a guess, since the system does not tell"},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if limit, from := detect(root, func() int64 { return c.machine }); limit != c.limit || from != c.from {
				t.Errorf("got %d from %q, want %d from %q", limit, from, c.limit, c.from)
			}
		})
	}
}

func TestDetectFindsSomethingHere(t *testing.T) {
	if limit, from := Detect(); limit < 64<<20 || limit > most || from == "" {
		t.Fatalf("got %d from %q", limit, from)
	}
}

func TestSizesAreReadInAllTheirForms(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, " 256MiB ": 256 << 20, "2GiB": 2 << 30, "1g": 1 << 30, "1G": 1 << 30,
		"64k":    64 << 10,
		"1.5GiB": 3 << 29, "0.5m": 1 << 19, ".5k": 512, "3.k": 3072, "1TiB": 1 << 40, "1t": 1 << 40, "2kB": 2000,
		"3 MB": 3e6, "1GB": 1e9, "1tb": 1e12, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestBadSizesSayWhy(t *testing.T) {
	for text, want := range map[string]SizeReason{
		"": SizeEmpty, "  ": SizeEmpty, "x": SizeNumber, "-1": SizeNumber, "+1": SizeNumber, ".": SizeNumber,
		".k": SizeNumber, "1.2.3": SizeNumber, "1e3": SizeUnit, "1x": SizeUnit, "1 Gi B": SizeUnit,
		"1GiBB":               SizeUnit,
		"9223372036854775808": SizeTooLarge, "99999999t": SizeTooLarge, "99999999999999999999999": SizeTooLarge,
	} {
		_, err := ParseSize(text)
		size, ok := errors.AsType[*SizeError](err)
		if !ok || size.Reason != want || size.Text != text || !errors.Is(err, &SizeError{Reason: want}) {
			t.Errorf("%q: got %v, want reason %d", text, err, want)
		} else if len(err.Error()) < 20 {
			t.Errorf("%q: %q says little", text, err)
		}
	}
	if errors.Is(&SizeError{Reason: SizeUnit}, &SizeError{Reason: SizeEmpty}) {
		t.Error("reasons are not told apart")
	}
}

func TestFormattedSizeReadsBack(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1536: "1536B", 64 << 10: "64KiB",
		256 << 20: "256MiB",
		3 << 29:   "1536MiB", 1 << 40: "1TiB", 1 << 50: "1024TiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		if back, err := ParseSize(FormatSize(n)); err != nil || back != n {
			t.Fatalf("%d: %q reads as %d, %v", n, FormatSize(n), back, err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"256MiB", "2GiB", "1g", "1.5k", "", "9223372036854775807B", "0.999999999999t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			if _, ok := errors.AsType[*SizeError](err); !ok || n != 0 {
				t.Fatalf("%q: %d, %v", s, n, err)
			}
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", s, n)
		}
		if back, err := ParseSize(FormatSize(n)); err != nil || back != n {
			t.Fatalf("%q: %d, written %s, reads %d, %v", s, n, FormatSize(n), back, err)
		}
	})
}

func TestApplyKeepsATighterLimit(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	debug.SetMemoryLimit(math.MaxInt64)
	if b := Apply(1 << 30); b.Limit() != (1<<30)/5*3 || debug.SetMemoryLimit(-1) != (1<<30)/10*9 {
		t.Errorf("accounts %d, heap %d", b.Limit(), debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(100 << 20)
	if Apply(1 << 30); debug.SetMemoryLimit(-1) != 100<<20 {
		t.Errorf("GOMEMLIMIT was raised to %d", debug.SetMemoryLimit(-1))
	}
	if accounts, heap := Split(-1); accounts != 0 || heap != 0 {
		t.Errorf("got %d, %d", accounts, heap)
	}
}

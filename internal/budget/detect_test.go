package budget

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
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

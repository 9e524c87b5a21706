package budget

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// What Detect answers when there is much memory, and when there is no way to tell.
const (
	most     = 2 << 30
	fallback = 512 << 20
)

// Detect returns a limit that suits the place: three quarters of what the cgroup or else the machine
// has, at most 2 GiB, and a few words that say where it is from. Where nothing tells, it is 512 MiB. It
// reads files of /proc and /sys and keeps nothing.
func Detect() (limit int64, from string) { return detect(os.DirFS("/"), machine) }

// detect takes the file system and, where that says nothing, the memory of the machine from outside.
func detect(root fs.FS, machine func() int64) (limit int64, from string) {
	total := meminfo(root)
	if total == 0 {
		total = machine()
	}
	from = "three quarters of the machine"
	if c := cgroup(root); c > 0 && (total == 0 || c < total) {
		total, from = c, "three quarters of the cgroup"
	}
	switch {
	case total <= 0:
		return fallback, "a guess, since the system does not tell"
	case total/4*3 > most:
		return most, "the most that is taken unasked"
	}
	return total / 4 * 3, from
}

// cgroup returns the tightest memory limit of the process's control group and those above it; 0 when
// there is none.
func cgroup(root fs.FS) (limit int64) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 is hierarchy 0 without controllers
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		mount, files := "sys/fs/cgroup", []string{"memory.max", "memory.high"}
		if part[1] != "" {
			if !strings.Contains(","+part[1]+",", ",memory,") {
				continue
			}
			mount, files = "sys/fs/cgroup/memory", []string{"memory.limit_in_bytes"}
		}
		for dir := path.Clean("/" + part[2]); ; dir = path.Dir(dir) {
			for _, file := range files {
				if n := readBytes(root, path.Join(mount, dir, file)); n > 0 && (limit == 0 || n < limit) {
					limit = n
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// readBytes returns the number in a file; 0 when there is none ("max"), or one so large that it means
// none.
func readBytes(root fs.FS, name string) int64 {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || n < 0 || n >= math.MaxInt64>>4 {
		return 0
	}
	return n
}

// meminfo returns the memory of a Linux machine; 0 when it does not tell.
func meminfo(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64>>14 {
				return 0
			}
			return n << 10
		}
	}
	return 0
}

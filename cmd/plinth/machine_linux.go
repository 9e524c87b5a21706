package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// machineMemory is what this process can have at most, and what says so.
func machineMemory() (total int64, where string, ok bool) {
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if kib, found := strings.CutPrefix(line, "MemTotal:"); found {
				n, fine := firstNumber(kib)
				total, where, ok = n<<10, "the machine", fine
			}
		}
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, fine := firstNumber(string(b)); fine && n > 0 && (!ok || n < total) {
			return n, "the cgroup", true
		}
	}
	return total, where, ok
}

// clockSynced asks the kernel; it may not say so in a container.
func clockSynced() (synced, known bool) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t) // without modes it only reads
	if err != nil {
		return false, false
	}
	return state != unix.TIME_ERROR, true
}

// maxMaps is how many memory maps a process may have.
func maxMaps() (int64, bool) {
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return 0, false
	}
	return firstNumber(string(b))
}

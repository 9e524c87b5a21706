package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of utime and stime in /proc: USER_HZ is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// maxPID is the kernel's own limit; a larger number would not fit a clock id.
const maxPID = 1 << 22

// CPU returns the processor time that process pid has used since it started, threads that have ended
// included, in nanoseconds of the scheduler's clock.
func CPU(pid int) (time.Duration, error) {
	if pid < 1 || pid > maxPID {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, os.ErrProcessDone)
	}
	// The clock id of another process: see clock_getcpuclockid(3); 2 selects the scheduler's clock.
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err == nil {
		return time.Duration(t.Nano()), nil
	}
	u, err := Read(pid)
	return u.User + u.System, err
}

// Read returns the usage of process pid.
func Read(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	u, err := parseStat(stat)
	if err != nil {
		return Usage{}, fmt.Errorf("stat of process %d: %w", pid, err)
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return Usage{}, err
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return Usage{}, fmt.Errorf("statm of process %d: %q", pid, statm)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("statm of process %d: %w", pid, err)
	}
	u.RSS = pages * int64(os.Getpagesize())
	return u, nil
}

// parseStat reads the fields of /proc/PID/stat that Usage needs: see proc_pid_stat(5). The name in
// parentheses may hold anything, so fields are counted from the last parenthesis.
func parseStat(stat []byte) (Usage, error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return Usage{}, errors.New("no command name")
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 18 {
		return Usage{}, errors.New("too few fields")
	}
	var n [3]int64
	for i, at := range [3]int{11, 12, 17} {
		v, err := strconv.ParseInt(string(fields[at]), 10, 64)
		if err != nil {
			return Usage{}, err
		}
		n[i] = v
	}
	return Usage{User: time.Duration(n[0]) * tick, System: time.Duration(n[1]) * tick, Threads: int(n[2])}, nil
}

// RSS returns the resident bytes of process pid, counted page by page. It costs about a millisecond
// for each 100 MiB, so it is for the end of a step and not for every sample.
func RSS(pid int) (int64, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err == nil {
		if n, ok := parseRollup(rollup); ok {
			return n, nil
		}
	}
	u, err := Read(pid)
	return u.RSS, err
}

func parseRollup(rollup []byte) (int64, bool) {
	for line := range bytes.Lines(rollup) {
		rest, ok := bytes.CutPrefix(line, []byte("Rss:"))
		if !ok {
			continue
		}
		rest = bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))
		kib, err := strconv.ParseInt(string(rest), 10, 64)
		return kib << 10, err == nil
	}
	return 0, false
}

// Descriptors returns how many descriptors process pid has open.
func Descriptors(pid int) (int, error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	n := 0
	for {
		names, err := dir.Readdirnames(1024)
		n += len(names)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Raise lifts this process's limit of open descriptors to at least n, as far as the hard limit lets
// it, and returns the limit that holds now.
func Raise(n int) (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open descriptors: %w", err)
	}
	if limit.Cur >= uint64(n) {
		return int(min(limit.Cur, 1<<30)), nil
	}
	want := unix.Rlimit{Cur: uint64(n), Max: max(limit.Max, uint64(n))}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err == nil {
		return n, nil
	}
	want = unix.Rlimit{Cur: limit.Max, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		return int(limit.Cur), fmt.Errorf("raise the limit of open descriptors: %w", err)
	}
	return int(min(want.Cur, 1<<30)), nil
}

//go:build linux || darwin || freebsd

package main

import "golang.org/x/sys/unix"

// freeSpace is what an ordinary user may still write at a path.
func freeSpace(path string) (int64, bool) {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0, false
	}
	return int64(fs.Bavail) * int64(fs.Bsize), true
}

// descriptorLimit is how many files this process may have open. Go has raised it to the hard limit.
func descriptorLimit() (uint64, bool) {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 0, false
	}
	return uint64(r.Cur), true
}

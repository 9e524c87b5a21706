package house

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// portOwner reads the sockets of the kernel and then looks through the open files of the processes
// that may be looked at.
func portOwner(address string) Owner {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return Owner{}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Owner{}
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := readLimited(table, 4<<20)
		if err != nil {
			continue
		}
		listeners(string(b), uint16(n), sockets)
	}
	if len(sockets) == 0 {
		return Owner{}
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return Owner{}
	}
	for _, file := range files {
		if link, err := os.Readlink(file); err != nil || !sockets[link] {
			continue
		}
		process := filepath.Dir(filepath.Dir(file))
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		name, err := readLimited(filepath.Join(process, "comm"), 256)
		if err != nil {
			name = []byte("unknown")
		}
		return Owner{pid, strings.TrimSpace(string(name))}
	}
	return Owner{}
}

// listeners adds "socket:[inode]" of each listening socket of the port in a /proc/net/tcp table.
func listeners(table string, port uint16, sockets map[string]bool) {
	const listen, state, inode = "0A", 3, 9
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > inode && f[state] == listen && strings.HasSuffix(f[1], suffix) {
			sockets["socket:["+f[inode]+"]"] = true
		}
	}
}

package loop_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/loop"
)

// shrink makes the kernel queue little for c, so that writes are cut short.
func shrink(c *loop.Conn) {
	if c.FD() >= 0 {
		_ = syscall.SetsockoptInt(c.FD(), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<10)
	}
}

// descriptors returns how many this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

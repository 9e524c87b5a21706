package loop_test

import (
	"syscall"

	"github.com/plinth-run/plinth/internal/loop"
)

// shrink makes the kernel queue little for c, so that writes are cut short.
func shrink(c *loop.Conn) {
	if c.FD() >= 0 {
		_ = syscall.SetsockoptInt(c.FD(), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<10)
	}
}

package auth

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// gently runs a long computation on a thread of its own with the lowest priority, so that event loops run
// first. The thread ends with it: its priority could not be raised again.
func gently(f func()) {
	done := make(chan struct{})
	go func() { // ends with f; its caller waits
		defer close(done)
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) // where it is not allowed, it runs as others do
		f()
	}()
	<-done
}

package load

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The descriptors do not block, so reads and writes need not tell the scheduler: RawSyscall saves
// some 50 ns each. A loop that never blocks lets nobody else run, so pwait2, which does, tells it.

func read(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func write(fd int, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// fine says that the kernel reads the time as this program lays it out.
const fine = unsafe.Sizeof(uintptr(0)) == 8

// pwait2 is epoll_pwait2(2) without a signal mask.
func pwait2(set int, events []unix.EpollEvent, timeout time.Duration) (int, error) {
	t := unix.NsecToTimespec(int64(timeout))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(set), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(&t)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

package budget

import "golang.org/x/sys/unix"

// machine returns the memory of the machine in bytes; 0 when it does not tell.
func machine() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

package store

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const mandatoryLocks = false

// Sync uses fdatasync: it leaves out the times of the file, which nothing here reads, and keeps its length.
func (f osFile) Sync() error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var fault error
	err = c.Control(func(fd uintptr) {
		for {
			// A signal is no failure of the disk: nothing was reported about it yet.
			if fault = unix.Fdatasync(int(fd)); fault != unix.EINTR {
				return
			}
		}
	})
	if err == nil && fault != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: fault}
	}
	return err
}

func (osFS) SyncDir(name string) error { return syncDir(name) }

// Persistence looks at the kind of the file system.
func (osFS) Persistence(path string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "unknown"
	}
	switch uint32(s.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "memory (tmpfs): gone when the machine or the container stops"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay (a container's own layer): gone when the container is removed; mount a volume"
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.V9FS_MAGIC:
		return "network (a remote file system): as durable as the server behind it"
	}
	return fmt.Sprintf("disk (file system type %#x)", uint32(s.Type))
}

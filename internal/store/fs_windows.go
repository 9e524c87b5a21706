package store

import (
	"errors"

	"golang.org/x/sys/windows"
)

const mandatoryLocks = true

// SyncDir does nothing: Windows has no sync for folders; NTFS journals its entries.
func (osFS) SyncDir(string) error { return nil }

// Persistence is not known here.
func (osFS) Persistence(string) string { return "unknown" }

// diskFull knows the errors of this platform that are not POSIX.
func diskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

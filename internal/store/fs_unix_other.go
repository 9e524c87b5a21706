//go:build unix && !linux

package store

const mandatoryLocks = false

func (osFS) SyncDir(name string) error { return syncDir(name) }

// Persistence is not known here.
func (osFS) Persistence(string) string { return "unknown" }

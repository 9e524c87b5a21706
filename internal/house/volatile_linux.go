package house

import "golang.org/x/sys/unix"

// volatile says why a path does not outlive a restart, or "".
func volatile(path string) string {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return ""
	}
	switch int64(fs.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "in memory: gone after a restart of the machine"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "in a container's own layer: gone with the container; mount a volume there"
	}
	return ""
}

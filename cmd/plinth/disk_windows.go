package main

import "golang.org/x/sys/windows"

// freeSpace is what this user may still write at a path.
func freeSpace(path string) (int64, bool) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, false
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(name, &free, nil, nil) != nil {
		return 0, false
	}
	return int64(free), true
}

// descriptorLimit is not a thing there.
func descriptorLimit() (uint64, bool) { return 0, false }

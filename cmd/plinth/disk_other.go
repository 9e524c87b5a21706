//go:build !linux && !darwin && !freebsd && !windows

package main

func freeSpace(string) (int64, bool) { return 0, false }

func descriptorLimit() (uint64, bool) { return 0, false }

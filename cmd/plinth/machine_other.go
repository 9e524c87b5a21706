//go:build !linux

package main

func machineMemory() (total int64, where string, ok bool) { return 0, "", false }

func clockSynced() (synced, known bool) { return false, false }

func maxMaps() (int64, bool) { return 0, false }

//go:build !linux

package proc

import "runtime"

// CPUs returns the processors this process may run on.
func CPUs() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}

// pinned runs start; this platform cannot tie a program to processors.
func pinned(_ []int, start func() error) error { return start() }

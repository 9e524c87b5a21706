package proc

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CPUs returns the processors this process may run on, threads of one core beside each other.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the processor mask: %w", err)
	}
	type place struct{ pkg, core, cpu int }
	var places []place
	for cpu := range maxCPUs {
		if set.IsSet(cpu) {
			places = append(places, place{topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return slices.Compare([]int{a.pkg, a.core, a.cpu}, []int{b.pkg, b.core, b.cpu})
	})
	cpus := make([]int, len(places))
	for i, p := range places {
		cpus[i] = p.cpu
	}
	return cpus, nil
}

// topology reads one number about a processor; 0 where the kernel does not say.
func topology(cpu int, name string) int {
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// pinned runs start on a thread that may use the given processors only. A program started there
// inherits the mask from its first instruction, so that its runtime counts these processors alone.
func pinned(cpus []int, start func() error) error {
	if len(cpus) == 0 {
		return start()
	}
	runtime.LockOSThread()
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read the processor mask: %w", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("pin to processors %s: %w", FormatCPUs(cpus), err)
	}
	err := start()
	// Cannot fail: the mask was in force a moment ago. Unlocking matters more than checking, for a
	// thread that ends takes the programs that it started with it.
	_ = unix.SchedSetaffinity(0, &old)
	runtime.UnlockOSThread()
	return err
}

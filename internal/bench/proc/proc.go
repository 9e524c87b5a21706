// Package proc starts the programs of a benchmark on chosen processors and reads what they cost.
//
// It promises that a program which it started does not outlive its owner: Stop ends it by its own
// process id and waits for it, and on Linux the kernel ends it when the owner dies first. Readings
// are exact where the kernel has an exact figure (processor time by the scheduler's clock, resident
// memory by smaps_rollup) and say ErrUnsupported where the platform has none. All functions and the
// methods of Child may be called at once. It knows no protocol, no scenario and no report.
package proc

import (
	"errors"
	"time"
)

// ErrUnsupported says that this platform has no such figure or control.
var ErrUnsupported = errors.New("not supported on this platform")

// Usage is what a process had used and held at one moment.
type Usage struct {
	User    time.Duration // in user mode; ticks of 10 ms on most kernels
	System  time.Duration // in the kernel on its behalf; same ticks
	RSS     int64         // resident bytes; cheap, and off by up to some 100 KiB
	Threads int
}

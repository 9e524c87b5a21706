//go:build !linux

package proc

import "os/exec"

// cage is a control group; this platform has none, so every cage is nil.
type cage struct{}

func newCage(int64) (*cage, error) { return nil, ErrUnsupported }

func (*cage) before(*exec.Cmd) {}
func (*cage) after(int) error  { return nil }
func (*cage) killed() bool     { return false }
func (*cage) remove()          {}

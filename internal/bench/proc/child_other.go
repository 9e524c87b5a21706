//go:build !linux

package proc

import (
	"os"
	"os/exec"
)

func detach(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Signal(os.Interrupt) }

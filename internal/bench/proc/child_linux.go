package proc

import (
	"os"
	"os/exec"
	"syscall"
)

// detach gives the program a process group of its own, so that Ctrl-C reaches the owner alone, and
// has the kernel end it when the owner dies without a word.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

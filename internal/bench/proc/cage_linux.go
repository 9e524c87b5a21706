package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cage is a control group with a memory cap and without swap that holds one program. A nil cage
// caps nothing.
type cage struct {
	dir     string
	unified bool // version 2
	handle  *os.File
}

const mount = "/sys/fs/cgroup"

// newCage makes a group in this process's own group, or at the root of the hierarchy when the own
// one is not to be seen from here, as in a container. Version 2 comes first, then version 1.
func newCage(limit int64) (*cage, error) {
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	unified, memory := parseMembership(membership)
	var failed error
	for _, at := range []struct {
		root, group string
		unified     bool
	}{
		{mount, unified, true}, {mount, "/", true},
		{mount + "/unified", unified, true}, {mount + "/unified", "/", true},
		{mount + "/memory", memory, false}, {mount + "/memory", "/", false},
	} {
		if at.group == "" {
			continue
		}
		g, err := openCage(filepath.Join(at.root, at.group), at.unified, limit)
		if err == nil {
			return g, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("%w: no memory control group can be made: %w", ErrUnsupported, failed)
}

// parseMembership returns the group of version 2 and that of the memory controller of version 1:
// see cgroups(7), /proc/PID/cgroup.
func parseMembership(b []byte) (unified, memory string) {
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[0] == "0" && parts[1] == "" {
			unified = parts[2]
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if controller == "memory" {
				memory = parts[2]
			}
		}
	}
	return unified, memory
}

func openCage(parent string, unified bool, limit int64) (*cage, error) {
	if unified {
		controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(controllers, []byte("memory")) {
			return nil, fmt.Errorf("%s: no memory controller", parent)
		}
		// Fails when the group holds processes itself; then the files below are missing, too.
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	name := "plinth-bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	g := &cage{dir: filepath.Join(parent, name), unified: unified}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	if err := g.limit(limit); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

func (g *cage) limit(bytes int64) error {
	n := []byte(strconv.FormatInt(bytes, 10))
	if !g.unified {
		if err := os.WriteFile(filepath.Join(g.dir, "memory.limit_in_bytes"), n, 0); err != nil {
			return err
		}
		// Memory and swap together; missing where the kernel does not account for swap.
		_ = os.WriteFile(filepath.Join(g.dir, "memory.memsw.limit_in_bytes"), n, 0)
		return nil
	}
	if err := os.WriteFile(filepath.Join(g.dir, "memory.max"), n, 0); err != nil {
		return err
	}
	_ = os.WriteFile(filepath.Join(g.dir, "memory.swap.max"), []byte("0"), 0)
	handle, err := os.Open(g.dir)
	g.handle = handle
	return err
}

// before prepares cmd to be born in the group, where the kernel can do that.
func (g *cage) before(cmd *exec.Cmd) {
	if g != nil && g.handle != nil {
		cmd.SysProcAttr.UseCgroupFD = true
		cmd.SysProcAttr.CgroupFD = int(g.handle.Fd())
	}
}

// after moves the new process into the group where it was not born there. What it touched in its
// first instants stays charged elsewhere: some 100 KiB.
func (g *cage) after(pid int) error {
	if g == nil || g.unified {
		return nil
	}
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// killed tells whether the kernel has ended a process of the group for want of memory.
func (g *cage) killed() bool {
	if g == nil {
		return false
	}
	name := "memory.oom_control"
	if g.unified {
		name = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(g.dir, name))
	return err == nil && countKills(b) > 0
}

// countKills reads the line "oom_kill N", which both versions have.
func countKills(b []byte) int {
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}

// remove ends the group; its process has been waited for.
func (g *cage) remove() {
	if g == nil {
		return
	}
	if g.handle != nil {
		_ = g.handle.Close()
	}
	_ = os.Remove(g.dir)
}

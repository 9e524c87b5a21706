package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Command says what to start, where it may run and what it may hold.
type Command struct {
	Path string
	Args []string // without the name of the program
	Env  []string // added to the environment of this process
	// Without is the beginning of names of variables that are not handed on, unless they are in Env.
	Without string
	Folder  string    // to run in; "": this process's
	CPUs    []int     // nil: any
	Memory  int64     // bytes that a control group lets it hold; 0: no cap
	Stdin   io.Reader // nil: nothing
	Stdout  io.Writer // nil: dropped
	Stderr  io.Writer // nil: dropped
}

// Child is a program that Start has started.
type Child struct {
	cmd  *exec.Cmd
	cage *cage // nil: no memory cap
	done chan struct{}

	mu      sync.Mutex
	stopped bool  // Stop was called before the program ended
	err     error // of Wait; valid once done is closed
	killed  bool  // by the kernel, over its memory cap; valid once done is closed
}

// Start starts a program. Its owner must call Stop. A memory cap that cannot be had is an error that
// wraps ErrUnsupported; the caller may start again without.
func Start(c Command) (*Child, error) {
	k := &Child{done: make(chan struct{})}
	k.cmd = exec.Command(c.Path, c.Args...)
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	k.cmd.Dir = c.Folder
	k.cmd.Env = append(environ(c.Without), c.Env...)
	// A grandchild that keeps an output open must not keep Stop waiting.
	k.cmd.WaitDelay = 2 * time.Second
	detach(k.cmd)
	if c.Memory > 0 {
		g, err := newCage(c.Memory)
		if err != nil {
			return nil, fmt.Errorf("cap the memory of %s: %w", c.Path, err)
		}
		k.cage = g
		g.before(k.cmd)
	}
	if err := pinned(c.CPUs, k.cmd.Start); err != nil {
		k.cage.remove()
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	if err := k.cage.after(k.PID()); err != nil {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
		k.cage.remove()
		return nil, fmt.Errorf("cap the memory of %s: %w", c.Path, err)
	}
	go k.wait() // owned by k; ends with the program, which Stop ends
	return k, nil
}

// environ returns the variables of this process but for those whose name begins with a prefix.
func environ(without string) []string {
	all := os.Environ()
	if without == "" {
		return all
	}
	return slices.DeleteFunc(all, func(v string) bool { return strings.HasPrefix(v, without) })
}

func (k *Child) wait() {
	err := k.cmd.Wait()
	killed := k.cage.killed()
	k.cage.remove()
	k.mu.Lock()
	k.err, k.killed = err, killed
	k.mu.Unlock()
	close(k.done)
}

// PID returns the process id.
func (k *Child) PID() int { return k.cmd.Process.Pid }

// Done is closed when the program has ended and its output was read to the end.
func (k *Child) Done() <-chan struct{} { return k.done }

// Err waits for the end of the program and returns what ended it; nil for a clean exit and for one
// that Stop asked for.
func (k *Child) Err() error {
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return nil
	}
	return k.err
}

// Killed waits for the end of the program and tells whether the kernel ended it over its memory cap.
func (k *Child) Killed() bool {
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// Stop asks the program to end, kills it when it has not done so after grace, and returns once it is
// gone. It may be called any number of times.
func (k *Child) Stop(grace time.Duration) {
	select {
	case <-k.done:
		return
	default:
	}
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	if grace > 0 && terminate(k.cmd.Process) == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-k.done:
			return
		case <-timer.C:
		}
	}
	if err := k.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return // cannot be ended by us; waiting would hang
	}
	<-k.done
}

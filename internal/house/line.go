package house

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// lineBuffer bounds what waits to be written by a Lines.
const lineBuffer = 1 << 20

// Lines is the writer beneath the log. Write never blocks: an event loop may log while whoever reads the
// log is slow or stopped. What waits is bounded; a line that does not fit is dropped and counted, and the
// count is written as a line of its own once there is room again. Any goroutine may write.
type Lines struct {
	w io.Writer

	mu      sync.Mutex // guards what follows
	waiting []byte
	dropped uint64 // since the last line that told
	total   uint64
	wake    chan struct{} // holds one token while there is something to write
}

// NewLines makes a writer of whole lines, each given in one Write, on top of w. Run writes them.
func NewLines(w io.Writer) *Lines { return &Lines{w: w, wake: make(chan struct{}, 1)} }

// Write takes a line, or drops it when too much is waiting. It never fails.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	if len(l.waiting)+len(line) > lineBuffer {
		l.dropped++
		l.total++
	} else {
		l.waiting = append(l.waiting, line...)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
	return len(line), nil
}

// Dropped is how many lines were dropped since the start.
func (l *Lines) Dropped() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// take gives what waits, and leaves spare in its place; nil when nothing waits, and spare stays the caller's.
func (l *Lines) take(spare []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 && l.dropped == 0 {
		return nil
	}
	full := l.waiting
	l.waiting = spare[:0]
	if l.dropped > 0 {
		full = fmt.Appendf(full, "%d log lines were dropped: nobody read them in time\n", l.dropped)
		l.dropped = 0
	}
	return full
}

// Run writes lines until ctx ends, and then what is left, for at most a second: a reader that has
// stopped does not keep the program. Nothing is left to do about a line that cannot be written.
func (l *Lines) Run(ctx context.Context) {
	ended := make(chan struct{})
	go func() { // ends with ctx, or hangs in a write until the process ends
		defer close(ended)
		var spare []byte
		for {
			full := l.take(spare)
			if full != nil {
				_, _ = l.w.Write(full)
				if spare = full; cap(spare) > lineBuffer/16 {
					spare = nil // a burst does not stay
				}
				continue
			}
			select {
			case <-l.wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	<-ctx.Done()
	last := time.NewTimer(lastCall)
	defer last.Stop()
	select {
	case <-ended:
	case <-last.C:
	}
}

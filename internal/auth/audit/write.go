package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
)

const (
	maxQueue = 1024    // writers that wait at once
	maxBytes = 4 << 20 // bytes that wait at once
	// maxTail is what one batch can have: the queue, and the notes of a second.
	maxTail = maxBytes + maxNotes*maxLine/2
)

// waiting is a writer whose lines are not on disk yet.
type waiting struct {
	lines []byte
	count int64
	gone  bool          // it does not wait any more; guarded by Trail.mu
	lead  chan struct{} // told to write the next batch
	done  chan error    // told the outcome
}

// Write adds a line and returns when it is on disk. ErrBusy and ErrClosed mean that nothing was written;
// after the error of ctx the line may be there or not.
func (t *Trail) Write(ctx context.Context, e Event) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("audit: write: %w", err)
	}
	if e.Time.IsZero() {
		e.Time = t.o.Now()
	}
	line, err := encode(e)
	if err != nil {
		return err
	}
	if err := t.put(ctx, line, 1); err != nil {
		return fmt.Errorf("audit: write: %w", err)
	}
	return nil
}

// put hands lines to the disk. There is no goroutine of the trail for that: the first who comes writes its
// own line, those who come meanwhile gather, and one of them writes them all.
func (t *Trail) put(ctx context.Context, lines []byte, count int64) error {
	w := &waiting{lines: lines, count: count, lead: make(chan struct{}, 1), done: make(chan error, 1)}
	t.mu.Lock()
	if err := t.refusal(len(lines)); err != nil {
		t.mu.Unlock()
		return err
	}
	t.queue = append(t.queue, w)
	t.queued += len(lines)
	lead := !t.leading
	t.leading = true
	t.mu.Unlock()
	if lead {
		t.commit()
		return <-w.done
	}
	select {
	case err := <-w.done:
		return err
	case <-w.lead:
		t.commit()
		return <-w.done
	case <-ctx.Done():
	}
	t.mu.Lock()
	w.gone = true
	t.mu.Unlock()
	select {
	case <-w.lead: // it had been chosen before it went: nobody else will write the batch
		t.commit()
		return <-w.done
	default:
		return ctx.Err()
	}
}

// refusal says why a line cannot be taken in.
func (t *Trail) refusal(size int) error {
	switch {
	case t.failure != nil:
		return t.failure
	case t.closed:
		return ErrClosed
	case len(t.queue) >= maxQueue || len(t.queue) > 0 && t.queued+size > maxBytes:
		return ErrBusy
	}
	return nil
}

// commit writes the queue as one batch, and hands the next to one who waits in it: nobody writes for others
// for long.
func (t *Trail) commit() {
	for {
		t.mu.Lock()
		batch := t.queue
		t.queue, t.queued = nil, 0
		t.mu.Unlock()
		err := t.save(batch)
		for _, w := range batch {
			w.done <- err
		}
		t.mu.Lock()
		var next *waiting
		for _, w := range t.queue {
			if !w.gone {
				next = w
				break
			}
		}
		if next != nil {
			next.lead <- struct{}{}
		} else if len(t.queue) == 0 {
			t.leading = false
			t.idle.Broadcast()
		}
		left := len(t.queue) > 0 && next == nil // all went away: their lines are promised nothing, but wait
		t.mu.Unlock()
		if !left {
			return
		}
	}
}

// save writes a batch and syncs it. Only the leader calls it.
func (t *Trail) save(batch []*waiting) error {
	var lines []byte
	var count int64
	for _, w := range batch {
		lines = append(lines, w.lines...)
		count += w.count
	}
	t.mu.Lock()
	size, failure := t.size, t.failure
	t.mu.Unlock()
	if failure != nil {
		return failure
	}
	if size > 0 && size+int64(len(lines)) > t.o.MaxBytes {
		if err := t.rotate(); err != nil {
			return err
		}
		size = 0
	}
	if t.current == nil {
		if err := t.create(); err != nil {
			return err
		}
	}
	path := filepath.Join(t.dir, currentName)
	if _, err := t.current.WriteAt(lines, size); err != nil {
		// Half a line may be there: it goes, or the trail does, since the next line would not stand alone.
		if cut := t.current.Truncate(size); cut != nil {
			return t.fail("truncate", path, errors.Join(err, cut))
		}
		return unwritable(path, err)
	}
	if err := t.current.Sync(); err != nil {
		return t.fail("sync", path, err)
	}
	t.mu.Lock()
	t.size = size + int64(len(lines))
	t.stats.Lines += count
	t.stats.Syncs++
	t.mu.Unlock()
	return nil
}

// fail ends the trail: what is on disk is not known any more.
func (t *Trail) fail(op, path string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		t.failure = &store.FailedError{Op: op, Path: path, Err: err}
		close(t.failed)
	}
	return t.failure
}

// rotate puts the current file aside and removes the files that are too many. There is no current file then.
// A rename that the disk had no room for changes nothing, and the write fails.
func (t *Trail) rotate() error {
	t.files.Lock()
	defer t.files.Unlock()
	name := t.nextAside()
	path, to := filepath.Join(t.dir, currentName), filepath.Join(t.dir, name)
	if err := t.current.Close(); err != nil { // first, because Windows renames no open file
		return t.fail("close", path, err)
	}
	if err := t.o.FS.Rename(path, to); err != nil {
		return t.reopen(path, err)
	}
	// On disk before there can be another file of the old name: no crash may leave the new one alone.
	if err := t.o.FS.SyncDir(t.dir); err != nil {
		return t.fail("sync folder", t.dir, err)
	}
	t.current = nil
	t.aside = append(t.aside, name)
	t.mu.Lock()
	t.size = 0
	t.mu.Unlock()
	for len(t.aside) > t.o.Keep {
		// One that cannot be removed now is tried again with the next rotation.
		if err := t.o.FS.Remove(filepath.Join(t.dir, t.aside[0])); err != nil && !errors.Is(err, os.ErrNotExist) {
			break
		}
		t.aside = t.aside[1:]
	}
	return nil
}

// create makes the current file, on disk before any line is.
func (t *Trail) create() error {
	t.files.Lock()
	defer t.files.Unlock()
	path := filepath.Join(t.dir, currentName)
	f, err := t.o.FS.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return unwritable(path, err)
	}
	t.current = f
	if err := t.o.FS.SyncDir(t.dir); err != nil {
		return t.fail("sync folder", t.dir, err)
	}
	return nil
}

// reopen takes up the file again that could not be put aside because of err.
func (t *Trail) reopen(path string, err error) error {
	f, again := t.o.FS.Open(path, os.O_RDWR)
	if again != nil {
		return t.fail("open", path, errors.Join(err, again))
	}
	t.current = f
	return unwritable(path, err)
}

func unwritable(path string, err error) error {
	return fault.Newf(fault.Unavailable, "AUDIT_UNWRITABLE", "write %s: %w", path, err)
}

// nextAside names the file that is put aside now. Names go up also when the clock does not.
func (t *Trail) nextAside() string {
	now := t.o.Now().UTC()
	if n := len(t.aside); n > 0 {
		last := t.aside[n-1]
		if at, err := time.Parse(asideTime, last[len(asidePrefix):len(last)-len(asideSuffix)]); err == nil &&
			!now.After(at) {
			now = at.Add(time.Nanosecond)
		}
	}
	return asidePrefix + now.Format(asideTime) + asideSuffix
}

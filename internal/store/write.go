package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// writer is the end of the log. It belongs to the goroutine of Run.
type writer struct {
	file File
	path string
	seed uint32
	off  int64  // where the next frame goes
	next uint64 // its sequence number
	// dirty says that bytes behind off, or the length of the file, changed after the last sync.
	dirty bool
	// marked says that a mark for this end is written.
	marked bool
	spare  batch // memory for the queue's next batch
	head   [frameHead]byte
}

// Run writes what is appended until ctx ends, and then what was accepted before that. It returns nil after an
// orderly end, when all is on disk and all files are closed. It returns a *FailedError when the disk failed:
// the owner must stop the process, whose next start recovers. A log runs once.
func (l *Log) Run(ctx context.Context) error {
	l.life.Lock()
	if l.state != ready {
		l.life.Unlock()
		return fmt.Errorf("store: run: %w", ErrClosed)
	}
	l.state = running
	l.life.Unlock()
	// The loop ends on a full stop only. A cancelled ctx stops the queue, which wakes the loop.
	release := context.AfterFunc(ctx, func() { l.queue.stop(ErrClosed) })
	defer release()
	l.loop()
	return l.end()
}

// loop commits batches until the queue is stopped and empty, or the log has failed.
func (l *Log) loop() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	last := 0 // records of the last batch
	for {
		waiting, stopped := l.queue.state()
		if stopped != nil && (waiting == 0 || stopped != ErrClosed) {
			return
		}
		if waiting == 0 {
			<-l.queue.wake
			continue
		}
		if last > 1 && l.opts.Gather > 0 {
			l.queue.gather(last, l.opts.Gather, timer)
		}
		b := l.queue.take(l.writer.spare)
		last = len(b.entries)
		err := l.commit(&b)
		l.writer.spare = b
		if waiting, _ = l.queue.state(); err == nil && waiting == 0 {
			err = l.mark()
		}
		if err != nil {
			l.fail(err)
			return
		}
	}
}

// end answers what is left, makes the mark durable and closes the file.
func (l *Log) end() error {
	l.queue.stop(ErrClosed)
	l.life.Lock()
	cause := l.cause
	l.life.Unlock()
	if cause == nil {
		if cause = l.seal(); cause != nil {
			l.fail(cause)
		}
	}
	left := l.queue.take(batch{})
	reason := cause
	if reason == nil {
		reason = ErrClosed
	}
	left.answer(0, reason)
	l.catalog.stop(reason)
	err := l.writer.file.Close()
	l.life.Lock()
	l.state = ended
	if l.cause != nil {
		cause = l.cause
	}
	l.life.Unlock()
	if cause != nil {
		return fmt.Errorf("store: run: %w", cause)
	}
	if err != nil {
		return fmt.Errorf("store: run: close: %w", err)
	}
	return nil
}

// Close closes a log that was never run. What was appended to it is answered with ErrClosed. On a log that
// runs or has ended it does nothing: Run closes it.
func (l *Log) Close() error {
	l.life.Lock()
	if l.state != ready {
		l.life.Unlock()
		return nil
	}
	l.state = running
	l.life.Unlock()
	l.queue.stop(ErrClosed)
	left := l.queue.take(batch{})
	left.answer(0, ErrClosed)
	err := l.writer.file.Close()
	l.catalog.stop(ErrClosed)
	l.life.Lock()
	l.state = ended
	l.life.Unlock()
	if err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

// commit writes a batch, syncs it and tells everybody. An error is the end of the log.
func (l *Log) commit(b *batch) error {
	w := &l.writer
	if w.off > segmentHead && w.off+int64(len(b.frames)) > l.opts.SegmentBytes {
		if err := l.rotate(); err != nil {
			b.answer(0, err)
			return err
		}
	}
	first := w.next
	at := 0
	for i, e := range b.entries {
		stamp(b.frames[at:], w.seed, kindRecord, e.length, first+uint64(i), first-1)
		at += int(frameSize(e.length))
	}
	w.marked = false
	if _, err := w.file.WriteAt(b.frames, w.off); err != nil {
		err = l.undo(err)
		if _, space := errors.AsType[*SpaceError](err); space {
			l.stats.full.Add(uint64(len(b.entries)))
			b.answer(0, err)
			return nil
		}
		b.answer(0, err)
		return err
	}
	if err := w.file.Sync(); err != nil {
		err = failed("sync", w.path, err)
		b.answer(0, err)
		return err
	}
	w.dirty = false
	off := w.off
	w.off += int64(len(b.frames))
	w.next += uint64(len(b.entries))
	l.catalog.grow(first, w.next-1, off, w.off)
	l.stats.records.Add(uint64(len(b.entries)))
	l.stats.bytes.Add(uint64(len(b.frames)))
	l.stats.batches.Add(1)
	b.answer(first, nil)
	return nil
}

// undo takes back a write that failed. When the disk is full the file is cut to its last good length,
// durably, so that nothing of the failed records can come back, and the error is a *SpaceError. Any other
// failure of a write, and a failure to take it back, is a *FailedError.
func (l *Log) undo(cause error) error {
	w := &l.writer
	if !full(cause) {
		return failed("write", w.path, cause)
	}
	if err := w.file.Truncate(w.off); err != nil {
		return failed("truncate", w.path, errors.Join(err, cause))
	}
	if err := w.file.Sync(); err != nil {
		return failed("sync", w.path, errors.Join(err, cause))
	}
	w.dirty = false
	return &SpaceError{Path: w.path, Err: cause}
}

// mark writes, behind the last record, that all before was durable: a proof for the next start that a bad
// record at the very end is damage and no interrupted write. The next batch overwrites it. It is not synced:
// it is true whether or not it reaches the disk.
func (l *Log) mark() error {
	w := &l.writer
	if w.marked {
		return nil
	}
	stamp(w.head[:], w.seed, kindMark, 0, w.next, w.next-1)
	w.dirty = true
	if _, err := w.file.WriteAt(w.head[:], w.off); err != nil {
		err = l.undo(err)
		if _, space := errors.AsType[*SpaceError](err); !space {
			return err
		}
	}
	w.marked = true
	return nil
}

// seal marks the end of the log and makes the mark durable.
func (l *Log) seal() error {
	if l.writer.next > 1 {
		if err := l.mark(); err != nil {
			return err
		}
	}
	return l.flush()
}

// flush makes the segment durable as it is.
func (l *Log) flush() error {
	w := &l.writer
	if !w.dirty {
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return failed("sync", w.path, err)
	}
	w.dirty = false
	return nil
}

// rotate begins a new segment. When there is no space or no descriptor for one, the old segment goes on.
func (l *Log) rotate() error {
	w := &l.writer
	if w.dirty {
		// The mark behind the last record was not synced, and in a segment that is not the last, half a mark
		// is damage. It is written anew, for after a failed sync and a restart its page may look clean.
		w.marked = false
		if err := l.seal(); err != nil {
			return err
		}
	}
	path, err := createSegment(l.fs, l.dir, segmentHeader{salt: l.salt, first: w.next})
	if err != nil {
		if _, dead := errors.AsType[*FailedError](err); dead || !full(err) && !scarce(err) {
			return asFailed("create", path, err)
		}
		// A rename that failed may have happened. Records behind the start of a segment that exists must not
		// go anywhere else.
		f, e := l.fs.Open(path, os.O_RDONLY)
		if e == nil {
			return asFailed("create", path, errors.Join(err, f.Close()))
		}
		if !isNotExist(e) {
			return asFailed("create", path, errors.Join(err, e))
		}
		return nil
	}
	file, err := l.fs.Open(path, os.O_RDWR)
	if err != nil {
		return asFailed("open", path, err)
	}
	if err := w.file.Close(); err != nil {
		return asFailed("close", w.path, errors.Join(err, file.Close()))
	}
	h := segmentHeader{salt: l.salt, first: w.next}
	w.file, w.path, w.seed, w.off, w.marked, w.dirty = file, path, h.seed(), segmentHead, true, false
	l.catalog.add(segment{first: h.first, path: path, end: segmentHead})
	return nil
}

// asFailed makes a *FailedError of err, if it is none.
func asFailed(op, path string, err error) error {
	if _, dead := errors.AsType[*FailedError](err); dead {
		return err
	}
	return failed(op, path, err)
}

// createSegment makes an empty segment whole and durable under its name.
func createSegment(fs FS, dir string, h segmentHeader) (path string, err error) {
	path = fileName(dir, h.first, segmentExt)
	return path, replace(fs, path, func(f File) error {
		_, err := f.WriteAt(appendSegmentHeader(nil, h), 0)
		return err
	})
}

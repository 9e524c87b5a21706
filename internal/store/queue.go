package store

import (
	"context"
	"sync"
	"time"
)

// entry is one record of a batch: its payload's length, and whom to tell.
type entry struct {
	length int
	done   func(position uint64, err error)
}

// batch is a run of records that are written by one write and made durable by one sync. frames holds them in
// order, in their form on disk but for the numbers and checksums.
type batch struct {
	frames  []byte
	entries []entry
}

// keepBytes is how much memory of a batch is kept for the next one.
const keepBytes = 1 << 20

// answer tells everybody and empties the batch for its next use.
func (b *batch) answer(first uint64, err error) {
	for i, e := range b.entries {
		if err != nil {
			e.done(0, err)
		} else {
			e.done(first+uint64(i), nil)
		}
	}
	clear(b.entries)
	b.entries = b.entries[:0]
	b.frames = b.frames[:0]
	if cap(b.frames) > keepBytes {
		b.frames = nil
	}
}

// queue holds what waits for the next write, within bounds. The writer takes all of it at once.
type queue struct {
	maxRecords, maxBytes, maxRecord int

	wake chan struct{} // one token: there is something, or as much as the writer waits for

	mu      sync.Mutex // guards all below
	waiting batch
	want    int           // records that the writer waits for
	stopped error         // not nil: nothing is taken any more
	space   chan struct{} // closed by the next take, when somebody waits for that
	refused uint64        // records not taken because the queue was full
}

func newQueue(o *LogOptions) *queue {
	return &queue{
		maxRecords: o.QueueRecords, maxBytes: o.QueueBytes, maxRecord: o.RecordBytes,
		wake: make(chan struct{}, 1),
	}
}

// put copies the record into the queue, or returns ErrBusy. A queue that is empty takes any record.
func (q *queue) put(record []byte, done func(uint64, error)) error {
	if len(record) > q.maxRecord {
		return &SizeError{Size: int64(len(record)), Max: int64(q.maxRecord)}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped != nil {
		return q.stopped
	}
	if q.fullFor(record) {
		q.refused++
		return ErrBusy
	}
	q.add(record, done)
	return nil
}

// putWait is put that waits for space until ctx ends.
func (q *queue) putWait(ctx context.Context, record []byte, done func(uint64, error)) error {
	if len(record) > q.maxRecord {
		return &SizeError{Size: int64(len(record)), Max: int64(q.maxRecord)}
	}
	for {
		q.mu.Lock()
		if q.stopped != nil {
			defer q.mu.Unlock()
			return q.stopped
		}
		if !q.fullFor(record) {
			q.add(record, done)
			q.mu.Unlock()
			return nil
		}
		if q.space == nil {
			q.space = make(chan struct{})
		}
		space := q.space
		q.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *queue) fullFor(record []byte) bool {
	n := len(q.waiting.entries)
	return n > 0 && (n >= q.maxRecords ||
		int64(len(q.waiting.frames))+frameSize(len(record)) > int64(q.maxBytes))
}

func (q *queue) add(record []byte, done func(uint64, error)) {
	q.waiting.frames = appendFrame(q.waiting.frames, record)
	q.waiting.entries = append(q.waiting.entries, entry{length: len(record), done: done})
	if n := len(q.waiting.entries); n == 1 || n == q.want {
		q.poke()
	}
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all that waits and leaves empty in its place.
func (q *queue) take(empty batch) batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.waiting
	q.waiting = empty
	q.want = 0
	if q.space != nil {
		close(q.space)
		q.space = nil
	}
	return b
}

// stop makes the queue refuse everything with err, and wakes the writer and those who wait for space. The
// first reason stays, but a failure replaces an orderly end.
func (q *queue) stop(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped == nil || q.stopped == ErrClosed {
		q.stopped = err
	}
	if q.space != nil {
		close(q.space)
		q.space = nil
	}
	q.poke()
}

// state returns how many records wait, and why no more are taken, if so.
func (q *queue) state() (waiting int, stopped error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting.entries), q.stopped
}

// gather waits until n records are there, or for the time given, or until the queue is stopped.
func (q *queue) gather(n int, limit time.Duration, timer *time.Timer) {
	enough := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.want = n
		return q.stopped != nil || len(q.waiting.entries) >= n || len(q.waiting.frames) >= q.maxBytes/2
	}
	if enough() {
		return
	}
	timer.Reset(limit)
	defer timer.Stop()
	for !enough() {
		select {
		case <-q.wake:
		case <-timer.C:
			return
		}
	}
}

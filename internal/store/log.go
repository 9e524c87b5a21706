package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// LogOptions says how to open a log. The zero value is good for use.
type LogOptions struct {
	// SegmentBytes is the size at which a new segment is begun; a segment is at most one batch longer.
	// Default 64 MiB, at least 4 KiB.
	SegmentBytes int64
	// RecordBytes bounds one record. Default 16 MiB, at most MaxRecord.
	RecordBytes int
	// QueueRecords and QueueBytes bound what waits for the next write, which is also the largest batch. A
	// single record may be larger than QueueBytes. Default 16,384 and 8 MiB.
	QueueRecords, QueueBytes int
	// Gather is the longest time that a write waits for as many records as the last one had. Zero is 2 ms,
	// negative is not at all. A log with one appender at a time never waits.
	Gather time.Duration
	// Snapshot gets the newest snapshot while the log is opened, before any record. It need not read to the
	// end.
	Snapshot func(position uint64, r io.Reader) error
	// Replay gets the readable records behind the snapshot while the log is opened, in order. The record is
	// valid during the call. When OpenLog then fails, what it was given must be thrown away.
	Replay func(position uint64, record []byte) error
	// Salvage opens a damaged log all the same: what is whole is kept at its positions, the files as they
	// were stay beside it with the ending .damaged, and what is lost is reported.
	Salvage bool
}

func (o *LogOptions) fill() error {
	set := func(v *int, standard int) {
		if *v == 0 {
			*v = standard
		}
	}
	set(&o.RecordBytes, 16<<20)
	set(&o.QueueRecords, 16384)
	set(&o.QueueBytes, 8<<20)
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.Gather == 0 {
		o.Gather = 2 * time.Millisecond
	}
	if o.SegmentBytes < 4<<10 || o.RecordBytes < 1 || o.RecordBytes > MaxRecord || o.QueueRecords < 1 ||
		o.QueueRecords > 1<<24 || o.QueueBytes < 1 || o.QueueBytes > 1<<30 {
		return fmt.Errorf("store: open log: a bound is out of range: %d segment, %d record, %d and %d queue",
			o.SegmentBytes, o.RecordBytes, o.QueueRecords, o.QueueBytes)
	}
	return nil
}

// LogOpened is what OpenLog found and mended.
type LogOpened struct {
	Created  bool
	First    uint64 // first readable position
	Last     uint64 // last readable position; First-1 when there is none
	Snapshot uint64 // position of the newest snapshot; 0 when there is none
	Segments int
	Torn     *Torn         // an interrupted write at the end that was cut off
	Lost     []LostError   // records that a salvage gave up, now or earlier
	Salvaged []DamageError // what this salvage found; empty when there was no need of one
}

// Torn is an interrupted write at the end of a log. Nothing in it had been acknowledged.
type Torn struct {
	File   string
	Offset int64
	Bytes  int64 // that were cut off, without the zeros at the end
}

// LogStats counts since the log was opened.
type LogStats struct {
	Records uint64 // made durable
	Bytes   uint64 // written for them
	Batches uint64 // writes, each with one sync
	Refused uint64 // not taken because the queue was full
	Full    uint64 // failed because the disk was full
}

// Log is an append-only log of records. A record's position is its sequence number: the first is 1, and there
// is no gap. Everything but Run and Close may be used from any goroutine at once.
type Log struct {
	fs     FS
	dir    string
	opts   LogOptions
	salt   uint64
	opened LogOpened

	queue   *queue
	catalog *catalog
	writer  writer // owned by Run
	waiters sync.Pool

	trim sync.Mutex // held while LOG or a snapshot is written

	stats struct {
		records, bytes, batches, full atomic.Uint64
	}

	failed chan struct{} // closed when cause is set

	life  sync.Mutex // guards the two below
	state state
	cause error
}

type state uint8

const (
	ready state = iota
	running
	ended
)

// OpenLog opens the log in the folder dir and creates it where it is missing. It checks every byte that can
// be read, cuts off an interrupted write at the end, and refuses damage with a *DamageError. Nothing is
// appended before Run; a log that is never run must be closed.
func OpenLog(fs FS, dir string, opts LogOptions) (*Log, error) {
	if err := opts.fill(); err != nil {
		return nil, err
	}
	var found []DamageError
	if opts.Salvage {
		var err error
		if found, err = salvageIfDamaged(fs, dir); err != nil {
			return nil, fmt.Errorf("store: salvage log %s: %w", dir, err)
		}
	}
	r := &recovery{fs: fs, dir: dir, snapshot: opts.Snapshot, replay: opts.Replay}
	if err := r.run(); err != nil {
		return nil, fmt.Errorf("store: open log %s: %w", dir, err)
	}
	l := &Log{
		fs: fs, dir: dir, opts: opts, salt: r.salt, opened: r.opened,
		queue: newQueue(&opts), catalog: r.catalog, writer: r.writer, failed: make(chan struct{}),
	}
	l.opened.Salvaged = found
	l.waiters.New = func() any { return newWaiter() }
	return l, nil
}

// Opened returns what OpenLog found.
func (l *Log) Opened() LogOpened { return l.opened }

// Path returns the folder of the log.
func (l *Log) Path() string { return l.dir }

// First returns the first readable position, Last the last one that is durable; Last is First-1 when there is
// no record.
func (l *Log) First() uint64 {
	first, _, _ := l.catalog.bounds()
	return first
}

// Last returns the position of the last durable record.
func (l *Log) Last() uint64 {
	_, last, _ := l.catalog.bounds()
	return last
}

// Stats returns the counters.
func (l *Log) Stats() LogStats {
	l.queue.mu.Lock()
	refused := l.queue.refused
	l.queue.mu.Unlock()
	return LogStats{
		Records: l.stats.records.Load(), Bytes: l.stats.bytes.Load(), Batches: l.stats.batches.Load(),
		Full: l.stats.full.Load(), Refused: refused,
	}
}

// waiter is one caller of Append.
type waiter struct {
	position uint64
	err      error
	ready    chan struct{} // one token
	done     func(uint64, error)
}

func newWaiter() *waiter {
	w := &waiter{ready: make(chan struct{}, 1)}
	w.done = func(position uint64, err error) {
		w.position, w.err = position, err
		w.ready <- struct{}{}
	}
	return w
}

// Append stores the record and returns its position when it is durable. It waits while the queue is full. The
// record is copied before Append returns in any way. The errors are *SizeError, *SpaceError and ErrClosed,
// after which nothing of the record is in the log; *FailedError, after which it may or may not be; and the
// error of ctx, after which it may still become durable.
func (l *Log) Append(ctx context.Context, record []byte) (uint64, error) {
	w := l.waiters.Get().(*waiter)
	if err := l.queue.putWait(ctx, record, w.done); err != nil {
		l.waiters.Put(w)
		return 0, fmt.Errorf("store: append: %w", err)
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		// The waiter is still to be answered, so it is not used again.
		return 0, fmt.Errorf("store: append: gave up waiting, the record may yet be stored: %w", ctx.Err())
	}
	position, err := w.position, w.err
	w.err = nil
	l.waiters.Put(w)
	if err != nil {
		return 0, fmt.Errorf("store: append: %w", err)
	}
	return position, nil
}

// AppendAsync takes the record, copies it, and calls done when it is durable or has failed, in the order of
// the positions. It never waits: a full queue is ErrBusy. When it returns an error, done is not called. done
// runs on the goroutine of Run: it must not block and must not call Append.
func (l *Log) AppendAsync(record []byte, done func(position uint64, err error)) error {
	if err := l.queue.put(record, done); err != nil {
		return fmt.Errorf("store: append: %w", err)
	}
	return nil
}

// Failed is closed when the log has failed for good. Run returns the reason to its owner, which stops the
// process.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// fail ends the log for good, with the first reason.
func (l *Log) fail(err error) {
	l.life.Lock()
	defer l.life.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = err
	l.queue.stop(err)
	l.catalog.stop(err)
	close(l.failed)
}

// check ends the log if err says that a sync failed, and returns err.
func (l *Log) check(err error) error {
	if f, ok := errors.AsType[*FailedError](err); ok {
		l.fail(f)
	}
	return err
}

// use returns why the log cannot be written, if so.
func (l *Log) use() error {
	l.life.Lock()
	defer l.life.Unlock()
	if l.cause != nil {
		return l.cause
	}
	if l.state == ended {
		return ErrClosed
	}
	return nil
}

// Wait returns when the record at position is durable, or with why it will not be: the error of ctx, of a
// failure, or ErrClosed.
func (l *Log) Wait(ctx context.Context, position uint64) error {
	for {
		changed, err := l.catalog.wait(position)
		if err != nil {
			return fmt.Errorf("store: wait: %w", err)
		}
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("store: wait: %w", ctx.Err())
		}
	}
}

// Truncate gives up all records before the position: they cannot be read from its return on, and the segments
// that hold nothing else are removed. The position may be Last+1 at most. Lower than First is no error.
func (l *Log) Truncate(before uint64) error {
	l.trim.Lock()
	defer l.trim.Unlock()
	floor, durable, _ := l.catalog.bounds()
	if before > durable+1 {
		return fmt.Errorf("store: truncate before %d, the last is %d: %w", before, durable, ErrAhead)
	}
	if before <= floor {
		return l.catalog.sweep()
	}
	if err := l.use(); err != nil {
		return fmt.Errorf("store: truncate: %w", err)
	}
	if err := l.check(writeMeta(l.fs, l.dir, meta{salt: l.salt, floor: before})); err != nil {
		return fmt.Errorf("store: truncate: %w", err)
	}
	l.catalog.raise(before)
	return l.catalog.sweep()
}

// Snapshot stores what write writes as the state after the record at position, durably, in the place of the
// older snapshot. The next OpenLog hands it over before the records behind it; Truncate(position+1) may
// follow. Positions of snapshots grow. A failure leaves the older snapshot.
func (l *Log) Snapshot(position uint64, write func(w io.Writer) error) error {
	l.trim.Lock()
	defer l.trim.Unlock()
	floor, durable, newest := l.catalog.bounds()
	switch {
	case position > durable:
		return fmt.Errorf("store: snapshot at %d, the last is %d: %w", position, durable, ErrAhead)
	case position <= newest || position+1 < floor:
		gone := &GoneError{Position: position, First: max(newest+1, floor)}
		return fmt.Errorf("store: snapshot at %d: %w", position, gone)
	}
	if err := l.use(); err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	path := fileName(l.dir, position, snapshotExt)
	if err := l.check(writeStream(l.fs, path, snapshotForm, write)); err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	l.catalog.setSnapshot(position)
	return l.catalog.sweep()
}

// OpenSnapshot returns the newest snapshot, checked whole; fs.ErrNotExist when there is none.
func (l *Log) OpenSnapshot() (position uint64, r io.ReadCloser, err error) {
	l.trim.Lock()
	defer l.trim.Unlock()
	_, _, position = l.catalog.bounds()
	c, err := openContent(l.fs, fileName(l.dir, position, snapshotExt))
	if err != nil {
		return 0, nil, err
	}
	return position, c, nil
}

// snapshotForm is the version of the envelope around snapshots. Their content is the owner's.
const snapshotForm = 1

// meta is the content of the file LOG.
type meta struct {
	salt  uint64
	floor uint64 // first readable position
}

const metaForm = "salt %016x\nfloor %020d\n"

func writeMeta(fs FS, dir string, m meta) error {
	return WriteFile(fs, filepath.Join(dir, metaName), 1, fmt.Appendf(nil, metaForm, m.salt, m.floor))
}

func readMeta(fs FS, dir string) (m meta, err error) {
	path := filepath.Join(dir, metaName)
	version, b, err := ReadFile(fs, path)
	if err != nil {
		return m, err
	}
	n, err := fmt.Sscanf(string(b), metaForm, &m.salt, &m.floor)
	if n != 2 || err != nil || version != 1 || m.floor == 0 ||
		fmt.Sprintf(metaForm, m.salt, m.floor) != string(b) {
		return m, &DamageError{File: path, Reason: "is not the file that it should be"}
	}
	return m, nil
}

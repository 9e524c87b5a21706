// Package audit is the trail of what people and programs did to the house: who, what, to whom, with what
// outcome, from where. It is a file of JSON lines, audit.jsonl, beside the full ones it replaced.
//
// It promises that Trail.Write returns without an error only after a successful fsync of the line, which
// many lines share; that lines stand in the order in which they were taken in; that a line which a power cut
// broke is cut off at the next start and counted; and that the oldest lines go by whole files, of which
// Options.Keep stay. A failed fsync ends the trail for good: Run returns it, and the process must stop.
// A full disk fails the write and nothing else.
//
// Floods go through Trail.Note, which is aggregated, best effort, and does no I/O: it may be called from an
// event loop. Everything may be called from any goroutine. Writing needs no Run; only notes do.
//
// It does not decide what is worth a line, hides no secrets in what it is given, and does not prove that
// nobody edited the files: whoever may write the data folder may change them.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
)

// Outcomes of an event.
const (
	OK     = "ok"     // it was done
	Denied = "denied" // it was refused
	Failed = "failed" // it was allowed and did not work
)

// Actor is who did it. Kind is a principal's: user, key, local, loopback, worker, or none.
type Actor struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Event is one line of the trail. Texts are cut at 512 bytes when they are written.
type Event struct {
	Time    time.Time `json:"time"` // UTC; the time of Write when it is zero
	Actor   Actor     `json:"actor"`
	Action  string    `json:"action"` // "user.create", "login", "key.revoke", "credential.refuse"
	Target  string    `json:"target,omitempty"`
	Outcome string    `json:"outcome"`          // ok, denied, failed
	Reason  string    `json:"reason,omitempty"` // why it was denied or failed
	Remote  string    `json:"remote,omitempty"` // address, without the port
	Door    string    `json:"door,omitempty"`   // worker, admin
	Trace   string    `json:"trace,omitempty"`  // 32 hex digits
	Count   int       `json:"count,omitempty"`  // of a note: how many such events the line stands for
}

// Options says how to open a trail. The zero value is good for use.
type Options struct {
	MaxBytes int64            // size at which a file is put aside; 0 is 16 MiB
	Keep     int              // files put aside that stay; 0 is 8
	Now      func() time.Time // nil is time.Now
	FS       store.FS         // nil is the operating system's
}

// Stats counts what happened since Open.
type Stats struct {
	Lines   int64 // on disk
	Syncs   int64 // that put them there
	Cut     int64 // bytes of a broken end that the start cut off
	Damaged int64 // lines that could not be read by queries
	Dropped int64 // notes without a line of their own: too many kinds at once, or the disk was full
}

// Errors of this package beside those of store.
var (
	// ErrClosed: the trail has ended; nothing was written.
	ErrClosed error = fault.New(fault.Unavailable, "AUDIT_CLOSED", "the audit trail is closed")
	// ErrBusy: too many lines wait for the disk; nothing was written.
	ErrBusy error = fault.New(fault.Limit, "AUDIT_BUSY", "too many audit lines wait for the disk")
)

const (
	currentName = "audit.jsonl"
	asidePrefix = "audit-"
	asideSuffix = ".jsonl"
	asideTime   = "20060102-150405.000000000" // UTC; names sort by time
	maxAside    = 1000                        // files put aside that Keep may ask for
)

// Trail is an open audit trail. One process has it open.
type Trail struct {
	dir string
	o   Options

	mu      sync.Mutex // guards the queue and the end
	queue   []*waiting
	queued  int  // bytes in the queue
	leading bool // somebody writes a batch
	idle    *sync.Cond
	closed  bool
	running bool
	failure error // the disk failed; for good
	failed  chan struct{}
	stats   Stats

	files   sync.RWMutex // names on disk: held for writing while files are put aside
	aside   []string     // oldest first
	current store.File   // nil when it is to be created by the next write
	size    int64        // of the current file, what is durable; guarded by mu

	notes notes
}

// Open opens the trail in the folder dir, which it creates when it is missing, and mends its end.
func Open(dir string, o Options) (*Trail, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 16 << 20
	}
	if o.Keep <= 0 {
		o.Keep = 8
	}
	o.Keep = min(o.Keep, maxAside)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = store.OS()
	}
	t := &Trail{dir: dir, o: o, failed: make(chan struct{})}
	t.idle = sync.NewCond(&t.mu)
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("audit: open %s: %w", dir, err)
	}
	return t, nil
}

func (t *Trail) open() error {
	if err := t.o.FS.Mkdir(t.dir); err != nil {
		return err
	}
	entries, err := t.o.FS.List(t.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Dir && isAside(e.Name) {
			t.aside = append(t.aside, e.Name)
		}
	}
	slices.Sort(t.aside)
	path := filepath.Join(t.dir, currentName)
	if t.current, err = t.o.FS.Open(path, os.O_RDWR); errors.Is(err, fs.ErrNotExist) {
		t.current, err = t.o.FS.Open(path, os.O_RDWR|os.O_CREATE)
	}
	if err != nil {
		return err
	}
	// Also for a file that was there: the process that made it may have died before it synced the folder.
	if err = t.o.FS.SyncDir(t.dir); err == nil {
		err = t.mend()
	}
	if err != nil {
		if t.current != nil {
			err = errors.Join(err, t.current.Close())
		}
		return err
	}
	return nil
}

// isAside tells the files that rotation made.
func isAside(name string) bool {
	stamp, ok := strings.CutPrefix(name, asidePrefix)
	stamp, is := strings.CutSuffix(stamp, asideSuffix)
	if !ok || !is {
		return false
	}
	_, err := time.Parse(asideTime, stamp)
	return err == nil
}

// mend cuts off what stands behind the last whole line. What a power cut can break was not acknowledged and
// is no more than one batch; more than that is damage of another kind, and the file is put aside as it is.
func (t *Trail) mend() error {
	size, err := t.current.Size()
	if err != nil {
		return err
	}
	end, at := int64(0), size
	lines := backward{r: t.current, at: size, whole: true}
	for at > 0 && size-at <= maxTail {
		line, start, err := lines.next()
		if err != nil {
			return err
		}
		if _, bad := decode(line); bad == nil && lines.ended {
			end = start + int64(len(line)) + 1
			break
		}
		at = start
	}
	t.size = size
	if end == size {
		return t.current.Sync() // the last process may have died before it did
	}
	if at > 0 && end == 0 {
		t.stats.Damaged++
		return t.rotate()
	}
	t.stats.Cut = size - end
	t.size = end
	if err := t.current.Truncate(end); err != nil {
		return err
	}
	return t.current.Sync()
}

// Stats returns the counts so far.
func (t *Trail) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Dropped += t.notes.lost()
	return s
}

// Run writes the notes, once a second, until ctx ends; then it writes what is left and closes the trail.
// It returns an error when the disk failed: the owner must stop the process. A trail runs once.
func (t *Trail) Run(ctx context.Context) error {
	t.mu.Lock()
	if t.closed || t.running {
		t.mu.Unlock()
		return fmt.Errorf("audit: run: %w", ErrClosed)
	}
	t.running = true
	t.mu.Unlock()
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.flush()
		case <-t.failed:
			return fmt.Errorf("audit: run: %w", t.end())
		case <-ctx.Done():
			t.flush()
			if err := t.end(); err != nil {
				return fmt.Errorf("audit: run: %w", err)
			}
			return nil
		}
	}
}

// Close closes a trail that never ran. On any other it does nothing: Run closes it.
func (t *Trail) Close() error {
	t.mu.Lock()
	done := t.closed || t.running
	t.mu.Unlock()
	if done {
		return nil
	}
	t.flush()
	if err := t.end(); err != nil {
		return fmt.Errorf("audit: close: %w", err)
	}
	return nil
}

// end takes no more lines, waits for those that were taken in, and closes the file.
func (t *Trail) end() error {
	t.mu.Lock()
	already := t.closed
	t.closed = true
	for t.leading {
		t.idle.Wait()
	}
	err := t.failure
	t.mu.Unlock()
	if already {
		return err
	}
	t.files.Lock()
	defer t.files.Unlock()
	if t.current == nil {
		return err
	}
	return errors.Join(err, t.current.Close())
}

// Backup hands fn all files of the trail as they are now (store.Source). None is put aside before fn returns;
// a write that fills the current file waits for that, all others go on.
func (t *Trail) Backup(ctx context.Context, fn func([]store.Piece) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("audit: backup: %w", err)
	}
	t.files.RLock()
	defer t.files.RUnlock()
	var pieces []store.Piece
	for _, name := range t.aside {
		f, err := t.o.FS.Open(filepath.Join(t.dir, name), os.O_RDONLY)
		if err != nil {
			return fmt.Errorf("audit: backup: %w", err)
		}
		size, err := f.Size()
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("audit: backup: %w", err)
		}
		pieces = append(pieces, t.piece(name, size))
	}
	t.mu.Lock()
	size := t.size
	t.mu.Unlock()
	if t.current != nil {
		pieces = append(pieces, t.piece(currentName, size))
	}
	return fn(pieces)
}

func (t *Trail) piece(name string, size int64) store.Piece {
	return store.Piece{Name: name, Size: size, Open: func() (io.ReadCloser, error) {
		f, err := t.o.FS.Open(filepath.Join(t.dir, name), os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, 0, size), f}, nil
	}}
}

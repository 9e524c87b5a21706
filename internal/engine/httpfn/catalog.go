package httpfn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/wire"
)

// CatalogLog is the name of the catalog's log in the engine's room: its folder there, for backups.
const CatalogLog = "http-functions"

// Bounds of a Catalog.
const (
	maxEntries     = 10_000
	maxBytes       = 64 << 20 // of all records together
	snapshotEvery  = 1024     // records
	snapshotFormat = 1
)

// CatalogOptions say how to open a Catalog. The zero value is good for use.
type CatalogOptions struct {
	Log         *slog.Logger
	MaxEntries  int   // 0 is 10,000
	MaxBytes    int64 // of all entries together, as they are on disk; 0 is 64 MiB
	SnapshotAge int   // records after which a snapshot is taken; 0 is 1,024
}

// Catalog keeps the HTTP functions that are registered for good. It is a table in memory in front of a log: a
// change is appended, and made in memory once it is on disk, in the order of the log.
type Catalog struct {
	o    CatalogOptions
	log  *slog.Logger
	disk *store.Log
	turn chan struct{} // holds one token while a change is under way: one at a time
	due  chan struct{} // asks Run for a snapshot

	mu       sync.RWMutex // guards everything below; never held while waiting
	entries  map[key]*Entry
	bytes    int64
	position uint64 // of the last record that is in entries
	since    int    // records since the last snapshot
}

type key struct{ namespace, function string }

func (e *Entry) key() key { return key{e.Namespace, e.FunctionID} }

// OpenCatalog opens the catalog in its log of the room. Nothing is stored before Run.
func OpenCatalog(room *store.Room, o CatalogOptions) (*Catalog, error) {
	return openCatalog(o, func(lo store.LogOptions) (*store.Log, error) { return room.Log(CatalogLog, lo) })
}

func openCatalog(o CatalogOptions, open func(store.LogOptions) (*store.Log, error)) (*Catalog, error) {
	o.MaxEntries = cmp.Or(o.MaxEntries, maxEntries)
	o.MaxBytes = cmp.Or(o.MaxBytes, maxBytes)
	o.SnapshotAge = cmp.Or(o.SnapshotAge, snapshotEvery)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{o: o, log: o.Log, turn: make(chan struct{}, 1), due: make(chan struct{}, 1),
		entries: map[key]*Entry{}}
	disk, err := open(store.LogOptions{SegmentBytes: 4 << 20, RecordBytes: maxRecord, QueueRecords: 16,
		Snapshot: func(at uint64, r io.Reader) error {
			c.position = at
			return readSnapshot(r, func(e *Entry) { c.keep(e) })
		},
		Replay: func(at uint64, b []byte) error {
			change, err := parseRecord(b)
			if err == nil {
				c.apply(at, change)
			}
			return err
		}})
	if err != nil {
		return nil, fmt.Errorf("httpfn: open the catalog: %w", err)
	}
	c.disk = disk
	return c, nil
}

// Run keeps the log, and takes snapshots, until ctx ends. An error means that the disk failed: the owner must
// stop the process.
func (c *Catalog) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- c.disk.Run(ctx) }() // owner: Run, which waits for it below
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("httpfn: catalog: %w", err)
			}
			return nil
		case <-c.due:
			if err := c.snapshot(); err != nil && !errors.Is(err, store.ErrClosed) {
				c.log.Warn("httpfn: snapshot of the catalog failed; its log stays long", "error", err)
			}
		}
	}
}

// Close gives back a catalog that never ran; after Run it does nothing.
func (c *Catalog) Close() error { return c.disk.Close() }

// Backup is the store.Source of the catalog.
func (c *Catalog) Backup(ctx context.Context, fn func([]store.Piece) error) error {
	return c.disk.Backup(ctx, fn)
}

// Failed is closed when the disk has failed.
func (c *Catalog) Failed() <-chan struct{} { return c.disk.Failed() }

// Put stores an entry in the place of the one with its namespace and id, and says whether there was one. It
// is on disk when Put returns without an error. The entry is copied. After the error of ctx, and after a
// *store.FailedError, the change may or may not be made.
func (c *Catalog) Put(ctx context.Context, e Entry) (replaced bool, err error) {
	b, kept, err := e.encode()
	if err != nil {
		return false, err
	}
	return c.commit(ctx, b, change{put: kept}, func() (bool, error) {
		old := c.entries[kept.key()]
		n, size := len(c.entries), c.bytes+kept.size
		if old != nil {
			n, size = n-1, size-old.size
		}
		switch {
		case n >= c.o.MaxEntries:
			return false, fault.Newf(fault.Limit, wire.CodeLimit, "there are %d HTTP functions, the limit", n)
		case size > c.o.MaxBytes:
			return false, fault.Newf(fault.Limit, wire.CodeLimit, "all HTTP functions together have more than %d bytes",
				c.o.MaxBytes)
		}
		return old != nil, nil
	})
}

// Remove removes an entry and says whether there was one. It is as durable as Put.
func (c *Catalog) Remove(ctx context.Context, namespace, function string) (removed bool, err error) {
	k := key{namespace, function}
	b, err := encodeRemoval(k)
	if err != nil {
		return false, err
	}
	removed, err = c.commit(ctx, b, change{remove: &k}, func() (bool, error) {
		if c.entries[k] == nil {
			return false, errNone
		}
		return true, nil
	})
	if errors.Is(err, errNone) {
		return false, nil
	}
	return removed, err
}

// errNone: there is nothing to remove, so nothing is stored.
var errNone = errors.New("httpfn: no such entry")

// commit stores a change and makes it. look judges it under the lock, once nothing else can change the table,
// and its result is commit's.
func (c *Catalog) commit(ctx context.Context, b []byte, ch change, look func() (bool, error)) (bool, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("httpfn: wait to change the catalog: %w", ctx.Err())
	}
	c.mu.RLock()
	there, err := look()
	c.mu.RUnlock()
	if err != nil {
		<-c.turn
		return false, err
	}
	done := make(chan error, 1)
	err = c.disk.AppendAsync(b, func(at uint64, err error) {
		if err == nil {
			c.mu.Lock()
			c.apply(at, ch)
			c.mu.Unlock()
		}
		<-c.turn
		done <- err
	})
	if err != nil {
		<-c.turn
		return false, fmt.Errorf("httpfn: store a change of the catalog: %w", err)
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		return false, fmt.Errorf("httpfn: store a change of the catalog: %w", ctx.Err())
	}
	if err != nil {
		return false, fmt.Errorf("httpfn: store a change of the catalog: %w", err)
	}
	return there, nil
}

// apply makes a change that is on disk; mu is held, or nobody else knows c yet.
func (c *Catalog) apply(at uint64, ch change) {
	c.position = at
	if ch.put != nil {
		c.keep(ch.put)
	} else if ch.remove != nil {
		c.drop(*ch.remove)
	}
	if c.since++; c.since >= c.o.SnapshotAge {
		select {
		case c.due <- struct{}{}:
		default:
		}
	}
}

func (c *Catalog) keep(e *Entry) {
	c.drop(e.key())
	c.entries[e.key()] = e
	c.bytes += e.size
}

func (c *Catalog) drop(k key) {
	if old := c.entries[k]; old != nil {
		c.bytes -= old.size
		delete(c.entries, k)
	}
}

// snapshot keeps the log short.
func (c *Catalog) snapshot() error {
	c.mu.Lock()
	if c.since < c.o.SnapshotAge { // asked for twice
		c.mu.Unlock()
		return nil
	}
	at, list := c.position, c.sorted()
	c.since = 0
	c.mu.Unlock()
	if err := c.disk.Snapshot(at, func(w io.Writer) error { return writeSnapshot(w, list) }); err != nil {
		return err
	}
	return c.disk.Truncate(at + 1)
}

// Get returns an entry; it must not be changed.
func (c *Catalog) Get(namespace, function string) (*Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.entries[key{namespace, function}]
	return e, e != nil
}

// List returns the entries by namespace and id; they must not be changed.
func (c *Catalog) List() []*Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sorted()
}

// Each calls f with every entry, in the order of List, until it returns false. f may use the catalog.
func (c *Catalog) Each(f func(*Entry) bool) {
	for _, e := range c.List() {
		if !f(e) {
			return
		}
	}
}

func (c *Catalog) sorted() []*Entry {
	list := make([]*Entry, 0, len(c.entries))
	for _, e := range c.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.FunctionID, b.FunctionID))
	})
	return list
}

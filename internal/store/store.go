// Package store is the ground floor for everything that must survive: the data folder, small files that are
// replaced whole, and append-only logs with group commit.
//
// It promises that an acknowledgement means "on disk": Append returns, and a completion is called without an
// error, only after a successful fsync of the bytes, of the file's length and of its folder entry. After a
// crash or a power cut a log opens again with every acknowledged record, byte for byte and in order, without
// a hand. What is damaged is refused with the file and the offset, never read as something else. A failed
// fsync ends the log for good; it is not tried again. A full disk fails the append and nothing else.
//
// Dir, Room and Log may be used from any goroutine. A Reader belongs to one. The format on disk and the rules
// of recovery are in DESIGN.md beside this file.
//
// It does not know what a record means, does not replicate, does not encrypt, and starts no goroutine of its
// own: a log works while its owner keeps Log.Run going. It never falls back to memory.
package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Options says how to open a data folder. The zero value is good for use.
type Options struct {
	// FS holds the folder; nil is the operating system's.
	FS FS
	// Writer is the version of the program, kept beside every schema number so that an older program can say
	// which one wrote the folder. Up to 64 visible ASCII characters; empty is "unknown".
	Writer string
}

// Opened is what Open did and found, for the log line of the program's start.
type Opened struct {
	Created bool // the folder was not there before
	// Processors is true when the Go runtime ran on one processor and was given two. See twoProcessors.
	Processors bool
}

// Dir is the data folder of one process, locked against all others.
type Dir struct {
	path   string
	fs     FS
	writer string
	opened Opened
	lock   io.Closer

	mu      sync.Mutex // guards all below, and every write of VERSION
	version version
	rooms   map[string]*Room
	closed  bool
}

// Files of the data folder that belong to no room.
const (
	lockName    = "LOCK"
	versionName = "VERSION"
)

// Open opens the data folder at path, creates it (mode 0700) where it is missing, and locks it. The errors
// for a person to act on are *LockedError (another process has it), *UnwritableError (with the absolute
// path), *SchemaError (a newer version wrote it) and *DamageError.
func Open(path string, opts Options) (*Dir, error) {
	if opts.FS == nil {
		opts.FS = OS()
	}
	if opts.Writer == "" {
		opts.Writer = "unknown"
	}
	if !validWriter(opts.Writer) {
		return nil, fmt.Errorf("store: open: %q is no version to keep: up to 64 visible ASCII characters",
			opts.Writer)
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", path, err)
	}
	d := &Dir{path: whole, fs: opts.FS, writer: opts.Writer, rooms: map[string]*Room{}}
	if err := d.open(); err != nil {
		if d.lock != nil {
			err = errors.Join(err, d.lock.Close())
		}
		return nil, err
	}
	d.opened.Processors = twoProcessors()
	return d, nil
}

func (d *Dir) open() error {
	var err error
	if d.opened.Created, err = makePath(d.fs, d.path); err != nil {
		return &UnwritableError{Path: d.path, Err: err}
	}
	if d.lock, err = d.fs.Lock(filepath.Join(d.path, lockName)); err != nil {
		if locked, ok := errors.AsType[*LockedError](err); ok {
			locked.Dir = d.path
			return err
		}
		return &UnwritableError{Path: d.path, Err: err}
	}
	if err := d.probe(); err != nil {
		return &UnwritableError{Path: d.path, Err: err}
	}
	d.version, err = readVersion(d.fs, d.versionPath())
	if isNotExist(err) {
		err = d.adopt()
	}
	return err
}

// probe makes a file in the folder and removes it with all that is half written: a folder where this user may
// write the lock and nothing else is told now, and not by the first room.
func (d *Dir) probe() error {
	f, err := d.fs.Open(filepath.Join(d.path, "probe"+temporary), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return removeTemporary(d.fs, d.path)
}

// adopt writes the first VERSION into a folder without one. A folder that has rooms but no VERSION is not
// adopted: something took the file away, and the schemas of its rooms are unknown.
func (d *Dir) adopt() error {
	entries, err := d.fs.List(d.path)
	if err != nil {
		return &UnwritableError{Path: d.path, Err: err}
	}
	for _, e := range entries {
		if e.Name != lockName && e.Name != "lost+found" && e.Name[0] != '.' {
			return &DamageError{File: d.versionPath(),
				Reason: "is missing, and the folder is not empty (it has " +
					e.Name + "): give an empty folder, or put the file back from a backup"}
		}
	}
	d.version = version{Format: formatNow, WrittenBy: d.writer, Rooms: map[string]roomVersion{}}
	err = writeVersion(d.fs, d.versionPath(), d.version)
	if err == nil {
		return nil
	}
	if _, dead := errors.AsType[*FailedError](err); dead {
		return err
	}
	return &UnwritableError{Path: d.path, Err: err}
}

func (d *Dir) versionPath() string { return filepath.Join(d.path, versionName) }

// Path returns the absolute path of the data folder.
func (d *Dir) Path() string { return d.path }

// Opened returns what Open did.
func (d *Dir) Opened() Opened { return d.opened }

// Persistence says in one line how long the folder lives, starting with one of the words disk, memory,
// overlay, network and unknown: "memory (tmpfs): gone when the machine or the container stops".
func (d *Dir) Persistence() string {
	if p, ok := d.fs.(interface{ Persistence(string) string }); ok {
		return p.Persistence(d.path)
	}
	return "unknown"
}

// Close gives the lock back. The logs of all rooms must have stopped before.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("store: close %s: %w", d.path, err)
	}
	return nil
}

// maxName bounds names, and the version text of a writer.
const maxName = 64

// validName says what a room, a file and a log may be called: portable over file systems, never a path.
// Written out, since a regular expression costs a millisecond at every start.
func validName(name string) bool {
	if name == "" || len(name) > maxName || strings.IndexByte("._-", name[0]) >= 0 {
		return false
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0) {
			return false
		}
	}
	return true
}

// validWriter keeps the text of VERSION the same through any number of readings and writings.
func validWriter(text string) bool {
	for _, c := range []byte(text) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return text != "" && len(text) <= maxName
}

func checkName(name string) error {
	if !validName(name) || filepath.Ext(name) == temporary {
		return fmt.Errorf("store: %q is no name for a room, file or log: use a-z, 0-9, dot, dash, underscore",
			name)
	}
	return nil
}

// Room is one room's folder inside the data folder. No other room opens its files.
type Room struct {
	name string
	path string
	fs   FS
	mu   sync.Mutex // one WriteFile at a time, so that two never share a temporary file
}

// Name returns the room's name.
func (r *Room) Name() string { return r.name }

// Path returns the absolute path of the room's folder, for what store has no form for (databases).
func (r *Room) Path() string { return r.path }

// WriteFile replaces the named file whole and durably: after a crash the old content or the new one is there.
// version is the writer's own number of the content's shape and comes back from ReadFile.
func (r *Room) WriteFile(name string, version uint32, content []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return WriteFile(r.fs, filepath.Join(r.path, name), version, content)
}

// ReadFile returns what WriteFile stored. A changed byte is a *DamageError, a missing file fs.ErrNotExist.
func (r *Room) ReadFile(name string) (version uint32, content []byte, err error) {
	if err := checkName(name); err != nil {
		return 0, nil, err
	}
	return ReadFile(r.fs, filepath.Join(r.path, name))
}

// RemoveFile removes the named file durably. A missing file is no error.
func (r *Room) RemoveFile(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fs.Remove(filepath.Join(r.path, name)); err != nil && !isNotExist(err) {
		return fmt.Errorf("store: remove file: %w", err)
	}
	if err := r.fs.SyncDir(r.path); err != nil {
		return fmt.Errorf("store: remove file: %w", failed("sync folder", r.path, err))
	}
	return nil
}

// Log opens the room's log of that name, a folder inside the room's. One caller has it open at a time.
func (r *Room) Log(name string, opts LogOptions) (*Log, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return OpenLog(r.fs, filepath.Join(r.path, name), opts)
}

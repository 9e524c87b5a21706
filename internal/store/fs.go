package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// FS is all that store asks of a file system. It is a driver seam: a crash test must see every operation that
// changes what is on disk, so it is as wide as those and no wider. Names are absolute paths of the platform.
// Implementations are safe for use from any goroutine.
type FS interface {
	Files
	Folders
	Locker
}

// Files is the part of FS that works on files.
type Files interface {
	// Open opens a file with the flags of os.OpenFile. Created files have mode 0600.
	Open(name string, flag int) (File, error)
	// Rename replaces to by from, atomically. Durable after SyncDir only.
	Rename(from, to string) error
	// Remove removes a file or an empty folder. Durable after SyncDir only.
	Remove(name string) error
}

// Folders is the part of FS that works on folders.
type Folders interface {
	// Mkdir creates the folder and its parents (mode 0700). An existing folder is no error.
	Mkdir(name string) error
	// List returns the entries in the order of their names.
	List(name string) ([]Entry, error)
	// SyncDir makes creations, renames and removals in the folder durable.
	SyncDir(name string) error
}

// Locker is the part of FS that keeps two processes apart.
type Locker interface {
	// Lock takes the named file for this process, without waiting, and writes the process id into it. A held
	// lock is a *LockedError. Closing gives it back; so does the end of the process, however it ends.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Extent
}

// Extent is the part of File that deals with its length and its durability.
type Extent interface {
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate changes the length. Durable after Sync only.
	Truncate(size int64) error
	// Sync makes the content and the length durable.
	Sync() error
}

// Entry is one name in a folder.
type Entry struct {
	Name string
	Dir  bool
}

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

type osFile struct{ *os.File }

func (osFS) Open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) Mkdir(name string) error      { return os.MkdirAll(name, 0o700) }

func (osFS) List(name string) ([]Entry, error) {
	list, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(list))
	for i, e := range list {
		entries[i] = Entry{Name: e.Name(), Dir: e.IsDir()}
	}
	return entries, nil
}

func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

// Lock holds flock(2), LockFileEx or fcntl by platform.
func (osFS) Lock(name string) (io.Closer, error) {
	l := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &LockedError{Dir: filepath.Dir(name), PID: readPID(name)}
	}
	// On a platform whose locks are mandatory another handle may not write. The number is for people only,
	// so a lock without one is still a lock; but a full or read-only disk must be told now.
	err = os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	if err != nil && (full(err) || errors.Is(err, os.ErrPermission) && !mandatoryLocks) {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func readPID(name string) int {
	b, err := os.ReadFile(name)
	if err != nil || len(b) > 32 {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

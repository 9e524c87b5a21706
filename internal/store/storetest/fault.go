package storetest

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
)

// Variant is one way to fail.
type Variant struct {
	Name string
	Err  error
	// Sticky fails every operation from the n-th on, until Heal.
	Sticky bool
	// Stored does the operation and reports a failure all the same.
	Stored bool
	// Half does the first half of a write before it fails.
	Half bool
	// Only says which operations count and can fail; nil is all.
	Only func(Kind) bool
}

// Variants returns all ways to fail that a loop should try: an I/O error and a full disk, once and for good,
// with nothing, all and half of a write stored.
func Variants() []Variant {
	return []Variant{
		{Name: "EIO once", Err: syscall.EIO},
		{Name: "EIO once yet stored", Err: syscall.EIO, Stored: true},
		{Name: "EIO once half stored", Err: syscall.EIO, Half: true, Only: Kind.Changes},
		{Name: "EIO for good", Err: syscall.EIO, Sticky: true},
		{Name: "EIO for good yet stored", Err: syscall.EIO, Sticky: true, Stored: true},
		{Name: "ENOSPC once", Err: syscall.ENOSPC, Only: Kind.Grows},
		{Name: "ENOSPC once yet stored", Err: syscall.ENOSPC, Stored: true, Only: Kind.Grows},
		{Name: "ENOSPC once half stored", Err: syscall.ENOSPC, Half: true, Only: Kind.Grows},
		{Name: "ENOSPC for good", Err: syscall.ENOSPC, Sticky: true, Only: Kind.Grows},
		{Name: "ENOSPC for good half stored", Err: syscall.ENOSPC, Sticky: true, Half: true,
			Only: Kind.Grows},
	}
}

// Fault is a file system that fails at its n-th operation.
type Fault struct {
	fs store.FS
	v  Variant

	mu    sync.Mutex
	at    int // the operation that fails; 0 is none
	count int
	first *Op // that failed
}

// NewFault returns fs with a fault at operation n, counted from 1; 0 is never.
func NewFault(fs store.FS, v Variant, n int) *Fault { return &Fault{fs: fs, v: v, at: n} }

// Fired returns the first operation that failed.
func (f *Fault) Fired() (Op, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		return Op{}, false
	}
	return *f.first, true
}

// Heal ends a sticky fault.
func (f *Fault) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = 0
}

// Arm makes the n-th operation from now fail.
func (f *Fault) Arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.count = n, 0
}

// Count returns how many operations there were.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// strike counts the operation and says whether it fails.
func (f *Fault) strike(k Kind, name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.v.Only != nil && !f.v.Only(k) {
		return false
	}
	f.count++
	if f.at == 0 || f.count < f.at || f.count > f.at && !f.v.Sticky {
		return false
	}
	if f.first == nil {
		f.first = &Op{Kind: k, Name: name}
	}
	return true
}

// do does the operation unless it is to fail without.
func (f *Fault) do(k Kind, name string, op func() error) error {
	if !f.strike(k, name) {
		return op()
	}
	if f.v.Stored {
		if err := op(); err != nil {
			return err
		}
	}
	return &os.PathError{Op: k.String(), Path: name, Err: f.v.Err}
}

// Open opens or creates a file.
func (f *Fault) Open(name string, flag int) (file store.File, err error) {
	k := Open
	if flag&os.O_CREATE != 0 {
		k = Create
	}
	err = f.do(k, name, func() error {
		file, err = f.fs.Open(name, flag)
		return err
	})
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, err
	}
	return &faultFile{File: file, f: f, name: name}, nil
}

// Rename renames.
func (f *Fault) Rename(from, to string) error {
	return f.do(Rename, to, func() error { return f.fs.Rename(from, to) })
}

// Remove removes.
func (f *Fault) Remove(name string) error {
	return f.do(Remove, name, func() error { return f.fs.Remove(name) })
}

// Mkdir creates a folder.
func (f *Fault) Mkdir(name string) error {
	return f.do(Mkdir, name, func() error { return f.fs.Mkdir(name) })
}

// List lists a folder.
func (f *Fault) List(name string) (list []store.Entry, err error) {
	e := f.do(List, name, func() error {
		list, err = f.fs.List(name)
		return err
	})
	if e != nil {
		return nil, e
	}
	return list, nil
}

// SyncDir syncs a folder.
func (f *Fault) SyncDir(name string) error {
	return f.do(SyncDir, name, func() error { return f.fs.SyncDir(name) })
}

// Lock never fails by itself.
func (f *Fault) Lock(name string) (io.Closer, error) { return f.fs.Lock(name) }

type faultFile struct {
	store.File
	f    *Fault
	name string
}

func (f *faultFile) ReadAt(b []byte, off int64) (n int, err error) {
	if f.f.strike(Read, f.name) {
		return 0, &os.PathError{Op: "read", Path: f.name, Err: f.f.v.Err}
	}
	return f.File.ReadAt(b, off)
}

func (f *faultFile) WriteAt(b []byte, off int64) (n int, err error) {
	if !f.f.strike(Write, f.name) {
		return f.File.WriteAt(b, off)
	}
	if f.f.v.Stored {
		n, err = f.File.WriteAt(b, off)
	} else if f.f.v.Half {
		n, err = f.File.WriteAt(b[:len(b)/2], off)
	}
	if err != nil {
		return n, err
	}
	return n, &os.PathError{Op: "write", Path: f.name, Err: f.f.v.Err}
}

func (f *faultFile) Size() (n int64, err error) {
	if f.f.strike(Size, f.name) {
		return 0, &os.PathError{Op: "stat", Path: f.name, Err: f.f.v.Err}
	}
	return f.File.Size()
}

func (f *faultFile) Truncate(size int64) error {
	return f.f.do(Truncate, f.name, func() error { return f.File.Truncate(size) })
}

func (f *faultFile) Sync() error {
	if !f.f.strike(Sync, f.name) {
		return f.File.Sync()
	}
	if f.f.v.Stored {
		if err := f.File.Sync(); err != nil {
			return err
		}
	} else if m, ok := f.File.(interface{ FailSync() }); ok {
		m.FailSync()
	}
	return &os.PathError{Op: "sync", Path: f.name, Err: f.f.v.Err}
}

// Loop runs the scenario on a fresh Mem with the first operation failing, then the second and so on, until it
// completes without a fault, and that for every variant. The scenario must bear any error of what it tests,
// and must check at its end, on the Mem and on crashes of it, what was promised. It returns the number of
// runs.
func Loop(t *testing.T, variants []Variant, scenario func(t *testing.T, mem *Mem, f *Fault)) (runs int) {
	t.Helper()
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			for n := 1; ; n++ {
				if n > 100_000 {
					t.Fatal("the scenario has no end")
				}
				mem := NewMem()
				f := NewFault(mem, v, n)
				completed := false
				func() {
					defer func() {
						if !completed {
							t.Logf("the operation that failed: %s", f.where(n))
						}
					}()
					scenario(t, mem, f)
					completed = true
				}()
				runs++
				op, fired := f.Fired()
				if t.Failed() {
					t.Fatalf("operation %d failing: %s %s", n, op.Kind, op.Name)
				}
				if !fired {
					return
				}
			}
		})
	}
	return runs
}

func (f *Fault) where(n int) string {
	op, _ := f.Fired()
	return fmt.Sprintf("%d, %s %s", n, op.Kind, op.Name)
}

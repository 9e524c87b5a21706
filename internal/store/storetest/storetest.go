// Package storetest breaks file systems under store's logs, and under whatever else keeps its files through
// store.FS: a file system in memory that can lose power, and one that fails at the n-th operation.
//
// It promises that a run depends on its seed and on the order of the operations alone, and that Crash never
// loses what was synced and may lose anything else. Both file systems may be used from any goroutine.
//
// It is for tests only and no benchmark: everything is copied.
package storetest

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/plinth-run/plinth/internal/store"
)

// Sector is how many bytes a crash keeps or loses together.
const Sector = 512

// Mem is a file system in memory. What was synced survives Crash; of the rest, each sector, length and entry
// survives by chance and independently, in any of the versions that it had since the last sync.
type Mem struct {
	mu    sync.Mutex
	root  *node
	locks map[string]bool
	hook  func(Op)
}

// Op is one operation on a file system.
type Op struct {
	Kind Kind
	Name string
}

// Kind is what an operation does.
type Kind uint8

const (
	Open Kind = iota // of a file that is there
	Read
	Size
	List
	Create
	Write
	Sync
	Truncate
	Rename
	Remove
	Mkdir
	SyncDir
)

var kindNames = [...]string{"open", "read", "size", "list", "create", "write", "sync", "truncate", "rename",
	"remove",
	"mkdir", "syncdir"}

func (k Kind) String() string { return kindNames[k] }

// Changes reports whether the operation may change what is on disk.
func (k Kind) Changes() bool { return k >= Create }

// Grows reports whether the operation may need space.
func (k Kind) Grows() bool { return k == Create || k == Write || k == Rename || k == Mkdir }

// node is a file or a folder.
type node struct {
	dir bool
	// of a folder: what is seen, what is on disk, and the changes between the two in their order
	entries map[string]*node
	durable map[string]*node
	pending []change

	// of a file: what is seen, and for each sector that differs from the disk how it was
	content []byte
	sectors map[int]*sector
	sizes   []int // lengths since the last sync; the first is the one on disk
}

// change is an entry set or, with a nil node, removed. A rename is both at once.
type change struct {
	gone, name string
	node       *node
}

// sector remembers what a sector was since it was last on disk.
type sector struct {
	versions [][]byte // the first is the one on disk
	dirty    bool     // the next sync writes it; false after a sync that failed
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDir(), locks: map[string]bool{}} }

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, durable: map[string]*node{}}
}

// Before calls hook before every operation, on the goroutine that does it. The hook may use the file system.
func (m *Mem) Before(hook func(Op)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

func (m *Mem) begin(k Kind, name string) {
	m.mu.Lock()
	hook := m.hook
	m.mu.Unlock()
	if hook != nil {
		hook(Op{Kind: k, Name: name})
	}
	m.mu.Lock()
}

func pathError(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

func split(name string) []string {
	name = strings.TrimPrefix(filepath.Clean(name), filepath.VolumeName(name))
	return strings.FieldsFunc(name, func(r rune) bool { return r == filepath.Separator })
}

// find returns the node at name, or nil.
func (m *Mem) find(name string) *node {
	n := m.root
	for _, part := range split(name) {
		if n == nil || !n.dir {
			return nil
		}
		n = n.entries[part]
	}
	return n
}

func (m *Mem) parent(name string) (*node, string) {
	p := m.find(filepath.Dir(name))
	if p == nil || !p.dir {
		return nil, ""
	}
	return p, filepath.Base(name)
}

func (n *node) set(name string, to *node) {
	n.entries[name] = to
	n.pending = append(n.pending, change{name: name, node: to})
}

// Open opens or creates a file.
func (m *Mem) Open(name string, flag int) (store.File, error) {
	kind := Open
	if flag&os.O_CREATE != 0 {
		kind = Create
	}
	m.begin(kind, name)
	defer m.mu.Unlock()
	n := m.find(name)
	switch {
	case n != nil && n.dir:
		return nil, pathError("open", name, fmt.Errorf("is a folder"))
	case n != nil && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n == nil:
		p, base := m.parent(name)
		if p == nil {
			return nil, pathError("open", name, fs.ErrNotExist)
		}
		n = &node{sectors: map[int]*sector{}}
		p.set(base, n)
	}
	if flag&os.O_TRUNC != 0 {
		n.truncate(0)
	}
	return &handle{m: m, n: n, name: name, write: flag&(os.O_RDWR|os.O_WRONLY) != 0}, nil
}

// Rename replaces to by from.
func (m *Mem) Rename(from, to string) error {
	m.begin(Rename, to)
	defer m.mu.Unlock()
	p, name := m.parent(from)
	q, target := m.parent(to)
	if p == nil || q == nil || p.entries[name] == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	n := p.entries[name]
	if old := q.entries[target]; old != nil && old.dir {
		return pathError("rename", to, fs.ErrExist)
	}
	delete(p.entries, name)
	q.entries[target] = n
	if p == q {
		p.pending = append(p.pending, change{gone: name, name: target, node: n})
		return nil
	}
	p.pending = append(p.pending, change{gone: name})
	q.pending = append(q.pending, change{name: target, node: n})
	return nil
}

// Remove removes a file or an empty folder.
func (m *Mem) Remove(name string) error {
	m.begin(Remove, name)
	defer m.mu.Unlock()
	p, base := m.parent(name)
	if p == nil || p.entries[base] == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if len(p.entries[base].entries) > 0 {
		return pathError("remove", name, fmt.Errorf("the folder is not empty"))
	}
	delete(p.entries, base)
	p.pending = append(p.pending, change{gone: base})
	return nil
}

// Mkdir creates a folder and its parents.
func (m *Mem) Mkdir(name string) error {
	m.begin(Mkdir, name)
	defer m.mu.Unlock()
	n := m.root
	for _, part := range split(name) {
		next := n.entries[part]
		if next == nil {
			next = newDir()
			n.set(part, next)
		}
		if !next.dir {
			return pathError("mkdir", name, fs.ErrExist)
		}
		n = next
	}
	return nil
}

// List returns the entries of a folder.
func (m *Mem) List(name string) ([]store.Entry, error) {
	m.begin(List, name)
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || !n.dir {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	var list []store.Entry
	for _, e := range slices.Sorted(maps.Keys(n.entries)) {
		list = append(list, store.Entry{Name: e, Dir: n.entries[e].dir})
	}
	return list, nil
}

// SyncDir makes the entries of a folder durable.
func (m *Mem) SyncDir(name string) error {
	m.begin(SyncDir, name)
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || !n.dir {
		return pathError("sync", name, fs.ErrNotExist)
	}
	n.durable, n.pending = maps.Clone(n.entries), nil
	return nil
}

// Lock takes a lock that lasts until it is closed or the file system crashes.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, &store.LockedError{Dir: filepath.Dir(name), PID: 1}
	}
	m.locks[name] = true
	return unlock(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locks, name)
		return nil
	}), nil
}

type unlock func() error

func (u unlock) Close() error { return u() }

// Clone returns the file system as another process would see it after this one was killed: everything that
// was written is there, and what was not synced is still not.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{root: m.root.clone(map[*node]*node{}), locks: map[string]bool{}}
}

func (n *node) clone(seen map[*node]*node) *node {
	if n == nil {
		return nil
	}
	if c := seen[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir, content: slices.Clone(n.content), sizes: slices.Clone(n.sizes)}
	seen[n] = c
	if n.dir {
		c.entries, c.durable = map[string]*node{}, map[string]*node{}
		for name, e := range n.entries {
			c.entries[name] = e.clone(seen)
		}
		for name, e := range n.durable {
			c.durable[name] = e.clone(seen)
		}
		for _, p := range n.pending {
			p.node = p.node.clone(seen)
			c.pending = append(c.pending, p)
		}
		return c
	}
	c.sectors = map[int]*sector{}
	for i, s := range n.sectors {
		c.sectors[i] = &sector{versions: slices.Clone(s.versions), dirty: s.dirty}
	}
	return c
}

// Crash returns the file system as it may be after a loss of power now: survive is the chance, from 0 to 1,
// of each thing that was not synced. The file system itself goes on as if nothing had happened.
func (m *Mem) Crash(r *rand.Rand, survive float64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{root: m.root.crash(r, survive, map[*node]*node{}), locks: map[string]bool{}}
}

func (n *node) crash(r *rand.Rand, survive float64, seen map[*node]*node) *node {
	if c := seen[n]; c != nil {
		return c
	}
	if !n.dir {
		c := &node{content: n.crashContent(r, survive), sectors: map[int]*sector{}}
		seen[n] = c
		return c
	}
	c := newDir()
	seen[n] = c
	entries := maps.Clone(n.durable)
	for _, p := range n.pending {
		if r.Float64() >= survive {
			continue
		}
		// A removal or rename that survives takes away what had that name.
		delete(entries, p.gone)
		if p.node != nil {
			entries[p.name] = p.node
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name].crash(r, survive, seen)
		c.entries[name], c.durable[name] = e, e
	}
	return c
}

func (n *node) crashContent(r *rand.Rand, survive float64) []byte {
	size := len(n.content)
	if len(n.sizes) > 0 && r.Float64() >= survive {
		size = n.sizes[r.IntN(len(n.sizes))]
	}
	out := make([]byte, size)
	copy(out, n.content)
	for _, i := range slices.Sorted(maps.Keys(n.sectors)) {
		if i*Sector >= size {
			continue
		}
		s := n.sectors[i]
		version := s.versions[0]
		if r.Float64() < survive {
			// Mostly the newest, which is in content; sometimes one from between.
			k := r.IntN(len(s.versions) + 2)
			if k == 0 || k >= len(s.versions) {
				continue
			}
			version = s.versions[k]
		}
		at := out[i*Sector : min(size, (i+1)*Sector)]
		clear(at)
		copy(at, version)
	}
	return out
}

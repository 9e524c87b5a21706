package storetest

import (
	"io"
	"io/fs"
	"slices"

	"github.com/plinth-run/plinth/internal/store"
)

// handle is an open file of Mem.
type handle struct {
	m     *Mem
	n     *node
	name  string
	write bool
	shut  bool // guarded by m.mu
}

var _ store.File = (*handle)(nil)

func (h *handle) begin(k Kind) error {
	h.m.begin(k, h.name)
	if h.shut || k.Changes() && k != Sync && !h.write {
		h.m.mu.Unlock()
		return pathError(k.String(), h.name, fs.ErrClosed)
	}
	return nil
}

// ReadAt reads what is seen, synced or not.
func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	if err := h.begin(Read); err != nil {
		return 0, err
	}
	defer h.m.mu.Unlock()
	if off >= int64(len(h.n.content)) {
		return 0, io.EOF
	}
	n := copy(b, h.n.content[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes; a gap before it reads as zeros.
func (h *handle) WriteAt(b []byte, off int64) (int, error) {
	if err := h.begin(Write); err != nil {
		return 0, err
	}
	defer h.m.mu.Unlock()
	end := int(off) + len(b)
	h.n.touch(int(off), end)
	if end > len(h.n.content) {
		h.n.resize(end)
	}
	copy(h.n.content[off:], b)
	return len(b), nil
}

// Size returns the length that is seen.
func (h *handle) Size() (int64, error) {
	if err := h.begin(Size); err != nil {
		return 0, err
	}
	defer h.m.mu.Unlock()
	return int64(len(h.n.content)), nil
}

// Truncate changes the length.
func (h *handle) Truncate(size int64) error {
	if err := h.begin(Truncate); err != nil {
		return err
	}
	defer h.m.mu.Unlock()
	h.n.truncate(int(size))
	return nil
}

// Sync makes content and length durable.
func (h *handle) Sync() error {
	if err := h.begin(Sync); err != nil {
		return err
	}
	defer h.m.mu.Unlock()
	h.n.sizes = nil
	for i, s := range h.n.sectors {
		if s.dirty {
			delete(h.n.sectors, i)
		}
	}
	return nil
}

// FailSync does what Linux does when a sync fails: the pages are taken for clean, so a second sync has
// nothing to do and succeeds, and the bytes are not on disk.
func (h *handle) FailSync() {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	for _, s := range h.n.sectors {
		s.dirty = false
	}
}

// Close closes the handle.
func (h *handle) Close() error {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.shut {
		return pathError("close", h.name, fs.ErrClosed)
	}
	h.shut = true
	return nil
}

// touch remembers the sectors of [from, to) as they are now.
func (n *node) touch(from, to int) {
	for i := from / Sector; i*Sector < to; i++ {
		var now []byte
		if i*Sector < len(n.content) {
			now = slices.Clone(n.content[i*Sector : min(len(n.content), (i+1)*Sector)])
		}
		s := n.sectors[i]
		if s == nil {
			s = &sector{}
			n.sectors[i] = s
		}
		s.dirty = true
		if len(s.versions) < 8 {
			s.versions = append(s.versions, now)
		}
	}
}

func (n *node) resize(size int) {
	n.sizes = append(n.sizes, len(n.content))
	if size <= len(n.content) {
		n.content = n.content[:size]
		return
	}
	n.content = append(n.content, make([]byte, size-len(n.content))...)
}

func (n *node) truncate(size int) {
	if size == len(n.content) {
		return
	}
	n.touch(min(size, len(n.content)), max(size, len(n.content)))
	n.resize(size)
}

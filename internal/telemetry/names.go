package telemetry

import (
	"strings"
	"sync"
)

// The texts that ids stand for when there is no name any more.
const (
	OtherName = "(other)" // the table was full of names in use
	GoneName  = "(gone)"  // the name was let go since
)

// Bounds of a table of names.
const (
	maxNames        = 1 << 16
	maxNameTotal    = 8 << 20
	maxRetired      = 4096
	maxRetiredTotal = 512 << 10
	maxNameBytes    = 1024

	indexBits = 20
	otherID   = 1
)

// Names is a table of texts with small ids, so that a span holds four bytes where it would hold a
// function's name. Whoever registers a name holds a reference (Intern, Release); a name without
// references stays readable until newer ones push it out, so a day of workers that come and go leaves
// at most a few thousand names behind. An id carries a generation: once its name is gone it reads as
// GoneName, never as another name.
//
// Id 0 is the empty text. All methods may be used from any goroutine.
type Names struct {
	mu      sync.RWMutex
	ids     map[string]uint32
	slots   []slot
	retired queue // names without references, oldest first
	free    queue // slots without names, oldest first
	bytes   int
	idle    int // bytes of retired names
	stats   NameStats
	limit   nameLimit
}

type nameLimit struct{ names, bytes, retired, retiredBytes int }

// NameStats counts what a table holds and what it had to let go.
type NameStats struct {
	Names   int   // texts held, retired ones included
	Retired int   // of these: without references
	Bytes   int64 // length of all texts
	Evicted uint64
	Refused uint64 // interned as OtherName since the table was full of names in use
}

type slot struct {
	name       string
	refs       uint32
	generation uint16
	prev, next uint32
	listed     bool // in retired
}

// queue is threaded through slots by index; 0 ends it.
type queue struct {
	head, tail uint32
	count      int
}

// NewNames returns an empty table with room for 65,536 names in use or 8 MiB of text.
func NewNames() *Names {
	return newNames(nameLimit{maxNames, maxNameTotal, maxRetired, maxRetiredTotal})
}

func newNames(limit nameLimit) *Names {
	n := &Names{ids: map[string]uint32{}, limit: limit}
	n.slots = append(n.slots, slot{}, slot{name: OtherName, refs: 1})
	return n
}

// Intern returns the id of s and holds a reference that Release gives back. Texts over 1 KiB are cut.
// When the table is full of names in use the id is that of OtherName, and that is counted.
func (n *Names) Intern(s string) uint32 { return n.intern(s, 1) }

// Note returns the id of s without holding a reference: for texts that nobody unregisters, as error
// codes.
func (n *Names) Note(s string) uint32 { return n.intern(s, 0) }

func (n *Names) intern(s string, refs uint32) uint32 {
	if s == "" {
		return 0
	}
	if len(s) > maxNameBytes {
		s = cutText(s, maxNameBytes)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.ids[s]
	if !ok {
		if id, ok = n.add(s); !ok {
			n.stats.Refused++
			return otherID
		}
	}
	i := index(id)
	x := &n.slots[i]
	if refs > 0 && x.listed {
		n.unlist(i)
	}
	x.refs += refs
	if x.refs == 0 { // a noted name moves to the young end
		if x.listed {
			n.unlist(i)
		}
		n.retire(i)
	}
	return id
}

// Release gives one reference back. Ids that are gone, and those of no name, are ignored.
func (n *Names) Release(id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := index(id)
	if i <= otherID || int(i) >= len(n.slots) {
		return
	}
	x := &n.slots[i]
	if x.refs == 0 || x.id(i) != id {
		return
	}
	if x.refs--; x.refs == 0 {
		n.retire(i)
	}
}

// Text returns what id stands for.
func (n *Names) Text(id uint32) string {
	if id == 0 {
		return ""
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	i := index(id)
	if int(i) >= len(n.slots) || n.slots[i].name == "" || n.slots[i].id(i) != id {
		return GoneName
	}
	return n.slots[i].name
}

// Stats returns the counters as they stand.
func (n *Names) Stats() NameStats {
	n.mu.RLock()
	defer n.mu.RUnlock()
	s := n.stats
	s.Names, s.Retired, s.Bytes = len(n.ids), n.retired.count, int64(n.bytes)
	return s
}

// add gives s a slot, after making room for it.
func (n *Names) add(s string) (uint32, bool) {
	for len(n.ids) >= n.limit.names || n.bytes+len(s) > n.limit.bytes {
		if !n.evict() {
			return 0, false
		}
	}
	i := n.free.head
	if i != 0 {
		n.remove(&n.free, i)
	} else {
		i = uint32(len(n.slots))
		n.slots = append(n.slots, slot{})
	}
	s = strings.Clone(s) // the caller's text may be part of a large message
	x := &n.slots[i]
	x.name = s
	id := x.id(i)
	n.ids[s] = id
	n.bytes += len(s)
	return id, true
}

// retire puts a name without references at the young end, and lets the oldest go if there are too many.
func (n *Names) retire(i uint32) {
	n.push(&n.retired, i)
	n.slots[i].listed = true
	n.idle += len(n.slots[i].name)
	for n.retired.count > n.limit.retired || n.idle > n.limit.retiredBytes {
		n.evict()
	}
}

func (n *Names) unlist(i uint32) {
	n.remove(&n.retired, i)
	n.slots[i].listed = false
	n.idle -= len(n.slots[i].name)
}

// evict frees the slot of the oldest retired name.
func (n *Names) evict() bool {
	i := n.retired.head
	if i == 0 {
		return false
	}
	n.unlist(i)
	x := &n.slots[i]
	delete(n.ids, x.name)
	n.bytes -= len(x.name)
	x.name = ""
	x.generation = (x.generation + 1) & (1<<(32-indexBits) - 1)
	n.push(&n.free, i)
	n.stats.Evicted++
	return true
}

func (n *Names) push(l *queue, i uint32) {
	n.slots[i].prev, n.slots[i].next = l.tail, 0
	if l.tail != 0 {
		n.slots[l.tail].next = i
	} else {
		l.head = i
	}
	l.tail = i
	l.count++
}

func (n *Names) remove(l *queue, i uint32) {
	x := &n.slots[i]
	if x.prev != 0 {
		n.slots[x.prev].next = x.next
	} else {
		l.head = x.next
	}
	if x.next != 0 {
		n.slots[x.next].prev = x.prev
	} else {
		l.tail = x.prev
	}
	x.prev, x.next = 0, 0
	l.count--
}

func index(id uint32) uint32 { return id & (1<<indexBits - 1) }

func (s *slot) id(i uint32) uint32 { return uint32(s.generation)<<indexBits | i }

// cutText shortens s to at most n bytes, at the start of a character.
func cutText(s string, n int) string {
	return s[:cutLen(s, n)]
}

// cutLen is the length of s, or the largest one of at most n that ends before the start of a character.
func cutLen[T ~string | ~[]byte](s T, n int) int {
	if len(s) <= n {
		return len(s)
	}
	for least := n - 4; n > max(least, 0) && s[n]&0xc0 == 0x80; n-- {
	}
	return n
}

package telemetry

import (
	"encoding/binary"
	"sync"
)

// chunkBytes is the unit in which a ring takes and gives back memory, and so the longest possible record.
const chunkBytes = 64 << 10

// Where every record, of spans and logs alike, has its length, its kind and the time that orders it.
const (
	atSize  = 0
	atKind  = 4
	atOrder = 48
)

// kinds is how many kinds of records are counted apart.
const kinds = 4

// ring keeps packed records in chunks without pointers. Each lane fills a chunk of its own; full
// ("sealed") chunks stand in one queue, and the oldest is reused when the bound is reached. Order of
// locks: lane, then ring.
type ring struct {
	mu     sync.Mutex
	sealed []*chunk // oldest first
	total  int      // chunks that exist, open ones included
	max    int
	serial uint64
	lanes  []*lane
	over   [kinds]uint64 // records overwritten
	shed   [kinds]uint64
	clear  [kinds]uint64

	take func(int64) bool // asks the memory budget; nil = always yes
	give func(int64)
}

// chunk is one piece of memory with records of one lane. The lane's lock guards an open one, the ring's
// a sealed one.
type chunk struct {
	data   []byte
	used   int
	lane   int
	serial uint64 // changes when the chunk is reused; 0 = given up
	from   int64  // no record of the chunk orders before
	to     int64  // or after
	count  [kinds]uint32
}

// lane is the writing end of a ring.
type lane struct {
	mu      sync.Mutex
	open    *chunk
	dropped uint64 // records that found no memory
	number  int
	ring    *ring
	_       [32]byte // lanes of two cores stay off each other's cache line
}

func (r *ring) init(bytes int64) {
	r.max = chunksFor(bytes)
	r.newLane()
}

func chunksFor(bytes int64) int { return int(max(bytes, 0) / chunkBytes) }

func (r *ring) newLane() *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &lane{ring: r, number: len(r.lanes)}
	r.lanes = append(r.lanes, l)
	return l
}

// reserve returns n bytes for a record, or nil. The lane's lock is held and must be kept until the
// record is written.
func (l *lane) reserve(n int, kind uint8, order int64) []byte {
	c := l.open
	if c == nil || c.used+n > chunkBytes {
		if c = l.turn(n); c == nil {
			l.dropped++
			return nil
		}
	}
	b := c.data[c.used : c.used+n : c.used+n]
	c.used += n
	c.count[kind%kinds]++
	c.from, c.to = min(c.from, order), max(c.to, order)
	binary.LittleEndian.PutUint32(b[atSize:], uint32(n))
	binary.LittleEndian.PutUint64(b[atOrder:], uint64(order))
	return b
}

// turn seals the lane's chunk and opens another: a new one while there is room, else the oldest.
func (l *lane) turn(n int) *chunk {
	if n > chunkBytes {
		return nil
	}
	r := l.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.open != nil {
		r.sealed = append(r.sealed, l.open)
		l.open = nil
	}
	// Every lane may have one chunk, even where the bound has fewer: a loop must not starve.
	if r.max > 0 && (r.total < r.max || len(r.sealed) == 0) && r.more() {
		l.open = &chunk{data: make([]byte, chunkBytes)}
	} else if len(r.sealed) > 0 {
		l.open = r.pop(&r.over)
	} else {
		return nil
	}
	r.serial++
	*l.open = chunk{data: l.open.data, lane: l.number, serial: r.serial, from: 1<<63 - 1, to: -1 << 63}
	return l.open
}

// more accounts for one more chunk. The budget is asked with the ring unlocked, since it may shed this
// ring.
func (r *ring) more() bool {
	r.total++
	if r.take == nil {
		return true
	}
	r.mu.Unlock()
	ok := r.take(chunkBytes)
	r.mu.Lock()
	if !ok {
		r.total--
	}
	return ok
}

// pop takes the oldest sealed chunk out of the queue and counts its records as lost in the given way.
func (r *ring) pop(lost *[kinds]uint64) *chunk {
	c := r.sealed[0]
	r.sealed[0] = nil
	r.sealed = r.sealed[1:]
	c.lose(lost)
	return c
}

func (c *chunk) lose(lost *[kinds]uint64) {
	for k, n := range c.count {
		lost[k] += uint64(n)
	}
	c.serial, c.count = 0, [kinds]uint32{}
}

// free gives the memory of a chunk back that nothing refers to any more.
func (r *ring) free(c *chunk) {
	c.data = nil
	r.total--
	if r.give != nil {
		r.give(chunkBytes)
	}
}

// drop gives up the oldest sealed chunks until n are gone or none is left, and returns the bytes freed.
func (r *ring) drop(n int) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropLocked(n)
}

func (r *ring) dropLocked(n int) (freed int64) {
	for ; n > 0 && len(r.sealed) > 0; n-- {
		r.free(r.pop(&r.shed))
		freed += chunkBytes
	}
	return freed
}

// resize sets the bound and drops what is over it. A bound of less than a chunk turns the ring off.
func (r *ring) resize(bytes int64) {
	r.lockAll()
	defer r.unlockAll()
	r.max = chunksFor(bytes)
	r.dropLocked(r.total - r.max)
	if r.max == 0 {
		r.dropOpen(&r.shed)
	}
}

// forget drops every record.
func (r *ring) forget() {
	r.lockAll()
	defer r.unlockAll()
	for len(r.sealed) > 0 {
		r.free(r.pop(&r.clear))
	}
	r.dropOpen(&r.clear)
}

func (r *ring) dropOpen(lost *[kinds]uint64) {
	for _, l := range r.lanes {
		if l.open != nil {
			l.open.lose(lost)
			r.free(l.open)
			l.open = nil
		}
	}
}

// lockAll holds every lane and the ring, so that the counters can be read as of one moment. New lanes
// may come while it waits for the old ones, so it looks again until none has.
func (r *ring) lockAll() {
	held := 0
	for {
		r.mu.Lock()
		lanes := r.lanes
		if len(lanes) == held {
			return
		}
		r.mu.Unlock()
		for _, l := range lanes[held:] {
			l.mu.Lock()
		}
		held = len(lanes)
	}
}

func (r *ring) unlockAll() {
	lanes := r.lanes
	r.mu.Unlock()
	for _, l := range lanes {
		l.mu.Unlock()
	}
}

// Counts says what became of records: Recorded = Kept + Overwritten + Shed + Cleared, at every moment.
type Counts struct {
	Recorded    uint64 // all that went in
	Kept        uint64 // all that can be read now
	Overwritten uint64 // made room for newer ones
	Shed        uint64 // given up when memory ran short
	Cleared     uint64 // given up on request
}

// Stats says what a ring holds.
type Stats struct {
	Counts
	Kinds   [kinds]Counts // the same by kind of record
	Dropped uint64        // never recorded: there was no memory for them, or recording is off
	Cut     uint64        // recorded in part: too long
	Bytes   int64         // memory held
	Limit   int64         // memory it may hold
}

func (r *ring) stats() (s Stats) {
	r.lockAll()
	defer r.unlockAll()
	s.Bytes, s.Limit = int64(r.total)*chunkBytes, int64(r.max)*chunkBytes
	add := func(c *chunk) {
		for k, n := range c.count {
			s.Kinds[k].Kept += uint64(n)
		}
	}
	for _, c := range r.sealed {
		add(c)
	}
	for _, l := range r.lanes {
		s.Dropped += l.dropped
		if l.open != nil {
			add(l.open)
		}
	}
	for k := range s.Kinds {
		c := &s.Kinds[k]
		c.Overwritten, c.Shed, c.Cleared = r.over[k], r.shed[k], r.clear[k]
		c.Recorded = c.Kept + c.Overwritten + c.Shed + c.Cleared
		s.Recorded += c.Recorded
		s.Kept += c.Kept
		s.Overwritten += c.Overwritten
		s.Shed += c.Shed
		s.Cleared += c.Cleared
	}
	return s
}

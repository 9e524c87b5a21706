package telemetry

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
)

// chunkBytes is the unit in which a ring takes and gives back memory, and so the longest possible record.
const chunkBytes = 64 << 10

// Where every record, of spans and logs alike, has its length, its kind and its time.
const (
	atSize = 0
	atKind = 4
	atTime = 48
)

// kinds is how many kinds of records are counted apart.
const kinds = 4

// ring keeps packed records in chunks without pointers. One chunk is open; full ("sealed") ones stand
// in a queue, and the oldest is reused when the bound is reached. One lock serves all writers: it is
// held for about 20 ns, and an own chunk for each writer gained nothing that could be seen beside the
// work between two records.
type ring struct {
	mu     sync.Mutex
	open   *chunk
	sealed []*chunk // oldest first
	total  int      // chunks that exist or are being taken
	max    int
	serial uint64

	over    [kinds]uint64 // records overwritten
	shed    [kinds]uint64
	clear   [kinds]uint64
	dropped uint64 // records that found no memory
	cut     uint64 // records that were kept in part

	// Set before the first record. Both are called by writers; take with the ring unlocked.
	take func(int64) bool // asks the memory budget; nil = always yes
	give func(int64)
}

// chunk is a piece of memory with records.
type chunk struct {
	data   []byte
	used   int
	serial uint64 // changes when the chunk is reused; 0 = given up
	from   int64  // no record of the chunk is earlier
	to     int64  // or later
	count  [kinds]uint32
}

func chunksFor(bytes int64) int { return int(max(bytes, 0) / chunkBytes) }

// chunksOver is how many chunks hold at least bytes.
func chunksOver(bytes int64) int { return chunksFor(bytes + chunkBytes - 1) }

// reserve returns n bytes for a record, or nil. The lock is held, and must be kept until the record is
// written.
func (r *ring) reserve(n int, kind uint8, time int64) []byte {
	c := r.open
	if c == nil || c.used+n > chunkBytes {
		if c = r.turn(n); c == nil {
			r.dropped++
			return nil
		}
	}
	b := c.data[c.used : c.used+n : c.used+n]
	c.used += n
	c.count[kind%kinds]++
	c.from, c.to = min(c.from, time), max(c.to, time)
	binary.LittleEndian.PutUint32(b[atSize:], uint32(n))
	binary.LittleEndian.PutUint64(b[atTime:], uint64(time))
	return b
}

// turn seals the open chunk and opens another: a new one while there is room, else the oldest.
func (r *ring) turn(n int) *chunk {
	if n > chunkBytes {
		return nil
	}
	r.seal()
	if r.total < r.max {
		granted := r.more()
		// The ring was unlocked: another writer may have opened a chunk, or the bound may be a lower one now.
		fits := r.open != nil && r.open.used+n <= chunkBytes
		if granted && (fits || r.total > r.max) {
			r.less()
			granted = false
		}
		if fits {
			return r.open
		}
		r.seal()
		if granted {
			return r.start(&chunk{data: make([]byte, chunkBytes)})
		}
	}
	if len(r.sealed) == 0 || r.max == 0 {
		return nil
	}
	return r.start(r.pop(&r.over))
}

func (r *ring) seal() {
	if r.open != nil {
		r.sealed = append(r.sealed, r.open)
		r.open = nil
	}
}

func (r *ring) start(c *chunk) *chunk {
	r.serial++
	*c = chunk{data: c.data, serial: r.serial, from: 1<<63 - 1, to: -1 << 63}
	r.open = c
	return c
}

// more accounts for one more chunk. The budget is asked with the ring unlocked, since it may have the
// ring shed.
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

// free gives the memory of a chunk back.
func (r *ring) free(c *chunk) {
	c.data = nil
	r.less()
}

// less accounts for one chunk less.
func (r *ring) less() {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.max = chunksFor(bytes)
	r.dropLocked(r.total - r.max)
	if r.max == 0 {
		r.dropOpen(&r.shed)
	}
}

// forget drops every record.
func (r *ring) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.sealed) > 0 {
		r.free(r.pop(&r.clear))
	}
	r.dropOpen(&r.clear)
}

func (r *ring) dropOpen(lost *[kinds]uint64) {
	if r.open != nil {
		r.open.lose(lost)
		r.free(r.open)
		r.open = nil
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

func (c *Counts) add(o Counts) {
	c.Recorded += o.Recorded
	c.Kept += o.Kept
	c.Overwritten += o.Overwritten
	c.Shed += o.Shed
	c.Cleared += o.Cleared
}

// Stats says what a ring holds.
type Stats struct {
	Counts
	Kinds   [kinds]Counts // the same by Kind of span; logs are all of kind 0
	Dropped uint64        // never recorded: there was no memory for them, or recording is off
	Cut     uint64        // recorded in part: too long
	Bytes   int64         // memory held
	Limit   int64         // memory it may hold
}

func (r *ring) stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{Dropped: r.dropped, Cut: r.cut,
		Bytes: int64(r.total) * chunkBytes, Limit: int64(r.max) * chunkBytes}
	kept := func(c *chunk) {
		for k, n := range c.count {
			s.Kinds[k].Kept += uint64(n)
		}
	}
	for _, c := range r.sealed {
		kept(c)
	}
	if r.open != nil {
		kept(r.open)
	}
	for k := range s.Kinds {
		c := &s.Kinds[k]
		c.Overwritten, c.Shed, c.Cleared = r.over[k], r.shed[k], r.clear[k]
		c.Recorded = c.Kept + c.Overwritten + c.Shed + c.Cleared
		s.add(*c)
	}
	return s
}

// WritePrometheus writes the counters of a ring, called as given ("spans", "logs"), in the text format
// of Prometheus.
func (s Stats) WritePrometheus(w io.Writer, ring string) {
	var text strings.Builder
	for _, row := range [...]struct {
		name  string
		value uint64
	}{
		{"recorded_total", s.Recorded}, {"overwritten_total", s.Overwritten}, {"shed_total", s.Shed},
		{"cleared_total", s.Cleared}, {"dropped_total", s.Dropped}, {"cut_total", s.Cut}, {"kept", s.Kept},
		{"bytes", uint64(s.Bytes)}, {"limit_bytes", uint64(s.Limit)},
	} {
		fmt.Fprintf(&text, "plinth_telemetry_%s_%s %d\n", ring, row.name, row.value)
	}
	_, _ = io.WriteString(w, text.String()) // the scraper went away: there is nobody to tell
}

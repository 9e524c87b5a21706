package store

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
)

// point is a place in a segment where a frame starts.
type point struct {
	seq uint64
	off int64
}

// pointEvery is how far, in bytes, two points of a segment are apart at least: what a reader may have to
// skip.
const pointEvery = 64 << 10

// segment is one file of the log as readers see it.
type segment struct {
	first  uint64
	path   string
	end    int64 // bytes that are durable
	points []point
}

func (s *segment) addPoint(seq uint64, off int64) {
	if n := len(s.points); n == 0 || off-s.points[n-1].off >= pointEvery {
		s.points = append(s.points, point{seq: seq, off: off})
	}
}

// catalog knows which records are readable and in which file each is. The writer adds to it after each sync,
// readers and backups look things up, Truncate takes away.
type catalog struct {
	fs  FS
	dir string

	mu       sync.Mutex // guards all below
	segments []segment  // in order; the last is being written
	floor    uint64     // first readable position
	durable  uint64     // last readable position; floor-1 or more
	snapshot uint64     // position of the newest snapshot; 0 is none
	pins     int        // backups under way: no file is removed meanwhile
	garbage  []string   // files to remove
	changed  chan struct{}
	stopped  error // why durable will not grow any more
}

// grow makes the records up to last readable; they end at the byte end of the newest segment.
func (c *catalog) grow(first, last uint64, off, end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.segments[len(c.segments)-1]
	s.addPoint(first, off)
	s.end = end
	c.durable = last
	c.notify()
}

func (c *catalog) notify() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// stop lets all who wait for more records go, with err. The first reason stays.
func (c *catalog) stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped == nil {
		c.stopped = err
	}
	c.notify()
}

func (c *catalog) add(s segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.segments = append(c.segments, s)
}

// locate returns the segment with the record at position and the nearest point at or before it. Behind the
// last record it returns io.EOF.
func (c *catalog) locate(position uint64) (segment, point, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case position < c.floor:
		return segment{}, point{}, &GoneError{Position: position, First: c.floor}
	case position == c.durable+1:
		return segment{}, point{}, io.EOF
	case position > c.durable:
		return segment{}, point{}, fmt.Errorf("store: position %d, the last is %d: %w", position, c.durable,
			ErrAhead)
	}
	i := sort.Search(len(c.segments), func(i int) bool { return c.segments[i].first > position }) - 1
	s := c.segments[i]
	at := point{seq: s.first, off: segmentHead}
	if j := sort.Search(len(s.points), func(j int) bool { return s.points[j].seq > position }); j > 0 {
		at = s.points[j-1]
	}
	return s, at, nil
}

// wait returns when the record at position is readable.
func (c *catalog) wait(position uint64) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.durable >= position {
		return nil, nil
	}
	if c.stopped != nil {
		return nil, c.stopped
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed, nil
}

func (c *catalog) bounds() (floor, durable, snapshot uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.floor, c.durable, c.snapshot
}

// raise sets the floor and gives up the segments that lie wholly below it, but never the one being written.
func (c *catalog) raise(floor uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = floor
	n := 0
	for n+1 < len(c.segments) && c.segments[n+1].first <= floor {
		c.garbage = append(c.garbage, c.segments[n].path)
		n++
	}
	c.segments = slices.Delete(c.segments, 0, n)
}

func (c *catalog) setSnapshot(position uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot != 0 {
		c.garbage = append(c.garbage, fileName(c.dir, c.snapshot, snapshotExt))
	}
	c.snapshot = position
}

// sweep removes what was given up, unless a backup reads it. What cannot be removed now is tried again by the
// next sweep, and by the next open: the floor on disk says that it is nothing. Nothing waits for it: a backup
// that starts meanwhile does not see these files any more.
func (c *catalog) sweep() error {
	c.mu.Lock()
	var garbage []string
	if c.pins == 0 {
		garbage, c.garbage = c.garbage, nil
	}
	c.mu.Unlock()
	var first error
	garbage = slices.DeleteFunc(garbage, func(path string) bool {
		err := c.fs.Remove(path)
		if err != nil && !isNotExist(err) && first == nil {
			first = fmt.Errorf("store: remove a file below the floor: %w", err)
		}
		return err == nil || isNotExist(err)
	})
	if len(garbage) > 0 {
		c.mu.Lock()
		c.garbage = append(c.garbage, garbage...)
		c.mu.Unlock()
	}
	return first
}

func (c *catalog) pin() (segments []segment, floor, durable, snapshot uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins++
	return slices.Clone(c.segments), c.floor, c.durable, c.snapshot
}

func (c *catalog) unpin() error {
	c.mu.Lock()
	c.pins--
	c.mu.Unlock()
	return c.sweep()
}

package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// recovery brings a log folder to the state in which its writer can go on. The rules are in DESIGN.md.
type recovery struct {
	fs       FS
	dir      string
	snapshot func(uint64, io.Reader) error
	replay   func(uint64, []byte) error
	// check only looks: nothing is created, mended or removed, and an interrupted write is damage.
	check bool

	salt    uint64
	opened  LogOpened
	catalog *catalog
	writer  writer
	proof   uint64 // the newest position that was durable for certain
}

// listing is what lies in the folder of a log.
type listing struct {
	segments, snapshots []uint64 // positions in the names, in order
}

func list(fs FS, dir string) (l listing, err error) {
	entries, err := fs.List(dir)
	if err != nil {
		return l, fmt.Errorf("list: %w", err)
	}
	for _, e := range entries {
		if n, ok := parseName(e.Name, segmentExt); ok {
			l.segments = append(l.segments, n)
		} else if n, ok := parseName(e.Name, snapshotExt); ok {
			l.snapshots = append(l.snapshots, n)
		}
	}
	slices.Sort(l.segments)
	slices.Sort(l.snapshots)
	return l, nil
}

func (r *recovery) run() error {
	if !r.check {
		if err := r.prepare(); err != nil {
			return err
		}
	}
	l, err := list(r.fs, r.dir)
	if err != nil {
		return err
	}
	m, err := readMeta(r.fs, r.dir)
	if isNotExist(err) && !r.check {
		if l, m, err = r.create(l); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	r.salt = m.salt
	r.catalog = &catalog{fs: r.fs, dir: r.dir, floor: m.floor}
	l.segments = r.drop(l.segments, m.floor)
	if len(l.segments) == 0 {
		return r.damage(filepath.Join(r.dir, metaName), 0, "the log has no segment")
	}
	if l.segments[0] > m.floor {
		return r.damage(fileName(r.dir, m.floor, segmentExt), 0, "the records %d to %d are missing", m.floor,
			l.segments[0]-1)
	}
	if err := r.takeSnapshot(l.snapshots); err != nil {
		return err
	}
	r.proof = max(r.catalog.snapshot, m.floor-1)
	if err := r.scan(l.segments); err != nil {
		return err
	}
	r.opened.First, r.opened.Last = m.floor, r.catalog.durable
	r.opened.Snapshot, r.opened.Segments = r.catalog.snapshot, len(l.segments)
	if r.check {
		return nil
	}
	// What could not be removed is nothing to fail a start for: it is below the floor.
	_ = r.catalog.sweep()
	return nil
}

// prepare makes the folder, durably. The entries in it are synced again: a process that stopped because such
// a sync failed may have left entries that are seen and yet not on disk.
func (r *recovery) prepare() error {
	if err := makeDir(r.fs, r.dir); err != nil {
		return err
	}
	if err := removeTemporary(r.fs, r.dir); err != nil {
		return err
	}
	if err := r.fs.SyncDir(r.dir); err != nil {
		return failed("sync folder", r.dir, err)
	}
	return nil
}

// create makes a log where there is none yet. The segment comes first and the file LOG last, so a crash
// between leaves one empty first segment, and only that is taken up without LOG.
func (r *recovery) create(l listing) (listing, meta, error) {
	m := meta{floor: 1}
	path := fileName(r.dir, 1, segmentExt)
	switch {
	case len(l.snapshots) > 0 || len(l.segments) > 1 || len(l.segments) == 1 && l.segments[0] != 1:
		return l, m, r.damage(filepath.Join(r.dir, metaName), 0, "is missing")
	case len(l.segments) == 1:
		h, size, err := readSegmentHeader(r.fs, path)
		if err != nil {
			return l, m, err
		}
		if size != segmentHead || h.first != 1 {
			return l, m, r.damage(filepath.Join(r.dir, metaName), 0, "is missing")
		}
		m.salt = h.salt
	default:
		var salt [8]byte
		if _, err := rand.Read(salt[:]); err != nil {
			return l, m, fmt.Errorf("draw a salt: %w", err)
		}
		m.salt = binary.LittleEndian.Uint64(salt[:])
		if _, err := createSegment(r.fs, r.dir, segmentHeader{salt: m.salt, first: 1}); err != nil {
			return l, m, err
		}
		l.segments = []uint64{1}
	}
	r.opened.Created = true
	return l, m, writeMeta(r.fs, r.dir, m)
}

func readSegmentHeader(fs FS, path string) (h segmentHeader, size int64, err error) {
	f, err := fs.Open(path, os.O_RDONLY)
	if err != nil {
		return h, 0, err
	}
	h, size, err = headerOf(f, path)
	return h, size, errors.Join(err, f.Close())
}

func headerOf(f File, path string) (h segmentHeader, size int64, err error) {
	size, err = f.Size()
	if err != nil {
		return h, 0, err
	}
	b := make([]byte, min(size, segmentHead))
	if _, err = io.ReadFull(io.NewSectionReader(f, 0, size), b); err != nil {
		return h, 0, fmt.Errorf("read header of %s: %w", path, err)
	}
	h, reason := parseSegmentHeader(b)
	if reason != "" {
		return h, size, &DamageError{File: path, Reason: reason}
	}
	return h, size, nil
}

// drop gives up the segments that lie wholly below the floor.
func (r *recovery) drop(segments []uint64, floor uint64) []uint64 {
	for len(segments) > 1 && segments[1] <= floor {
		r.catalog.garbage = append(r.catalog.garbage, fileName(r.dir, segments[0], segmentExt))
		segments = segments[1:]
	}
	return segments
}

// takeSnapshot checks the newest snapshot, hands it over and gives up the older ones.
func (r *recovery) takeSnapshot(snapshots []uint64) error {
	if len(snapshots) == 0 {
		return nil
	}
	for _, old := range snapshots[:len(snapshots)-1] {
		r.catalog.garbage = append(r.catalog.garbage, fileName(r.dir, old, snapshotExt))
	}
	newest := snapshots[len(snapshots)-1]
	r.catalog.snapshot = newest
	path := fileName(r.dir, newest, snapshotExt)
	c, err := openContent(r.fs, path)
	if err != nil {
		return err
	}
	if r.snapshot != nil {
		err = r.snapshot(newest, c)
	}
	return errors.Join(err, c.Close())
}

func (r *recovery) damage(file string, off int64, form string, args ...any) error {
	return &DamageError{File: file, Offset: off, Reason: fmt.Sprintf(form, args...)}
}

// scan reads all segments in order, replays their records and opens the last one for the writer.
func (r *recovery) scan(segments []uint64) error {
	next := segments[0]
	for i, first := range segments {
		path := fileName(r.dir, first, segmentExt)
		if first != next {
			return r.damage(path, 0, "the segment starts at %d, the one before it ends at %d", first, next-1)
		}
		last := i == len(segments)-1
		flag := os.O_RDONLY
		if last && !r.check {
			flag = os.O_RDWR
		}
		f, err := r.fs.Open(path, flag)
		if err != nil {
			return fmt.Errorf("open segment: %w", err)
		}
		keep := last && !r.check
		if next, err = r.segment(f, path, first, last); err != nil || !keep {
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// segment reads one segment and returns the position after it.
func (r *recovery) segment(f File, path string, first uint64, last bool) (uint64, error) {
	h, size, err := headerOf(f, path)
	if err != nil {
		return 0, err
	}
	if h.salt != r.salt || h.first != first {
		return 0, r.damage(path, 0, "the segment belongs to another log or has another name")
	}
	c := newCursor(f, size, h)
	c.proof = r.proof
	s := segment{first: first, path: path, end: segmentHead}
	err = r.walk(c, &s)
	bad, is := errors.AsType[*badFrame](err)
	switch {
	case err == nil:
		if last && c.next <= c.proof {
			return 0, r.damage(path, c.off, "the records %d to %d are missing at the end", c.next, c.proof)
		}
	case !is:
		return 0, fmt.Errorf("segment %s: %w", path, err)
	case !last || r.check:
		return 0, r.damage(path, bad.off, "%s", bad.reason)
	default:
		proven, e := c.proven()
		if e != nil {
			return 0, fmt.Errorf("segment %s: %w", path, e)
		}
		if proven {
			return 0, r.damage(path, bad.off, "%s, and record %d was durable", bad.reason, c.next)
		}
		if err := r.tear(c, path); err != nil {
			return 0, err
		}
	}
	r.catalog.segments = append(r.catalog.segments, s)
	r.catalog.durable = c.next - 1
	if last && !r.check {
		return c.next, r.settle(f, c, &s, err != nil)
	}
	r.proof = max(r.proof, c.next-1)
	return c.next, nil
}

// walk hands all records of a segment over. s.end is where the records end, before a mark.
func (r *recovery) walk(c *cursor, s *segment) error {
	for {
		off := c.off
		f, payload, err := c.step()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if f.kind == kindMark {
			continue
		}
		s.addPoint(f.seq, off)
		s.end = c.off
		readable := f.seq > r.catalog.snapshot && f.seq >= r.catalog.floor
		switch {
		case f.kind == kindHole && c.next > r.catalog.floor:
			r.opened.Lost = append(r.opened.Lost, LostError{From: max(f.seq, r.catalog.floor),
				To: c.next - 1})
		case f.kind == kindRecord && readable && r.replay != nil:
			if err := r.replay(f.seq, payload); err != nil {
				return fmt.Errorf("replay record %d: %w", f.seq, err)
			}
		}
	}
}

// tear notes the interrupted write that starts at c.off.
func (r *recovery) tear(c *cursor, path string) error {
	end, err := c.lastByte(c.off)
	if err != nil {
		return fmt.Errorf("segment %s: %w", path, err)
	}
	r.opened.Torn = &Torn{File: path, Offset: c.off, Bytes: end - c.off}
	return nil
}

// settle makes the last segment fit for the writer: an interrupted write is cut off, and what no frame proves
// to be durable is written once more and synced. To sync alone is not enough: a process that stopped because
// a sync had failed leaves pages that the kernel takes for clean although they never reached the disk.
func (r *recovery) settle(f File, c *cursor, s *segment, torn bool) error {
	r.writer = writer{file: f, path: s.path, seed: c.seed, off: s.end, next: c.next, marked: c.off > s.end &&
		!torn}
	w := &r.writer
	if torn {
		if err := f.Truncate(s.end); err != nil {
			return failed("truncate", s.path, err)
		}
	}
	if c.next-1 <= c.proof && !torn {
		// The mark that says so may not be on disk itself.
		w.dirty = w.marked
		return nil
	}
	if c.next-1 > c.proof {
		if err := r.rewrite(f, c, s); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return failed("sync", s.path, err)
	}
	w.dirty = false
	return nil
}

// rewrite writes the bytes of the records that are not proven once more, in place.
func (r *recovery) rewrite(f File, c *cursor, s *segment) error {
	from := int64(segmentHead)
	for _, p := range s.points {
		if p.seq <= c.proof+1 {
			from = p.off
		}
	}
	buf := make([]byte, windowBytes)
	for from < s.end {
		n := min(int64(len(buf)), s.end-from)
		if _, err := f.ReadAt(buf[:n], from); err != nil {
			return fmt.Errorf("segment %s: read at byte %d: %w", s.path, from, err)
		}
		if _, err := f.WriteAt(buf[:n], from); err != nil {
			return wrapWrite("write", s.path, err)
		}
		from += n
	}
	return nil
}

// checkLog reads the whole log without changing anything, for a backup at rest.
func checkLog(fs FS, dir string) (LogOpened, error) {
	r := &recovery{fs: fs, dir: dir, check: true}
	if err := r.run(); err != nil {
		return LogOpened{}, fmt.Errorf("store: check log %s: %w", dir, err)
	}
	return r.opened, nil
}

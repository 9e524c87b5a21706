package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// salvage makes a damaged log one that opens: what is whole keeps its position, what is not becomes a hole of
// known size. Every file that it changes stays beside the new one with the ending .damaged. It may be
// interrupted anywhere and started again.
type salvage struct {
	fs    FS
	dir   string
	meta  meta
	found []DamageError
	proof uint64
}

// salvageIfDamaged tries to open the log and does the work only if that ends in damage.
func salvageIfDamaged(fs FS, dir string) ([]DamageError, error) {
	r := &recovery{fs: fs, dir: dir}
	err := r.run()
	if err == nil {
		return nil, r.writer.file.Close()
	}
	if _, damaged := errors.AsType[*DamageError](err); !damaged {
		return nil, err
	}
	s := &salvage{fs: fs, dir: dir}
	if err := s.run(); err != nil {
		return nil, err
	}
	return s.found, nil
}

func (s *salvage) note(file string, off int64, form string, args ...any) {
	s.found = append(s.found, DamageError{File: file, Offset: off, Reason: fmt.Sprintf(form, args...)})
}

func (s *salvage) run() error {
	l, err := list(s.fs, s.dir)
	if err != nil {
		return err
	}
	newest, err := s.snapshots(l.snapshots)
	if err != nil {
		return err
	}
	if err := s.readMeta(l); err != nil {
		return err
	}
	if len(l.segments) == 0 {
		return s.restart(newest)
	}
	for len(l.segments) > 1 && l.segments[1] <= s.meta.floor {
		l.segments = l.segments[1:]
	}
	if first := l.segments[0]; first > s.meta.floor {
		s.note(fileName(s.dir, s.meta.floor, segmentExt), 0, "the records %d to %d are missing", s.meta.floor,
			first-1)
		s.meta.floor = first
		if err := writeMeta(s.fs, s.dir, s.meta); err != nil {
			return err
		}
	}
	s.proof = max(newest, s.meta.floor-1)
	for i, first := range l.segments {
		target, last := s.proof+1, i == len(l.segments)-1
		if !last {
			target = l.segments[i+1]
		}
		if err := s.segment(first, target, last); err != nil {
			return err
		}
	}
	return nil
}

// restart begins a new segment where none is left.
func (s *salvage) restart(newest uint64) error {
	s.note(s.dir, 0, "the log has no segment")
	s.meta.floor = max(s.meta.floor, newest+1)
	h := segmentHeader{salt: s.meta.salt, first: s.meta.floor}
	if _, err := createSegment(s.fs, s.dir, h); err != nil {
		return err
	}
	return writeMeta(s.fs, s.dir, s.meta)
}

// snapshots puts damaged ones aside and returns the newest that is whole.
func (s *salvage) snapshots(positions []uint64) (uint64, error) {
	for i := len(positions) - 1; i >= 0; i-- {
		path := fileName(s.dir, positions[i], snapshotExt)
		c, err := openContent(s.fs, path)
		if err == nil {
			return positions[i], c.Close()
		}
		d, damaged := errors.AsType[*DamageError](err)
		if !damaged {
			return 0, err
		}
		s.found = append(s.found, *d)
		if err := s.fs.Rename(path, path+damagedExt); err != nil {
			return 0, err
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return 0, failed("sync folder", s.dir, err)
		}
	}
	return 0, nil
}

// readMeta reads LOG, or makes it again from what the segments say.
func (s *salvage) readMeta(l listing) error {
	path := filepath.Join(s.dir, metaName)
	var err error
	if s.meta, err = readMeta(s.fs, s.dir); err == nil {
		return nil
	}
	d, damaged := errors.AsType[*DamageError](err)
	switch {
	case damaged:
		s.found = append(s.found, *d)
		if err := s.keep(path); err != nil {
			return err
		}
	case isNotExist(err):
		s.note(path, 0, "is missing")
	default:
		return err
	}
	for _, first := range l.segments {
		h, _, err := readSegmentHeader(s.fs, fileName(s.dir, first, segmentExt))
		if err == nil {
			s.meta = meta{salt: h.salt, floor: l.segments[0]}
			return writeMeta(s.fs, s.dir, s.meta)
		}
	}
	return &DamageError{File: path,
		Reason: "neither this file nor the head of any segment can be read: nothing " +
			"can be salvaged, restore a backup"}
}

// keep copies a file to its name with the ending .damaged, durably.
func (s *salvage) keep(path string) error {
	from, err := s.fs.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	size, err := from.Size()
	if err == nil {
		err = replace(s.fs, path+damagedExt, func(f File) error {
			_, err := io.Copy(&tail{f: f}, io.NewSectionReader(from, 0, size))
			return err
		})
	}
	return errors.Join(err, from.Close())
}

// segment mends one segment if it must. target is the position after its last record: where the next segment
// starts, or for the last segment what is proven to have been there.
func (s *salvage) segment(first, target uint64, last bool) error {
	path := fileName(s.dir, first, segmentExt)
	f, err := s.fs.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	h := segmentHeader{salt: s.meta.salt, first: first}
	before := len(s.found)
	got, size, err := headerOf(f, path)
	if d, damaged := errors.AsType[*DamageError](err); damaged {
		s.found = append(s.found, *d)
	} else if err != nil {
		return errors.Join(err, f.Close())
	} else if got != h {
		s.note(path, 0, "the segment belongs to another log or has another name")
	}
	m := mending{s: s, path: path, target: target, last: last, note: s.note}
	err = m.walk(newCursor(f, size, h))
	if err == nil && len(s.found) > before {
		err = s.keep(path)
		if err == nil {
			err = replace(s.fs, path, func(to File) error {
				m.note = func(string, int64, string, ...any) {}
				m.out = &tail{f: to}
				if _, err := m.out.Write(appendSegmentHeader(nil, h)); err != nil {
					return err
				}
				m.seed = h.seed()
				return m.walk(newCursor(f, size, h))
			})
		}
	}
	return errors.Join(err, f.Close())
}

// mending walks a segment over its damage, writing what is whole, and holes for the rest, to out if that is
// set.
type mending struct {
	s      *salvage
	path   string
	target uint64
	last   bool
	note   func(string, int64, string, ...any)
	out    *tail
	seed   uint32
	buf    []byte
}

func (m *mending) walk(c *cursor) error {
	c.proof = m.s.proof
	if c.end < segmentHead {
		c.off = c.end
	}
	for m.last || c.next < m.target {
		f, payload, err := c.step()
		if err == io.EOF {
			break
		}
		if bad, is := errors.AsType[*badFrame](err); is {
			more, err := m.skip(c, bad)
			if err != nil {
				return err
			}
			if !more {
				break
			}
			continue
		}
		if err != nil {
			return err
		}
		if f.kind == kindMark {
			continue
		}
		if err := m.emit(f.kind, f.seq, payload); err != nil {
			return err
		}
	}
	if !m.last && c.next >= m.target {
		// Only a mark may follow. Anything else belongs to the segment that comes next, and is left out.
		if f, _, err := c.step(); err != io.EOF && (err != nil || f.kind != kindMark) {
			m.note(m.path, c.off, "the segment goes on after record %d", m.target-1)
		}
		return nil
	}
	if c.next < m.target {
		m.note(m.path, c.off, "the records %d to %d are missing", c.next, m.target-1)
		return m.hole(c.next, m.target)
	}
	return nil
}

// skip goes to the next whole frame behind a bad one. It reports false when there is none, or when what is
// bad is the interrupted write at the end of the log, which the open after this cuts off.
func (m *mending) skip(c *cursor, bad *badFrame) (bool, error) {
	if m.last {
		proven, err := c.proven()
		if err != nil {
			return false, err
		}
		if !proven {
			return false, nil
		}
	}
	from := c.next
	f, at, err := c.resume()
	if err != nil {
		return false, err
	}
	if at < 0 || !m.last && f.seq >= m.target {
		m.note(m.path, bad.off, "%s; nothing after it is whole", bad.reason)
		return false, nil
	}
	m.note(m.path, bad.off, "%s; whole again from record %d", bad.reason, f.seq)
	c.off, c.next = at, f.seq
	if from == f.seq {
		return true, nil
	}
	return true, m.hole(from, f.seq)
}

func (m *mending) hole(from, to uint64) error {
	return m.emit(kindHole, from, binary.LittleEndian.AppendUint64(nil, to-from))
}

func (m *mending) emit(k kind, seq uint64, payload []byte) error {
	if m.out == nil {
		return nil
	}
	m.buf = appendFrame(m.buf[:0], payload)
	stamp(m.buf, m.seed, k, len(payload), seq, seq-1)
	_, err := m.out.Write(m.buf)
	return err
}

package store

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Reader reads a log from a position on, in order and without a gap. One goroutine uses it at a time; any
// number of readers may read beside each other and beside the writer.
type Reader struct {
	log  *Log
	next uint64 // position that the next call returns
	path string
	file File
	cur  *cursor
}

// Reader returns a reader that starts at the position; 0 stands for the first readable one. The errors are
// *GoneError and ErrAhead; Last+1 is a good position, where the next record will be.
func (l *Log) Reader(from uint64) (*Reader, error) {
	if from == 0 {
		from = l.First()
	}
	if _, _, err := l.catalog.locate(from); err != nil && err != io.EOF {
		return nil, fmt.Errorf("store: reader: %w", err)
	}
	return &Reader{log: l, next: from}, nil
}

// Read calls fn with every record from the position on (0: from the first readable one) up to the last
// durable one, in order, and returns the position after the last record that fn took. The record is valid
// during the call. The errors are those of Reader, of Reader.Next and of fn; after a *LostError, a Read from
// the position that was returned goes on behind the loss.
func (l *Log) Read(from uint64, fn func(position uint64, record []byte) error) (next uint64, err error) {
	r, err := l.Reader(from)
	if err != nil {
		return from, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	next = r.Position()
	for {
		position, record, err := r.Next()
		if err == io.EOF {
			return next, nil
		}
		if err == nil {
			err = fn(position, record)
		} else if _, lost := errors.AsType[*LostError](err); lost {
			next = r.Position()
		}
		if err != nil {
			return next, err
		}
		next = r.Position()
	}
}

// Next returns the next record, valid until the next call. At the last durable record it returns io.EOF; it
// may be called again when Log.Wait says that there is more. A *GoneError says that the log was truncated
// past the reader, a *LostError that a salvage gave these positions up (the call after it goes on behind
// them), and a *DamageError that the bytes changed under way.
func (r *Reader) Next() (position uint64, record []byte, err error) {
	for {
		if r.cur == nil || r.cur.off >= r.cur.end {
			if err := r.move(); err != nil {
				return 0, nil, err
			}
		}
		f, payload, err := r.cur.step()
		if err != nil {
			return 0, nil, r.explain(err)
		}
		switch {
		case f.kind == kindHole && r.cur.next > r.next:
			lost := &LostError{From: max(f.seq, r.next), To: r.cur.next - 1}
			r.next = r.cur.next
			return 0, nil, lost
		case f.kind == kindRecord && f.seq == r.next:
			r.next++
			return f.seq, payload, nil
		}
	}
}

// Position returns the position that the next call of Next is about.
func (r *Reader) Position() uint64 { return r.next }

// move goes to the part of the log that has the next position, or looks how far the current segment reaches
// now.
func (r *Reader) move() error {
	s, at, err := r.log.catalog.locate(r.next)
	if err == io.EOF {
		return err
	}
	if err != nil {
		return fmt.Errorf("store: read: %w", err)
	}
	if r.cur != nil && r.path == s.path {
		r.cur.end = s.end
		if r.cur.off < r.cur.end {
			return nil
		}
		return fmt.Errorf("store: read: %w", &DamageError{File: s.path, Offset: s.end,
			Reason: fmt.Sprintf("record %d is not where it was written", r.next)})
	}
	if err := r.Close(); err != nil {
		return err
	}
	f, err := r.log.fs.Open(s.path, os.O_RDONLY)
	if isNotExist(err) {
		// Truncated between the look at the catalog and now.
		return fmt.Errorf("store: read: %w", &GoneError{Position: r.next, First: r.log.First()})
	}
	if err != nil {
		return fmt.Errorf("store: read: %w", err)
	}
	r.file, r.path = f, s.path
	r.cur = newCursor(f, s.end, segmentHeader{salt: r.log.salt, first: s.first})
	r.cur.off, r.cur.next = at.off, at.seq
	return nil
}

func (r *Reader) explain(err error) error {
	bad, is := errors.AsType[*badFrame](err)
	if !is {
		return fmt.Errorf("store: read %s: %w", r.path, err)
	}
	return fmt.Errorf("store: read: %w", &DamageError{File: r.path, Offset: bad.off, Reason: bad.reason})
}

// Close gives the reader's file back.
func (r *Reader) Close() error {
	f := r.file
	r.file, r.cur, r.path = nil, nil, ""
	if f == nil {
		return nil
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("store: close reader: %w", err)
	}
	return nil
}

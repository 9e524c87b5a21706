package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxScan      = 8 << 20 // bytes that one query reads
)

// Query says which events are wanted; what is empty asks for nothing.
type Query struct {
	Before, After time.Time // Before is exclusive, After inclusive
	Actor         string    // id or name
	Action        string    // itself, and what is below it: "user" has "user.create"
	Outcome       string
	Limit         int    // 0 is 100; at most 1000
	Cursor        string // next of the page before
}

// Query gives the events that match, the last written first, and the cursor of the page after it, or "" at
// the end. One query reads at most 8 MiB: a page may be short, or empty, and still have a next one. A cursor
// stays good while lines are added and files put aside; when its file was removed, the pages end. A cursor
// that this trail did not make is fault.Invalid, BAD_CURSOR.
func (t *Trail) Query(q Query) (events []Event, next string, err error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	q.Limit = min(q.Limit, maxLimit)
	from, err := parseCursor(q.Cursor)
	if err != nil {
		return nil, "", err
	}
	t.files.RLock()
	defer t.files.RUnlock()
	t.mu.Lock()
	size, closed := t.size, t.closed
	t.mu.Unlock()
	if closed {
		return nil, "", fmt.Errorf("audit: query: %w", ErrClosed)
	}
	s := scan{q: q, from: from, left: maxScan}
	err = s.file(t.current, size)
	for i := len(t.aside) - 1; i >= 0 && err == nil && !s.full(); i-- {
		err = t.scanAside(&s, t.aside[i])
	}
	t.mu.Lock()
	t.stats.Damaged += s.damaged
	t.mu.Unlock()
	if err != nil {
		return nil, "", fmt.Errorf("audit: query: %w", err)
	}
	return s.events, s.next, nil
}

func (t *Trail) scanAside(s *scan, name string) error {
	f, err := t.o.FS.Open(filepath.Join(t.dir, name), os.O_RDONLY)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		err = s.file(f, size)
	}
	return errors.Join(err, f.Close())
}

// cursor is a place in the trail: before the line at an offset of the file whose first line has a sum. Names
// would not do, because the current file gets another one.
type cursor struct {
	sum    string
	offset int64
}

const sumBytes = 12

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(c.sum + strconv.FormatInt(c.offset, 10)))
}

func parseCursor(text string) (*cursor, error) {
	if text == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(b) > sumBytes && len(b) < sumBytes+20 {
		if n, bad := strconv.ParseUint(string(b[sumBytes:]), 10, 63); bad == nil {
			return &cursor{sum: string(b[:sumBytes]), offset: int64(n)}, nil
		}
	}
	return nil, fault.New(fault.Invalid, "BAD_CURSOR", "the cursor is none that a page ended with")
}

// scan is one query under way.
type scan struct {
	q       Query
	from    *cursor // nil once it was found
	left    int64   // bytes that may still be read
	events  []Event
	next    string
	damaged int64
}

func (s *scan) full() bool { return s.next != "" }

// file takes the matching lines of a file from its end to its start.
func (s *scan) file(f store.File, size int64) error {
	if size == 0 {
		return nil
	}
	sum, err := firstSum(f, size)
	if err != nil {
		return err
	}
	if s.from != nil {
		if s.from.sum != sum || s.from.offset > size {
			return nil
		}
		size, s.from = s.from.offset, nil
	}
	lines := backward{r: f, at: size}
	for {
		line, start, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.left -= int64(len(line)) + 1
		e, err := decode(line)
		if err != nil {
			s.damaged++
		} else if s.q.match(&e) {
			s.events = append(s.events, e)
		}
		if len(s.events) == s.q.Limit || s.left <= 0 {
			// Also when this was the very first line: what is behind it is the end, an empty page.
			s.next = cursor{sum, start}.String()
			return nil
		}
	}
}

func (q *Query) match(e *Event) bool {
	beneath := strings.HasPrefix(e.Action, q.Action) &&
		(len(e.Action) == len(q.Action) || e.Action[len(q.Action)] == '.')
	return (q.Before.IsZero() || e.Time.Before(q.Before)) && !e.Time.Before(q.After) &&
		(q.Actor == "" || e.Actor.ID == q.Actor || e.Actor.Name == q.Actor) &&
		(q.Action == "" || beneath) && (q.Outcome == "" || e.Outcome == q.Outcome)
}

// firstSum tells a file by its first line, which no other has: it has the time in nanoseconds.
func firstSum(f store.File, size int64) (string, error) {
	head := make([]byte, min(size, maxLine))
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, int64(len(head))), head); err != nil {
		return "", fmt.Errorf("read the first line: %w", err)
	}
	if i := bytes.IndexByte(head, '\n'); i >= 0 {
		head = head[:i]
	}
	sum := sha256.Sum256(head)
	return string(sum[:sumBytes]), nil
}

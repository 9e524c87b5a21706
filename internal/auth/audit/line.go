package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	maxText = 512      // bytes of one text of an event
	maxLine = 64 << 10 // bytes of a line; no event reaches it, see encode
	chunk   = 64 << 10 // bytes read at once
)

// encode writes an event as one line, its line end with it. Ten texts of 512 bytes make less than 31 KiB,
// even when each byte becomes six.
func encode(e Event) ([]byte, error) {
	e.Time = e.Time.UTC()
	for _, s := range []*string{&e.Actor.Kind, &e.Actor.ID, &e.Actor.Name, &e.Action, &e.Target, &e.Outcome,
		&e.Reason, &e.Remote, &e.Door, &e.Trace} {
		*s = clip(*s)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("audit: encode: %w", err)
	}
	return append(b, '\n'), nil
}

// clip makes a text valid UTF-8 of at most maxText bytes.
func clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	s = strings.ToValidUTF8(s, "?") // also for a character that was cut in two; never longer
	return s
}

// decode reads a line without its end. Members that this version does not know are no fault: a newer one
// may have written the line.
func decode(line []byte) (Event, error) {
	// The first byte alone refuses most rubbish: a start may have megabytes of it to pass.
	if len(line) == 0 || line[0] != '{' || len(line) > maxLine {
		return Event{}, fmt.Errorf("audit: %d bytes that are no line", len(line))
	}
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, fmt.Errorf("audit: decode: %w", err)
	}
	e.Time = e.Time.UTC()
	if y := e.Time.Year(); e.Time.IsZero() || y < 0 || y > 9999 || e.Action == "" || e.Outcome == "" {
		return Event{}, errors.New("audit: a line without time, action or outcome")
	}
	return e, nil
}

// backward reads lines from the end of a file to its start, a chunk at a time. A line longer than maxLine is
// given in parts, none of which can be decoded.
type backward struct {
	r     io.ReaderAt
	at    int64  // start of what was read so far
	buf   []byte // bytes from at on, not given yet
	ended bool   // the last line given had a line end behind it
	whole bool   // the bytes before at may end without a line end (a broken end of file)
}

// next gives the line before the last one given, and where it starts. The line is lent until the next call.
// At the start of the file it is io.EOF.
func (b *backward) next() (line []byte, start int64, err error) {
	if b.at == 0 && len(b.buf) == 0 {
		return nil, 0, io.EOF
	}
	b.ended = true
	for {
		body := b.buf
		if n := len(body); n > 0 && body[n-1] == '\n' {
			body = body[:n-1]
		} else if n > 0 && b.whole {
			b.ended = false
		}
		if i := bytes.LastIndexByte(body, '\n'); i >= 0 {
			b.whole = false
			line, b.buf = body[i+1:], b.buf[:i+1]
			return line, b.at + int64(i) + 1, nil
		}
		if b.at == 0 || len(body) > maxLine {
			b.whole = b.at > 0 // the rest of an endless line comes without an end
			line, b.buf = body, nil
			return line, b.at, nil
		}
		if err := b.more(); err != nil {
			return nil, 0, err
		}
	}
}

// more reads the chunk before at.
func (b *backward) more() error {
	n := min(b.at, chunk)
	buf := make([]byte, int(n)+len(b.buf))
	if _, err := io.ReadFull(io.NewSectionReader(b.r, b.at-n, n), buf[:n]); err != nil {
		return fmt.Errorf("read lines: %w", err)
	}
	copy(buf[n:], b.buf)
	b.at, b.buf = b.at-n, buf
	return nil
}

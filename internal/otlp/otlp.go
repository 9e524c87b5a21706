// Package otlp reads the telemetry that workers send: spans, metrics and logs in the JSON encoding of
// OTLP (engine protocol, section 11).
//
// It promises that no content makes it panic, that it needs no more memory than a message has bytes
// whatever the message claims, that unknown fields and wrong types cost only what they stand in, and
// that all it cannot use is counted. A Sink may be used from any goroutine, but decoding takes a while:
// not from an event loop. The package opens no connection and sends nothing on.
package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// Bounds of one message and of what is in it. What is over the bounds of a message refuses it as a
// whole; of what is over the others the first so many are kept.
const (
	MaxMessage    = 8 << 20
	maxAttributes = 128 // of one resource, span, event, link, point, log record or list in a value
	maxEvents     = 128 // of one span
	maxLinks      = 128 // of one span
)

// Reason says why a message was refused.
type Reason uint8

const (
	Unknown  Reason = iota // it begins with none of OTLP, MTRC and LOGS
	TooLarge               // over MaxMessage
	TooDeep                // nested over 512 levels
	Syntax                 // no JSON
	Shape                  // JSON, but no object
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case TooLarge:
		return "too large"
	case TooDeep:
		return "nested too deeply"
	case Syntax:
		return "malformed JSON"
	case Shape:
		return "not an object"
	}
	return "unknown kind of message"
}

// Error is why a message was refused as a whole. It holds nothing of the message's content.
type Error struct {
	Reason Reason
	Err    error // what the scanner said; may be nil
}

// Error says the reason.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("telemetry message: %s: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("telemetry message: %s", e.Reason)
}

// Unwrap returns what the scanner said.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// Stats counts what came in.
type Stats struct {
	Messages uint64 // read, refused ones included
	Refused  uint64 // messages without use: see Reason
	Partial  uint64 // messages with a value of the wrong type somewhere; the rest was used
	Spans    uint64 // handed on
	Logs     uint64
	Points   uint64 // of metrics
	Dropped  uint64 // spans without ids, metrics without a name or value
	Cut      uint64 // lists with more elements, and values with more depth, than is kept
}

// Sink takes telemetry messages and keeps what is in them.
type Sink struct {
	spans  *telemetry.Spans
	logs   *telemetry.Logs
	names  *telemetry.Names
	values *telemetry.Values

	scratch sync.Pool // of *span

	messages, refused, partial      atomic.Uint64
	spanCount, logCount, pointCount atomic.Uint64
	dropped, cutCount               atomic.Uint64
}

// NewSink returns a sink that records into the given rings, with a table of values of its own.
func NewSink(spans *telemetry.Spans, logs *telemetry.Logs, names *telemetry.Names) *Sink {
	return &Sink{spans: spans, logs: logs, names: names, values: telemetry.NewValues()}
}

// Values returns the last values of the metrics that came in.
func (s *Sink) Values() *telemetry.Values { return s.values }

// Stats returns the counters as they stand.
func (s *Sink) Stats() Stats {
	return Stats{Messages: s.messages.Load(), Refused: s.refused.Load(), Partial: s.partial.Load(),
		Spans: s.spanCount.Load(), Logs: s.logCount.Load(), Points: s.pointCount.Load(),
		Dropped: s.dropped.Load(), Cut: s.cutCount.Load()}
}

// Take reads one message: four bytes that say what it is (OTLP, MTRC or LOGS), then JSON. b is not
// kept. The error, an *Error, is for a message that was refused as a whole; all else is used as far as
// it goes, and counted.
func (s *Sink) Take(b []byte) error {
	s.messages.Add(1)
	err := s.take(b)
	if err == nil {
		return nil
	}
	s.refused.Add(1)
	return err
}

func (s *Sink) take(b []byte) error {
	if len(b) < 4 {
		return &Error{Reason: Unknown}
	}
	prefix, body := string(b[:4]), b[4:]
	switch prefix {
	case "OTLP", "MTRC", "LOGS":
	default:
		return &Error{Reason: Unknown}
	}
	body, err := check(body)
	if err != nil {
		return err
	}
	c := cursor{b: body}
	switch prefix {
	case "OTLP":
		s.takeSpans(&c)
	case "MTRC":
		s.takeMetrics(&c)
	default:
		s.takeLogs(&c)
	}
	if c.partial {
		s.partial.Add(1)
	}
	s.cutCount.Add(uint64(c.cut))
	return nil
}

// check returns the body if it is one JSON object, and UTF-8: what stands in its texts goes out again
// as it came.
func check(body []byte) ([]byte, error) {
	if len(body) > MaxMessage {
		return nil, &Error{Reason: TooLarge}
	}
	var f wire.Frame
	if err := f.Scan(body); err != nil {
		refusal, ok := errors.AsType[*wire.Error](err)
		switch {
		case ok && refusal.Code == wire.CodeLimit:
			return nil, &Error{Reason: TooDeep}
		case json.Valid(body):
			return nil, &Error{Reason: Shape}
		}
		return nil, &Error{Reason: Syntax, Err: err}
	}
	if utf8.Valid(body) {
		return body, nil
	}
	return bytes.ToValidUTF8(body, []byte("\ufffd")), nil
}

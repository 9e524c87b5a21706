package telemetry

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"
)

// Bounds of the attributes of one record of slog.
const (
	maxAttributes = 7 << 10 // with a body of 8 KiB the record stays within 16 KiB
	maxText       = 4 << 10
)

// LogHandler writes records into Logs and passes them on. It waits for no I/O of its own.
type LogHandler struct {
	next   slog.Handler
	logs   *Logs
	writer attributes // what With gave so far
}

// NewLogHandler returns a handler that records into logs what next is enabled for, then passes it on to
// next.
//
// Attributes become one JSON object, groups objects within it. The attributes trace_id and span_id,
// outside of any group and in hexadecimal, become the ids of the record; service becomes its service,
// which is "plinth" otherwise. Attributes that would make the object longer than 7 KiB are left out,
// texts are cut at 4 KiB, and the record is then marked as cut. A value that panics while it is written
// becomes a text that says so.
func NewLogHandler(next slog.Handler, logs *Logs) slog.Handler {
	return &LogHandler{next: next, logs: logs, writer: attributes{text: []byte{'{'}, service: "plinth"}}
}

// Enabled reports what next reports.
func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle records r and passes it on; the error is that of next.
func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	var room [1024]byte
	w := h.writer
	w.text = append(room[:0], w.text...)
	r.Attrs(func(a slog.Attr) bool {
		w.add(a)
		return true
	})
	e := Log{Time: r.Time.UnixNano(), Severity: SeverityOf(r.Level), Body: r.Message, Attributes: w.close(),
		Trace: w.trace, Span: w.span, Service: w.service, Cut: w.cut}
	if r.Time.IsZero() {
		e.Time = Now()
	}
	h.logs.Record(&e)
	return h.next.Handle(ctx, r)
}

// WithAttrs returns a handler that adds attrs to every record.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	w := h.writer
	w.text = slices.Clone(w.text)
	for _, a := range attrs {
		w.add(a)
	}
	return &LogHandler{next: h.next.WithAttrs(attrs), logs: h.logs, writer: w}
}

// WithGroup returns a handler that puts all further attributes into an object of that name.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	w := h.writer
	if name != "" {
		w.waiting = append(slices.Clone(w.waiting), name)
	}
	return &LogHandler{next: h.next.WithGroup(name), logs: h.logs, writer: w}
}

// attributes writes attributes as a JSON object, and keeps what the record has fields for.
type attributes struct {
	text    []byte
	open    int      // groups that are open in text
	waiting []string // groups that open with their first attribute: without one they are not shown
	trace   [16]byte
	span    [8]byte
	service string
	cut     bool
}

func (w *attributes) add(a slog.Attr) {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) || w.open == 0 && len(w.waiting) == 0 && w.field(a) {
		return
	}
	before := *w
	w.enter()
	start := len(w.text)
	w.attr(a)
	if len(w.text) == start || len(w.text) > maxAttributes {
		w.cut = before.cut || len(w.text) > start
		w.text, w.open, w.waiting = w.text[:len(before.text)], before.open, before.waiting
	}
}

// field takes an attribute that the record has a field for.
func (w *attributes) field(a slog.Attr) bool {
	if a.Value.Kind() != slog.KindString {
		return false
	}
	text := a.Value.String()
	switch a.Key {
	case "trace_id":
		return fromHex(w.trace[:], text)
	case "span_id":
		return fromHex(w.span[:], text)
	case "service":
		w.service = text
		return true
	}
	return false
}

// fromHex fills dst if s has just that many bytes in hexadecimal.
func fromHex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	b, err := hex.DecodeString(s)
	return err == nil && copy(dst, b) == len(dst)
}

// enter opens the waiting groups.
func (w *attributes) enter() {
	for _, name := range w.waiting {
		w.key(name)
		w.text = append(w.text, '{')
		w.open++
	}
	w.waiting = nil
}

func (w *attributes) key(name string) {
	if w.text[len(w.text)-1] != '{' {
		w.text = append(w.text, ',')
	}
	w.text = append(appendString(w.text, cutText(name, maxNameBytes)), ':')
}

// attr writes one attribute; a group without attributes writes nothing.
func (w *attributes) attr(a slog.Attr) {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() != slog.KindGroup {
		if !a.Equal(slog.Attr{}) {
			w.key(a.Key)
			w.value(a.Value)
		}
		return
	}
	if a.Key == "" {
		for _, member := range a.Value.Group() {
			w.attr(member)
		}
		return
	}
	before := len(w.text)
	w.key(a.Key)
	w.text = append(w.text, '{')
	start := len(w.text)
	for _, member := range a.Value.Group() {
		if w.attr(member); len(w.text) > maxAttributes {
			return // the whole attribute goes
		}
	}
	if len(w.text) == start {
		w.text = w.text[:before]
		return
	}
	w.text = append(w.text, '}')
}

func (w *attributes) value(v slog.Value) {
	switch v.Kind() {
	case slog.KindString:
		w.string(v.String())
	case slog.KindInt64:
		w.text = strconv.AppendInt(w.text, v.Int64(), 10)
	case slog.KindUint64:
		w.text = strconv.AppendUint(w.text, v.Uint64(), 10)
	case slog.KindFloat64:
		if f := v.Float64(); math.IsNaN(f) || math.IsInf(f, 0) {
			w.string(strconv.FormatFloat(f, 'g', -1, 64))
		} else {
			w.text = strconv.AppendFloat(w.text, f, 'g', -1, 64)
		}
	case slog.KindBool:
		w.text = strconv.AppendBool(w.text, v.Bool())
	case slog.KindDuration:
		w.string(v.Duration().String())
	case slog.KindTime:
		w.string(v.Time().Format(time.RFC3339Nano))
	default:
		w.any(v.Any())
	}
}

func (w *attributes) string(s string) {
	if len(s) > maxText {
		s, w.cut = cutText(s, maxText), true
	}
	w.text = appendString(w.text, s)
}

// any writes a value that brings its own code, which may panic.
func (w *attributes) any(v any) {
	start := len(w.text)
	defer func() {
		if p := recover(); p != nil {
			w.text = w.text[:start]
			w.string(fmt.Sprintf("!panic: %v", p))
		}
	}()
	if err, ok := v.(error); ok {
		if _, own := v.(json.Marshaler); !own {
			w.string(err.Error())
			return
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		w.string(fmt.Sprintf("%+v", v))
		return
	}
	w.text = append(w.text, b...)
}

// close returns the whole object; nil when it is empty.
func (w *attributes) close() []byte {
	if len(w.text) == len("{") {
		return nil
	}
	for range w.open + 1 {
		w.text = append(w.text, '}')
	}
	return w.text
}

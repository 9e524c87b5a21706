package telemetry

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

// Severity of a log record, as OpenTelemetry numbers it.
type Severity = uint8

const (
	SeverityTrace Severity = 1
	SeverityDebug Severity = 5
	SeverityInfo  Severity = 9
	SeverityWarn  Severity = 13
	SeverityError Severity = 17
	SeverityFatal Severity = 21
)

// SeverityText returns the upper-case name of the range that s lies in.
func SeverityText(s Severity) string {
	switch {
	case s == 0:
		return "UNSPECIFIED"
	case s < SeverityDebug:
		return "TRACE"
	case s < SeverityInfo:
		return "DEBUG"
	case s < SeverityWarn:
		return "INFO"
	case s < SeverityError:
		return "WARN"
	case s < SeverityFatal:
		return "ERROR"
	}
	return "FATAL"
}

// SeverityOf returns the severity that stands for a level of slog; steps between the named levels are
// kept.
func SeverityOf(level slog.Level) Severity {
	return Severity(min(max(int(level)+int(SeverityInfo), 1), 24))
}

// Log is one log record. Written to Logs it is copied; read back it is a copy.
type Log struct {
	Time       int64 // Unix ns
	Observed   int64 // Unix ns; 0: the same
	Severity   Severity
	Level      string // severity as the source wrote it; empty: SeverityText
	Body       string // cut at 8 KiB
	Attributes []byte // a JSON object; left out when the record would be over 16 KiB with it
	Resource   []byte // a JSON object; likewise
	Trace      [16]byte
	Span       [8]byte
	Service    string
	Scope      string
	Version    string // of the scope
	Cut        bool   // recorded in part
}

// Bounds of one log record.
const (
	maxLogBody   = 8 << 10
	maxLogRecord = 16 << 10
)

// The layout of a log's record. Length, kind and time stand as in every record.
const (
	logSeverity = 5
	logFlags    = 6
	logTrace    = 8
	logSpan     = 24
	logObserved = 32
	logTime     = atTime
	logParts    = 56 // lengths of the seven texts
	logHeader   = logParts + 7*4 + 4
)

// Logs is the ring of log records. All methods may be called from any goroutine.
type Logs struct{ ring ring }

// NewLogs returns a ring that holds up to bytes of log records, in chunks of 64 KiB that are taken when
// they are needed. Less than a chunk turns recording off.
func NewLogs(bytes int64) *Logs {
	l := &Logs{}
	l.ring.max = chunksFor(bytes)
	return l
}

// SetMemory makes the ring ask take before it grows by a chunk, and tell give what it gave back. Call
// it before the first Record.
func (l *Logs) SetMemory(take func(n int64) bool, give func(n int64)) {
	l.ring.take, l.ring.give = take, give
}

// Record keeps an entry. It waits for nothing but other records.
func (l *Logs) Record(e *Log) {
	short := [5]string{cutText(e.Level, 64), cutText(e.Body, maxLogBody), cutText(e.Service, maxNameBytes),
		cutText(e.Scope, maxNameBytes), cutText(e.Version, maxNameBytes)}
	attributes, resource := e.Attributes, e.Resource
	size := logHeader
	for _, s := range short {
		size += len(s)
	}
	flags := uint8(0)
	if e.Cut || len(short[1]) < len(e.Body) {
		flags = flagCut
	}
	if size+len(attributes) > maxLogRecord {
		attributes, flags = nil, flagCut
	}
	if size+len(attributes)+len(resource) > maxLogRecord {
		resource, flags = nil, flagCut
	}
	size = (size + len(attributes) + len(resource) + 7) &^ 7
	r := &l.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.reserve(size, 0, e.Time)
	if b == nil {
		return
	}
	r.cut += uint64(flags / flagCut)
	b[atKind], b[logSeverity], b[logFlags] = 0, e.Severity, flags
	*(*[16]byte)(b[logTrace:]) = e.Trace
	*(*[8]byte)(b[logSpan:]) = e.Span
	binary.LittleEndian.PutUint64(b[logObserved:], uint64(e.Observed))
	at, part := logHeader, logParts
	put := func(n int) {
		binary.LittleEndian.PutUint32(b[part:], uint32(n))
		part, at = part+4, at+n
	}
	for _, s := range short {
		put(copy(b[at:], s))
	}
	put(copy(b[at:], attributes))
	put(copy(b[at:], resource))
}

// Stats returns what became of all entries so far.
func (l *Logs) Stats() Stats { return l.ring.stats() }

// Resize sets the bound in bytes; the oldest chunks over it are dropped and counted as shed.
func (l *Logs) Resize(bytes int64) { l.ring.resize(bytes) }

// Shed gives up at least want bytes of the oldest entries, if there are so many in full chunks, and
// returns how many it freed.
func (l *Logs) Shed(want int64) int64 { return l.ring.drop(chunksOver(want)) }

// Clear drops all entries.
func (l *Logs) Clear() { l.ring.forget() }

// LogFilter says which entries to read; the zero value means all.
type LogFilter struct {
	From, To      int64 // Unix ns, both inclusive; 0: no bound
	Trace         [16]byte
	Span          [8]byte
	Severity      Severity        // at least
	Level         string          // exactly, in any case
	Service       string          // anywhere, in any case
	Text          string          // anywhere in the body, in any case
	Match         func(*Log) bool // nil: all
	Offset, Limit int             // Limit 0: 100; at most 10,000
}

// Each visits the entries that match, newest first, until visit returns false.
func (l *Logs) Each(f LogFilter, visit func(*Log) bool) {
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if f.From != 0 {
		from = f.From
	}
	if f.To != 0 {
		to = f.To
	}
	l.ring.walk(from, to, func(b []byte) bool {
		t := int64(binary.LittleEndian.Uint64(b[logTime:]))
		if t < from || t > to || b[logSeverity] < f.Severity ||
			f.Trace != [16]byte{} && [16]byte(b[logTrace:]) != f.Trace ||
			f.Span != [8]byte{} && [8]byte(b[logSpan:]) != f.Span {
			return true
		}
		e := entry(b)
		return !f.matches(e) || visit(e)
	})
}

// List returns one page of the entries that match, newest first, and how many match in all.
func (l *Logs) List(f LogFilter) (page []*Log, total int) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	offset := max(f.Offset, 0)
	l.Each(f, func(e *Log) bool {
		if total++; total > offset && len(page) < min(limit, maxPage) {
			page = append(page, e)
		}
		return true
	})
	return page, total
}

func (f *LogFilter) matches(e *Log) bool {
	return (f.Level == "" || strings.EqualFold(e.Level, f.Level)) && contains(e.Service, f.Service) &&
		contains(e.Body, f.Text) && (f.Match == nil || f.Match(e))
}

func entry(b []byte) *Log {
	e := &Log{Time: int64(binary.LittleEndian.Uint64(b[logTime:])), Severity: b[logSeverity],
		Observed: int64(binary.LittleEndian.Uint64(b[logObserved:])),
		Trace:    [16]byte(b[logTrace:]), Span: [8]byte(b[logSpan:]), Cut: b[logFlags]&flagCut != 0}
	at := logHeader
	part := func(i int) []byte {
		n := int(binary.LittleEndian.Uint32(b[logParts+4*i:]))
		at += n
		return b[at-n : at]
	}
	e.Level, e.Body, e.Service, e.Scope, e.Version = string(part(0)), string(part(1)), string(part(2)),
		string(part(3)), string(part(4))
	e.Attributes = append([]byte(nil), part(5)...)
	e.Resource = append([]byte(nil), part(6)...)
	if e.Level == "" {
		e.Level = SeverityText(e.Severity)
	}
	if e.Observed == 0 {
		e.Observed = e.Time
	}
	return e
}

// AppendJSON appends the entry in the shape of engine::logs::list.
func (e *Log) AppendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"timestamp_unix_nano":`...), e.Time, 10)
	dst = strconv.AppendInt(append(dst, `,"observed_timestamp_unix_nano":`...), e.Observed, 10)
	dst = strconv.AppendUint(append(dst, `,"severity_number":`...), uint64(e.Severity), 10)
	dst = appendString(append(dst, `,"severity_text":`...), e.Level)
	dst = appendString(append(dst, `,"body":`...), e.Body)
	dst = appendObject(append(dst, `,"attributes":`...), e.Attributes)
	if e.Trace != [16]byte{} {
		dst = append(appendHex(append(dst, `,"trace_id":"`...), e.Trace[:]), '"')
	}
	if e.Span != [8]byte{} {
		dst = append(appendHex(append(dst, `,"span_id":"`...), e.Span[:]), '"')
	}
	dst = appendObject(append(dst, `,"resource":`...), e.Resource)
	dst = appendString(append(dst, `,"service_name":`...), e.Service)
	if e.Scope != "" {
		dst = appendString(append(dst, `,"instrumentation_scope_name":`...), e.Scope)
	}
	if e.Version != "" {
		dst = appendString(append(dst, `,"instrumentation_scope_version":`...), e.Version)
	}
	if e.Cut {
		dst = append(dst, `,"truncated":true`...)
	}
	return append(dst, '}')
}

// appendObject appends a JSON object; any other JSON becomes its only member.
func appendObject(dst, value []byte) []byte {
	value = bytes.TrimSpace(value)
	switch {
	case len(value) == 0 || string(value) == "null":
		return append(dst, "{}"...)
	case value[0] == '{':
		return append(dst, value...)
	}
	return append(append(append(dst, `{"value":`...), value...), '}')
}

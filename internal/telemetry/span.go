package telemetry

import "encoding/binary"

// Kind says what a span stands for, and so how it reads.
type Kind = uint8

const (
	KindPlain    Kind = iota // a step of our own; Name is its name
	KindUser                 // a call of a function; Name is the function's id
	KindInternal             // a call of one of the engine's own functions; Name is its id
	KindForeign              // decoded from a worker's telemetry; Foreign says the rest
)

// Status of a span, as OpenTelemetry has it.
type Status = uint8

const (
	StatusUnset Status = iota
	StatusOK
	StatusError
)

// Span is what a writer fills in. It is copied by Record and may be used again at once.
type Span struct {
	Context          // the span's own ids
	Parent  [8]byte  // zero: a root
	Name    uint32   // interned: id of the function, or name of a plain span
	Kind    Kind     //
	Status  Status   //
	Start   int64    // Unix ns
	End     int64    // Unix ns; 0: still running
	Worker  uint32   // interned: who ran it
	Caller  uint32   // interned: who asked for it
	Code    uint32   // interned: code of the error
	Message []byte   // of the error; cut at 4 KiB
	Foreign *Foreign // of a KindForeign span only
}

// Foreign is the part of a span that only a worker's own telemetry has. Texts are cut at 1 KiB.
// Attributes and Resource are JSON arrays of [key, text]; Events and Links are JSON arrays in the shape
// that engine::traces::list answers. A span that is over 64 KiB as a whole loses Events, then Links,
// Resource and Attributes.
type Foreign struct {
	Name, Service, Scope, Version       string
	Role                                uint8 // OTLP: 1 internal, 2 server, 3 client, 4 producer, 5 consumer
	Attributes, Events, Links, Resource []byte
}

// The layout of a span's record. Ids come first so that a search by trace looks at one cache line.
const (
	spanStatus  = 5
	spanFlags   = 6
	spanRole    = 7
	spanTrace   = 8
	spanID      = 24
	spanParent  = 32
	spanStart   = 40
	spanEnd     = atTime
	spanName    = 56
	spanWorker  = 60
	spanCaller  = 64
	spanCode    = 68
	spanMessage = 72 // length
	spanHeader  = 80
	foreignPart = 8 * 4 // lengths of the eight parts of Foreign
	firstJSON   = 4     // the first of these that may be left out

	maxMessage = 4 << 10
)

const (
	flagSampled = 1 << iota
	flagCut
	flagPending
)

// Spans is the ring of finished spans. All methods may be called from any goroutine.
type Spans struct{ ring ring }

// NewSpans returns a ring that holds up to bytes of spans, in chunks of 64 KiB that are taken when they
// are needed. Less than a chunk turns recording off.
func NewSpans(bytes int64) *Spans {
	s := &Spans{}
	s.ring.max = chunksFor(bytes)
	return s
}

// SetMemory makes the ring ask take before it grows by a chunk, and tell give what it gave back. Call it
// before the first Record.
func (s *Spans) SetMemory(take func(n int64) bool, give func(n int64)) {
	s.ring.take, s.ring.give = take, give
}

// Record keeps a span.
func (s *Spans) Record(sp *Span) {
	if sp.Foreign != nil {
		s.recordForeign(sp)
		return
	}
	r, message, flags := &s.ring, sp.Message, uint8(0)
	if len(message) > maxMessage {
		message, flags = message[:cutLen(message, maxMessage)], flagCut
	}
	kind := sp.Kind
	if kind >= KindForeign {
		kind = KindPlain // there is no foreign part to read
	}
	n := (spanHeader + len(message) + 7) &^ 7
	r.mu.Lock()
	if b := r.reserve(n, kind, sp.time()); b != nil {
		putSpan(b, sp, kind, flags)
		binary.LittleEndian.PutUint32(b[spanMessage:], uint32(len(message)))
		copy(b[spanHeader:], message)
		r.cut += uint64(flags / flagCut)
	}
	r.mu.Unlock()
}

// time is the time by which spans are listed: the end, of a running one the start.
func (sp *Span) time() int64 {
	if sp.End == 0 {
		return sp.Start
	}
	return sp.End
}

// putSpan writes the fixed part of a record, but for what reserve wrote.
func putSpan(b []byte, sp *Span, kind, flags uint8) {
	_ = b[spanHeader-1]
	if sp.Sampled {
		flags |= flagSampled
	}
	if sp.End == 0 {
		flags |= flagPending
	}
	b[atKind], b[spanStatus], b[spanFlags], b[spanRole] = kind, sp.Status, flags, 0
	*(*[16]byte)(b[spanTrace:]) = sp.TraceID
	*(*[8]byte)(b[spanID:]) = sp.SpanID
	*(*[8]byte)(b[spanParent:]) = sp.Parent
	le := binary.LittleEndian
	le.PutUint64(b[spanStart:], uint64(sp.Start))
	le.PutUint32(b[spanName:], sp.Name)
	le.PutUint32(b[spanWorker:], sp.Worker)
	le.PutUint32(b[spanCaller:], sp.Caller)
	le.PutUint32(b[spanCode:], sp.Code)
}

// parts returns the variable parts of a foreign span in the order in which they are stored.
func (f *Foreign) parts() [8][]byte {
	return [8][]byte{[]byte(cutText(f.Name, maxNameBytes)), []byte(cutText(f.Service, maxNameBytes)),
		[]byte(cutText(f.Scope, maxNameBytes)), []byte(cutText(f.Version, maxNameBytes)),
		f.Attributes, f.Resource, f.Links, f.Events}
}

func (s *Spans) recordForeign(sp *Span) {
	message, flags := sp.Message, uint8(0)
	if len(message) > maxMessage {
		message, flags = message[:cutLen(message, maxMessage)], flagCut
	}
	parts := sp.Foreign.parts()
	size := spanHeader + foreignPart + len(message)
	for _, p := range parts {
		size += len(p)
	}
	for i := len(parts) - 1; size > chunkBytes && i >= firstJSON; i-- {
		size -= len(parts[i])
		parts[i], flags = nil, flagCut
	}
	r := &s.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.reserve((size+7)&^7, KindForeign, sp.time())
	if b == nil {
		return
	}
	r.cut += uint64(flags / flagCut)
	putSpan(b, sp, KindForeign, flags)
	b[spanRole] = sp.Foreign.Role
	binary.LittleEndian.PutUint32(b[spanMessage:], uint32(len(message)))
	at := spanHeader + foreignPart
	at += copy(b[at:], message)
	for i, p := range parts {
		binary.LittleEndian.PutUint32(b[spanHeader+4*i:], uint32(len(p)))
		at += copy(b[at:], p)
	}
}

// Stats returns what became of all spans so far.
func (s *Spans) Stats() Stats { return s.ring.stats() }

// Resize sets the bound in bytes; the oldest chunks over it are dropped and counted as shed.
func (s *Spans) Resize(bytes int64) { s.ring.resize(bytes) }

// Shed gives up at least want bytes of the oldest spans, if there are so many in full chunks, and
// returns how many it freed. It leaves the bound as it is, and may be called while a Record waits for
// memory.
func (s *Spans) Shed(want int64) int64 { return s.ring.drop(chunksOver(want)) }

// Clear drops all spans.
func (s *Spans) Clear() { s.ring.forget() }

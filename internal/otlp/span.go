package otlp

import (
	"strconv"

	"github.com/plinth-run/plinth/internal/telemetry"
)

// span is memory that is used again for each span of a message: the ring copies.
type span struct {
	out                       telemetry.Span
	foreign                   telemetry.Foreign
	message                   string
	hasTrace, hasSpan         bool
	attributes, events, links []byte
}

// maxScratch is how much of that memory is kept from one message to the next.
const maxScratch = 256 << 10

func (s *Sink) takeSpans(c *cursor) {
	x, _ := s.scratch.Get().(*span)
	if x == nil {
		x = &span{}
	}
	defer func() {
		if *x = x.empty(); cap(x.attributes)+cap(x.events)+cap(x.links) <= maxScratch {
			s.scratch.Put(x)
		}
	}()
	c.walk(frame{"resourceSpans", "scopeSpans", "spans"},
		func(o *origin) { c.resource(o, true) },
		func(o *origin) {
			x.read(c)
			if !x.hasTrace || !x.hasSpan {
				s.dropped.Add(1)
				return
			}
			x.finish(o)
			s.spans.Record(&x.out)
			s.spanCount.Add(1)
		})
}

func (x *span) empty() span {
	return span{attributes: x.attributes[:0], events: x.events[:0], links: x.links[:0]}
}

// read reads one span, whatever is in it.
func (x *span) read(c *cursor) {
	*x = x.empty()
	c.object(func(key []byte) {
		switch string(key) {
		case "traceId":
			x.hasTrace = c.id(x.out.TraceID[:])
		case "spanId":
			x.hasSpan = c.id(x.out.SpanID[:])
		case "parentSpanId":
			c.id(x.out.Parent[:])
		case "name":
			x.foreign.Name = c.text()
		case "kind":
			kind := c.enum("SPAN_KIND_", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
			x.foreign.Role = uint8(min(max(kind, 0), 5))
		case "startTimeUnixNano":
			x.out.Start = c.integer()
		case "endTimeUnixNano":
			x.out.End = c.integer()
		case "status":
			x.status(c)
		case "attributes":
			x.attributes = c.pairs(x.attributes[:0])
		case "events":
			x.events = c.events(x.events[:0])
		case "links":
			x.links = c.links(x.links[:0])
		}
	})
}

func (x *span) status(c *cursor) {
	c.object(func(key []byte) {
		switch string(key) {
		case "code":
			switch c.enum("STATUS_CODE_", "UNSET", "OK", "ERROR") {
			case 1:
				x.out.Status = telemetry.StatusOK
			case 2:
				x.out.Status = telemetry.StatusError
			}
		case "message":
			x.message = c.text()
		}
	})
}

// finish puts the times in order and adds what the span shares with others.
func (x *span) finish(o *origin) {
	out := &x.out
	if out.Start <= 0 {
		out.Start = max(out.End, 0)
	}
	if out.Start == 0 {
		out.Start = telemetry.Now()
	}
	if out.End != 0 {
		out.End = max(out.End, out.Start)
	}
	out.Kind, out.Sampled = telemetry.KindForeign, true // it would not have been sent otherwise
	out.Message = []byte(x.message)
	x.foreign.Service, x.foreign.Resource = o.service, o.resource
	x.foreign.Scope, x.foreign.Version = o.scope, o.version
	x.foreign.Attributes, x.foreign.Events, x.foreign.Links = x.attributes, x.events, x.links
	out.Foreign = &x.foreign
}

// events appends the events of a span in the shape of engine::traces::list.
func (c *cursor) events(dst []byte) []byte {
	open := len(dst)
	dst = append(dst, '[')
	c.list(maxEvents, func() {
		var name []byte
		time, at := int64(0), -1
		c.object(func(key []byte) {
			switch string(key) {
			case "name":
				name = c.raw()
			case "timeUnixNano":
				time = c.integer()
			case "attributes":
				at = c.i
			}
		})
		dst = append(append(comma(dst, open), `{"name":"`...), name...)
		dst = strconv.AppendInt(append(dst, `","timestamp_unix_nano":`...), time, 10)
		dst = append(c.attributes(dst, at), '}')
	})
	return append(dst, ']')
}

// links appends the links of a span.
func (c *cursor) links(dst []byte) []byte {
	open := len(dst)
	dst = append(dst, '[')
	c.list(maxLinks, func() {
		var trace, span []byte
		at := -1
		c.object(func(key []byte) {
			switch string(key) {
			case "traceId":
				trace = c.raw()
			case "spanId":
				span = c.raw()
			case "attributes":
				at = c.i
			}
		})
		dst = append(append(comma(dst, open), `{"trace_id":"`...), trace...)
		dst = append(append(dst, `","span_id":"`...), span...)
		dst = append(c.attributes(append(dst, '"'), at), '}')
	})
	return append(dst, ']')
}

// attributes appends the attributes that stand at b[at]; -1 is none.
func (c *cursor) attributes(dst []byte, at int) []byte {
	dst = append(dst, `,"attributes":`...)
	if at < 0 {
		return append(dst, "[]"...)
	}
	behind := c.i
	c.i = at
	dst = c.pairs(dst)
	c.i = behind
	return dst
}

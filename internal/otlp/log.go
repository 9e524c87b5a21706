package otlp

import (
	"strconv"
	"strings"

	"github.com/plinth-run/plinth/internal/telemetry"
)

func (s *Sink) takeLogs(c *cursor) {
	var attributes []byte
	c.walk(frame{"resourceLogs", "scopeLogs", "logRecords"},
		func(o *origin) { c.resource(o, false) },
		func(o *origin) {
			out := telemetry.Log{Service: o.service, Resource: o.resource, Scope: o.scope, Version: o.version,
				Attributes: attributes[:0]}
			c.log(&out)
			if out.Observed <= 0 {
				out.Observed = telemetry.Now()
			}
			if out.Time <= 0 {
				out.Time = out.Observed
			}
			s.logs.Record(&out)
			s.logCount.Add(1)
			attributes = out.Attributes
		})
}

// log reads one log record, whatever is in it.
func (c *cursor) log(out *telemetry.Log) {
	c.object(func(key []byte) {
		switch string(key) {
		case "timeUnixNano":
			out.Time = c.integer()
		case "observedTimeUnixNano":
			out.Observed = c.integer()
		case "severityNumber":
			out.Severity = c.severity()
		case "severityText":
			out.Level = c.text()
		case "body":
			out.Body = c.plain()
		case "attributes":
			out.Attributes = c.members(out.Attributes[:0], 0)
		case "traceId":
			c.id(out.Trace[:])
		case "spanId":
			c.id(out.Span[:])
		}
	})
}

// severity reads a number from 1 to 24, which may also be sent by name: SEVERITY_NUMBER_WARN2.
func (c *cursor) severity() telemetry.Severity {
	if c.peek() != '"' {
		return uint8(min(max(c.integer(), 0), 24))
	}
	at := c.i
	name := string(c.inside())
	for i, level := range []string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"} {
		if step, ok := strings.CutPrefix(name, "SEVERITY_NUMBER_"+level); ok {
			n, _ := strconv.Atoi(step)
			return uint8(1 + 4*i + min(max(n-1, 0), 3))
		}
	}
	c.i = at
	return uint8(min(max(c.integer(), 0), 24))
}

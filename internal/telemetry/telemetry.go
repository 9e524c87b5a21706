// Package telemetry holds what the process knows about itself: spans, logs and metrics, in memory,
// within a bound, and the text forms of trace context that travel with a call.
//
// It promises that recording never blocks on I/O, never allocates on the path of a call, and that what
// does not fit is counted: records that came = records kept + overwritten + shed + cleared, at every
// moment.
//
// Spans, Logs, Names, Values and Metrics may be used from any goroutine. A Source belongs to one
// goroutine; a Lane may be used from any, but is meant for one. The package opens no file and no
// socket, starts no goroutine, and knows neither frames nor OTLP: internal/otlp decodes, the doors
// serve.
package telemetry

import "time"

// origin is the one reading of the wall clock; all later times are this plus the monotonic clock.
var origin = time.Now()

var originWall = origin.UnixNano()

// Now returns nanoseconds since the Unix epoch. It never goes backwards within a process, costs one
// clock read, and does not follow steps of the wall clock after the start (nor time that the machine
// was suspended).
func Now() int64 { return originWall + int64(time.Since(origin)) }

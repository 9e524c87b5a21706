package engine

import (
	"fmt"
	"io"
	"strings"

	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/internal/telemetry"
)

// measure registers the engine's figures. They are read when they are asked for, so a call pays nothing
// for them. Names: docs/reference/metrics.md.
func (e *Engine) measure() {
	e.cfg.Metrics.Collector(func(w io.Writer) {
		s := e.fn.Stats()
		fmt.Fprintf(w, "plinth_calls_total{status=\"ok\"} %d\n", s.Calls-s.Failed)
		fmt.Fprintf(w, "plinth_calls_total{status=\"error\"} %d\n", s.Failed)
		e.measureFunctions(w)
		var sum uint64
		for i, n := range s.Buckets[:len(s.Buckets)-1] {
			sum += n
			fmt.Fprintf(w, "iii_invocation_duration_seconds_bucket{le=\"%g\"} %d\n", float64(uint64(1)<<i)/1e6, sum)
		}
		fmt.Fprintf(w, "iii_invocation_duration_seconds_bucket{le=\"+Inf\"} %d\n", s.Calls)
		fmt.Fprintf(w, "iii_invocation_duration_seconds_sum %g\n", float64(s.DurationNS)/1e9)
		fmt.Fprintf(w, "iii_invocation_duration_seconds_count %d\n", s.Calls)
		l, c, t, p := e.sockets(), &e.stats, e.triggers.Stats(), e.channels.Stats()
		h := e.http.Stats()
		for _, row := range []struct {
			name string
			v    any
		}{
			{"iii_workers_active", c.spawned.Load() - c.died.Load()},
			{"plinth_engine_connections", e.open.Load()},
			{"iii_workers_spawns_total", c.spawned.Load()},
			{"iii_workers_deaths_total", c.died.Load()},
			{"plinth_functions", s.Functions},
			{"plinth_calls_in_flight", s.InFlight},
			{"plinth_handlers_running", s.Running},
			{"plinth_calls_timed_out_total", s.TimedOut},
			{"plinth_calls_refused_total", s.Refused},
			{"plinth_calls_denied_total", s.Denied},
			{"plinth_answers_late_total", s.Late},
			{"plinth_channels", p.Open},
			{"plinth_channels_created_total", p.Created},
			{"plinth_channels_finished_total", p.Finished},
			{"plinth_channels_broken_total", p.Broken},
			{"plinth_channels_swept_total", p.Swept},
			{"plinth_channels_refused_total", p.Refused},
			{"plinth_channel_bytes_received_total", p.BytesIn},
			{"plinth_channel_bytes_sent_total", p.BytesOut},
			{"plinth_channel_messages_lost_total", p.MessagesLost},
			{"plinth_channel_bytes_lost_total", p.BytesLost},
			{"plinth_channel_pauses_total", p.Paused},
			{"plinth_http_function_calls_total", h.Calls},
			{"plinth_http_function_failures_total", h.Failed},
			{"plinth_http_function_blocked_total", h.Blocked},
			{"plinth_http_function_refused_total", h.Refused},
			{"plinth_http_function_connections_total", h.Connections},
			{"plinth_http_functions_running", h.Running},
			{"plinth_trigger_types", t.Types},
			{"plinth_triggers", t.Bindings},
			{"plinth_triggers_parked", t.Parked},
			{"plinth_trigger_events_dropped_total", e.news.dropped.Load()},
			{"plinth_panics_total", s.Panics + l.Panics},
			{"plinth_engine_tls_handshakes_failed_total", l.Handshakes},
			{"plinth_engine_messages_malformed_total", c.malformed.Load()},
			{"plinth_engine_messages_oversized_total", c.oversized.Load()},
			{"plinth_engine_messages_ignored_total", c.ignored.Load()},
			{"plinth_engine_registrations_rejected_total", c.rejected.Load()},
			{"plinth_engine_handshakes_refused_total", c.refused.Load()},
			{"plinth_engine_host_queue_full_total", c.overloaded.Load()},
			{"plinth_engine_answers_lost_total", c.answersLost.Load()},
			{"plinth_engine_held_frames_full_total", c.heldFull.Load()},
			{"plinth_engine_telemetry_dropped_total", e.inbox.dropped.Load()},
			{"plinth_engine_telemetry_unreadable_total", e.inbox.bad.Load()},
			{"plinth_engine_bytes_received_total", l.BytesIn},
			{"plinth_engine_bytes_sent_total", l.BytesOut},
		} {
			fmt.Fprintf(w, "%s %v\n", row.name, row.v)
		}
		e.inbox.sink.Values().WritePrometheus(w, ours)
	})
}

// sockets adds up the figures of all loops.
func (e *Engine) sockets() (s loop.Stats) {
	for _, g := range e.groups {
		n := g.loops.Stats()
		s.Panics += n.Panics
		s.BytesIn += n.BytesIn
		s.Handshakes += n.Handshakes
		s.BytesOut += n.BytesOut
	}
	return s
}

// ours reports a family of metrics that the engine writes itself: a worker's gets another name.
func ours(family string) bool {
	return strings.HasPrefix(family, "iii_invocation") || strings.HasPrefix(family, "iii_workers")
}

// maxSeries bounds how many functions get figures of their own on a page.
const maxSeries = 2000

// measureFunctions writes the calls of each function that was called since it was registered.
func (e *Engine) measureFunctions(w io.Writer) {
	left := maxSeries
	e.fn.Each(func(f *fn.Function) bool {
		calls, failed := f.Calls()
		if calls == 0 {
			return true
		}
		for status, n := range map[string]uint64{"ok": calls - failed, "error": failed} {
			series := telemetry.Series("iii_invocations_total", "function_id", f.Name, "status", status)
			fmt.Fprintf(w, "%s %d\n", series, n)
		}
		left--
		return left > 0
	})
}

package auth

import (
	"fmt"
	"io"
	"sync/atomic"
)

// counters are what WritePrometheus shows beside the state.
type counters struct {
	logins, loginsFailed, lockedOut atomic.Uint64
	refused                         [refusals]atomic.Uint64
}

// WritePrometheus writes the figures of the room. Names: docs/reference/metrics.md.
func (a *Auth) WritePrometheus(w io.Writer) {
	a.mu.RLock()
	users, keys, sessions := len(a.state.Users), len(a.state.Keys), len(a.state.Sessions)
	a.mu.RUnlock()
	t := a.trail.Stats()
	row := func(name string, v any) {
		_, _ = fmt.Fprintf(w, "%s %v\n", name, v) // a scraper that has left learns no more
	}
	row("plinth_auth_users", users)
	row("plinth_auth_keys", keys)
	row("plinth_auth_sessions", sessions)
	row(`plinth_auth_logins_total{outcome="ok"}`, a.stats.logins.Load())
	row(`plinth_auth_logins_total{outcome="denied"}`, a.stats.loginsFailed.Load())
	row(`plinth_auth_logins_total{outcome="locked_out"}`, a.stats.lockedOut.Load())
	for r := refusedNot + 1; r < refusals; r++ {
		row(fmt.Sprintf("plinth_auth_refused_total{reason=%q}", r), a.stats.refused[r].Load())
	}
	row("plinth_auth_hashes_running", len(a.crew.places))
	row("plinth_auth_hashes_waiting", max(a.crew.waiting.Load()-int64(len(a.crew.places)), 0))
	row("plinth_audit_lines_total", t.Lines)
	row("plinth_audit_syncs_total", t.Syncs)
	row("plinth_audit_dropped_total", t.Dropped)
	row("plinth_audit_damaged_total", t.Damaged)
	row("plinth_audit_cut_bytes_total", t.Cut)
}

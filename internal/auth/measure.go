package auth

import (
	"fmt"
	"io"
)

// WritePrometheus writes the figures of the room. Names: docs/reference/metrics.md.
func (a *Auth) WritePrometheus(w io.Writer) {
	a.mu.RLock()
	users, keys, sessions := len(a.state.Users), len(a.state.Keys), len(a.state.Sessions)
	a.mu.RUnlock()
	t := a.trail.Stats()
	for _, row := range []struct {
		name string
		v    any
	}{
		{"plinth_auth_users", users},
		{"plinth_auth_keys", keys},
		{"plinth_auth_sessions", sessions},
		{`plinth_auth_logins_total{outcome="ok"}`, a.stats.logins.Load()},
		{`plinth_auth_logins_total{outcome="denied"}`, a.stats.loginsFailed.Load()},
		{`plinth_auth_logins_total{outcome="locked_out"}`, a.stats.lockedOut.Load()},
		{"plinth_auth_refused_total", a.stats.refused.Load()},
		{"plinth_auth_hashes_waiting", a.crew.waiting.Load()},
		{"plinth_audit_lines_total", t.Lines},
		{"plinth_audit_dropped_total", t.Dropped},
	} {
		fmt.Fprintf(w, "%s %v\n", row.name, row.v)
	}
}

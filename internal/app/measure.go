package app

import (
	"fmt"
	"io"

	"github.com/plinth-run/plinth/internal/budget"
	"github.com/plinth-run/plinth/internal/telemetry"
)

// measure puts the memory promise and the rings on the metrics page.
func measure(m *telemetry.Metrics, b *budget.Budget, spans *telemetry.Spans, logs *telemetry.Logs) {
	m.Collector(func(w io.Writer) {
		fmt.Fprintf(w, "plinth_memory_limit_bytes %d\nplinth_memory_used_bytes %d\n", b.Limit(), b.Used())
		for _, r := range b.Stats() {
			fmt.Fprintf(w, "plinth_memory_account_bytes{account=%q} %d\n", r.Name, r.Used)
			fmt.Fprintf(w, "plinth_memory_refused_total{account=%q} %d\n", r.Name, r.Refused)
			fmt.Fprintf(w, "plinth_memory_shed_bytes_total{account=%q} %d\n", r.Name, r.Shed)
		}
		for name, s := range map[string]telemetry.Stats{"spans": spans.Stats(), "logs": logs.Stats()} {
			fmt.Fprintf(w, "plinth_telemetry_%s_recorded_total %d\n", name, s.Recorded)
			fmt.Fprintf(w, "plinth_telemetry_%s_overwritten_total %d\n", name, s.Overwritten)
			fmt.Fprintf(w, "plinth_telemetry_%s_bytes %d\n", name, s.Bytes)
		}
	})
}

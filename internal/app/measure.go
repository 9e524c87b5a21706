package app

import (
	"io"

	"github.com/plinth-run/plinth/internal/budget"
	"github.com/plinth-run/plinth/internal/telemetry"
)

// measure puts the memory promise and the rings on the metrics page.
func measure(m *telemetry.Metrics, b *budget.Budget, spans *telemetry.Spans, logs *telemetry.Logs) {
	m.Collector(func(w io.Writer) {
		b.WritePrometheus(w)
		spans.Stats().WritePrometheus(w, "spans")
		logs.Stats().WritePrometheus(w, "logs")
	})
}

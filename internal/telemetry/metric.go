package telemetry

import (
	"io"
	"sync"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics is a set of counters, gauges and histograms that is written in the text format of Prometheus.
// It is a set of its own: nothing is shared with other users of the library in the process.
type Metrics struct {
	set        *metrics.Set
	mu         sync.Mutex
	collectors []func(io.Writer)
}

// NewMetrics returns an empty set.
func NewMetrics() *Metrics { return &Metrics{set: metrics.NewSet()} }

// Counter returns the counter of that name, with labels as in `iii_invocations_total{status="ok"}`.
func (m *Metrics) Counter(name string) *metrics.Counter { return m.set.GetOrCreateCounter(name) }

// Histogram returns the histogram of that name, in seconds.
func (m *Metrics) Histogram(name string) *metrics.PrometheusHistogram {
	return m.set.GetOrCreatePrometheusHistogram(name)
}

// Gauge has f asked for a value on every scrape.
func (m *Metrics) Gauge(name string, f func() float64) { m.set.GetOrCreateGauge(name, f) }

// Collector has f write lines of its own on every scrape.
func (m *Metrics) Collector(f func(w io.Writer)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collectors = append(m.collectors, f)
}

// WritePrometheus writes all metrics.
func (m *Metrics) WritePrometheus(w io.Writer) {
	m.set.WritePrometheus(w)
	m.mu.Lock()
	collectors := m.collectors
	m.mu.Unlock()
	for _, f := range collectors {
		f(w)
	}
	metrics.WriteProcessMetrics(w)
}

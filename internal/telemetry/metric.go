package telemetry

import (
	"io"
	"strings"
	"sync"

	"github.com/VictoriaMetrics/metrics"
)

// maxSeries bounds the series of one set. What is over it shares one series that is not shown.
const (
	maxSeries      = 20_000
	maxSeriesBytes = 8 << 10
)

// Metrics is a set of counters, gauges and histograms, written in the text format of Prometheus. It is
// a set of its own: nothing is shared with other users of the library in the process. All methods may
// be called from any goroutine; whoever counts often keeps the *Counter.
//
// A series is named as Prometheus writes it: `iii_invocations_total{function_id="a::b",status="ok"}`;
// see Series. Asking twice for one name gives the same series. A name that is malformed, that stands
// for something else already, or that is over the bound of 20,000 series gets a series that is counted
// in plinth_metrics_refused_total and not shown.
type Metrics struct {
	set        *metrics.Set
	refused    *metrics.Counter
	mu         sync.Mutex
	series     map[string]any
	collectors []func(io.Writer)
}

// Counter only goes up. It costs one atomic add.
type Counter struct{ counter *metrics.Counter }

// Inc adds one.
func (c *Counter) Inc() { c.counter.Inc() }

// Add adds n.
func (c *Counter) Add(n uint64) { c.counter.AddInt64(int64(n)) }

// Value returns the count.
func (c *Counter) Value() uint64 { return c.counter.Get() }

// Histogram counts durations in buckets from 50 microseconds to a minute.
type Histogram struct{ histogram *metrics.PrometheusHistogram }

// Observe adds one duration in nanoseconds; a negative one counts as zero.
func (h *Histogram) Observe(ns int64) { h.histogram.Update(float64(max(ns, 0)) / 1e9) }

// gauge is a value that is asked for.
type gauge struct{}

// NewMetrics returns an empty set.
func NewMetrics() *Metrics {
	m := &Metrics{set: metrics.NewSet(), series: map[string]any{}}
	m.refused = m.set.NewCounter("plinth_metrics_refused_total")
	m.series["plinth_metrics_refused_total"] = &Counter{m.refused}
	return m
}

// Series writes a name with labels, given as key and value in turn. Values are escaped; the keys are
// the caller's to get right.
func Series(name string, labels ...string) string {
	if len(labels) < 2 {
		return name
	}
	var b strings.Builder
	b.WriteString(name)
	separator := byte('{')
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteByte(separator)
		separator = ','
		b.WriteString(labels[i])
		b.WriteString(`="`)
		writeLabel(&b, labels[i+1])
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// writeLabel escapes a label's value as the text format asks: backslash, quote and line feed. Bytes
// that are no UTF-8 are replaced.
func writeLabel(b *strings.Builder, value string) {
	for _, c := range cutText(value, maxNameBytes) {
		switch c {
		case '\\', '"':
			b.WriteByte('\\')
			b.WriteRune(c)
		case '\n':
			b.WriteString(`\n`)
		default:
			b.WriteRune(c)
		}
	}
}

// Counter returns the counter of that name.
func (m *Metrics) Counter(name string) *Counter {
	return series(m, name, func() *Counter { return &Counter{m.set.NewCounter(name)} },
		func() *Counter { return &Counter{new(metrics.Counter)} })
}

// Histogram returns the histogram of that name, which ends in _seconds.
func (m *Metrics) Histogram(name string) *Histogram {
	return series(m, name, func() *Histogram {
		return &Histogram{m.set.NewPrometheusHistogramExt(name, durations())}
	}, func() *Histogram { return &Histogram{metrics.NewSet().NewPrometheusHistogramExt("x", durations())} })
}

// Gauge has f asked for the value on every scrape. f must not call m.
func (m *Metrics) Gauge(name string, f func() float64) {
	series(m, name, func() *gauge {
		m.set.NewGauge(name, f)
		return &gauge{}
	}, func() *gauge { return nil })
}

// series finds or makes the series of a name, or makes one that is not shown.
func series[T any](m *Metrics, name string, make, hidden func() *T) *T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.series[name]; ok {
		if same, ok := old.(*T); ok {
			return same
		}
	} else if len(m.series) < maxSeries && validSeries(name) {
		s := make()
		m.series[strings.Clone(name)] = s
		return s
	}
	m.refused.Inc()
	return hidden()
}

// validSeries reports whether a scraper will read the name. The library is laxer about dots.
func validSeries(name string) bool {
	family, _, _ := strings.Cut(name, "{")
	return len(name) <= maxSeriesBytes && !strings.Contains(family, ".") &&
		metrics.ValidateMetric(name) == nil
}

// Remove forgets a series: for those that carry the name of something that is gone.
func (m *Metrics) Remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.series[name]; ok {
		delete(m.series, name)
		m.set.UnregisterMetric(name)
	}
}

// Collector has f write lines of its own on every scrape, for figures that are kept elsewhere.
func (m *Metrics) Collector(f func(w io.Writer)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collectors = append(m.collectors[:len(m.collectors):len(m.collectors)], f)
}

// WritePrometheus writes all series, what the collectors have, and the figures of the process: memory,
// file descriptors, goroutines, garbage collection.
func (m *Metrics) WritePrometheus(w io.Writer) {
	m.WriteOwn(w)
	metrics.WriteProcessMetrics(w)
	metrics.WriteFDMetrics(w)
}

// WriteOwn is WritePrometheus without the figures of the process.
func (m *Metrics) WriteOwn(w io.Writer) {
	m.set.WritePrometheus(w)
	m.mu.Lock()
	collectors := m.collectors
	m.mu.Unlock()
	for _, f := range collectors {
		f(w)
	}
}

// durations are the upper bounds of a histogram's buckets in seconds.
func durations() []float64 {
	return []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5,
		10, 30, 60}
}

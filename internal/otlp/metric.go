package otlp

import "github.com/plinth-run/plinth/internal/telemetry"

func (s *Sink) takeMetrics(c *cursor) {
	c.walk(frame{"resourceMetrics", "scopeMetrics", "metrics"},
		func(o *origin) { c.resource(o, true) },
		func(o *origin) { s.takeMetric(c, o) })
}

// metric is what the points of one metric share.
type metric struct {
	kind  telemetry.ValueKind
	name  string
	unit  string
	delta bool
	at    int // where the points stand; -1 is nowhere
}

func (s *Sink) takeMetric(c *cursor, o *origin) {
	m := metric{at: -1}
	c.object(func(key []byte) {
		switch string(key) {
		case "name":
			m.name = c.text()
		case "unit":
			m.unit = c.text()
		case "gauge":
			m.read(c, telemetry.ValueGauge)
		case "sum":
			m.read(c, telemetry.ValueCounter)
		case "histogram", "exponentialHistogram", "summary":
			m.read(c, telemetry.ValueHistogram)
		}
	})
	if m.name == "" || m.at < 0 {
		s.dropped.Add(1)
		return
	}
	behind := c.i
	c.i = m.at
	c.array(func() {
		v := telemetry.Value{Name: m.name, Unit: m.unit, Service: o.service, Source: o.source, Kind: m.kind,
			Delta: m.delta}
		if !point(c, &v) {
			s.dropped.Add(1)
			return
		}
		s.values.Set(v)
		s.pointCount.Add(1)
	})
	c.i = behind
}

// read reads what one kind of metric has beside its points. A sum that may fall is a gauge.
func (m *metric) read(c *cursor, kind telemetry.ValueKind) {
	if !c.present() {
		return
	}
	monotonic := false
	m.kind, m.delta, m.at = kind, false, -1
	c.object(func(key []byte) {
		switch string(key) {
		case "dataPoints":
			m.at = c.i
		case "isMonotonic":
			monotonic = c.truth()
		case "aggregationTemporality":
			m.delta = c.enum("AGGREGATION_TEMPORALITY_", "UNSPECIFIED", "DELTA", "CUMULATIVE") == 1
		}
	})
	if kind == telemetry.ValueCounter && !monotonic {
		m.kind = telemetry.ValueGauge
	}
}

// point reads one point into v; false when it has nothing of what its kind needs.
func point(c *cursor, v *telemetry.Value) (usable bool) {
	low, high := false, false
	histogram := v.Kind == telemetry.ValueHistogram
	c.object(func(key []byte) {
		if !c.present() {
			return
		}
		switch string(key) {
		case "timeUnixNano":
			v.Time = c.integer()
		case "attributes":
			v.Labels = v.Labels[:0]
			c.list(maxAttributes, func() { v.Labels = append(v.Labels, c.label()) })
		case "asInt":
			v.Value, usable = float64(c.integer()), usable || !histogram
		case "asDouble":
			v.Value, usable = c.double(), usable || !histogram
		case "count":
			n := c.integer()
			v.Count, usable = uint64(max(n, 0)), usable || histogram && n >= 0
		case "sum":
			v.Sum = c.double()
		case "min":
			v.Min, low = c.double(), true
		case "max":
			v.Max, high = c.double(), true
		}
	})
	v.HasRange = low && high
	if v.Time <= 0 {
		v.Time = telemetry.Now()
	}
	return usable
}

func (c *cursor) label() [2]string {
	raw, at := c.attribute()
	label := [2]string{unescape(raw)}
	if at > 0 {
		behind := c.i
		c.i = at
		label[1] = c.plain()
		c.i = behind
	}
	return label
}

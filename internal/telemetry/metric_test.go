package telemetry

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func text(write func(io.Writer)) string {
	var b strings.Builder
	write(&b)
	return b.String()
}

func TestMetricsAreWrittenForPrometheus(t *testing.T) {
	m := NewMetrics()
	m.Counter(Series("iii_invocations_total", "function_id", "a::b", "status", "ok")).Add(3)
	m.Counter(Series("iii_invocations_total", "function_id", "a::b", "status", "ok")).Inc()
	m.Counter("plinth_odd_total").Inc()
	m.Gauge("iii_workers_active", func() float64 { return 7 })
	h := m.Histogram("iii_invocation_duration_seconds")
	for _, ns := range []int64{-5, 0, 40_000, 50_000, 50_001, 3_000_000, 70_000_000_000} {
		h.Observe(ns)
	}
	m.Collector(func(w io.Writer) { fmt.Fprintln(w, "plinth_collected 1") })
	got := text(m.WriteOwn)
	golden(t, "metrics.txt", []byte(got))
	const label = `[a-z_]+="([^"\\]|\\.)*"`
	line := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*(\{` + label + `(,` + label + `)*\})? [-+0-9.eInfNa]+$`)
	for l := range strings.Lines(got) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("no line of the text format: %q", l)
		}
	}
	whole := text(m.WritePrometheus)
	for _, name := range []string{"process_resident_memory_bytes ", "process_open_fds ", "go_goroutines ",
		"go_gc_duration_seconds_count "} {
		if !strings.Contains(whole, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestSameNameIsTheSameSeries(t *testing.T) {
	m := NewMetrics()
	m.Counter("a_total").Add(2)
	m.Counter("a_total").Add(3)
	if got := m.Counter("a_total").Value(); got != 5 {
		t.Errorf("counted %d", got)
	}
}

func TestNamesThatCannotBeShownAreRefusedAndCounted(t *testing.T) {
	m := NewMetrics()
	m.Counter("taken")
	m.Histogram("h_seconds")
	bad := []string{"", "1a", "a b", "a.b", "a{", "a{x}", `a{x=1}`, "a\nb 1", `a{x="1"`, "ä",
		`a{x="` + strings.Repeat("y", maxSeriesBytes) + `"}`}
	for _, name := range bad {
		m.Counter(name).Add(5)
		m.Histogram(name).Observe(5)
		m.Gauge(name, func() float64 { return 5 })
	}
	m.Histogram("taken").Observe(1)
	m.Gauge("taken", nil)
	m.Counter("h_seconds").Inc()
	want := uint64(3*len(bad) + 3)
	if got := m.Counter("plinth_metrics_refused_total").Value(); got != want {
		t.Errorf("%d refused, want %d", got, want)
	}
	if got := text(m.WriteOwn); strings.Contains(got, " 5\n") || strings.Count(got, "taken") != 1 {
		t.Errorf("got\n%s", got)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	m := NewMetrics()
	for i := range maxSeries + 50 {
		m.Counter(Series("c_total", "n", fmt.Sprint(i))).Inc()
	}
	if got := m.Counter("plinth_metrics_refused_total").Value(); got != 51 {
		t.Errorf("%d refused", got)
	}
	m.Remove(Series("c_total", "n", "7"))
	m.Remove("never was")
	m.Counter("after_total").Inc()
	got := text(m.WriteOwn)
	if strings.Contains(got, `{n="7"}`) || !strings.Contains(got, "after_total 1\n") {
		t.Error("the place of a removed series was not given to another")
	}
}

func TestLabelsAreEscaped(t *testing.T) {
	for want, labels := range map[string][]string{
		`x`:                          nil,
		`x{a="b"}`:                   {"a", "b"},
		`x{a="b",c="d"}`:             {"a", "b", "c", "d", "odd"},
		`x{a="q\"b\\s\nn"}`:          {"a", "q\"b\\s\nn"},
		"x{a=\"\ufffd\"}":            {"a", "\xff"},
		`x{a="{,}="}`:                {"a", "{,}="},
		`x{a=""}`:                    {"a", ""},
		"x{a=\"" + long(1024) + `"}`: {"a", long(2000)},
	} {
		if got := Series("x", labels...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := Series("x_total", "a", rapid.String().Draw(t, "value"), "b", "c")
		m := NewMetrics()
		m.Counter(name).Add(77)
		if got := text(m.WriteOwn); !strings.Contains(got, name+" 77\n") {
			t.Fatalf("%q is not shown in %q", name, got)
		}
	})
}

func long(n int) string { return strings.Repeat("x", n) }

func TestMetricsFromManyGoroutines(t *testing.T) {
	m := NewMetrics()
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range 500 {
				m.Counter(Series("a_total", "n", fmt.Sprint(i%10))).Inc()
				m.Histogram("h_seconds").Observe(int64(i))
				if i%50 == 0 {
					m.Collector(func(io.Writer) {})
					m.WriteOwn(io.Discard)
					m.Remove("b_total")
				}
			}
		})
	}
	wait.Wait()
	if got := m.Counter(`a_total{n="3"}`).Value(); got != 8*50 {
		t.Errorf("counted %d", got)
	}
}

func BenchmarkCounter(b *testing.B) {
	c := NewMetrics().Counter("a_total")
	for b.Loop() {
		c.Inc()
	}
}

func BenchmarkHistogram(b *testing.B) {
	h := NewMetrics().Histogram("a_seconds")
	for b.Loop() {
		h.Observe(1_000_000)
	}
}

func BenchmarkScrape(b *testing.B) {
	m := NewMetrics()
	for b.Loop() {
		m.WritePrometheus(io.Discard)
	}
}

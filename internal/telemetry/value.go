package telemetry

import (
	"bytes"
	"cmp"
	"container/list"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ValueKind says how a metric of a worker is to be read.
type ValueKind uint8

const (
	ValueGauge     ValueKind = iota // Value is the state of something
	ValueCounter                    // Value is a running total
	ValueHistogram                  // Count and Sum of all observations
)

// String returns the kind in lower case.
func (k ValueKind) String() string {
	switch k {
	case ValueCounter:
		return "counter"
	case ValueHistogram:
		return "histogram"
	}
	return "gauge"
}

// Value is the last point of one metric of one worker.
type Value struct {
	Name    string      // as the worker named it: iii.worker.memory.heap.bytes
	Service string      // service.name
	Source  string      // service.instance.id
	Unit    string      // as UCUM, "By", "ms"; may be empty
	Labels  [][2]string // sorted by key
	Kind    ValueKind
	Time    int64 // Unix ns
	Value   float64
	Count   uint64  // of a histogram
	Sum     float64 // of a histogram
	Min     float64 // of a histogram, where HasRange
	Max     float64
	// HasRange tells whether Min and Max were sent.
	HasRange bool
	// Delta tells that Value, Count and Sum are since the last point: Set adds them to what it holds.
	Delta bool
}

// Bounds of the table of values.
const (
	maxValues     = 10_000
	maxValueTotal = 8 << 20
	maxLabels     = 32
)

// Values holds the last value of every metric that workers send, up to 10,000 series and 8 MiB; over
// that, the series that was silent the longest goes, and is counted. All methods may be called from any
// goroutine.
type Values struct {
	mu     sync.Mutex
	series map[string]*list.Element // of *held
	recent list.List                // longest silent first
	bytes  int
	stats  ValueStats
}

type held struct {
	key   string
	value Value
	bytes int
}

// ValueStats counts what came and what went.
type ValueStats struct {
	Series  int
	Bytes   int64  // about
	Points  uint64 // set so far
	Evicted uint64 // series that made room for others
	Expired uint64 // series that were silent for too long
}

// NewValues returns an empty table.
func NewValues() *Values { return &Values{series: map[string]*list.Element{}} }

// Set keeps v as the last value of its series: name, service, source and labels. Labels over 32 are
// left out, texts are cut at 1 KiB. An older point than the one that is held is ignored.
func (t *Values) Set(v Value) {
	v.tidy()
	key := v.key()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Points++
	if e := t.series[key]; e != nil {
		h := e.Value.(*held)
		if v.Delta && v.Kind == h.value.Kind {
			v.add(&h.value)
			v.Time = max(v.Time, h.value.Time)
		}
		if v.Time >= h.value.Time {
			h.value = v
			t.recent.MoveToBack(e)
		}
		return
	}
	h := &held{key: key, value: v, bytes: 2*len(key) + 256}
	for t.recent.Len() > 0 && (t.recent.Len() >= maxValues || t.bytes+h.bytes > maxValueTotal) {
		t.drop(t.recent.Front())
		t.stats.Evicted++
	}
	t.series[key] = t.recent.PushBack(h)
	t.bytes += h.bytes
}

func (t *Values) drop(e *list.Element) {
	h := t.recent.Remove(e).(*held)
	delete(t.series, h.key)
	t.bytes -= h.bytes
}

// Expire drops the series that had no point since the given time, in Unix nanoseconds.
func (t *Values) Expire(since int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.recent.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*held).value.Time < since {
			t.drop(e)
			t.stats.Expired++
		}
		e = next
	}
}

// Clear drops every series.
func (t *Values) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.series, t.bytes = map[string]*list.Element{}, 0
	t.recent.Init()
}

// Stats returns the counters as they stand.
func (t *Values) Stats() ValueStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Series, s.Bytes = t.recent.Len(), int64(t.bytes)
	return s
}

// List returns the values whose name contains the given text, in any case, sorted by name, service,
// source and labels.
func (t *Values) List(name string) []Value {
	t.mu.Lock()
	found := make([]*held, 0, t.recent.Len())
	for e := t.recent.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*held); contains(h.value.Name, name) {
			found = append(found, &held{key: h.key, value: h.value})
		}
	}
	t.mu.Unlock()
	slices.SortFunc(found, func(a, b *held) int { return cmp.Compare(a.key, b.key) })
	values := make([]Value, len(found))
	for i, h := range found {
		values[i] = h.value
	}
	return values
}

// tidy brings v into the bounds, and its labels in order.
func (v *Value) tidy() {
	short := func(s string) string { return strings.Clone(cutText(s, maxNameBytes)) }
	v.Name, v.Service, v.Source, v.Unit = short(v.Name), short(v.Service), short(v.Source), short(v.Unit)
	labels := slices.Clone(v.Labels[:min(len(v.Labels), maxLabels)])
	for i, l := range labels {
		labels[i] = [2]string{short(l[0]), short(l[1])}
	}
	slices.SortFunc(labels, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	v.Labels = labels
}

// add makes totals of a point that has only what is new since old.
func (v *Value) add(old *Value) {
	v.Value += old.Value
	v.Count += old.Count
	v.Sum += old.Sum
	if v.HasRange && old.HasRange {
		v.Min, v.Max = min(v.Min, old.Min), max(v.Max, old.Max)
	}
}

// key tells series apart, and sorts as List promises.
func (v *Value) key() string {
	var b []byte
	for _, s := range []string{v.Name, v.Service, v.Source} {
		b = append(append(b, s...), 0)
	}
	for _, l := range v.Labels {
		b = append(append(append(append(b, l[0]...), 1), l[1]...), 0)
	}
	return string(b)
}

// WritePrometheus writes the values, with the worker's service and instance as the labels service and
// instance. Names lose their dots; one that Plinth uses itself (plinth_, go_, process_, or what taken
// says) gets "sdk_" before it. Histograms become a sum and a count.
func (t *Values) WritePrometheus(w io.Writer, taken func(family string) bool) {
	var b bytes.Buffer
	for _, v := range t.List("") {
		family := identifier(v.Name)
		for _, prefix := range []string{"plinth_", "go_", "process_"} {
			if strings.HasPrefix(family, prefix) {
				family = "sdk_" + family
			}
		}
		if taken != nil && taken(family) {
			family = "sdk_" + family
		}
		labels := []string{"service", v.Service, "instance", v.Source}
		for _, l := range v.Labels {
			if key := identifier(l[0]); key != "service" && key != "instance" && !repeats(labels, key) {
				labels = append(labels, key, l[1])
			}
		}
		if v.Kind == ValueHistogram {
			fmt.Fprintf(&b, "%s %s\n", Series(family+"_sum", labels...), number(v.Sum))
			fmt.Fprintf(&b, "%s %d\n", Series(family+"_count", labels...), v.Count)
			continue
		}
		fmt.Fprintf(&b, "%s %s\n", Series(family, labels...), number(v.Value))
	}
	_, _ = w.Write(b.Bytes()) // the scraper went away: there is nobody to tell
}

func repeats(labels []string, key string) bool {
	for i := 0; i < len(labels); i += 2 {
		if labels[i] == key {
			return true
		}
	}
	return false
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// identifier makes a name of Prometheus: letters, digits and underscores, no digit first.
func identifier(s string) string {
	b := []byte(s)
	for i, c := range b {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "_"
	}
	return string(b)
}

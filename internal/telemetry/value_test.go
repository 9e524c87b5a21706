package telemetry

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
)

func TestLastValueOfASeriesStands(t *testing.T) {
	v := NewValues()
	v.Set(Value{Name: "m", Service: "s", Source: "1", Labels: [][2]string{{"b", "2"}, {"a", "1"}},
		Time: 10, Value: 1})
	v.Set(Value{Name: "m", Service: "s", Source: "1", Labels: [][2]string{{"a", "1"}, {"b", "2"}},
		Time: 20, Value: 2})
	v.Set(Value{Name: "m", Service: "s", Source: "1", Labels: [][2]string{{"a", "1"}, {"b", "2"}},
		Time: 15, Value: 3})
	v.Set(Value{Name: "m", Service: "s", Source: "2", Time: 5, Value: 4})
	v.Set(Value{Name: "other", Time: 5, Value: 5})
	got := v.List("M")
	if len(got) != 2 || got[0].Value != 2 || got[0].Time != 20 || got[1].Value != 4 || len(v.List("")) != 3 {
		t.Errorf("got %+v", got)
	}
	if s := v.Stats(); s.Series != 3 || s.Points != 5 || s.Bytes <= 0 {
		t.Errorf("got %+v", s)
	}
	if v.Clear(); v.Stats().Series != 0 || v.Stats().Bytes != 0 || len(v.List("")) != 0 {
		t.Error("cleared, but something is left")
	}
}

func TestPointsSinceTheLastAddUp(t *testing.T) {
	v := NewValues()
	for i, p := range []Value{
		{Kind: ValueCounter, Value: 3}, {Kind: ValueCounter, Value: 4, Delta: true}, {Kind: ValueCounter,
			Value: 5, Delta: true},
	} {
		p.Name, p.Time = "c", int64(i+1)
		v.Set(p)
	}
	for i, p := range []Value{
		{Count: 1, Sum: 2, Min: 2, Max: 2, HasRange: true}, {Count: 2, Sum: 10, Min: 1, Max: 9, HasRange: true},
	} {
		p.Name, p.Kind, p.Time, p.Delta = "h", ValueHistogram, int64(10-i), true
		v.Set(p)
	}
	got := v.List("")
	if got[0].Value != 12 {
		t.Errorf("the counter stands at %v", got[0].Value)
	}
	if h := got[1]; h.Count != 3 || h.Sum != 12 || h.Min != 1 || h.Max != 9 || h.Time != 10 {
		t.Errorf("the histogram stands at %+v", h)
	}
}

func TestSilentSeriesMakeRoom(t *testing.T) {
	v := NewValues()
	for i := range maxValues + 10 {
		v.Set(Value{Name: fmt.Sprint("m", i), Time: int64(i + 1)})
		v.Set(Value{Name: "m0", Time: int64(i + 1)})
	}
	s := v.Stats()
	if s.Series != maxValues || s.Evicted != 10 || len(v.List("m0")) == 0 {
		t.Errorf("got %+v", s)
	}
	big := NewValues()
	for i := range 30_000 {
		big.Set(Value{Name: fmt.Sprint(i, long(2000)), Time: 1})
	}
	if s := big.Stats(); s.Bytes > maxValueTotal || s.Evicted == 0 || len(big.List("")) != s.Series {
		t.Errorf("got %+v", s)
	}
	v.Expire(maxValues)
	if s := v.Stats(); s.Expired == 0 || s.Series != 12 {
		t.Errorf("got %+v", s)
	}
}

func TestLabelsOfASeriesAreBounded(t *testing.T) {
	v := NewValues()
	var labels [][2]string
	for i := range 100 {
		labels = append(labels, [2]string{fmt.Sprint("k", i), long(5000)})
	}
	v.Set(Value{Name: long(5000), Labels: labels, Time: 1})
	got := v.List("")[0]
	if len(got.Labels) != maxLabels || len(got.Name) != 1024 || len(got.Labels[0][1]) != 1024 ||
		len(labels) != 100 {
		t.Errorf("%d labels, a name of %d bytes", len(got.Labels), len(got.Name))
	}
}

func TestValuesAreWrittenForPrometheus(t *testing.T) {
	v := NewValues()
	v.Set(Value{Name: "iii.worker.memory.rss", Service: "shop", Source: "i-1", Unit: "bytes", Time: 1,
		Value:  83030016,
		Labels: [][2]string{{"worker.id", "w\"1"}, {"worker_id", "twice"}, {"service", "hidden"}, {"7up", ""}}})
	v.Set(Value{Name: "plinth_x", Time: 1, Value: math.Inf(1)})
	v.Set(Value{Name: "iii_workers_active", Time: 1, Value: math.NaN()})
	v.Set(Value{Name: "http.duration", Kind: ValueHistogram, Count: 4, Sum: 1.5, Time: 1})
	v.Set(Value{Name: "", Time: 1, Kind: ValueCounter})
	got := text(func(w io.Writer) {
		v.WritePrometheus(w, func(family string) bool { return family == "iii_workers_active" })
	})
	const want = `_{service="",instance=""} 0
http_duration_sum{service="",instance=""} 1.5
http_duration_count{service="",instance=""} 4
iii_worker_memory_rss{service="shop",instance="i-1",_up="",worker_id="w\"1"} 8.3030016e+07
sdk_iii_workers_active{service="",instance=""} NaN
sdk_plinth_x{service="",instance=""} +Inf
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	for kind, want := range map[ValueKind]string{ValueGauge: "gauge", ValueCounter: "counter",
		ValueHistogram: "histogram"} {
		if kind.String() != want {
			t.Errorf("%d is %s", kind, kind)
		}
	}
}

func TestValuesFromManyGoroutines(t *testing.T) {
	v := NewValues()
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 300 {
				v.Set(Value{Name: fmt.Sprint("m", i%50), Kind: ValueCounter, Value: 1, Delta: true,
					Time: int64(g*1000 + i)})
				if i%100 == 0 {
					v.WritePrometheus(io.Discard, nil)
					v.Expire(0)
				}
			}
		})
	}
	wait.Wait()
	sum := 0.0
	for _, got := range v.List("") {
		sum += got.Value
	}
	if sum != 8*300 {
		t.Errorf("the points add up to %v", sum)
	}
}

func TestNamesBecomeIdentifiers(t *testing.T) {
	for s, want := range map[string]string{"a.b-c": "a_b_c", "7up": "_up", "a7": "a7", "": "_", "é": "__",
		"ok_1": "ok_1"} {
		if got := identifier(s); got != want || strings.ContainsAny(got, ".-") {
			t.Errorf("%q becomes %q", s, got)
		}
	}
}

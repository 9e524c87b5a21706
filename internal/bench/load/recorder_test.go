package load

import (
	"maps"
	"testing"
	"time"
)

func TestAWindowCountsWhatEndsInIt(t *testing.T) {
	r := newRecorder()
	r.reset(0)
	r.ok(999) // before the window
	r.fail([]byte("EARLY"))
	start := int64(time.Hour)
	r.reset(start)
	for i := range int64(1000) {
		r.ok((i + 1) * int64(time.Microsecond))
	}
	r.fail([]byte("A"))
	r.fail([]byte("A"))
	r.fail([]byte("B"))
	res := r.result(Step{Name: "x"}, start+int64(2*time.Second))
	if res.Calls != 1000 || res.Seconds != 2 || !maps.Equal(res.Errors, map[string]int64{"A": 2, "B": 1}) {
		t.Fatalf("got %+v", res)
	}
	for name, c := range map[string]struct{ got, want time.Duration }{
		"p50": {res.P50, 500 * time.Microsecond},
		"p90": {res.P90, 900 * time.Microsecond},
		"p99": {res.P99, 990 * time.Microsecond},
		"max": {res.Max, 1000 * time.Microsecond},
	} {
		if off := c.got - c.want; off < 0 || off > c.want/100 {
			t.Errorf("%s is %v, want %v to three digits", name, c.got, c.want)
		}
	}
}

func TestLatenciesOutOfRangeCountAtItsEnds(t *testing.T) {
	r := newRecorder()
	r.reset(0)
	r.ok(-5)
	r.ok(1 << 62)
	res := r.result(Step{}, int64(time.Second))
	if res.Calls != 2 || res.P50 > 2*time.Microsecond || res.Max < 9*time.Minute {
		t.Fatalf("%d calls from %v to %v", res.Calls, res.P50, res.Max)
	}
}

func TestAnEmptyWindowHasNoLatencies(t *testing.T) {
	r := newRecorder()
	r.reset(0)
	res := r.result(Step{}, int64(time.Second))
	if res.Calls != 0 || res.P50 != 0 || res.Max != 0 || res.Errors != nil || len(res.Series) != 1 {
		t.Fatalf("got %+v", res)
	}
}

func TestSlicesAddUpToTheWindow(t *testing.T) {
	r := newRecorder()
	r.reset(0)
	for i := range 10 {
		r.ok(int64(i+1) * int64(time.Millisecond))
		if i%3 == 0 {
			r.fail([]byte("X"))
		}
		r.roll(int64(i) * int64(100*time.Millisecond))
	}
	res := r.result(Step{}, int64(time.Second))
	var calls, failed int64
	for i, p := range res.Series {
		calls, failed = calls+p.Calls, failed+p.Failed
		if i > 0 && p.At <= res.Series[i-1].At {
			t.Errorf("slice %d ends at %v, not after the one before", i, p.At)
		}
	}
	if calls != 10 || failed != 4 || len(res.Series) != 4 {
		t.Fatalf("%d slices with %d and %d, want 4 with 10 and 4", len(res.Series), calls, failed)
	}
}

func TestALateRollSkipsTheSlicesThatPassed(t *testing.T) {
	r := newRecorder()
	r.reset(0)
	if _, ok := r.roll(int64(slice) - 1); ok {
		t.Error("a slice was closed before its end")
	}
	if p, ok := r.roll(int64(10 * slice)); !ok || p.At != 10*slice {
		t.Errorf("got %v, %v", p.At, ok)
	}
	if _, ok := r.roll(int64(10*slice) + 1); ok {
		t.Error("a slice that passed long ago was closed again")
	}
}

func TestJoinedRecordersCountOnce(t *testing.T) {
	a, b, all := newRecorder(), newRecorder(), newRecorder()
	a.reset(0)
	b.reset(0)
	all.reset(0)
	a.ok(int64(time.Millisecond))
	a.close(1)
	a.ok(int64(3 * time.Millisecond))
	b.ok(int64(2 * time.Millisecond))
	b.fail([]byte("X"))
	all.join(a)
	all.join(b)
	res := all.result(Step{}, int64(time.Second))
	if res.Calls != 3 || res.Errors["X"] != 1 || res.P50.Round(10*time.Microsecond) != 2*time.Millisecond {
		t.Fatalf("got %+v", res)
	}
}

package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// slice is the length of one Point.
const slice = 250 * time.Millisecond

// Latencies from 100 ns to 10 min, three digits: 200 KiB a histogram.
const (
	lowest  = int64(100 * time.Nanosecond)
	highest = int64(10 * time.Minute)
	digits  = 3
)

// recorder counts what ends within a window. It belongs to one goroutine, or to whoever locks it.
type recorder struct {
	total, part *hdrhistogram.Histogram // all closed slices; the open one
	begin, cut  int64                   // of the window; where the open slice ends
	calls       int64
	failed      int64
	toldCalls   int64 // of calls, in points
	toldFailed  int64
	codes       map[string]*int64
	points      []Point
}

func newRecorder() *recorder {
	return &recorder{
		total: hdrhistogram.New(lowest, highest, digits),
		part:  hdrhistogram.New(lowest, highest, digits),
		codes: map[string]*int64{},
	}
}

// reset begins a window at the moment now.
func (r *recorder) reset(now int64) {
	r.total.Reset()
	r.part.Reset()
	r.begin, r.cut = now, now+int64(slice)
	r.calls, r.failed, r.toldCalls, r.toldFailed, r.points = 0, 0, 0, 0, nil
	clear(r.codes)
}

// ok counts a good answer that took d.
func (r *recorder) ok(d int64) {
	r.calls++
	// In range by construction: what is longer than the longest counts as the longest.
	_ = r.part.RecordValue(min(max(d, lowest), highest))
}

// fail counts a call that failed.
func (r *recorder) fail(code []byte) {
	r.failed++
	n, ok := r.codes[string(code)]
	if !ok {
		n = new(int64)
		r.codes[string(code)] = n
	}
	*n++
}

// roll closes the open slice when its time is over and returns its point.
func (r *recorder) roll(now int64) (p Point, closed bool) {
	if now < r.cut {
		return p, false
	}
	p = r.close(now)
	for r.cut <= now {
		r.cut += int64(slice)
	}
	return p, true
}

func (r *recorder) close(now int64) Point {
	p := Point{
		At:     time.Duration(now - r.begin),
		Calls:  r.calls - r.toldCalls,
		Failed: r.failed - r.toldFailed,
		P50:    time.Duration(r.part.ValueAtQuantile(50)),
		P99:    time.Duration(r.part.ValueAtQuantile(99)),
	}
	r.toldCalls, r.toldFailed = r.calls, r.failed
	r.total.Merge(r.part)
	r.part.Reset()
	r.points = append(r.points, p)
	return p
}

// result ends the window.
func (r *recorder) result(step Step, now int64) *Result {
	if r.calls > r.toldCalls || r.failed > r.toldFailed || len(r.points) == 0 {
		r.close(now)
	}
	res := &Result{
		Step:    step,
		Seconds: time.Duration(now - r.begin).Seconds(),
		Calls:   r.calls,
		Series:  r.points,
	}
	if r.calls > 0 {
		res.P50 = time.Duration(r.total.ValueAtQuantile(50))
		res.P90 = time.Duration(r.total.ValueAtQuantile(90))
		res.P99 = time.Duration(r.total.ValueAtQuantile(99))
		res.Max = time.Duration(r.total.Max())
	}
	if r.failed > 0 {
		res.Errors = make(map[string]int64, len(r.codes))
		for code, n := range r.codes {
			res.Errors[code] = *n
		}
	}
	return res
}

// join adds what another recorder has counted in the same window, but for its points.
func (r *recorder) join(o *recorder) {
	r.total.Merge(o.total)
	r.part.Merge(o.part)
	r.calls += o.calls
	r.failed += o.failed
	for code, n := range o.codes {
		if r.codes[code] == nil {
			r.codes[code] = new(int64)
		}
		*r.codes[code] += *n
	}
}

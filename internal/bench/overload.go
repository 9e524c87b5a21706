package bench

import (
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
	"github.com/plinth-run/plinth/wire"
)

// serviceTime is what one call costs a host in the scenario overload: 4,000 calls a second each.
const serviceTime = 250 * time.Microsecond

// Names of the steps of the scenario overload.
const (
	stepNormal   = "half of what the hosts serve"
	stepOver     = "three times what they serve"
	stepRecovery = "half again"
)

// Overload makes job the scenario overload: hosts that take their time and are offered half, then three
// times, then half of what they can serve.
func Overload(job *load.Job, quick bool) {
	normal, over, recovery := 10*time.Second, 30*time.Second, 15*time.Second
	if quick {
		normal, over, recovery = 2*time.Second, 6*time.Second, 8*time.Second
	}
	job.Service, job.Plain = serviceTime, false
	capacity := float64(job.Hosts) * float64(time.Second/serviceTime)
	job.Steps = []load.Step{
		{Name: stepNormal, Rate: capacity / 2, Warm: warm(normal), Measure: normal},
		{Name: stepOver, Rate: 3 * capacity, Measure: over, Keep: true},
		{Name: stepRecovery, Rate: capacity / 2, Measure: recovery},
	}
}

// OverloadResult is what one round of the scenario overload says.
type OverloadResult struct {
	Offered  float64       `json:"offered"`   // calls a second, during the overload
	Served   float64       `json:"served"`    // answered well, a second
	Refused  int64         `json:"refused"`   // with a code
	Untyped  int64         `json:"untyped"`   // failed without one that says why
	Lost     int64         `json:"lost"`      // no answer at all
	Normal   time.Duration `json:"normal"`    // p99 before
	P99      time.Duration `json:"p99"`       // of the accepted calls during the overload
	Bound    time.Duration `json:"bound"`     // what the queue limit allows for
	RSSPeak  int64         `json:"rss_peak"`  // bytes
	Recovery time.Duration `json:"recovery"`  // from the end of the overload; negative: not seen
	Back     time.Duration `json:"threshold"` // p99 that counts as back to normal
}

// calm is how many slices in a row must be back to normal: a second.
const calm = 4

// judgeOverload reads one round; ok is false if it was cut short.
func judgeOverload(runs []Trial, job *load.Job) (o OverloadResult, ok bool) {
	if len(runs) != 3 || job.Hosts == 0 {
		return o, false
	}
	normal, over, after := &runs[0], &runs[1], &runs[2]
	o.Offered = over.Step.Rate
	o.Served = float64(over.Calls) / over.Seconds
	for code, n := range over.Errors {
		if typed(code) {
			o.Refused += n
		} else {
			o.Untyped += n
		}
	}
	o.Lost = normal.Lost + over.Lost + after.Lost
	o.Normal, o.P99 = normal.P99, over.P99
	o.Bound = bound(job) + normal.P99
	o.RSSPeak = max(over.RSSPeak, after.RSSPeak)
	// The worst slice of the quiet time counts as normal: 250 ms of one have their own noise.
	var worst time.Duration
	for _, p := range normal.Series {
		worst = max(worst, p.P99)
	}
	o.Back = max(2*worst, 5*time.Millisecond)
	o.Recovery = recovery(after.Series, o.Back)
	return o, true
}

// typed tells whether a code says why a call failed.
func typed(code string) bool {
	return code != "" && code != wire.CodeUnknown && !strings.HasPrefix(code, "BENCH_")
}

// bound is how long the last call of a full host waits: the limit of calls in flight at a host, served
// one after the other. A quarter more is allowed for what is on the way.
func bound(job *load.Job) time.Duration {
	limit := wire.DefaultBounds().MaxInFlightPerWorker
	return time.Duration(limit) * job.Service * 5 / 4
}

// recovery returns the end of the last slice before the first calm second; negative: there is none.
func recovery(series []load.Point, back time.Duration) time.Duration {
	good := 0
	for i, p := range series {
		if p.P99 > back || p.Calls == 0 || p.Failed > 0 {
			good = 0
			continue
		}
		if good++; good < calm {
			continue
		}
		if i == calm-1 {
			return 0
		}
		return series[i-calm].At
	}
	return -1
}

package auth

import (
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Attempts that fail: so many for one name or one address, then a pause that doubles with each further one.
const (
	freeFailures  = 5
	firstPause    = 2 * time.Second
	longestPause  = 15 * time.Minute
	forgetAfter   = 30 * time.Minute
	maxThrottled  = 10_000 // names and addresses
	claimFailures = 5      // a minute
)

// throttle counts failed logins by name and by address. Its owner holds a lock.
type throttle struct{ by map[string]*failure }

type failure struct {
	n     int
	last  time.Time
	until time.Time
}

func newThrottle() throttle { return throttle{map[string]*failure{}} }

// wait is how long a key must still pause.
func (t *throttle) wait(key string, now time.Time) time.Duration {
	if f := t.by[key]; f != nil && now.Before(f.until) {
		return f.until.Sub(now)
	}
	return 0
}

// failed counts one more.
func (t *throttle) failed(key string, now time.Time) {
	f := t.by[key]
	if f == nil {
		if len(t.by) >= maxThrottled {
			t.sweep(now)
		}
		if len(t.by) >= maxThrottled {
			return // a flood of made-up names: those that are counted already stay
		}
		f = new(failure)
		t.by[key] = f
	}
	f.n++
	f.last = now
	if over := f.n - freeFailures; over >= 0 {
		f.until = now.Add(min(firstPause<<min(over, 20), longestPause))
	}
}

func (t *throttle) good(key string) { delete(t.by, key) }

func (t *throttle) sweep(now time.Time) {
	for key, f := range t.by {
		if now.Sub(f.last) > forgetAfter && !now.Before(f.until) {
			delete(t.by, key)
		}
	}
}

// quota allows a number of attempts a minute.
type quota struct {
	began time.Time
	n     int
}

func (q *quota) take(now time.Time, most int) bool {
	if now.Sub(q.began) >= time.Minute {
		q.began, q.n = now, 0
	}
	q.n++
	return q.n <= most
}

func later(d time.Duration) error {
	return fault.Newf(fault.Limit, wire.CodeLimit, "too many failed attempts; try again in %s",
		d.Round(time.Second)+time.Second)
}

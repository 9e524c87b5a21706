package auth

import (
	"net/netip"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Attempts that fail: so many for one name or one address, then a pause that doubles with each further one.
// An address is shared by many people, so it may fail more often.
const (
	nameFailures    = 5
	addressFailures = 20
	firstPause      = 2 * time.Second
	longestPause    = 15 * time.Minute
	forgetAfter     = 30 * time.Minute
	maxThrottled    = 10_000 // names and addresses
	claimFailures   = 5      // a minute
)

// throttle counts failed logins by name and by address. An attempt is counted from its start, so that many
// at once are not all let in before the first has failed: after one failure, those under way count as
// failures; after a pause, one at a time is heard. A name or address without a failure is not held back.
type throttle struct {
	mu *sync.Mutex
	by map[string]*failure
}

type failure struct {
	n      int // failures
	flying int // attempts under way
	last   time.Time
	until  time.Time // of the pause
}

func newThrottle() throttle { return throttle{new(sync.Mutex), map[string]*failure{}} }

// track is something that attempts are counted by.
type track struct {
	key  string
	free int // failures before the first pause
}

func nameTrack(name string) track { return track{"name " + name, nameFailures} }

// addressTrack counts an IPv6 network of 64 bits as one, since its owner has all of its addresses. Loopback
// is not counted: it is a proxy for everybody, or somebody who is on the machine.
func addressTrack(a netip.Addr) []track {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.IsLoopback() {
		return nil
	}
	bits := 32
	if a.Is6() {
		bits = 64
	}
	network, err := a.Prefix(bits)
	if err != nil {
		return nil
	}
	return []track{{"from " + network.String(), addressFailures}}
}

// begin counts an attempt, or says how long it must wait, in which case nothing is counted.
func (t throttle) begin(now time.Time, tracks []track) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range tracks {
		if f := t.by[k.key]; f != nil {
			wait = max(wait, f.wait(now, k.free))
		}
	}
	if wait > 0 {
		return wait
	}
	for _, k := range tracks {
		t.entry(k.key, now).flying++
	}
	return 0
}

func (f *failure) wait(now time.Time, free int) time.Duration {
	switch {
	case now.Before(f.until):
		return f.until.Sub(now)
	case f.n >= free && f.flying > 0, f.n > 0 && f.n < free && f.n+f.flying >= free:
		return time.Second
	}
	return 0
}

// entry returns the count of a key. When there are too many, the one with the fewest failures goes: a flood
// of made-up names does not push out a name that is really guessed at.
func (t throttle) entry(key string, now time.Time) *failure {
	f := t.by[key]
	if f != nil {
		return f
	}
	if len(t.by) >= maxThrottled {
		t.clean(now)
	}
	if len(t.by) >= maxThrottled {
		least, worth := "", 0
		for other, x := range t.by {
			if v := x.n + 1 + x.flying; worth == 0 || v < worth {
				least, worth = other, v
			}
		}
		delete(t.by, least)
	}
	f = &failure{last: now}
	t.by[key] = f
	return f
}

// failed ends an attempt that was wrong.
func (t throttle) failed(now time.Time, tracks []track) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range tracks {
		f := t.entry(k.key, now)
		f.flying = max(f.flying-1, 0)
		f.n++
		f.last = now
		if over := f.n - k.free; over >= 0 {
			f.until = now.Add(min(firstPause<<min(over, 20), longestPause))
		}
	}
}

// end ends an attempt that says nothing: it was right so far, or could not be made.
func (t throttle) end(tracks []track) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range tracks {
		if f := t.by[k.key]; f != nil {
			f.flying = max(f.flying-1, 0)
			if f.flying == 0 && f.n == 0 {
				delete(t.by, k.key)
			}
		}
	}
}

// good forgets the failures of a name. Those of an address stay: whoever has an account could wash them away.
func (t throttle) good(k track) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.by[k.key]; f != nil {
		f.n, f.until = 0, time.Time{}
	}
}

// sweep forgets what was long ago.
func (t throttle) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clean(now)
}

func (t throttle) clean(now time.Time) {
	for key, f := range t.by {
		if f.flying == 0 && now.Sub(f.last) > forgetAfter && !now.Before(f.until) {
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

// LaterError is the refusal of an attempt that may be made again after a time, for Retry-After.
type LaterError struct {
	After time.Duration
	cause error
}

func later(d time.Duration) error {
	d = d.Truncate(time.Second) + time.Second
	return &LaterError{d, fault.Newf(fault.Limit, wire.CodeLimit,
		"too many failed attempts; try again in %s", d)}
}

func (e *LaterError) Error() string { return e.cause.Error() }

// Unwrap gives the kind Limit.
func (e *LaterError) Unwrap() error { return e.cause }

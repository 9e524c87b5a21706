package auth

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

func TestPausesGrowAndAreForgotten(t *testing.T) {
	c, now := newThrottle(), time.Unix(1e9, 0)
	ann := []track{nameTrack("ann")}
	fail := func() {
		t.Helper()
		if wait := c.begin(now, ann); wait > 0 {
			t.Fatalf("held back for %v", wait)
		}
		c.failed(now, ann)
	}
	for range nameFailures {
		fail()
	}
	for i, pause := range []time.Duration{2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900} {
		if got := c.begin(now, ann); got != pause*time.Second {
			t.Errorf("pause %d is %v, want %v", i, got, pause*time.Second)
		}
		now = now.Add(pause * time.Second)
		fail()
	}
	now = now.Add(longestPause + forgetAfter)
	c.sweep(now)
	if len(c.by) != 0 {
		t.Errorf("%d are kept", len(c.by))
	}
}

func TestAttemptsUnderWayCountWhereOneHasFailed(t *testing.T) {
	c, now := newThrottle(), time.Unix(1e9, 0)
	ann := []track{nameTrack("ann")}
	admitted := func() (n int) {
		for range 100 {
			if c.begin(now, ann) == 0 {
				n++
			}
		}
		for range n {
			c.end(ann)
		}
		return n
	}
	if n := admitted(); n != 100 {
		t.Errorf("without a failure %d of 100 are heard", n)
	}
	if len(c.by) != 0 {
		t.Error("a name without a failure is kept")
	}
	c.begin(now, ann)
	c.failed(now, ann)
	if n := admitted(); n != nameFailures-1 {
		t.Errorf("after a failure %d are heard at once", n)
	}
	for range nameFailures - 1 {
		c.begin(now, ann)
		c.failed(now, ann)
	}
	if n := admitted(); n != 0 {
		t.Errorf("in the pause %d are heard", n)
	}
	now = now.Add(firstPause)
	if n := admitted(); n != 1 {
		t.Errorf("after the pause %d are heard at once", n)
	}
	c.begin(now, ann)
	c.good(ann[0])
	c.end(ann)
	if n := admitted(); n != 100 {
		t.Errorf("after a good one %d are heard", n)
	}
}

func TestAddressesAreCountedAsTheyAreGivenOut(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true}, {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true}, {"192.0.2.1", "192.0.2.2", false}, {"fe80::1%eth0", "fe80::2%eth1", true},
	} {
		a, b := addressTrack(netip.MustParseAddr(c.a)), addressTrack(netip.MustParseAddr(c.b))
		if len(a) != 1 || len(b) != 1 || (a[0] == b[0]) != c.same {
			t.Errorf("%s is %v, %s is %v", c.a, a, c.b, b)
		}
	}
	for _, a := range []netip.Addr{{}, home, netip.IPv6Loopback(), netip.MustParseAddr("::ffff:127.0.0.1")} {
		if got := addressTrack(a); got != nil {
			t.Errorf("%v is counted as %v", a, got)
		}
	}
}

func TestAFloodOfNamesDoesNotHideOne(t *testing.T) {
	c, now := newThrottle(), time.Unix(1e9, 0)
	ann := []track{nameTrack("ann")}
	for range 3 {
		c.begin(now, ann)
		c.failed(now, ann)
	}
	for i := range maxThrottled + 500 {
		flood := []track{nameTrack(fmt.Sprint("made-up-", i))}
		c.begin(now, flood)
		c.failed(now, flood)
	}
	if len(c.by) != maxThrottled || c.by[ann[0].key] == nil || c.by[ann[0].key].n != 3 {
		t.Errorf("%d names, ann is %+v", len(c.by), c.by[ann[0].key])
	}
	fresh := []track{nameTrack("fresh")}
	for range nameFailures {
		if c.begin(now, fresh) == 0 {
			c.failed(now, fresh)
		}
	}
	if c.begin(now, fresh) == 0 {
		t.Error("a name that came when the table was full is not counted")
	}
}

// TestManyGuessesAtOnceAreNotHeard makes them while the only place for a hash is taken.
func TestManyGuessesAtOnceAreNotHeard(t *testing.T) {
	a, _, _ := begin(t, Options{HashesAtOnce: 1})
	people(t, a)
	guess := func() error {
		_, _, err := a.Login(context.Background(), Login{Name: "ann", Password: "wrong password"})
		return err
	}
	if err := guess(); fault.CodeOf(err) != wire.CodeAuthError {
		t.Fatal(err)
	}
	a.crew.places <- struct{}{}
	codes := make(chan string, 40)
	for range 40 {
		go func() { codes <- fault.CodeOf(guess()) }()
	}
	for range 40 - (nameFailures - 1) {
		if code := <-codes; code != wire.CodeLimit {
			t.Errorf("got %s", code)
		}
	}
	<-a.crew.places
	for range nameFailures - 1 {
		if code := <-codes; code != wire.CodeAuthError {
			t.Errorf("got %s", code)
		}
	}
}

func TestHashesWaitWithinBounds(t *testing.T) {
	w := newCrew(1, 8)
	w.places <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, maxWaiting+1)
	for range maxWaiting {
		go func() { done <- w.do(ctx, func() { t.Error("a hash without a place") }) }()
	}
	for w.waiting.Load() < maxWaiting {
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	if err := w.do(ctx, func() {}); fault.CodeOf(err) != wire.CodeLimit {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for range maxWaiting {
		if err := <-done; err == nil {
			t.Error("a hash was made for nobody")
		}
	}
	<-w.places
	made := false
	if err := w.do(t.Context(), func() { made = true }); err != nil || !made {
		t.Errorf("the place is lost: %v", err)
	}
}

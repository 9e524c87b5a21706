package house

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// diary notes what happens in which order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// part notes the end of its context, then its own end after a while.
func (d *diary) part(name string, while time.Duration) Part {
	return Part{name, func(ctx context.Context) error {
		<-ctx.Done()
		d.note("told " + name)
		<-time.After(while)
		d.note("ended " + name)
		return ctx.Err()
	}}
}

func TestPartsEndInReverseEachAfterTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		l := &Life{Grace: time.Minute, Log: quiet()}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(Interrupted{syscall.SIGTERM}) })
		if l.State() != Starting {
			t.Errorf("state %v before Run", l.State())
		}
		err := l.Run(ctx, d.part("a", time.Second), d.part("b", 2*time.Second), d.part("c", 3*time.Second))
		if err != nil {
			t.Errorf("a clean end gives %v", err)
		}
		want := []string{"told c", "ended c", "told b", "ended b", "told a", "ended a"}
		if !slices.Equal(d.lines, want) {
			t.Errorf("got %v", d.lines)
		}
		if l.State() != Stopped {
			t.Errorf("state %v after Run", l.State())
		}
	})
}

func TestFirstFailureEndsAllAndIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		broken := errors.New("disk on fire")
		l := &Life{Grace: time.Minute, Log: quiet()}
		err := l.Run(t.Context(), d.part("a", time.Second),
			Part{"store", func(context.Context) error { return broken }},
			Part{"late", func(ctx context.Context) error { <-ctx.Done(); return errors.New("also broken") }})
		if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "store: ") {
			t.Errorf("got %v", err)
		}
		if want := []string{"told a", "ended a"}; !slices.Equal(d.lines, want) {
			t.Errorf("got %v", d.lines)
		}
	})
}

func TestPartThatEndsByItselfIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Life{Grace: time.Minute, Log: quiet()}
		err := l.Run(t.Context(), Part{"engine", func(context.Context) error { return nil }})
		if err == nil || err.Error() != "engine ended by itself" {
			t.Errorf("got %v", err)
		}
	})
}

func TestFailureWhileStoppingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := &Life{Grace: time.Minute, Log: quiet()}
		err := l.Run(ctx, Part{"store", func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("fsync failed")
		}})
		if err == nil || err.Error() != "store: stop: fsync failed" {
			t.Errorf("got %v", err)
		}
	})
}

func TestPartsThatDoNotEndInTimeAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := &Life{Grace: 10 * time.Second, Log: quiet()}
		before := time.Now()
		err := l.Run(ctx, d.part("base", time.Hour), d.part("quick", 0), d.part("slow", time.Hour), d.part("c",
			time.Second))
		if took := time.Since(before); took != 10*time.Second+lastCall {
			t.Errorf("took %v", took)
		}
		all := Problems(err)
		if len(all) != 1 || all[0].Code != CodeNotStopped || fault.KindOf(err) != fault.Timeout {
			t.Fatalf("got %v", err)
		}
		if all[0].Why != "slow, base did not end within 10s" {
			t.Errorf("got %q", all[0].Why)
		}
		<-time.After(2 * time.Hour) // the slow parts end too
	})
}

func TestLifeSurvivesManyStartsAndStops(t *testing.T) {
	for range 10 {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			started := make(chan struct{})
			go func() { <-started; cancel(); cancel() }()
			l := &Life{Grace: time.Minute, Log: quiet()}
			err := l.Run(ctx, Part{"a", func(ctx context.Context) error { <-ctx.Done(); return nil }},
				Part{"b", func(ctx context.Context) error { close(started); <-ctx.Done(); return ctx.Err() }})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSignalsEndWithoutASignal(t *testing.T) {
	ctx, stop := Signals(t.Context(), &strings.Builder{}, func(int) { t.Error("left") })
	if ctx.Err() != nil {
		t.Error("ended before a signal")
	}
	stop()
	if ctx.Err() == nil {
		t.Error("not ended by stop")
	}
}

package loop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/loop"
)

// attached runs a portable group in a bubble with one connection over a pipe; the pipe holds nothing by
// itself.
func attached(t *testing.T, cfg loop.Config, h loop.Handler) (net.Conn, *loop.Conn, *loop.Group) {
	t.Helper()
	cfg.Portable, cfg.Loops = true, 1
	g := loop.New(cfg)
	ours, theirs := net.Pipe()
	c, err := g.Attach(theirs, h)
	if err != nil {
		t.Fatal(err)
	}
	run(t, g)
	t.Cleanup(func() { ours.Close() })
	return ours, c, g
}

func TestVirtualTimersKeepTimeForAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, g := attached(t, loop.Config{}, &hooks{})
		l := g.Loops()[0]
		start := time.Now()
		ticks, wrong := 0, 0
		l.Every(time.Minute, func() {
			ticks++
			if time.Since(start) != time.Duration(ticks)*time.Minute || l.Now() != time.Now().UnixNano() {
				wrong++
			}
		})
		done := make(chan time.Duration)
		l.After(30*24*time.Hour+time.Second, func() { done <- time.Since(start) })
		if d := <-done; d != 30*24*time.Hour+time.Second || ticks != 30*24*60 || wrong != 0 {
			t.Errorf("after %v: %d ticks, %d at a wrong time", d, ticks, wrong)
		}
	})
}

func TestATimerThatFellBehindRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, g := attached(t, loop.Config{}, &hooks{})
		l := g.Loops()[0]
		var ticks atomic.Int64
		l.Every(time.Second, func() { ticks.Add(1) })
		release := make(chan struct{})
		l.Post(func() { <-release }) // no callback should do this
		synctest.Wait()
		<-time.After(10*time.Second + time.Second/2)
		close(release)
		synctest.Wait()
		if ticks.Load() != 1 {
			t.Errorf("%d ticks at once", ticks.Load())
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if ticks.Load() != 4 {
			t.Errorf("%d ticks three seconds later", ticks.Load())
		}
	})
}

func TestDrainedComesOnceForEachTimeTheQueueWasOverItsMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drained := 0
		nc, c, g := attached(t, loop.Config{WriteQueue: 1000}, &hooks{drained: func(*loop.Conn) { drained++ }})
		put := func(n int, want error) {
			t.Helper()
			if err := send(c, nil, make([]byte, n)); !errors.Is(err, want) {
				t.Errorf("%d bytes: %v, want %v", n, err, want)
			}
			synctest.Wait()
		}
		take := func(n int) {
			t.Helper()
			if _, err := io.ReadFull(nc, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		put(500, nil)
		take(500)
		if drained != 0 {
			t.Error("Drained at the soft mark")
		}
		put(501, nil)
		put(499, nil)
		put(1, loop.ErrQueueFull)
		put(1001, loop.ErrQueueFull)
		if drained != 0 || c.Queued() != 1000 {
			t.Errorf("drained %d times with %d bytes queued", drained, c.Queued())
		}
		take(999)
		if drained != 0 {
			t.Error("Drained before the queue was empty")
		}
		take(1)
		if drained != 1 {
			t.Errorf("drained %d times", drained)
		}
		put(300, nil)
		put(5000, nil) // one message over the bound, below the soft mark
		put(5000, loop.ErrQueueFull)
		take(5300)
		if drained != 2 || g.Stats().QueueFull != 3 {
			t.Errorf("drained %d times; %+v", drained, g.Stats())
		}
	})
}

func TestFinishTakesFiveSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan error, 1)
		_, c, _ := attached(t, loop.Config{}, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
		if err := send(c, nil, []byte("nobody reads this")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		c.Finish()
		if err := <-closed; !errors.Is(err, loop.ErrUnsent) || time.Since(start) != 5*time.Second {
			t.Errorf("Closed with %v after %v", err, time.Since(start))
		}
	})
}

func TestFinishOfAPipeEndsWhenAllIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan error, 1)
		nc, c, _ := attached(t, loop.Config{}, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
		c.Pause() // is over with Finish
		if err := send(c, nil, []byte("goodbye")); err != nil {
			t.Fatal(err)
		}
		c.Finish()
		synctest.Wait()
		if b, err := io.ReadAll(nc); string(b) != "goodbye" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Closed with %v", err)
		}
	})
}

func TestAGroupThatEndsGivesUnreadBytesAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan error, 1)
		g := loop.New(loop.Config{Portable: true, Loops: 1})
		ours, theirs := net.Pipe()
		defer ours.Close()
		c, err := g.Attach(theirs, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, g)
		if err := send(c, nil, []byte("never read")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		stop()
		if d := time.Since(start); d != 100*time.Millisecond {
			t.Errorf("Run returned after %v", d)
		}
		if err := <-closed; !errors.Is(err, loop.ErrShutdown) {
			t.Errorf("Closed with %v", err)
		}
	})
}

func TestAttachWantsAPortableGroupThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(g *loop.Group, h loop.Handler) {
			t.Helper()
			ours, theirs := net.Pipe()
			if _, err := g.Attach(theirs, h); err == nil {
				t.Error("Attach gave no error")
			}
			if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the connection was not closed: %v", err)
			}
		}
		if loop.Native {
			refused(loop.New(loop.Config{}), &hooks{})
		}
		g := loop.New(loop.Config{Portable: true})
		refused(g, nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		closed := make(chan error, 1)
		_, theirs := net.Pipe()
		if _, err := g.Attach(theirs, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }}); err != nil {
			t.Fatal(err)
		}
		if err := g.Run(over); err != nil {
			t.Fatal(err)
		}
		if err := <-closed; !errors.Is(err, loop.ErrShutdown) {
			t.Errorf("Closed with %v", err)
		}
		refused(g, &hooks{})
	})
}

// TestEchoOverAPipeInVirtualTime shows that a group works in a bubble at all: what the engine's tests stand
// on.
func TestEchoOverAPipeInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, c, _ := attached(t, loop.Config{}, &hooks{data: echo})
		for _, s := range []string{"a", strings.Repeat("b", 3000), strings.Repeat("c", 100_000)} {
			go io.WriteString(nc, s)
			expect(t, nc, s)
		}
		synctest.Wait()
		if c.Holds() {
			t.Error("an idle connection holds a buffer")
		}
	})
}

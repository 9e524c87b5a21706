package store_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// survivals are the chances that something which was not synced is there after the crash.
var survivals = []float64{0, 0.25, 0.5, 0.75, 1}

// promise is what the log has answered at some moment, and so what any crash after it must keep.
type promise struct {
	acked    uint64 // last position that was acknowledged
	sent     uint64 // last position that was given to the log
	floor    uint64 // highest floor that a Truncate was called with; first readable is at most this
	snapshot uint64 // position of the newest snapshot that was acknowledged
}

// workload drives a log from its own goroutine, which makes every run of a seed the same: the completion of
// the last record of a group sends the next group. It calls cut before every operation on the file system.
type workload struct {
	t   *testing.T
	r   *rand.Rand
	mem *storetest.Mem
	p   promise
	log *store.Log
}

var crashOptions = store.LogOptions{SegmentBytes: 4 << 10, Gather: -1}

func newWorkload(t *testing.T, r *rand.Rand) *workload {
	w := &workload{t: t, r: r, mem: storetest.NewMem(), p: promise{floor: 1}}
	base(t, w.mem)
	return w
}

// begin sends one record, alone, and the groups after it from its completion: from then on all of the
// workload is on the goroutine of Run.
func (w *workload) begin() { w.send(1, w.r.IntN(8)) }

// send sends n records, and left more groups when they are acknowledged.
func (w *workload) send(n, left int) {
	for i := range n {
		w.p.sent++
		want, size := w.p.sent, w.r.IntN(700)
		err := w.log.AppendAsync(record(want, size), func(position uint64, err error) {
			if err != nil || position != want {
				w.t.Errorf("record %d: position %d, %v", want, position, err)
			}
			w.p.acked = position
			if i == n-1 {
				w.between()
				if left > 0 {
					w.send(1+w.r.IntN(8), left-1)
				}
			}
		})
		if err != nil {
			w.t.Error(err)
		}
	}
}

// between takes a snapshot or truncates now and then.
func (w *workload) between() {
	if w.r.IntN(6) == 0 && w.p.acked > w.p.snapshot {
		at := w.p.snapshot + 1 + w.r.Uint64N(w.p.acked-w.p.snapshot)
		if at+1 >= w.log.First() {
			if err := w.log.Snapshot(at, snapshotOf(at)); err != nil {
				w.t.Error(err)
			}
			w.p.snapshot = at
		}
	}
	if w.r.IntN(6) == 0 {
		w.p.floor = max(w.p.floor, w.p.snapshot+1)
		if err := w.log.Truncate(w.p.floor); err != nil {
			w.t.Error(err)
		}
	}
}

func snapshotOf(position uint64) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(record(position, 3000))
		return err
	}
}

// run does sessions of starts and stops, each with some chains of groups and pauses between them.
func (w *workload) run(cut func()) {
	w.mem.Before(func(op storetest.Op) {
		if op.Kind.Changes() {
			cut()
		}
	})
	defer w.mem.Before(nil)
	for range 2 {
		l, err := store.OpenLog(w.mem, "/data/log", crashOptions)
		if err != nil {
			w.t.Error(err)
			return
		}
		w.log = l
		r := start(l)
		for range 1 + w.r.IntN(3) {
			w.begin()
			synctest.Wait() // the log is idle, and its mark is written
		}
		if err := r.stop(); err != nil {
			w.t.Error(err)
		}
	}
}

// keeps opens the log that a crash left and reports what it breaks of the promise. It returns the last
// position.
func keeps(mem *storetest.Mem, p promise) (last uint64, err error) {
	next := uint64(0)
	opts := crashOptions
	snapshot := uint64(0)
	opts.Snapshot = func(position uint64, r io.Reader) error {
		b, err := io.ReadAll(r)
		if n, good := number(b); err != nil || !good || n != position {
			return fmt.Errorf("the snapshot at %d holds %.40q: %v", position, b, err)
		}
		snapshot = position
		return nil
	}
	opts.Replay = func(position uint64, b []byte) error {
		if n, good := number(b); !good || n != position || next != 0 && position != next {
			return fmt.Errorf("position %d, where %d is due, holds %.40q", position, next, b)
		}
		next = position + 1
		return nil
	}
	l, err := store.OpenLog(mem, "/data/log", opts)
	if err != nil {
		return 0, fmt.Errorf("the start failed: %w", err)
	}
	o := l.Opened()
	switch {
	case o.Last < p.acked || o.Last > p.sent:
		err = fmt.Errorf("the last record is %d, acknowledged are %d, sent %d", o.Last, p.acked, p.sent)
	case o.First > p.floor:
		err = fmt.Errorf("the log starts at %d, truncated was before %d", o.First, p.floor)
	case snapshot < p.snapshot:
		err = fmt.Errorf("the snapshot is at %d, acknowledged is %d", snapshot, p.snapshot)
	case next != 0 && next != o.Last+1:
		err = fmt.Errorf("replayed up to %d of %d", next-1, o.Last)
	}
	if err == nil {
		_, err = scan(l, o.First)
	}
	if err != nil {
		return 0, err
	}
	return o.Last, l.Close()
}

// goesOn checks that the log takes records after the crash, and keeps those through the next one.
func goesOn(r *rand.Rand, mem *storetest.Mem, p promise, last uint64) error {
	l, err := store.OpenLog(mem, "/data/log", crashOptions)
	if err != nil {
		return err
	}
	run := start(l)
	p.sent, p.acked = last+2, last+2
	for n := last + 1; n <= p.sent; n++ {
		position, err := l.Append(context.Background(), record(n, r.IntN(600)))
		if err != nil || position != n {
			return fmt.Errorf("record %d after the crash: position %d, %w", n, position, err)
		}
	}
	after := mem.Crash(r, 0)
	if err := run.stop(); err != nil {
		return err
	}
	_, err = keeps(after, p)
	return err
}

// cuts counts what a run has tried.
type cuts struct{ power, twice, killed int }

// try crashes the file system as it is now in several ways and checks each.
func (c *cuts) try(r *rand.Rand, mem *storetest.Mem, p promise) error {
	c.power++
	survive := survivals[r.IntN(len(survivals))]
	after := mem.Crash(r, survive)
	again := after.Clone()
	last, err := keeps(after, p)
	if err != nil {
		return fmt.Errorf("power lost, %v of the unsynced kept: %w", survive, err)
	}
	if r.IntN(4) == 0 {
		if err := goesOn(r, after, p, last); err != nil {
			return fmt.Errorf("going on after a loss of power: %w", err)
		}
	}
	if r.IntN(4) == 0 {
		// The power goes a second time, somewhere in the recovery.
		c.twice++
		at, n := r.IntN(12), 0
		var second *storetest.Mem
		again.Before(func(op storetest.Op) {
			if op.Kind.Changes() {
				if n == at {
					second = again.Crash(r, survivals[r.IntN(len(survivals))])
				}
				n++
			}
		})
		if _, err := keeps(again, p); err != nil {
			return fmt.Errorf("power lost: %w", err)
		}
		if second != nil {
			if _, err := keeps(second, p); err != nil {
				return fmt.Errorf("power lost again in the recovery: %w", err)
			}
		}
	}
	if r.IntN(4) == 0 {
		// The process is killed, starts again, and what it then takes for durable must be so.
		c.killed++
		killed := mem.Clone()
		last, err := keeps(killed, p)
		if err != nil {
			return fmt.Errorf("killed: %w", err)
		}
		p.acked = last
		if _, err := keeps(killed.Crash(r, 0), p); err != nil {
			return fmt.Errorf("killed, started and then power lost: %w", err)
		}
	}
	return nil
}

// TestAckedRecordSurvivesPowerCut cuts the power before every operation of seeded runs until 2,000 cuts were
// made, or PLINTH_CUTS.
func TestAckedRecordSurvivesPowerCut(t *testing.T) {
	want := 2000
	if text := os.Getenv("PLINTH_CUTS"); text != "" {
		want = must(strconv.Atoi(text))(t)
	}
	first := seed(t)
	var total cuts
	runs := uint64(0)
	for ; total.power < want; runs++ {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(first, runs))
			w := newWorkload(t, r)
			n := 0
			w.run(func() {
				n++
				if t.Failed() {
					return
				}
				if err := total.try(r, w.mem, w.p); err != nil {
					t.Errorf("run %d of the seed, operation %d: %v\n%+v", runs, n, err, w.p)
				}
			})
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs: %d cuts, %d with a second in the recovery, %d kills: 0 lost, 0 corrupt, 0 failed starts",
		runs, total.power, total.twice, total.killed)
}

// TestCrashTestsCanFail breaks a rule on purpose and expects the crash test to see it.
func TestCrashTestsCanFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		w := newWorkload(t, r)
		seen := 0
		w.run(func() {
			lied := w.p
			lied.acked = w.p.sent + 1 // as if a record were acknowledged before its sync
			if _, err := keeps(w.mem.Crash(r, 0), lied); err != nil {
				seen++
			}
		})
		if seen == 0 {
			t.Error("no cut has found the lie")
		}
	})
}

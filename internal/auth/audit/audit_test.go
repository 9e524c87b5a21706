package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
	"github.com/plinth-run/plinth/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// say is ok for other goroutines than the test's.
func say(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

const folder = "/data/audit"

// memory is a file system with the folder of the trail, durably.
func memory(t *testing.T) *storetest.Mem {
	t.Helper()
	mem := storetest.NewMem()
	prepare(t, mem)
	return mem
}

func prepare(t *testing.T, mem *storetest.Mem) {
	t.Helper()
	ok(t, mem.Mkdir(folder))
	ok(t, mem.SyncDir("/"))
	ok(t, mem.SyncDir("/data"))
}

func open(t *testing.T, o Options) *Trail {
	t.Helper()
	tr, err := Open(folder, o)
	ok(t, err)
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func event(n int) Event {
	return Event{Actor: Actor{Kind: "user", ID: "u1", Name: "ada"}, Action: "user.create",
		Target: fmt.Sprint("n", n), Outcome: OK}
}

// all reads every page and gives the targets, oldest first.
func all(t *testing.T, tr *Trail, q Query) (targets []string) {
	t.Helper()
	for {
		events, next, err := tr.Query(q)
		ok(t, err)
		for _, e := range events {
			targets = append(targets, e.Target)
		}
		if next == "" {
			slices.Reverse(targets)
			return targets
		}
		q.Cursor = next
	}
}

func wantTargets(t *testing.T, got []string, from, to int) {
	t.Helper()
	var want []string
	for n := from; n < to; n++ {
		want = append(want, fmt.Sprint("n", n))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the trail has %v, want %v", got, want)
	}
}

func TestAWrittenLineIsOnDisk(t *testing.T) {
	mem := memory(t)
	tr := open(t, Options{FS: mem})
	for n := range 5 {
		ok(t, tr.Write(t.Context(), event(n)))
	}
	for seed := range uint64(20) {
		after := mem.Crash(rand.New(rand.NewPCG(seed, 1)), float64(seed%5)/4)
		wantTargets(t, all(t, open(t, Options{FS: after}), Query{}), 0, 5)
	}
}

func TestLinesThatWaitShareOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory(t)
		tr := open(t, Options{FS: mem})
		gate := make(chan struct{})
		mem.Before(func(op storetest.Op) {
			if op.Kind == storetest.Sync {
				<-gate
			}
		})
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				if err := tr.Write(t.Context(), event(n)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // one is in its sync, all others wait
		close(gate)
		all.Wait()
		if s := tr.Stats(); s.Lines != 50 || s.Syncs != 2 {
			t.Errorf("%d lines took %d syncs, want 50 and 2", s.Lines, s.Syncs)
		}
	})
}

func TestAWriterThatLeavesDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory(t)
		tr := open(t, Options{FS: mem})
		gate := make(chan struct{})
		mem.Before(func(op storetest.Op) {
			if op.Kind == storetest.Sync {
				<-gate
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var leavers, others sync.WaitGroup
		others.Go(func() { say(t, tr.Write(t.Context(), event(0))) })
		synctest.Wait()
		for n := range 5 {
			leavers.Go(func() {
				if err := tr.Write(ctx, event(n)); !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled write: %v", err)
				}
			})
		}
		synctest.Wait()
		others.Go(func() { say(t, tr.Write(t.Context(), event(1))) })
		synctest.Wait()
		cancel()
		leavers.Wait()
		close(gate)
		others.Wait()
		if s := tr.Stats(); s.Lines != 7 {
			t.Errorf("%d lines, want 7: those who left had been taken in", s.Lines)
		}
	})
}

// TestWhenAllWaitersLeaveTheirLinesAreStillWritten: the leader finds nobody to hand over to.
func TestWhenAllWaitersLeaveTheirLinesAreStillWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory(t)
		tr := open(t, Options{FS: mem})
		gate := make(chan struct{})
		mem.Before(func(op storetest.Op) {
			if op.Kind == storetest.Sync {
				<-gate
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var leader, leavers sync.WaitGroup
		leader.Go(func() { say(t, tr.Write(t.Context(), event(0))) })
		synctest.Wait()
		for n := range 3 {
			leavers.Go(func() { _ = tr.Write(ctx, event(n)) })
		}
		synctest.Wait()
		cancel()
		leavers.Wait()
		close(gate)
		leader.Wait()
		if s := tr.Stats(); s.Lines != 4 {
			t.Errorf("%d lines, want 4", s.Lines)
		}
		ok(t, tr.Close())
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory(t)
		tr := open(t, Options{FS: mem})
		gate := make(chan struct{})
		mem.Before(func(op storetest.Op) {
			if op.Kind == storetest.Sync {
				<-gate
			}
		})
		var all sync.WaitGroup
		for n := range maxQueue + 1 { // one is being written
			all.Go(func() { say(t, tr.Write(t.Context(), event(n))) })
		}
		synctest.Wait()
		err := tr.Write(t.Context(), event(0))
		if !errors.Is(err, ErrBusy) || fault.KindOf(err) != fault.Limit {
			t.Errorf("a write above the queue: %v", err)
		}
		close(gate)
		all.Wait()
		ok(t, tr.Write(t.Context(), event(0)))
	})
}

func TestATornEndIsCutAndCounted(t *testing.T) {
	whole, err := encode(Event{Time: time.Unix(1, 0), Action: "a", Outcome: OK, Target: "n0"})
	ok(t, err)
	for name, c := range map[string]struct {
		tail  string
		lines int
	}{
		"nothing":                  {"", 1},
		"half a line":              {string(whole[:len(whole)/2]), 1},
		"a line without its end":   {string(whole[:len(whole)-1]), 1},
		"zeros":                    {strings.Repeat("\x00", 700), 1},
		"zeros and a line end":     {strings.Repeat("\x00", 700) + "\n", 1},
		"two broken lines":         {"{\n}\n", 1},
		"a line with no action":    {`{"time":"2026-01-02T03:04:05Z"}` + "\n", 1},
		"broken without line ends": {strings.Repeat("x", 3*maxLine), 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, currentName)
			ok(t, os.WriteFile(path, append(bytes.Clone(whole), c.tail...), 0o600))
			tr, err := Open(dir, Options{})
			ok(t, err)
			if s := tr.Stats(); s.Cut != int64(len(c.tail)) {
				t.Errorf("cut %d bytes, want %d", s.Cut, len(c.tail))
			}
			ok(t, tr.Write(t.Context(), event(1)))
			wantTargets(t, all(t, tr, Query{}), 0, c.lines+1)
			if s := tr.Stats(); s.Damaged != 0 {
				t.Errorf("%d damaged lines are left", s.Damaged)
			}
			ok(t, tr.Close())
		})
	}
}

func TestAFileThatIsAllBrokenBecomesEmpty(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, currentName), []byte("no line at all"), 0o600))
	tr, err := Open(dir, Options{})
	ok(t, err)
	defer func() { _ = tr.Close() }()
	if s := tr.Stats(); s.Cut != 14 || len(all(t, tr, Query{})) != 0 {
		t.Errorf("cut %d", s.Cut)
	}
}

func TestMoreDamageThanABatchIsPutAside(t *testing.T) {
	dir := t.TempDir()
	rubbish := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), maxTail/100+maxLine)
	ok(t, os.WriteFile(filepath.Join(dir, currentName), rubbish, 0o600))
	tr, err := Open(dir, Options{})
	ok(t, err)
	defer func() { _ = tr.Close() }()
	ok(t, tr.Write(t.Context(), event(0)))
	if len(tr.aside) != 1 || tr.Stats().Cut != 0 {
		t.Errorf("aside %v, cut %d", tr.aside, tr.Stats().Cut)
	}
}

func TestADamagedLineInTheMiddleIsCountedAndPassed(t *testing.T) {
	dir := t.TempDir()
	var b []byte
	for n := range 3 {
		e := event(n)
		e.Time = time.Unix(int64(n), 1)
		line, err := encode(e)
		ok(t, err)
		b = append(b, line...)
		if n < 2 {
			b = append(b, strings.Repeat("~", n*3*maxLine)+"!\n"...)
		}
	}
	ok(t, os.WriteFile(filepath.Join(dir, currentName), b, 0o600))
	tr, err := Open(dir, Options{})
	ok(t, err)
	defer func() { _ = tr.Close() }()
	wantTargets(t, all(t, tr, Query{}), 0, 3)
	if s := tr.Stats(); s.Damaged < 2 || s.Cut != 0 {
		t.Errorf("%+v", s)
	}
}

func TestFilesArePutAsideAndTheOldestGo(t *testing.T) {
	mem := memory(t)
	clock := time.Unix(1000, 0)
	o := Options{FS: mem, MaxBytes: 1000, Keep: 2, Now: func() time.Time { return clock }}
	tr := open(t, o)
	for n := range 100 {
		clock = clock.Add(-time.Second) // a clock that runs backwards changes nothing
		ok(t, tr.Write(t.Context(), event(n)))
	}
	list, err := mem.List(folder)
	ok(t, err)
	if len(list) != 3 {
		t.Fatalf("the folder has %v, want the current file and two", list)
	}
	got := all(t, tr, Query{Limit: 3})
	wantTargets(t, got, 100-len(got), 100)
	if len(got) < 14 || len(got) > 24 {
		t.Errorf("%d lines are left", len(got))
	}
	for _, e := range list {
		f, err := mem.Open(folder+"/"+e.Name, os.O_RDONLY)
		ok(t, err)
		if size, err := f.Size(); err != nil || size > o.MaxBytes {
			t.Errorf("%s has %d bytes (%v)", e.Name, size, err)
		}
	}
	ok(t, tr.Close())
	wantTargets(t, all(t, open(t, o), Query{}), 100-len(got), 100)
}

// TestWhatWasAcknowledgedSurvivesEveryFault lets each operation of a few writes and rotations fail, in
// every way, and loses power after it.
func TestWhatWasAcknowledgedSurvivesEveryFault(t *testing.T) {
	runs := storetest.Loop(t, storetest.Variants(), func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		prepare(t, mem)
		var acked []string
		tr, err := Open(folder, Options{FS: f, MaxBytes: 400, Keep: 100})
		if err == nil {
			for n := range 8 {
				e := event(n)
				if err := tr.Write(context.Background(), e); err == nil {
					acked = append(acked, e.Target)
				}
			}
			_ = tr.Close()
		}
		for seed := range uint64(4) {
			after := mem.Crash(rand.New(rand.NewPCG(seed, 2)), float64(seed)/3)
			prepare(t, after)
			again, err := Open(folder, Options{FS: after})
			ok(t, err)
			got := all(t, again, Query{})
			ok(t, again.Close())
			at := 0
			for _, target := range got {
				if at < len(acked) && acked[at] == target {
					at++
				}
			}
			if at < len(acked) {
				t.Fatalf("acknowledged were %v, after the crash there are %v", acked, got)
			}
		}
	})
	if runs < 50 {
		t.Errorf("only %d faults were tried", runs)
	}
}

func TestAFailedSyncEndsTheTrail(t *testing.T) {
	mem := memory(t)
	broken := errors.New("the disk is gone")
	f := storetest.NewFault(mem, storetest.Variant{Name: "once", Err: broken}, 0)
	tr := open(t, Options{FS: f})
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(context.Background()) }() // ends with the failure
	ok(t, tr.Write(t.Context(), event(0)))
	f.Arm(2) // the sync behind the next write
	for range 2 {
		err := tr.Write(t.Context(), event(1))
		if _, is := errors.AsType[*store.FailedError](err); !is {
			t.Fatalf("write: %v", err)
		}
	}
	if err := <-ended; !errors.Is(err, broken) {
		t.Errorf("Run: %v", err)
	}
}

func TestAFullDiskFailsTheWriteAndNothingElse(t *testing.T) {
	for at := 1; at <= 3; at++ { // rename, create, write
		mem := memory(t)
		full := storetest.Variant{Name: "full", Err: syscall.ENOSPC, Sticky: true, Only: storetest.Kind.Grows}
		f := storetest.NewFault(mem, full, 0)
		tr := open(t, Options{FS: f, MaxBytes: 1})
		ok(t, tr.Write(t.Context(), event(0)))
		f.Arm(at)
		err := tr.Write(t.Context(), event(1))
		if again := tr.Write(t.Context(), event(1)); err == nil || again == nil {
			t.Errorf("operation %d full: %v, %v", at, err, again)
		}
		f.Heal()
		ok(t, tr.Write(t.Context(), event(2)))
		if got := all(t, tr, Query{}); !slices.Equal(got, []string{"n0", "n2"}) {
			t.Errorf("operation %d full: the trail has %v", at, got)
		}
		if fault.CodeOf(err) != "AUDIT_UNWRITABLE" {
			t.Errorf("operation %d full: %v", at, err)
		}
	}
}

func TestAfterTheEndNothingIsTaken(t *testing.T) {
	tr := open(t, Options{FS: memory(t)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Write(ctx, event(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("write with an ended context: %v", err)
	}
	ok(t, tr.Run(ctx))
	if err := tr.Write(t.Context(), event(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("write after the end: %v", err)
	}
	if err := tr.Run(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a second run: %v", err)
	}
	if _, _, err := tr.Query(Query{}); !errors.Is(err, ErrClosed) {
		t.Errorf("query after the end: %v", err)
	}
	ok(t, tr.Close())
}

func TestRunStartsAndStops(t *testing.T) {
	testkit.StartStop(t, func() (testkit.Runner, error) {
		mem := storetest.NewMem()
		return Open(folder, Options{FS: mem})
	})
}

func TestABackupHasEveryLineAndOpensAgain(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	d, err := store.Open(dir, store.Options{})
	ok(t, err)
	defer func() { _ = d.Close() }()
	room, err := d.Room(t.Context(), "audit", store.Schema{Number: 1})
	ok(t, err)
	tr, err := Open(room.Path(), Options{MaxBytes: 1000})
	ok(t, err)
	defer func() { _ = tr.Close() }()
	for n := range 20 {
		ok(t, tr.Write(t.Context(), event(n)))
	}
	_, err = d.Backup(t.Context(), target, map[string]store.Source{"audit": tr})
	ok(t, err)
	ok(t, tr.Write(t.Context(), event(20)))
	again, err := Open(filepath.Join(target, "audit"), Options{})
	ok(t, err)
	defer func() { _ = again.Close() }()
	wantTargets(t, all(t, again, Query{}), 0, 20)
}

func TestNoFileIsPutAsideDuringABackup(t *testing.T) {
	tr := open(t, Options{FS: memory(t), MaxBytes: 1})
	ok(t, tr.Write(t.Context(), event(0)))
	wrote := make(chan error, 1)
	ok(t, tr.Backup(t.Context(), func(pieces []store.Piece) error {
		go func() { wrote <- tr.Write(t.Context(), event(1)) }() // received below
		r, err := pieces[0].Open()
		ok(t, err)
		b, err := io.ReadAll(r)
		ok(t, errors.Join(err, r.Close()))
		if len(pieces) != 1 || int64(len(b)) != pieces[0].Size || !bytes.Contains(b, []byte(`"n0"`)) {
			t.Errorf("the backup has %q", b)
		}
		select {
		case <-wrote:
			t.Error("the file was put aside under the backup")
		default:
		}
		return nil
	}))
	ok(t, <-wrote)
}

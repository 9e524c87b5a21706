package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
	"github.com/plinth-run/plinth/internal/testkit"
)

func TestAppendedRecordsComeBackInOrder(t *testing.T) {
	dir := t.TempDir()
	l := open(t, store.OS(), dir, store.LogOptions{})
	each(t, l.Log, 1, 3, 20)
	fill(t, l.Log, 4, 100, 300)
	if got := readAll(t, l.Log, 1); got != 100 {
		t.Fatalf("read up to %d", got)
	}
	ok(t, l.stop())
	var replayed []uint64
	l = open(t, store.OS(), dir, store.LogOptions{Replay: func(position uint64, b []byte) error {
		if n, good := number(b); !good || n != position {
			return fmt.Errorf("position %d holds %q", position, b)
		}
		replayed = append(replayed, position)
		return nil
	}})
	if len(replayed) != 100 || replayed[0] != 1 || replayed[99] != 100 {
		t.Fatalf("replayed %d records: %v", len(replayed), replayed)
	}
	if o := l.Opened(); o.Created || o.First != 1 || o.Last != 100 || o.Torn != nil || o.Segments != 1 {
		t.Fatalf("opened: %+v", o)
	}
	each(t, l.Log, 101, 101, 20)
	readAll(t, l.Log, 57)
}

func TestRecordsOfEverySizeComeBack(t *testing.T) {
	mem := storetest.NewMem()
	l := open(t, mem, "/log", store.LogOptions{SegmentBytes: 8 << 10, RecordBytes: 5000})
	var want [][]byte
	for size := range 600 {
		want = append(want, bytes.Repeat([]byte{byte(size)}, size))
	}
	want = append(want, bytes.Repeat([]byte("x"), 5000))
	for i, b := range want {
		if p := must(l.Append(t.Context(), b))(t); p != uint64(i+1) {
			t.Fatalf("position %d for record %d", p, i)
		}
	}
	ok(t, l.stop())
	var got [][]byte
	l = open(t, mem, "/log", store.LogOptions{Replay: func(_ uint64, b []byte) error {
		got = append(got, slices.Clone(b))
		return nil
	}})
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Fatal("what came back is not what was appended")
	}
	if n := l.Opened().Segments; n < 20 {
		t.Fatalf("%d segments of 8 KiB", n)
	}
}

func TestRecordOverTheLimitIsRefused(t *testing.T) {
	l := open(t, storetest.NewMem(), "/log", store.LogOptions{RecordBytes: 100, QueueBytes: 64})
	must(l.Append(t.Context(), make([]byte, 100)))(t)
	_, err := l.Append(t.Context(), make([]byte, 101))
	if e := as[*store.SizeError](t, err); e.Size != 101 || e.Max != 100 || fault.KindOf(err) != fault.Limit {
		t.Fatalf("%+v, kind %v", e, fault.KindOf(err))
	}
	as[*store.SizeError](t, l.AppendAsync(make([]byte, 101), nil))
	if _, err := store.OpenLog(storetest.NewMem(), "/log",
		store.LogOptions{RecordBytes: store.MaxRecord + 1}); err == nil {
		t.Fatal("a log may not take records over MaxRecord")
	}
}

func TestFullQueueIsBusyAndWaitersGetTheirTurn(t *testing.T) {
	l := must(store.OpenLog(storetest.NewMem(), "/log", store.LogOptions{QueueRecords: 2}))(t)
	done := make(chan uint64, 2)
	for range 2 {
		ok(t, l.AppendAsync([]byte("x"), func(p uint64, err error) { done <- p }))
	}
	err := l.AppendAsync([]byte("x"), func(uint64, error) { t.Error("called for a refused record") })
	is(t, err, store.ErrBusy)
	if fault.CodeOf(err) != "STORE_BUSY" || l.Stats().Refused != 1 {
		t.Fatalf("code %q, %d refused", fault.CodeOf(err), l.Stats().Refused)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Append(ctx, []byte("x"))
	is(t, err, context.Canceled)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := l.Append(t.Context(), []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	r := start(l)
	all.Wait()
	if a, b := <-done, <-done; a != 1 || b != 2 {
		t.Errorf("the first two are %d and %d", a, b)
	}
	ok(t, r.stop())
	if l.Last() != 22 {
		t.Fatalf("%d records", l.Last())
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	l := must(store.OpenLog(storetest.NewMem(), "/log", store.LogOptions{QueueBytes: 1000}))(t)
	ok(t, l.AppendAsync(make([]byte, 5000), func(uint64, error) {})) // an empty queue takes any record
	is(t, l.AppendAsync([]byte("x"), nil), store.ErrBusy)
	ok(t, l.Close())
}

func TestAppendThatIsGivenUpMayStillBeStored(t *testing.T) {
	mem := storetest.NewMem()
	l := must(store.OpenLog(mem, "/log", store.LogOptions{}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := record(1, 50)
	_, err := l.Append(ctx, b)
	is(t, err, context.Canceled)
	clear(b) // the caller's bytes are the caller's again
	r := start(l)
	each(t, l, 2, 2, 50)
	if readAll(t, l, 1) != 2 {
		t.Fatal("the record is not there")
	}
	ok(t, r.stop())
}

func TestEverythingAcceptedIsAnsweredAtTheEnd(t *testing.T) {
	mem := storetest.NewMem()
	l := must(store.OpenLog(mem, "/log", store.LogOptions{}))(t)
	var got []uint64
	for range 10 {
		ok(t, l.AppendAsync([]byte("x"), func(p uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			got = append(got, p)
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ok(t, l.Run(ctx))
	if !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
		t.Fatalf("answered: %v", got)
	}
	is(t, l.AppendAsync([]byte("x"), nil), store.ErrClosed)
	_, err := l.Append(t.Context(), []byte("x"))
	is(t, err, store.ErrClosed)
	is(t, l.Run(t.Context()), store.ErrClosed)
	is(t, l.Truncate(5), store.ErrClosed)
	is(t, l.Snapshot(5, nil), store.ErrClosed)
	is(t, l.Wait(t.Context(), 11), store.ErrClosed)
	ok(t, l.Wait(t.Context(), 10))
	ok(t, l.Close())
}

func TestLogThatNeverRanAnswersWithClosed(t *testing.T) {
	l := must(store.OpenLog(storetest.NewMem(), "/log", store.LogOptions{}))(t)
	var got error
	ok(t, l.AppendAsync([]byte("x"), func(_ uint64, err error) { got = err }))
	ok(t, l.Close())
	is(t, got, store.ErrClosed)
	ok(t, l.Close())
	is(t, l.Run(t.Context()), store.ErrClosed)
}

func TestRunStartsAndStopsCleanly(t *testing.T) {
	testkit.Leaks(t)
	testkit.StartStop(t, func() (testkit.Runner, error) {
		l, err := store.OpenLog(storetest.NewMem(), "/log", store.LogOptions{})
		if err == nil {
			err = l.AppendAsync(record(1, 30), func(_ uint64, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		return l, err
	})
}

func TestManyAppendersShareSyncs(t *testing.T) {
	l := open(t, store.OS(), t.TempDir(), store.LogOptions{})
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 20 {
				if _, err := l.Append(t.Context(), []byte("shared")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	s := l.Stats()
	if s.Records != 64*20 || s.Batches*2 > s.Records {
		t.Fatalf("%d syncs for %d records", s.Batches, s.Records)
	}
}

func TestWriteWaitsAtMostTheGatherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := storetest.NewMem()
		l := must(store.OpenLog(mem, "/log", store.LogOptions{Gather: 2 * time.Millisecond}))(t)
		for range 5 {
			ok(t, l.AppendAsync([]byte("x"), func(uint64, error) {}))
		}
		r := start(l)
		ok(t, l.Wait(t.Context(), 5))
		// Five came together before, one comes now: it waits for four others, but not for long.
		begin := time.Now()
		must(l.Append(t.Context(), []byte("x")))(t)
		if took := time.Since(begin); took != 2*time.Millisecond {
			t.Errorf("gathered for %v", took)
		}
		// The one after that has no company to wait for.
		begin = time.Now()
		must(l.Append(t.Context(), []byte("x")))(t)
		if took := time.Since(begin); took != 0 {
			t.Errorf("gathered for %v", took)
		}
		ok(t, r.stop())
	})
}

func TestReadStopsWhereItIsToldTo(t *testing.T) {
	l := open(t, storetest.NewMem(), "/log", store.LogOptions{SegmentBytes: 4 << 10})
	each(t, l.Log, 1, 30, 300)
	ok(t, l.Truncate(4))
	enough := errors.New("enough")
	sum := uint64(0)
	next, err := l.Read(0, func(position uint64, b []byte) error {
		if position == 20 {
			return enough
		}
		n, good := number(b)
		if !good || n != position {
			t.Errorf("position %d holds %.20q", position, b)
		}
		sum += n
		return nil
	})
	if is(t, err, enough); next != 20 || sum != 19*20/2-6 {
		t.Fatalf("next is %d, the sum %d", next, sum)
	}
	count := 0
	next, err = l.Read(next, func(uint64, []byte) error { count++; return nil })
	if ok(t, err); next != 31 || count != 11 {
		t.Fatalf("next is %d after %d", next, count)
	}
	next, err = l.Read(3, nil)
	if is(t, err, store.ErrGone); next != 3 {
		t.Fatal(next)
	}
}

func TestReaderFollowsTheWriter(t *testing.T) {
	l := open(t, store.OS(), t.TempDir(), store.LogOptions{SegmentBytes: 4 << 10})
	r := must(l.Reader(0))(t)
	defer func() { ok(t, r.Close()) }()
	const total = 300
	appended := make(chan error, 1)
	go func() {
		var err error
		for n := uint64(1); n <= total && err == nil; n++ {
			_, err = l.Append(t.Context(), record(n, 100))
		}
		appended <- err
	}()
	for want := uint64(1); want <= total; {
		position, b, err := r.Next()
		if err == io.EOF {
			ok(t, l.Wait(t.Context(), r.Position()))
			continue
		}
		ok(t, err)
		if n, good := number(b); !good || n != want || position != want {
			t.Fatalf("position %d holds %q, want %d", position, b, want)
		}
		want++
	}
	ok(t, <-appended)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	l := open(t, storetest.NewMem(), "/log", store.LogOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() { got <- l.Wait(ctx, 1) }()
	cancel()
	is(t, <-got, context.Canceled)
}

func TestTruncatedPositionIsGone(t *testing.T) {
	dir := t.TempDir()
	l := open(t, store.OS(), dir, store.LogOptions{SegmentBytes: 4 << 10})
	each(t, l.Log, 1, 200, 100)
	before := len(segments(t, store.OS(), dir))
	old := must(l.Reader(10))(t)
	if p, _, err := old.Next(); p != 10 || err != nil {
		t.Fatal(p, err)
	}
	ok(t, l.Truncate(150))
	if after := len(segments(t, store.OS(), dir)); after >= before || after == 0 {
		t.Fatalf("%d segments, before %d", after, before)
	}
	_, err := l.Reader(149)
	if e := as[*store.GoneError](t, err); e.First != 150 || !errors.Is(err, store.ErrGone) {
		t.Fatalf("%+v", e)
	}
	// The reader that was there before reads its open segment to the end, without a gap, and is told then.
	for want := uint64(11); ; want++ {
		p, b, err := old.Next()
		if err != nil {
			is(t, err, store.ErrGone)
			break
		}
		if n, good := number(b); !good || n != want || p != want {
			t.Fatalf("position %d, want %d", p, want)
		}
	}
	ok(t, old.Close())
	if readAll(t, l.Log, 150) != 200 {
		t.Fatal("the rest is not there")
	}
	ok(t, l.Truncate(100)) // lower than the first: nothing to do
	is(t, l.Truncate(202), store.ErrAhead)
	ok(t, l.Truncate(201))
	if l.First() != 201 || l.Last() != 200 {
		t.Fatalf("%d to %d", l.First(), l.Last())
	}
	ok(t, l.stop())
	l = open(t, store.OS(), dir, store.LogOptions{Replay: func(p uint64, _ []byte) error {
		return fmt.Errorf("replayed %d", p)
	}})
	each(t, l.Log, 201, 203, 100)
	_, err = l.Reader(200)
	is(t, err, store.ErrGone)
	_, err = l.Reader(205)
	is(t, err, store.ErrAhead)
	if fault.KindOf(err) != fault.Invalid {
		t.Fatal(fault.KindOf(err))
	}
	ok(t, must(l.Reader(204))(t).Close())
	if readAll(t, l.Log, 201) != 203 {
		t.Fatal("not all there")
	}
}

func TestSnapshotComesBeforeTheRecordsBehindIt(t *testing.T) {
	dir := t.TempDir()
	l := open(t, store.OS(), dir, store.LogOptions{SegmentBytes: 4 << 10})
	_, _, err := l.OpenSnapshot()
	is(t, err, fs.ErrNotExist)
	each(t, l.Log, 1, 100, 100)
	state := bytes.Repeat([]byte("state at 60 "), 20_000)
	ok(t, l.Snapshot(60, func(w io.Writer) error { _, err := w.Write(state); return err }))
	is(t, l.Snapshot(60, nil), store.ErrGone)
	is(t, l.Snapshot(101, nil), store.ErrAhead)
	// One that fails in the middle leaves the old one.
	broken := errors.New("broken")
	is(t, l.Snapshot(70, func(w io.Writer) error { _, _ = w.Write(state); return broken }), broken)
	ok(t, l.Truncate(61))
	position, r, err := l.OpenSnapshot()
	ok(t, err)
	if got := must(io.ReadAll(r))(t); position != 60 || !bytes.Equal(got, state) {
		t.Fatalf("snapshot at %d with %d bytes", position, len(got))
	}
	ok(t, r.Close())
	ok(t, l.stop())
	var order []uint64
	l = open(t, store.OS(), dir, store.LogOptions{
		Snapshot: func(p uint64, r io.Reader) error {
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, state) {
				return fmt.Errorf("snapshot of %d bytes: %v", len(got), err)
			}
			order = append(order, p)
			return nil
		},
		Replay: func(p uint64, _ []byte) error { order = append(order, p); return nil },
	})
	if len(order) != 41 || order[0] != 60 || order[1] != 61 || order[40] != 100 {
		t.Fatalf("order: %v", order)
	}
	if o := l.Opened(); o.Snapshot != 60 || o.First != 61 {
		t.Fatalf("%+v", o)
	}
	ok(t, l.Snapshot(100, func(w io.Writer) error { return nil }))
	names := must(store.OS().List(dir))(t)
	if slices.ContainsFunc(names, func(e store.Entry) bool {
		return e.Name == fmt.Sprintf("%020d.snap", 60)
	}) {
		t.Fatalf("the old snapshot is still there: %v", names)
	}
}

func TestErrorOfReplayFailsTheOpening(t *testing.T) {
	mem := storetest.NewMem()
	l := open(t, mem, "/log", store.LogOptions{})
	each(t, l.Log, 1, 2, 30)
	ok(t, l.Snapshot(1, func(w io.Writer) error { return nil }))
	ok(t, l.stop())
	broken := errors.New("broken")
	replay := func(uint64, []byte) error { return broken }
	_, err := store.OpenLog(mem, "/log", store.LogOptions{Replay: replay})
	is(t, err, broken)
	snapshot := func(uint64, io.Reader) error { return broken }
	_, err = store.OpenLog(mem, "/log", store.LogOptions{Snapshot: snapshot})
	is(t, err, broken)
	open(t, mem, "/log", store.LogOptions{})
}

// segments lists the segment files of a log.
func segments(t testing.TB, fs store.FS, dir string) (names []string) {
	t.Helper()
	for _, e := range must(fs.List(dir))(t) {
		if len(e.Name) == 24 && e.Name[20:] == ".log" {
			names = append(names, dir+"/"+e.Name)
		}
	}
	return names
}

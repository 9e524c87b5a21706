package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// loops reports how many runs a loop made. Each run is one place where one operation fails in one way.
func loops(t *testing.T, scenario func(t *testing.T, mem *storetest.Mem, f *storetest.Fault)) {
	t.Helper()
	runs := storetest.Loop(t, storetest.Variants(), func(t *testing.T, mem *storetest.Mem,
		f *storetest.Fault) {
		base(t, mem)
		scenario(t, mem, f)
	})
	t.Logf("%d runs", runs)
}

// base makes the folder that the tests' logs are in.
func base(t testing.TB, mem *storetest.Mem) {
	t.Helper()
	ok(t, mem.Mkdir("/data"))
	ok(t, mem.SyncDir("/"))
}

// typed fails the test if err is not one that the scenario's caller could act on: the fault that was put in,
// or one of store's own errors about it.
func typed(t *testing.T, f *storetest.Fault, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if _, fired := f.Fired(); !fired {
		t.Fatalf("an error without a fault: %v", err)
	}
	for _, v := range storetest.Variants() {
		if errors.Is(err, v.Err) {
			return
		}
	}
	if errors.Is(err, store.ErrClosed) || errors.Is(err, context.Canceled) {
		return
	}
	t.Fatalf("the cause is lost: %v", err)
}

// appendSome appends records one after the other to a running log until one fails, notes what was promised,
// and checks how the failure looks.
func appendSome(t *testing.T, f *storetest.Fault, r *running, p *promise, n int) bool {
	t.Helper()
	for range n {
		p.sent++
		position, err := r.Append(t.Context(), record(p.sent, 700))
		if err == nil {
			if position != p.sent {
				t.Fatalf("record %d got position %d", p.sent, position)
			}
			p.acked = position
			continue
		}
		typed(t, f, err)
		if _, space := errors.AsType[*store.SpaceError](err); space {
			is(t, err, syscall.ENOSPC)
			p.sent-- // nothing of it stays
			continue
		}
		as[*store.FailedError](t, err)
		<-r.Failed()
		as[*store.FailedError](t, r.stop())
		_, err = r.Append(t.Context(), []byte("x"))
		as[*store.FailedError](t, err)
		return false
	}
	return true
}

// survives checks the promise after the process ended and started again without a fault, and after the power
// went before and after that.
func survives(t *testing.T, mem *storetest.Mem, p promise) {
	t.Helper()
	r := rand.New(rand.NewPCG(p.sent, p.acked))
	for _, survive := range survivals {
		if _, err := keeps(mem.Crash(r, survive), p); err != nil {
			t.Fatalf("power lost after it, %v kept: %v", survive, err)
		}
	}
	again := mem.Clone()
	last, err := keeps(again, p)
	if err != nil {
		t.Fatalf("started again: %v", err)
	}
	p.acked = last // whoever was told of these records relies on them
	if _, err := keeps(again.Crash(r, 0), p); err != nil {
		t.Fatalf("started again, then power lost: %v", err)
	}
	if err := goesOn(r, again, p, last); err != nil {
		t.Fatalf("started again: %v", err)
	}
}

func TestNthOperationFailsWhileAppending(t *testing.T) {
	loops(t, func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		p := promise{floor: 1}
		defer func() { survives(t, mem, p) }()
		l, err := store.OpenLog(f, "/data/log", crashOptions)
		typed(t, f, err)
		if err != nil {
			return
		}
		r := start(l)
		appendSome(t, f, r, &p, 12) // a segment holds five: two rotations
		typed(t, f, r.stop())
	})
}

// TestNthOperationFailsInAGroup writes two groups of ten, each by one write: all of a group is acknowledged
// or none of it is.
func TestNthOperationFailsInAGroup(t *testing.T) {
	loops(t, func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		p := promise{floor: 1}
		defer func() { survives(t, mem, p) }()
		l, err := store.OpenLog(f, "/data/log", crashOptions)
		typed(t, f, err)
		if err != nil {
			return
		}
		const size = 10
		ended := make(chan struct{})
		var group func(left int)
		group = func(left int) { // before Run, and then on its goroutine
			first := p.acked + 1
			p.sent = p.acked + size
			var errs []error
			for i := range uint64(size) {
				// Of different sizes, so that half of the write ends inside of a record.
				err := l.AppendAsync(record(first+i, 100+int(i)*20), func(position uint64, err error) {
					errs = append(errs, err)
					if err == nil {
						p.acked = position
					} else if _, space := errors.AsType[*store.SpaceError](err); space {
						p.sent = p.acked // nothing of it stays
					}
					if len(errs) < size {
						return
					}
					for _, e := range errs {
						if (e == nil) != (errs[0] == nil) {
							t.Errorf("a group was divided: %v", errs)
						}
					}
					if left > 0 {
						group(left - 1)
					} else {
						close(ended)
					}
				})
				if err != nil {
					as[*store.FailedError](t, err)
					close(ended)
					return
				}
			}
		}
		group(1)
		r := start(l)
		<-ended
		typed(t, f, r.stop())
	})
}

func TestNthOperationFailsAroundSnapshotAndTruncate(t *testing.T) {
	loops(t, func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		p := promise{floor: 1}
		defer func() { survives(t, mem, p) }()
		l, err := store.OpenLog(f, "/data/log", crashOptions)
		typed(t, f, err)
		if err != nil {
			return
		}
		r := start(l)
		defer func() { typed(t, f, r.stop()) }()
		for range 2 {
			if !appendSome(t, f, r, &p, 8) || p.acked < 3 {
				return
			}
			at := p.acked - 2
			if at <= p.snapshot || at+1 < l.First() {
				return
			}
			err := l.Snapshot(at, snapshotOf(at))
			if err != nil {
				typed(t, f, err)
				if _, dead := errors.AsType[*store.FailedError](err); dead {
					<-l.Failed()
					return
				}
				continue
			}
			p.snapshot = at
			p.floor = at + 1
			if err := l.Truncate(at + 1); err != nil {
				typed(t, f, err)
				if _, dead := errors.AsType[*store.FailedError](err); dead {
					<-l.Failed()
					return
				}
			}
		}
	})
}

func TestNthOperationFailsWhileRecovering(t *testing.T) {
	for _, survive := range survivals {
		t.Run(fmt.Sprintf("%v kept", survive), func(t *testing.T) {
			for _, v := range storetest.Variants() {
				for n := 1; ; n++ {
					// A log that lost its power in the middle of a group, behind a truncation.
					mem := storetest.NewMem()
					base(t, mem)
					p := promise{floor: 9, snapshot: 8}
					r := start(must(store.OpenLog(mem, "/data/log", crashOptions))(t))
					each(t, r.Log, 1, 14, 700)
					ok(t, r.Snapshot(8, snapshotOf(8)))
					ok(t, r.Truncate(9))
					p.acked, p.sent = 14, 16
					random := rand.New(rand.NewPCG(uint64(n), 3))
					var crashed *storetest.Mem
					mem.Before(func(op storetest.Op) {
						if op.Kind == storetest.Sync && crashed == nil {
							crashed = mem.Crash(random, survive)
						}
					})
					ok(t, r.AppendAsync(record(15, 1500), func(uint64, error) {}))
					must(r.Append(t.Context(), record(16, 1500)))(t)
					ok(t, r.stop())

					f := storetest.NewFault(crashed, v, n)
					l, err := store.OpenLog(f, "/data/log", crashOptions)
					typed(t, f, err)
					if err == nil {
						ok(t, l.Close())
					}
					survives(t, crashed, p)
					if _, fired := f.Fired(); !fired {
						break
					}
				}
			}
		})
	}
}

func TestNthOperationFailsWhileReading(t *testing.T) {
	mem := storetest.NewMem()
	r := start(must(store.OpenLog(mem, "/data/log", crashOptions))(t))
	each(t, r.Log, 1, 20, 700)
	ok(t, r.stop())
	for n := 1; ; n++ {
		v := storetest.Variants()[0]
		f := storetest.NewFault(mem.Clone(), v, 0)
		l := must(store.OpenLog(f, "/data/log", crashOptions))(t)
		f.Arm(n)
		_, err := scan(l, 1)
		typed(t, f, err)
		if _, damaged := errors.AsType[*store.DamageError](err); damaged {
			t.Fatalf("a failed read is no damage: %v", err)
		}
		ok(t, l.Close())
		if _, fired := f.Fired(); !fired {
			break
		}
	}
}

func TestNthOperationFailsWhileReplacingAFile(t *testing.T) {
	loops(t, func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		before, after := bytes.Repeat([]byte("before "), 300), bytes.Repeat([]byte("after "), 900)
		ok(t, store.WriteFile(mem, "/data/file", 1, before))
		err := store.WriteFile(f, "/data/file", 2, after)
		typed(t, f, err)
		random := rand.New(rand.NewPCG(1, 1))
		for _, survive := range append(survivals, -1) {
			now := mem
			if survive >= 0 {
				now = mem.Crash(random, survive)
			}
			version, b, e := store.ReadFile(now, "/data/file")
			old := version == 1 && bytes.Equal(b, before)
			if e != nil || !old && (version != 2 || !bytes.Equal(b, after)) || old && err == nil {
				t.Fatalf("%v kept: version %d with %d bytes after %v: %v", survive, version, len(b), err, e)
			}
		}
		_, b, err := store.ReadFile(f, "/data/file")
		if err == nil && !bytes.Equal(b, before) && !bytes.Equal(b, after) {
			t.Fatal("a failed read gave other bytes")
		}
	})
}

func TestNthOperationFailsWhileOpeningTheFolder(t *testing.T) {
	schema := func(n int, ran *int) store.Schema {
		s := store.Schema{Number: n}
		for from := 1; from < n; from++ {
			s.Steps = append(s.Steps, store.Step{From: from, Run: func(_ context.Context,
				r *store.Room) error {
				*ran++
				return r.WriteFile(fmt.Sprintf("step-%d", from), 1, []byte("done"))
			}})
		}
		return s
	}
	use := func(fs store.FS, number int) (err error) {
		d, err := store.Open("/var/lib/plinth", store.Options{FS: fs, Writer: "1.0.0"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		var ran int
		room, err := d.Room(context.Background(), "engine", schema(number, &ran))
		if err != nil {
			return err
		}
		for from := 1; from < number; from++ {
			if _, _, err := room.ReadFile(fmt.Sprintf("step-%d", from)); err != nil {
				return fmt.Errorf("step %d was left out: %w", from, err)
			}
		}
		return nil
	}
	loops(t, func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		err := use(f, 1)
		typed(t, f, err)
		if err == nil {
			err = use(f, 3)
			typed(t, f, err)
		}
		random := rand.New(rand.NewPCG(1, 1))
		for _, survive := range survivals {
			after := mem.Crash(random, survive)
			if e := use(after, 1); e != nil {
				as[*store.SchemaError](t, e) // it was brought further already
			}
			// Whatever was done is done, and the rest is done now.
			ok(t, use(after, 3))
			ok(t, use(after, 3))
			as[*store.SchemaError](t, use(after, 1))
		}
	})
}

func TestNthOperationFailsWhileBackingUp(t *testing.T) {
	whole := storetest.NewMem()
	d := must(store.Open("/data", store.Options{FS: whole}))(t)
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	ok(t, room.WriteFile("limits", 3, []byte("all of them")))
	r := start(must(room.Log("queue", crashOptions))(t))
	each(t, r.Log, 1, 12, 700)
	ok(t, r.Snapshot(4, snapshotOf(4)))
	ok(t, r.stop())
	ok(t, d.Close())

	for _, v := range storetest.Variants() {
		for n := 1; ; n++ {
			mem := whole.Clone()
			f := storetest.NewFault(mem, v, n)
			backUp := func() (err error) {
				d, err := store.Open("/data", store.Options{FS: f})
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, d.Close()) }()
				room, err := d.Room(t.Context(), "engine", store.Schema{Number: 1})
				if err != nil {
					return err
				}
				l, err := room.Log("queue", crashOptions)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, l.Close()) }()
				_, err = d.Backup(t.Context(), "/backup/one", map[string]store.Source{"engine": room,
					"engine/queue": l})
				return err
			}
			err := backUp()
			typed(t, f, err)
			restored := false
			if err == nil {
				e := store.Restore(t.Context(), f, "/backup/one", "/restored")
				typed(t, f, e)
				restored = e == nil
			}
			f.Heal()
			for _, survive := range []float64{0, 0.5} {
				after := mem.Crash(rand.New(rand.NewPCG(uint64(n), 1)), survive)
				_, e := store.Verify(t.Context(), after, "/backup/one")
				if err == nil && e != nil {
					t.Fatalf("%s, operation %d: the backup was reported as done: %v", v.Name, n, e)
				}
				checkRestored(t, after, restored)
			}
			if _, fired := f.Fired(); !fired {
				break
			}
		}
	}
}

// checkRestored checks that the restored folder is whole, or that nothing there looks like one.
func checkRestored(t *testing.T, mem *storetest.Mem, must bool) {
	t.Helper()
	_, err := mem.Open(path.Join("/restored", "VERSION"), 0)
	if err != nil && !must {
		return
	}
	d, err := store.Open("/restored", store.Options{FS: mem})
	ok(t, err)
	room, err := d.Room(t.Context(), "engine", store.Schema{Number: 1})
	ok(t, err)
	version, b, err := room.ReadFile("limits")
	if err != nil || version != 3 || string(b) != "all of them" {
		t.Fatalf("limits: version %d, %q, %v", version, b, err)
	}
	opts := crashOptions
	opts.Snapshot = func(position uint64, r io.Reader) error {
		b, err := io.ReadAll(r)
		if n, good := number(b); err != nil || !good || n != 4 {
			return fmt.Errorf("the snapshot at %d: %.40q %v", position, b, err)
		}
		return nil
	}
	l, err := room.Log("queue", opts)
	ok(t, err)
	if readAll(t, l, 1) != 12 {
		t.Fatal("records are missing")
	}
	ok(t, l.Close())
	ok(t, d.Close())
}

package store_test

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// content returns the bytes of a file.
func content(t testing.TB, fs store.FS, name string) []byte {
	t.Helper()
	f := must(fs.Open(name, os.O_RDONLY))(t)
	b := must(io.ReadAll(io.NewSectionReader(f, 0, must(f.Size())(t))))(t)
	ok(t, f.Close())
	return b
}

// put makes b the content of a file.
func put(t failer, fs store.FS, name string, b []byte) {
	t.Helper()
	f := must(fs.Open(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR))(t)
	must(f.WriteAt(b, 0))(t)
	ok(t, f.Sync())
	ok(t, f.Close())
}

// sample returns a log at rest: three segments with the records 7 to 23, of which 9 and on are readable, and
// a snapshot at 8.
func sample(t testing.TB) *storetest.Mem {
	t.Helper()
	mem := storetest.NewMem()
	base(t, mem)
	r := start(must(store.OpenLog(mem, "/data/log", store.LogOptions{SegmentBytes: 4 << 10}))(t))
	each(t, r.Log, 1, 12, 600)
	ok(t, r.Snapshot(8, snapshotOf(8)))
	ok(t, r.Truncate(9))
	each(t, r.Log, 13, 20, 600)
	fill(t, r.Log, 21, 23, 100)
	ok(t, r.stop())
	if n := len(segments(t, mem, "/data/log")); n != 3 {
		t.Fatalf("%d segments", n)
	}
	return mem
}

// TestFlippedByteIsNoticed flips a bit of every byte of every file of a log that was closed in order. Each
// must be damage: after a closed log nothing passes for an interrupted write, because the mark at its end
// proves the rest. The mark itself is the one thing whose loss does no harm.
func TestFlippedByteIsNoticed(t *testing.T) {
	mem := sample(t)
	p := promise{acked: 23, sent: 23, floor: 9, snapshot: 8}
	last := segments(t, mem, "/data/log")
	harmless, noticed := 0, 0
	for _, e := range must(mem.List("/data/log"))(t) {
		name := "/data/log/" + e.Name
		whole := content(t, mem, name)
		for i := range whole {
			bad := slices.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			put(t, mem, name, bad)
			_, err := keeps(mem, p) // which changes nothing where it finds damage
			if err == nil && name == last[len(last)-1] && i >= len(whole)-store.FrameHead {
				harmless++
				continue
			}
			if _, is := errors.AsType[*store.DamageError](err); !is {
				t.Fatalf("%s, byte %d: %v", name, i, err)
			}
			noticed++
		}
		put(t, mem, name, whole)
	}
	t.Logf("%d flips noticed, %d of the closing mark harmless, 0 wrong", noticed, harmless)
}

// TestFlippedByteAfterAKillIsNoticedOrReported does the same to a log whose process was killed while records
// were on their way: what cannot be told from an interrupted write is cut off and reported, and nothing else
// is.
func TestFlippedByteAfterAKillIsNoticedOrReported(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	var killed *storetest.Mem
	r := start(must(store.OpenLog(mem, "/data/log", store.LogOptions{SegmentBytes: 1 << 20}))(t))
	each(t, r.Log, 1, 5, 80)
	mem.Before(func(op storetest.Op) {
		if op.Kind == storetest.Sync && killed == nil {
			killed = mem.Clone()
		}
	})
	each(t, r.Log, 6, 6, 200) // written, not acknowledged
	ok(t, r.stop())
	name := segments(t, killed, "/data/log")[0]
	whole := content(t, killed, name)
	at := len(whole) - 200 - 24
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 0x10
		put(t, killed, name, bad)
		now := killed.Clone()
		l, err := store.OpenLog(now, "/data/log", store.LogOptions{})
		if i < at {
			as[*store.DamageError](t, err)
			continue
		}
		ok(t, err)
		torn := l.Opened().Torn
		if torn == nil || torn.Offset != int64(at) || torn.Bytes != int64(len(whole)-at) || l.Last() != 5 {
			t.Fatalf("byte %d: %+v, last %d", i, torn, l.Last())
		}
		ok(t, l.Close())
	}
}

func TestCutFileIsNoticed(t *testing.T) {
	mem := sample(t)
	p := promise{acked: 23, sent: 23, floor: 9, snapshot: 8}
	names := segments(t, mem, "/data/log")
	lost := 0
	for k, name := range names {
		whole := content(t, mem, name)
		for n := range whole {
			put(t, mem, name, whole[:n])
			_, err := keeps(mem.Clone(), p)
			if k == len(names)-1 && n >= store.SegmentHead {
				// The end of the last segment is gone, and with it every proof that there was more.
				lost++
				continue
			}
			if err == nil && n == len(whole)-store.FrameHead {
				continue // the mark alone is gone
			}
			if _, is := errors.AsType[*store.DamageError](err); !is {
				t.Fatalf("%s of %d bytes cut to %d: %v", name, len(whole), n, err)
			}
		}
		put(t, mem, name, whole)
	}
}

func TestMissingFileIsNoticed(t *testing.T) {
	mem := sample(t)
	for _, e := range must(mem.List("/data/log"))(t) {
		if strings.HasSuffix(e.Name, ".snap") {
			continue // its owner asks for it, and Opened says that there is none
		}
		without := mem.Clone()
		ok(t, without.Remove("/data/log/"+e.Name))
		l, err := store.OpenLog(without, "/data/log", store.LogOptions{})
		if err == nil {
			// Only the last segment can go without a trace: the log ends where the one before it does.
			if e.Name != "00000000000000000019.log" {
				t.Fatalf("without %s the log opens: %+v", e.Name, l.Opened())
			}
			ok(t, l.Close())
			continue
		}
		as[*store.DamageError](t, err)
	}
}

func TestSwappedAndForeignSegmentsAreNoticed(t *testing.T) {
	mem := sample(t)
	names := segments(t, mem, "/data/log")
	a, b := content(t, mem, names[0]), content(t, mem, names[1])
	swapped := mem.Clone()
	put(t, swapped, names[0], b)
	put(t, swapped, names[1], a)
	_, err := store.OpenLog(swapped, "/data/log", store.LogOptions{})
	as[*store.DamageError](t, err)
	foreign := mem.Clone()
	put(t, foreign, names[0], content(t, sample(t), names[0]))
	_, err = store.OpenLog(foreign, "/data/log", store.LogOptions{})
	as[*store.DamageError](t, err)
}

// TestSnapshotAndFloorProveTheRecordsBeforeThem takes the mark away, and with it the only frame that proves
// the last record, and then spoils that record: what a snapshot or a truncation relied on cannot be an
// interrupted write.
func TestSnapshotAndFloorProveTheRecordsBeforeThem(t *testing.T) {
	for name, prove := range map[string]func(l *store.Log) error{
		"snapshot": func(l *store.Log) error { return l.Snapshot(5, snapshotOf(5)) },
		"floor":    func(l *store.Log) error { return l.Truncate(6) },
		"neither":  func(*store.Log) error { return nil },
	} {
		mem := storetest.NewMem()
		base(t, mem)
		r := start(must(store.OpenLog(mem, "/data/log", store.LogOptions{}))(t))
		each(t, r.Log, 1, 5, 100)
		ok(t, prove(r.Log))
		ok(t, r.stop())
		file := segments(t, mem, "/data/log")[0]
		whole := content(t, mem, file)
		whole = whole[:len(whole)-store.FrameHead]
		flipped := slices.Clone(whole)
		flipped[len(flipped)-30] ^= 1
		for _, bad := range [][]byte{flipped, whole[:len(whole)-10], whole[:len(whole)-128]} {
			put(t, mem, file, bad)
			l, err := store.OpenLog(mem, "/data/log", store.LogOptions{})
			if name == "neither" {
				if ok(t, err); l.Last() != 4 {
					t.Fatalf("the last is %d", l.Last())
				}
				ok(t, l.Close())
				continue
			}
			if _, is := errors.AsType[*store.DamageError](err); !is {
				t.Fatalf("%s, %d of %d bytes: %v", name, len(bad), len(whole), err)
			}
		}
	}
}

func TestZerosAtTheEndAreNoRecords(t *testing.T) {
	for _, zeros := range []int{1, 7, 8, 24, 25, 4096, 100_000} {
		mem := sample(t)
		names := segments(t, mem, "/data/log")
		name := names[len(names)-1]
		put(t, mem, name, append(content(t, mem, name), make([]byte, zeros)...))
		l := must(store.OpenLog(mem, "/data/log", store.LogOptions{}))(t)
		if o := l.Opened(); o.Last != 23 || o.Torn == nil || o.Torn.Bytes != 0 {
			t.Fatalf("%d zeros: %+v %+v", zeros, o, o.Torn)
		}
		ok(t, l.Close())
		if _, err := keeps(mem, promise{acked: 23, sent: 23, floor: 9, snapshot: 8}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHugeLengthIsNotBelieved gives the last header every length and looks at what opening allocates.
func TestHugeLengthIsNotBelieved(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	r := start(must(store.OpenLog(mem, "/data/log", store.LogOptions{}))(t))
	each(t, r.Log, 1, 1, 100)
	ok(t, r.stop())
	name := segments(t, mem, "/data/log")[0]
	whole := content(t, mem, name)
	for _, length := range []uint32{1 << 28, 1<<28 - 1, 1<<30 - 1, 1 << 31, 1<<32 - 1} {
		bad := slices.Clone(whole)
		at := store.SegmentHead
		bad[at+4], bad[at+5], bad[at+6], bad[at+7] = byte(length), byte(length>>8), byte(length>>16),
			byte(length>>24)
		put(t, mem, name, bad)
		allocated := testing.AllocsPerRun(1, func() {
			_, err := store.OpenLog(mem, "/data/log", store.LogOptions{})
			as[*store.DamageError](t, err)
		})
		result := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := store.OpenLog(mem, "/data/log", store.LogOptions{}); err == nil {
					b.Fatal("opened")
				}
				if b.N > 1 {
					break
				}
			}
		})
		if result.AllocedBytesPerOp() > 1<<20 {
			t.Fatalf("length %#x: %d bytes in %v allocations", length, result.AllocedBytesPerOp(), allocated)
		}
	}
}

// TestRecordMayHoldALog puts the bytes of a log into a log as one record, and cuts it off in the middle:
// frames in a payload are no proof of anything.
func TestRecordMayHoldALog(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	other := sample(t)
	var killed *storetest.Mem
	r := start(must(store.OpenLog(mem, "/data/log", store.LogOptions{}))(t))
	each(t, r.Log, 1, 2, 100)
	for _, name := range segments(t, other, "/data/log") {
		must(r.Append(t.Context(), content(t, other, name)))(t)
	}
	own := content(t, mem, segments(t, mem, "/data/log")[0])
	mem.Before(func(op storetest.Op) {
		if op.Kind == storetest.Sync && killed == nil {
			killed = mem.Clone()
		}
	})
	must(r.Append(t.Context(), own))(t)
	ok(t, r.stop())
	name := segments(t, killed, "/data/log")[0]
	whole := content(t, killed, name)
	put(t, killed, name, whole[:len(whole)-8])
	l := must(store.OpenLog(killed, "/data/log", store.LogOptions{}))(t)
	if o := l.Opened(); o.Last != 5 || o.Torn == nil {
		t.Fatalf("%+v", o)
	}
	ok(t, l.Close())
}

func TestReaderNoticesDamageUnderWay(t *testing.T) {
	mem := storetest.NewMem()
	l := open(t, mem, "/log", store.LogOptions{})
	each(t, l.Log, 1, 200, 1000)
	r := must(l.Reader(1))(t)
	name := segments(t, mem, "/log")[0]
	f := must(mem.Open(name, os.O_RDWR))(t)
	must(f.WriteAt([]byte("damage"), 150_000))(t)
	ok(t, f.Close())
	for want := uint64(1); ; want++ {
		p, b, err := r.Next()
		if err != nil {
			if e := as[*store.DamageError](t, err); e.File != name || e.Offset > 150_000 ||
				e.Offset < 148_000 {
				t.Fatalf("%+v", e)
			}
			break
		}
		if n, good := number(b); !good || n != want || p != want {
			t.Fatalf("position %d holds %.30q", p, b)
		}
	}
	ok(t, r.Close())
}

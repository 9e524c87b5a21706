package store_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// salvaged opens a damaged log with the option and checks that what it gives is what was written, that the
// lost positions are told by everybody in the same way, and that the log opens without the option after that.
func salvaged(t testing.TB, mem *storetest.Mem) store.LogOpened {
	t.Helper()
	opts := store.LogOptions{SegmentBytes: 4 << 10, Salvage: true}
	l, err := store.OpenLog(mem, "/data/log", opts)
	ok(t, err)
	opened := l.Opened()
	ok(t, l.Close())
	opts.Salvage = false
	var replayed []uint64
	opts.Replay = func(position uint64, b []byte) error {
		if n, good := number(b); !good || n != position {
			return errors.New("not the record that was written")
		}
		replayed = append(replayed, position)
		return nil
	}
	l, err = store.OpenLog(mem, "/data/log", opts)
	ok(t, err)
	if again := l.Opened(); !slices.Equal(again.Lost, opened.Lost) || again.Last != opened.Last ||
		again.First != opened.First {
		t.Fatalf("salvaged %+v, opened %+v", opened, again)
	}
	r := must(l.Reader(0))(t)
	var lost []store.LostError
	next := l.First()
	for next <= l.Last() {
		p, b, err := r.Next()
		if e, is := errors.AsType[*store.LostError](err); is {
			if e.From != next || fault.CodeOf(err) != "RECORDS_LOST" {
				t.Fatalf("at %d: %v", next, err)
			}
			lost = append(lost, *e)
			next = e.To + 1
			continue
		}
		ok(t, err)
		if n, good := number(b); !good || n != p || p != next {
			t.Fatalf("position %d, where %d is due, holds %.30q", p, next, b)
		}
		next++
	}
	ok(t, r.Close())
	for _, e := range lost {
		if slices.ContainsFunc(replayed, func(p uint64) bool { return p >= e.From && p <= e.To }) {
			t.Fatalf("replayed a lost record of %v", e)
		}
	}
	run := start(l)
	each(t, l, opened.Last+1, opened.Last+2, 50)
	ok(t, run.stop())
	return opened
}

func TestSalvageKeepsEverythingButTheDamage(t *testing.T) {
	mem := sample(t)
	name := segments(t, mem, "/data/log")[1]
	whole := content(t, mem, name)
	bad := slices.Clone(whole)
	bad[2000] ^= 1 // in the fourth of its records
	put(t, mem, name, bad)
	o := salvaged(t, mem)
	want := []store.LostError{{From: 16, To: 16}}
	if !slices.Equal(o.Lost, want) || o.First != 9 || o.Last != 23 || len(o.Salvaged) != 1 ||
		o.Salvaged[0].File != name {
		t.Fatalf("%+v", o)
	}
	if got := content(t, mem, name+".damaged"); !slices.Equal(got, bad) {
		t.Fatal("the damaged file is not kept")
	}
	l := must(store.OpenLog(mem, "/data/log", store.LogOptions{}))(t)
	r := must(l.Reader(16))(t)
	next, err := l.Read(9, func(uint64, []byte) error { return nil })
	if as[*store.LostError](t, err); next != 17 {
		t.Fatalf("goes on at %d", next)
	}
	_, _, err = r.Next()
	if e := as[*store.LostError](t, err); e.From != 16 || e.To != 16 {
		t.Fatal(e)
	}
	ok(t, r.Close())
	ok(t, l.Close())
}

func TestSalvageOfEveryFile(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, mem *storetest.Mem, file string, whole []byte)
	}{
		{"head", func(t *testing.T, mem *storetest.Mem, file string, b []byte) {
			b[3] ^= 4
			put(t, mem, file,
				b)
		}},
		{"zeros", func(t *testing.T, mem *storetest.Mem, file string, b []byte) {
			clear(b)
			put(t, mem, file,
				b)
		}},
		{"empty", func(t *testing.T, mem *storetest.Mem, file string, b []byte) { put(t, mem, file, nil) }},
		{"half", func(t *testing.T, mem *storetest.Mem, file string, b []byte) {
			put(t, mem, file,
				b[:len(b)/2])
		}},
		{"gone", func(t *testing.T, mem *storetest.Mem, file string, _ []byte) { ok(t, mem.Remove(file)) }},
	} {
		for _, e := range must(sample(t).List("/data/log"))(t) {
			t.Run(c.name+" "+e.Name, func(t *testing.T) {
				mem := sample(t)
				file := "/data/log/" + e.Name
				c.spoil(t, mem, file, content(t, mem, file))
				o := salvaged(t, mem)
				for _, l := range o.Lost {
					if l.From < 9 || l.To > 23 {
						t.Errorf("lost %v", l)
					}
				}
				if !strings.HasSuffix(e.Name, ".log") && (len(o.Lost) > 0 || o.Last != 23) {
					t.Errorf("records were lost although no segment is damaged: %+v", o)
				}
			})
		}
	}
}

// TestSalvageOfRandomDamage spoils some bytes, and checks what the salvage promises.
func TestSalvageOfRandomDamage(t *testing.T) {
	whole := sample(t)
	first := seed(t)
	for i := range uint64(300) {
		r := rand.New(rand.NewPCG(first, i))
		mem := whole.Clone()
		names := must(mem.List("/data/log"))(t)
		for range 1 + r.IntN(3) {
			file := "/data/log/" + names[r.IntN(len(names))].Name
			b := content(t, mem, file)
			at := r.IntN(len(b))
			for k := range min(1+r.IntN(700), len(b)-at) {
				b[at+k] = byte(r.Uint32())
			}
			put(t, mem, file, b)
		}
		l, err := store.OpenLog(mem.Clone(), "/data/log", store.LogOptions{Salvage: true})
		if err != nil {
			// All that tells one log from another can be gone.
			as[*store.DamageError](t, err)
			continue
		}
		ok(t, l.Close())
		salvaged(t, mem)
	}
}

// TestSalvageCanBeInterrupted cuts the power before every operation of a salvage: after it the log can be
// salvaged as well, and nothing more is lost.
func TestSalvageCanBeInterrupted(t *testing.T) {
	mem := sample(t)
	for _, name := range segments(t, mem, "/data/log")[:2] {
		b := content(t, mem, name)
		b[1500] ^= 1
		put(t, mem, name, b)
	}
	want := salvaged(t, mem.Clone()).Lost
	r := rand.New(rand.NewPCG(5, 5))
	cuts := 0
	mem.Before(func(op storetest.Op) {
		if op.Kind.Changes() {
			cuts++
			after := mem.Crash(r, survivals[cuts%len(survivals)])
			if got := salvaged(t, after).Lost; !slices.Equal(got, want) {
				t.Errorf("cut before %v: lost %v, want %v", op, got, want)
			}
		}
	})
	l, err := store.OpenLog(mem, "/data/log", store.LogOptions{Salvage: true})
	ok(t, err)
	ok(t, l.Close())
	if cuts < 10 {
		t.Fatalf("%d cuts", cuts)
	}
}

func TestSalvageLeavesAWholeLogAlone(t *testing.T) {
	mem := sample(t)
	before := must(mem.List("/data/log"))(t)
	if o := salvaged(t, mem); len(o.Salvaged) != 0 || len(o.Lost) != 0 {
		t.Fatalf("%+v", o)
	}
	if after := must(mem.List("/data/log"))(t); !slices.Equal(before, after) {
		t.Fatalf("%v, before %v", after, before)
	}
}

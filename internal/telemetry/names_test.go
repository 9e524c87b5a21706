package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestNameReadsBackAsLongAsSomebodyHoldsIt(t *testing.T) {
	n := newNames(nameLimit{100, 1 << 20, 3, 1 << 20})
	a, again := n.Intern("orders::create"), n.Intern("orders::create")
	if a == 0 || a != again || n.Text(a) != "orders::create" {
		t.Fatalf("ids %d and %d, text %q", a, again, n.Text(a))
	}
	n.Release(a)
	for i := range 50 {
		n.Release(n.Intern(fmt.Sprint("worker", i)))
	}
	if got := n.Text(a); got != "orders::create" {
		t.Fatalf("a name with a reference reads %q", got)
	}
	n.Release(a)
	if got := n.Text(a); got != "orders::create" {
		t.Fatalf("a name without references reads %q at once", got)
	}
	for i := range 50 {
		n.Release(n.Intern(fmt.Sprint("other", i)))
	}
	if got := n.Text(a); got != GoneName {
		t.Fatalf("a name that was pushed out reads %q", got)
	}
	if b := n.Intern("orders::create"); n.Text(b) != "orders::create" || b == a {
		t.Fatalf("interned again it is %d, %q", b, n.Text(b))
	}
}

func TestEmptyNameIsIdZero(t *testing.T) {
	n := NewNames()
	if id := n.Intern(""); id != 0 || n.Text(0) != "" {
		t.Fatalf("got %d, %q", id, n.Text(0))
	}
	n.Release(0)
	if n.Text(12345) != GoneName || n.Text(1<<32-1) != GoneName {
		t.Fatal("an id that never was has a text")
	}
	n.Release(12345)
	n.Release(1<<32 - 1)
}

func TestFullTableOfNamesInUseSaysOther(t *testing.T) {
	n := newNames(nameLimit{3, 1 << 20, 3, 1 << 20})
	var ids []uint32
	for i := range 5 {
		ids = append(ids, n.Intern(fmt.Sprint("f", i)))
	}
	if n.Text(ids[2]) != "f2" || n.Text(ids[3]) != OtherName || ids[3] != ids[4] {
		t.Fatalf("got %q, %q, %q", n.Text(ids[2]), n.Text(ids[3]), n.Text(ids[4]))
	}
	n.Release(ids[3])
	n.Release(ids[4])
	if n.Text(ids[3]) != OtherName {
		t.Fatal("the name for all others can be released")
	}
	if s := n.Stats(); s.Refused != 2 || s.Names != 3 {
		t.Fatalf("got %+v", s)
	}
	n.Release(ids[0])
	if id := n.Intern("f9"); n.Text(id) != "f9" {
		t.Fatal("there is no room although a name is not in use any more")
	}
	n = newNames(nameLimit{100, 10, 3, 1 << 20})
	n.Intern("12345678")
	if n.Text(n.Intern("abc")) != OtherName {
		t.Fatal("the bound of bytes does not hold")
	}
}

func TestLongNameIsCutBetweenCharacters(t *testing.T) {
	n := NewNames()
	if got := n.Text(n.Intern(strings.Repeat("é", 600))); got != strings.Repeat("é", 512) {
		t.Fatalf("%d bytes are left", len(got))
	}
	if got := n.Text(n.Intern("x" + strings.Repeat("é", 600))); got != "x"+strings.Repeat("é", 511) {
		t.Fatalf("%d bytes are left", len(got))
	}
	if got := cutText(strings.Repeat("\x80", 2000), 1024); len(got) < 1020 {
		t.Fatalf("text that is no UTF-8 lost all but %d bytes", len(got))
	}
}

// Codes of errors are noted, never released; the ones that come often stay.
func TestNotedNamesStayWhileTheyAreFresh(t *testing.T) {
	n := newNames(nameLimit{100, 1 << 20, 3, 1 << 20})
	often := n.Note("TIMEOUT")
	for i := range 100 {
		n.Note(fmt.Sprint("CODE", i))
		if n.Note("TIMEOUT") != often {
			t.Fatal("a name that comes all the time was let go")
		}
	}
	if s := n.Stats(); s.Names != 3 || s.Retired != 3 {
		t.Fatalf("got %+v", s)
	}
	held := n.Intern("TIMEOUT")
	for i := range 100 {
		n.Note(fmt.Sprint("MORE", i))
	}
	if held != often || n.Text(held) != "TIMEOUT" {
		t.Fatal("a noted name that somebody interned was let go")
	}
}

// A day of workers that connect, register functions and leave.
func TestChurnOfWorkersDoesNotGrowTheTable(t *testing.T) {
	n := NewNames()
	var most NameStats
	for worker := range 10_000 {
		ids := []uint32{n.Intern(fmt.Sprint("host-", worker, ":", worker*7))}
		for f := range 10 {
			ids = append(ids, n.Intern(fmt.Sprint("service", worker, "::function", f)))
		}
		for _, id := range ids {
			if n.Text(id) == GoneName || n.Text(id) == OtherName {
				t.Fatal("a name in use cannot be read")
			}
			n.Release(id)
		}
		s := n.Stats()
		most.Names, most.Bytes = max(most.Names, s.Names), max(most.Bytes, s.Bytes)
	}
	if most.Names > maxRetired+11 || most.Bytes > maxRetiredTotal+1024 || len(n.slots) > maxRetired+16 {
		t.Fatalf("grew to %d names, %d bytes, %d slots", most.Names, most.Bytes, len(n.slots))
	}
	if s := n.Stats(); s.Refused != 0 || s.Evicted < 100_000 {
		t.Fatalf("got %+v", s)
	}
}

// Against a plain map: an id never reads as another name than the one it was given for.
func TestNamesNeverReadAsAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := nameLimit{rapid.IntRange(1, 12).Draw(t, "names"), rapid.IntRange(1, 80).Draw(t, "bytes"),
			rapid.IntRange(0, 5).Draw(t, "retired"), rapid.IntRange(0, 40).Draw(t, "retired bytes")}
		n := newNames(limit)
		given := map[uint32]string{}
		refs := map[uint32]int{}
		name := rapid.StringMatching(`[a-c]{0,9}`)
		t.Repeat(map[string]func(*rapid.T){
			"intern": func(t *rapid.T) {
				s := name.Draw(t, "name")
				id := n.Intern(s)
				if got := n.Text(id); got != s && got != OtherName {
					t.Fatalf("%q reads %q", s, got)
				} else if got == s && s != "" {
					given[id] = s
					refs[id]++
				}
			},
			"note": func(t *rapid.T) {
				s := name.Draw(t, "name")
				if id := n.Note(s); n.Text(id) == s && s != "" {
					given[id] = s
				}
			},
			"release": func(t *rapid.T) {
				if len(refs) == 0 {
					return
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(refs))).Draw(t, "id")
				n.Release(id)
				if refs[id]--; refs[id] == 0 {
					delete(refs, id)
				}
			},
			"": func(t *rapid.T) {
				for id, s := range given {
					got := n.Text(id)
					if got != s && (got != GoneName || refs[id] > 0) {
						t.Fatalf("%d was %q and reads %q with %d references", id, s, got, refs[id])
					}
				}
				s := n.Stats()
				if s.Names > limit.names || s.Bytes > int64(limit.bytes) || s.Retired > limit.retired {
					t.Fatalf("%+v is over %+v", s, limit)
				}
			},
		})
	})
}

func TestNamesFromManyGoroutines(t *testing.T) {
	n := newNames(nameLimit{64, 1 << 20, 16, 1 << 20})
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 2000 {
				s := fmt.Sprint("name", (g+i)%40)
				id := n.Intern(s)
				if got := n.Text(id); got != s {
					t.Errorf("%q reads %q", s, got)
				}
				n.Note(fmt.Sprint("note", i%50))
				n.Release(id)
			}
		})
	}
	wait.Wait()
	if s := n.Stats(); s.Names > 64 || s.Names != s.Retired {
		t.Fatalf("after all left: %+v", s)
	}
}

func TestKnownNameIsFoundWithoutAllocating(t *testing.T) {
	n := NewNames()
	n.Intern("TIMEOUT")
	if allocs := testing.AllocsPerRun(100, func() { n.Release(n.Intern("TIMEOUT")) }); allocs != 0 {
		t.Fatalf("%v allocations", allocs)
	}
}

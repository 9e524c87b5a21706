package telemetry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// plain is a span with nothing but an id, by which the tests find it again.
func plain(n uint64) *Span {
	sp := &Span{Start: int64(n), End: int64(n) + 1, Kind: KindUser}
	for i := range 8 {
		sp.SpanID[i] = byte(n >> (8 * i))
	}
	sp.TraceID[0] = 1
	return sp
}

func idOf(b []byte) (n uint64) {
	for i := range 8 {
		n |= uint64(b[spanID+i]) << (8 * i)
	}
	return n
}

func ids(s *Spans) (all []uint64) {
	s.ring.walk(-1<<63, 1<<63-1, func(b []byte) bool {
		all = append(all, idOf(b))
		return true
	})
	return all
}

// audit checks that every record that went in is accounted for.
func audit(t testing.TB, s Stats, recorded, kept int) {
	t.Helper()
	sum := s.Kept + s.Overwritten + s.Shed + s.Cleared
	if s.Recorded != uint64(recorded) || s.Kept != uint64(kept) || s.Recorded != sum {
		t.Fatalf("%d recorded and %d kept, but counted %+v", recorded, kept, s)
	}
	var kinds Counts
	for _, k := range s.Kinds {
		kinds.add(k)
	}
	if kinds != s.Counts {
		t.Fatalf("by kind %+v, in all %+v", kinds, s.Counts)
	}
}

const perChunk = chunkBytes / spanHeader

func TestEmptyRingHoldsNoMemory(t *testing.T) {
	for _, bytes := range []int64{0, 1, 16 << 20, 1 << 40, -1} {
		s := NewSpans(bytes)
		if got := s.Stats(); got.Bytes != 0 || s.ring.open != nil || s.ring.sealed != nil {
			t.Fatalf("of %d bytes, %d are held", bytes, got.Bytes)
		}
		if found := ids(s); len(found) > 0 {
			t.Fatalf("found %v", found)
		}
	}
}

func TestRingKeepsTheNewestAndCountsTheRest(t *testing.T) {
	s := NewSpans(3 * chunkBytes)
	for n := range 5*perChunk + 7 {
		s.Record(plain(uint64(n)))
		if st := s.Stats(); st.Recorded != uint64(n+1) || st.Recorded != st.Kept+st.Overwritten {
			t.Fatalf("after %d: %+v", n+1, st)
		}
	}
	kept := ids(s)
	audit(t, s.Stats(), 5*perChunk+7, len(kept))
	if len(kept) != 2*perChunk+7 {
		t.Fatalf("%d are kept", len(kept))
	}
	for i, id := range kept {
		if want := uint64(5*perChunk + 6 - i); id != want {
			t.Fatalf("at %d stands %d, want %d", i, id, want)
		}
	}
	if st := s.Stats(); st.Bytes != 3*chunkBytes || st.Limit != 3*chunkBytes {
		t.Fatalf("got %+v", st)
	}
}

func TestChunksAreTakenWhenTheyAreNeeded(t *testing.T) {
	s := NewSpans(100 * chunkBytes)
	for n := range 3 * perChunk {
		s.Record(plain(uint64(n)))
		if want := int64(n/perChunk+1) * chunkBytes; s.Stats().Bytes != want {
			t.Fatalf("after %d spans %d bytes are held, want %d", n+1, s.Stats().Bytes, want)
		}
	}
}

func TestRingThatIsTooSmallRecordsNothing(t *testing.T) {
	s := NewSpans(chunkBytes - 1)
	s.Record(plain(1))
	if st := s.Stats(); st.Dropped != 1 || st.Recorded != 0 || st.Bytes != 0 {
		t.Fatalf("got %+v", st)
	}
}

func TestResizeDropsTheOldestAndCountsThem(t *testing.T) {
	s := NewSpans(8 * chunkBytes)
	for n := range 7*perChunk + 1 {
		s.Record(plain(uint64(n)))
	}
	s.Resize(2 * chunkBytes)
	kept := ids(s)
	audit(t, s.Stats(), 7*perChunk+1, perChunk+1)
	if kept[len(kept)-1] != 6*perChunk || s.Stats().Shed != 6*perChunk || s.Stats().Bytes != 2*chunkBytes {
		t.Fatalf("the oldest is %d, %+v", kept[len(kept)-1], s.Stats())
	}
	for n := range 3 * perChunk {
		s.Record(plain(uint64(n)))
	}
	if s.Stats().Bytes != 2*chunkBytes {
		t.Fatalf("the lower bound does not hold: %d", s.Stats().Bytes)
	}
	s.Resize(0)
	audit(t, s.Stats(), 10*perChunk+1, 0)
	if s.Record(plain(1)); s.Stats().Bytes != 0 || s.Stats().Dropped != 1 {
		t.Fatalf("turned off: %+v", s.Stats())
	}
	s.Resize(4 * chunkBytes)
	if s.Record(plain(9)); !slices.Equal(ids(s), []uint64{9}) {
		t.Fatal("turned on again, it does not record")
	}
}

func TestShedGivesUpFullChunksOnly(t *testing.T) {
	s := NewSpans(8 * chunkBytes)
	for n := range 3*perChunk + 5 {
		s.Record(plain(uint64(n)))
	}
	if freed := s.Shed(1); freed != chunkBytes || len(ids(s)) != 2*perChunk+5 {
		t.Fatalf("freed %d, %d are left", freed, len(ids(s)))
	}
	if freed := s.Shed(100 * chunkBytes); freed != 2*chunkBytes || len(ids(s)) != 5 {
		t.Fatalf("freed %d, %d are left", freed, len(ids(s)))
	}
	if freed := s.Shed(1) + s.Shed(0) + s.Shed(-5); freed != 0 {
		t.Fatalf("freed %d of nothing", freed)
	}
	audit(t, s.Stats(), 3*perChunk+5, 5)
	if s.Stats().Limit != 8*chunkBytes {
		t.Fatal("the bound was changed")
	}
}

func TestClearDropsAll(t *testing.T) {
	s := NewSpans(8 * chunkBytes)
	for n := range 3*perChunk + 5 {
		s.Record(plain(uint64(n)))
	}
	s.Clear()
	audit(t, s.Stats(), 3*perChunk+5, 0)
	if st := s.Stats(); st.Cleared != 3*perChunk+5 || st.Bytes != 0 {
		t.Fatalf("got %+v", st)
	}
	s.Clear()
	s.Record(plain(3))
	audit(t, s.Stats(), 3*perChunk+6, 1)
}

// account is a memory budget of which only so much is left.
type account struct {
	mu            sync.Mutex
	left          int64
	taken, refuse int64
	shed          func()
}

func (a *account) take(n int64) bool {
	a.mu.Lock()
	short := a.left < n
	a.mu.Unlock()
	if short && a.shed != nil {
		a.shed()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left < n {
		a.refuse++
		return false
	}
	a.left -= n
	a.taken += n
	return true
}

func (a *account) give(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left += n
	a.taken -= n
}

func TestRingGrowsOnlyAsFarAsMemoryIsGranted(t *testing.T) {
	s, a := NewSpans(10*chunkBytes), &account{left: 2 * chunkBytes}
	s.SetMemory(a.take, a.give)
	for n := range 6 * perChunk {
		s.Record(plain(uint64(n)))
	}
	audit(t, s.Stats(), 6*perChunk, 2*perChunk)
	if st := s.Stats(); st.Bytes != 2*chunkBytes || a.taken != 2*chunkBytes || a.refuse == 0 {
		t.Fatalf("%+v with an account of %+v", st, a)
	}
	s.Shed(chunkBytes)
	s.Clear()
	if a.taken != 0 {
		t.Fatalf("%d bytes were never given back", a.taken)
	}
}

func TestRingWithoutMemoryDropsAndCounts(t *testing.T) {
	s, a := NewSpans(10*chunkBytes), &account{}
	s.SetMemory(a.take, a.give)
	s.Record(plain(1))
	if st := s.Stats(); st.Dropped != 1 || st.Bytes != 0 || st.Recorded != 0 {
		t.Fatalf("got %+v", st)
	}
	a.left = chunkBytes
	s.Record(plain(2))
	audit(t, s.Stats(), 1, 1)
}

// The budget sheds the very ring that asks for memory.
func TestRingMayBeShedWhileItAsksForMemory(t *testing.T) {
	s, a := NewSpans(10*chunkBytes), &account{left: 3 * chunkBytes}
	a.shed = func() { s.Shed(chunkBytes) }
	s.SetMemory(a.take, a.give)
	for n := range 9 * perChunk {
		s.Record(plain(uint64(n)))
	}
	audit(t, s.Stats(), 9*perChunk, 3*perChunk)
	if st := s.Stats(); st.Shed != 6*perChunk || st.Overwritten != 0 || st.Bytes != 3*chunkBytes {
		t.Fatalf("got %+v", st)
	}
}

// Another writer, or somebody with another bound, gets in while the ring is unlocked to ask for memory.
func TestRingCopesWithWhatHappensWhileItAsksForMemory(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*Spans)
		refuse    bool // and then the memory is refused
		recorded  int
		kept      int
		bytes     int64
	}{
		"another record":              {func(s *Spans) { s.Record(plain(7)) }, false, 2, 2, chunkBytes},
		"many other records":          {func(s *Spans) { fill(s, perChunk) }, false, perChunk + 1, perChunk + 1, 2 * chunkBytes},
		"turned off":                  {func(s *Spans) { s.Resize(0) }, false, 0, 0, 0},
		"cleared":                     {func(s *Spans) { s.Clear() }, false, 1, 1, chunkBytes},
		"nothing, refused":            {func(*Spans) {}, true, 0, 0, 0},
		"another record, refused":     {func(s *Spans) { s.Record(plain(7)) }, true, 2, 2, chunkBytes},
		"many other records, refused": {func(s *Spans) { fill(s, perChunk) }, true, perChunk + 1, 1, chunkBytes},
		"turned off, refused":         {func(s *Spans) { s.Resize(0) }, true, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := NewSpans(10*chunkBytes), 0
			var taken atomic.Int64
			s.SetMemory(func(n int64) bool {
				if asked++; asked == 1 {
					if c.meanwhile(s); c.refuse {
						return false
					}
				}
				taken.Add(n)
				return true
			}, func(n int64) { taken.Add(-n) })
			s.Record(plain(1))
			audit(t, s.Stats(), c.recorded, c.kept)
			if len(ids(s)) != c.kept {
				t.Fatalf("%d can be read of %d", len(ids(s)), c.kept)
			}
			if st := s.Stats(); st.Bytes != c.bytes || taken.Load() != c.bytes {
				t.Fatalf("%d bytes are held and %d taken, want %d", st.Bytes, taken.Load(), c.bytes)
			}
		})
	}
}

func fill(s *Spans, n int) {
	for i := range n {
		s.Record(plain(uint64(i)))
	}
}

// Against a plain list with a sum: any sequence of records of any length and of changes of the bound.
func TestRingAgreesWithAPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSpans(int64(rapid.IntRange(0, 4).Draw(t, "chunks")) * chunkBytes)
		var list []uint64 // what went in, oldest first
		recorded, dropped := 0, uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				length := rapid.IntRange(0, maxMessage).Draw(t, "length")
				for range rapid.IntRange(1, 30).Draw(t, "times") {
					sp := plain(uint64(len(list)))
					sp.Message = make([]byte, length)
					list = append(list, uint64(len(list)))
					if s.Record(sp); s.Stats().Dropped > dropped {
						dropped++
						list[len(list)-1] = 1 << 63
					} else {
						recorded++
					}
				}
			},
			"resize": func(t *rapid.T) { s.Resize(int64(rapid.IntRange(0, 4).Draw(t, "chunks")) * chunkBytes) },
			"shed":   func(t *rapid.T) { s.Shed(int64(rapid.IntRange(0, 2).Draw(t, "chunks")) * chunkBytes) },
			"clear":  func(*rapid.T) { s.Clear() },
			"": func(t *rapid.T) {
				st, kept := s.Stats(), ids(s)
				if st.Recorded != uint64(recorded) || st.Kept != uint64(len(kept)) ||
					st.Recorded != st.Kept+st.Overwritten+st.Shed+st.Cleared {
					t.Fatalf("%d recorded, %d kept, counted %+v", recorded, len(kept), st)
				}
				if st.Bytes > st.Limit {
					t.Fatalf("%d bytes of %d", st.Bytes, st.Limit)
				}
				// What is kept is the end of what went in, newest first.
				at := len(list) - 1
				for _, id := range kept {
					for at >= 0 && list[at] == 1<<63 {
						at--
					}
					if at < 0 || list[at] != id {
						t.Fatalf("%d stands where %d should", id, at)
					}
					at--
				}
			},
		})
	})
}

// Writers, readers and a budget that sheds, all at once; then the sums must be right.
func TestRingFromManyGoroutines(t *testing.T) {
	s, a := NewSpans(6*chunkBytes), &account{left: 5 * chunkBytes}
	a.shed = func() { s.Shed(chunkBytes) }
	s.SetMemory(a.take, a.give)
	const writers, each = 4, 20_000
	var wait, readers sync.WaitGroup
	done := make(chan struct{})
	for g := range writers {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range each {
				sp := plain(uint64(g)<<32 | uint64(n))
				sp.Message = []byte(strings.Repeat("x", r.IntN(40)))
				if s.Record(sp); r.IntN(2000) == 0 {
					s.Shed(chunkBytes)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				last := map[uint64]uint64{}
				for _, id := range ids(s) {
					if before, ok := last[id>>32]; ok && id >= before {
						t.Errorf("%d stands after %d", id, before)
					}
					last[id>>32] = id
				}
				if st := s.Stats(); st.Recorded != st.Kept+st.Overwritten+st.Shed+st.Cleared || st.Bytes > st.Limit {
					t.Errorf("got %+v", st)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	wait.Wait()
	close(done)
	readers.Wait()
	st := s.Stats()
	if st.Recorded+st.Dropped != writers*each {
		t.Fatalf("%d went in, %+v", writers*each, st)
	}
	if s.Clear(); a.taken != 0 {
		t.Fatalf("%d bytes were never given back", a.taken)
	}
}

func TestWalkStopsWhenAsked(t *testing.T) {
	s := NewSpans(4 * chunkBytes)
	fill(s, 2*perChunk)
	n := 0
	s.ring.walk(-1<<63, 1<<63-1, func([]byte) bool { n++; return n < 3 })
	if n != 3 {
		t.Fatalf("went on to %d", n)
	}
}

// A walk that is overtaken by the writers ends; it neither repeats nor invents.
func TestWalkIsOvertakenByWriters(t *testing.T) {
	s := NewSpans(3 * chunkBytes)
	for n := range 3 * perChunk {
		s.Record(plain(uint64(n)))
	}
	var seen []uint64
	s.ring.walk(-1<<63, 1<<63-1, func(b []byte) bool {
		if seen = append(seen, idOf(b)); len(seen) == 10 {
			for n := range 2 * perChunk {
				s.Record(plain(uint64(1_000_000 + n)))
			}
		}
		return true
	})
	if len(seen) != perChunk || seen[0] != 3*perChunk-1 || seen[perChunk-1] != 2*perChunk {
		t.Fatalf("saw %d records from %d to %d", len(seen), seen[0], seen[len(seen)-1])
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	s := NewSpans(2 * chunkBytes)
	sp := plain(1)
	sp.Message, sp.Status = []byte("it failed"), StatusError
	fill(s, 3*perChunk)
	if n := testing.AllocsPerRun(5*perChunk, func() { s.Record(sp) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	allocs := testing.AllocsPerRun(1000, func() {
		sp := Span{Kind: KindUser, Name: 1, Start: 1, End: 2}
		s.Record(&sp)
	})
	if allocs != 0 {
		t.Fatalf("%v allocations of the span itself", allocs)
	}
}

func TestRingWritesItsCounters(t *testing.T) {
	s := NewSpans(2 * chunkBytes)
	fill(s, 3*perChunk)
	s.Record(&Span{Message: make([]byte, maxMessage+1)})
	s.Resize(0)
	s.Record(plain(1))
	var text strings.Builder
	s.Stats().WritePrometheus(&text, "spans")
	want := fmt.Sprintf(`plinth_telemetry_spans_recorded_total %d
plinth_telemetry_spans_overwritten_total %d
plinth_telemetry_spans_shed_total %d
plinth_telemetry_spans_cleared_total 0
plinth_telemetry_spans_dropped_total 1
plinth_telemetry_spans_cut_total 1
plinth_telemetry_spans_kept 0
plinth_telemetry_spans_bytes 0
plinth_telemetry_spans_limit_bytes 0
`, 3*perChunk+1, 2*perChunk, perChunk+1)
	if text.String() != want {
		t.Fatalf("got\n%s", text.String())
	}
}

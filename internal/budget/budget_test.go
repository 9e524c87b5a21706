package budget

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

// cache is a user of memory that gives up what it is asked for.
type cache struct {
	account *Account
	held    int64
	asked   []int64
}

func (c *cache) open(b *Budget, name string, order int) *cache {
	c.account = b.Account(name, order, func(want int64) int64 {
		c.asked = append(c.asked, want)
		freed := min(want, c.held)
		c.held -= freed
		c.account.Give(freed)
		return freed
	})
	return c
}

func (c *cache) take(n int64) bool {
	if !c.account.Take(n) {
		return false
	}
	c.held += n
	return true
}

func TestTakeStopsAtTheLimit(t *testing.T) {
	b := New(1 << 20)
	a := b.Account("a", 1, nil)
	if !a.Take(1 << 20) {
		t.Fatal("the whole limit was refused")
	}
	if a.Take(1) {
		t.Fatal("one byte over the limit was given")
	}
	if a.Used() != 1<<20 || b.Used() != 1<<20 {
		t.Fatalf("a refusal left %d taken, %d in all", a.Used(), b.Used())
	}
	a.Give(1)
	if !a.Take(1) {
		t.Fatal("what was given back cannot be taken again")
	}
	if row := b.Stats()[0]; row.Refused != 1 || row.Peak != 1<<20 {
		t.Fatalf("got %+v", row)
	}
}

func TestOneAccountLeavesRoomForAnother(t *testing.T) {
	b := New(1 << 20)
	first, second := b.Account("first", 1, nil), b.Account("second", 2, nil)
	first.Take(1<<20 - 10)
	if !second.Take(10) {
		t.Fatal("the last bytes were refused: the first account holds more in advance than it uses")
	}
	first.Give(1<<20 - 10)
	if !second.Take(1<<20 - 10) {
		t.Fatal("what the first account gave back does not reach the second")
	}
}

func TestMemoryIsShedInOrder(t *testing.T) {
	b := New(1 << 20)
	var last, first, middle cache
	last.open(b, "last", 30)
	first.open(b, "first", 10)
	middle.open(b, "middle", 20)
	writer := b.Account("writer", 90, nil)
	for _, c := range []*cache{&last, &first, &middle} {
		if !c.take(256 << 10) {
			t.Fatal("refused below the limit")
		}
	}
	if !writer.Take(256<<10) || len(first.asked) > 0 {
		t.Fatal("something was shed below the limit")
	}
	if !writer.Take(100 << 10) {
		t.Fatal("refused though there is memory to shed")
	}
	if first.held != 156<<10 || middle.held != 256<<10 || last.held != 256<<10 {
		t.Fatalf("left are %d, %d, %d", first.held, middle.held, last.held)
	}
	if !writer.Take(300 << 10) {
		t.Fatal("refused though there is memory to shed")
	}
	if first.held != 0 || middle.held != 112<<10 || last.held != 256<<10 {
		t.Fatalf("left are %d, %d, %d", first.held, middle.held, last.held)
	}
	if writer.Take(1 << 20) {
		t.Fatal("more than the limit was given")
	}
	var names []string
	for _, row := range b.Stats() {
		names = append(names, row.Name)
	}
	if !slices.Equal(names, []string{"first", "middle", "last", "writer"}) {
		t.Fatalf("the order is %v", names)
	}
	if row := b.Stats()[0]; row.Shed != 256<<10 || row.Sheds != 2 {
		t.Fatalf("got %+v", row)
	}
}

func TestNothingIsShedForWhatCannotBeHad(t *testing.T) {
	b := New(1 << 20)
	var c cache
	c.open(b, "cache", 1)
	c.take(512 << 10)
	fixed := b.Account("fixed", 2, nil)
	fixed.Take(512 << 10)
	if fixed.Take(512<<10 + 1) {
		t.Fatal("more than the limit was given")
	}
	if c.held != 512<<10 || len(c.asked) != 0 {
		t.Fatalf("%d bytes are left after a request that no shedding could serve", c.held)
	}
}

func TestAccountsOfOneOrderAreShedAsTheyWereOpened(t *testing.T) {
	b := New(128 << 10)
	var one, two cache
	one.open(b, "one", 5)
	two.open(b, "two", 5)
	one.take(64 << 10)
	two.take(64 << 10)
	b.Account("x", 9, nil).Take(1)
	if len(one.asked) != 1 || len(two.asked) != 0 {
		t.Fatalf("asked %v and %v", one.asked, two.asked)
	}
}

func TestAnAccountMayShedItself(t *testing.T) {
	b := New(256 << 10)
	var ring cache
	ring.open(b, "ring", 1)
	for range 100 {
		if !ring.take(64 << 10) {
			t.Fatal("refused")
		}
	}
	if ring.held != 256<<10 || ring.account.Used() != 256<<10 {
		t.Fatalf("holds %d, %d by the account", ring.held, ring.account.Used())
	}
}

func TestLoweredLimitIsKeptByTheNextTake(t *testing.T) {
	b := New(1 << 20)
	var c cache
	c.open(b, "c", 1)
	c.take(1 << 20)
	b.SetLimit(512 << 10)
	if !b.Account("x", 2, nil).Take(4096) {
		t.Fatal("refused")
	}
	if c.held > 508<<10 || b.Limit() != 512<<10 {
		t.Fatalf("still holds %d", c.held)
	}
}

func TestEmptyBudgetRefuses(t *testing.T) {
	for _, limit := range []int64{0, -5} {
		if New(limit).Account("a", 1, nil).Take(1) {
			t.Fatalf("a limit of %d gave a byte", limit)
		}
	}
}

// Any sequence of operations on any accounts keeps to the plain sum.
func TestBudgetAgreesWithAPlainSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 4*batch).Draw(t, "limit")
		b := New(limit)
		var caches []*cache
		total := func() (sum int64) {
			for _, c := range caches {
				sum += c.held
			}
			return sum
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "accounts") {
			caches = append(caches, new(cache).open(b, fmt.Sprint(i), rapid.IntRange(0, 2).Draw(t, "order")))
			if rapid.Bool().Draw(t, "stubborn") {
				caches[i].account.shed = nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				c := rapid.SampledFrom(caches).Draw(t, "cache")
				n := rapid.Int64Range(0, 2*batch).Draw(t, "n")
				var stubborn int64
				for _, o := range caches {
					if o.account.shed == nil {
						stubborn += o.held
					}
				}
				if ok := c.take(n); ok != (stubborn+n <= limit) {
					t.Fatalf("take %d of %d with %d that stay: %v", n, limit, stubborn, ok)
				}
			},
			"give": func(t *rapid.T) {
				c := rapid.SampledFrom(caches).Draw(t, "cache")
				n := rapid.Int64Range(0, c.held).Draw(t, "n")
				c.held -= n
				c.account.Give(n)
			},
			"": func(t *rapid.T) {
				if got := b.Used(); got != total() || got > limit {
					t.Fatalf("used %d, held %d, limit %d", got, total(), limit)
				}
				for i, a := range b.accounts {
					if a.granted.Load() < a.used.Load() {
						t.Fatalf("account %d was granted less than it uses", i)
					}
				}
				if b.granted > limit {
					t.Fatalf("granted %d of %d", b.granted, limit)
				}
			},
		})
	})
}

// Many goroutines never hold more than the limit together, and nothing is lost or invented.
func TestLimitHoldsUnderConcurrency(t *testing.T) {
	const limit = 1 << 20
	b := New(limit)
	var held atomic.Int64
	var peak atomic.Int64
	var ring struct {
		sync.Mutex
		n int64
	}
	var spans *Account
	spans = b.Account("spans", 1, func(want int64) int64 {
		ring.Lock()
		freed := min(want, ring.n)
		ring.n -= freed
		ring.Unlock()
		held.Add(-freed)
		spans.Give(freed)
		return freed
	})
	accounts := []*Account{b.Account("a", 5, nil), b.Account("b", 6, nil)}
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			mine := map[*Account]int64{}
			for range 5000 {
				if r.IntN(4) == 0 && spans.Take(4096) {
					peak.Store(max(peak.Load(), held.Add(4096)))
					ring.Lock()
					ring.n += 4096
					ring.Unlock()
				}
				a := accounts[r.IntN(2)]
				if n := r.Int64N(60 << 10); r.IntN(2) == 0 && a.Take(n) {
					mine[a] += n
					if now := held.Add(n); now > limit {
						t.Errorf("%d held of %d", now, limit)
					}
				} else {
					n := mine[a]
					mine[a] = 0
					held.Add(-n)
					a.Give(n)
				}
			}
			for a, n := range mine {
				held.Add(-n)
				a.Give(n)
			}
		})
	}
	wait.Wait()
	ring.Lock()
	defer ring.Unlock()
	if b.Used() != ring.n || held.Load() != ring.n {
		t.Fatalf("used %d, held %d, in the ring %d", b.Used(), held.Load(), ring.n)
	}
}

func TestTakeAndGiveDoNotAllocate(t *testing.T) {
	a := New(1<<20).Account("a", 1, nil)
	if n := testing.AllocsPerRun(1000, func() {
		if a.Take(100 << 10) {
			a.Give(100 << 10)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkBudgetTake(b *testing.B) {
	a := New(1<<30).Account("a", 1, nil)
	b.ReportAllocs()
	for b.Loop() {
		a.Take(512)
		a.Give(512)
	}
}

func BenchmarkBudgetTakeParallel(b *testing.B) {
	run := func(b *testing.B, account func() *Account) {
		b.RunParallel(func(pb *testing.PB) {
			a := account()
			for pb.Next() {
				a.Take(512)
				a.Give(512)
			}
		})
	}
	b.Run("one account", func(b *testing.B) {
		a := New(1<<30).Account("a", 1, nil)
		run(b, func() *Account { return a })
	})
	b.Run("an account each", func(b *testing.B) {
		budget := New(1 << 30)
		run(b, func() *Account { return budget.Account("a", 1, nil) })
	})
}

func TestPrometheusTextNamesEveryAccount(t *testing.T) {
	b := New(1 << 20)
	var c cache
	c.open(b, "spans", 10)
	c.take(1 << 20)
	b.Account("queues", 90, nil).Take(1000)
	b.Account("x", 95, nil).Take(2 << 20)
	var text strings.Builder
	b.WritePrometheus(&text)
	const want = `plinth_memory_limit_bytes 1048576
plinth_memory_used_bytes 1048576
plinth_memory_account_bytes{account="spans"} 1047576
plinth_memory_account_peak_bytes{account="spans"} 1048576
plinth_memory_refused_total{account="spans"} 0
plinth_memory_shed_bytes_total{account="spans"} 1000
plinth_memory_sheds_total{account="spans"} 1
plinth_memory_account_bytes{account="queues"} 1000
plinth_memory_account_peak_bytes{account="queues"} 1000
plinth_memory_refused_total{account="queues"} 0
plinth_memory_shed_bytes_total{account="queues"} 0
plinth_memory_sheds_total{account="queues"} 0
plinth_memory_account_bytes{account="x"} 0
plinth_memory_account_peak_bytes{account="x"} 0
plinth_memory_refused_total{account="x"} 1
plinth_memory_shed_bytes_total{account="x"} 0
plinth_memory_sheds_total{account="x"} 0
`
	if text.String() != want {
		t.Errorf("got\n%s", text.String())
	}
}

// Package budget keeps the memory promise: one limit, shared by accounts, and an order in which they
// give memory up when it runs short.
//
// It promises that the accounts together never hold more than the limit, that Take costs one atomic add
// in the common case, and that every refusal and every byte shed is counted. Everything may be called
// from any goroutine, with one rule: a shed function runs on the goroutine of whoever asked for memory,
// so it must not take memory itself, nor wait for a lock that a taker may hold. The package counts what
// it is told; it does not look into the heap, sets nothing global by itself (see Apply), and starts no
// goroutine.
package budget

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// batch is how much an account takes from the budget at a time, so that accounts seldom meet.
const batch = 64 << 10

// Budget is one limit in bytes and the accounts under it.
type Budget struct {
	limit    atomic.Int64
	mu       sync.Mutex // guards what follows, and granted of every account; held for a few loads and stores
	granted  int64      // handed to accounts, at most limit
	accounts []*Account // in the order of shedding

	shedding sync.Mutex // one shedder at a time; taken before mu
}

// New returns a budget without accounts. A limit below one batch (64 KiB) refuses everything.
func New(limit int64) *Budget {
	b := &Budget{}
	b.limit.Store(max(limit, 0))
	return b
}

// Account is one user's share of the budget: what it holds, and what it was granted in advance.
type Account struct {
	used    atomic.Int64 // by the owner
	granted atomic.Int64 // from the budget, at least used but for a moment within Take; written under mu
	_       [48]byte     // accounts of two loops stay off each other's cache line

	budget  *Budget
	name    string
	order   int
	shed    func(int64) int64
	peak    atomic.Int64
	refused atomic.Uint64
	lost    atomic.Uint64 // bytes shed
	times   atomic.Uint64
}

// Account opens an account. Those of a lower order are shed first, those of one order in the order of
// their opening. shed frees about want bytes, calls Give for what it frees, and returns how many bytes
// that were; nil means that this account gives nothing up.
func (b *Budget) Account(name string, order int, shed func(want int64) int64) *Account {
	a := &Account{budget: b, name: name, order: order, shed: shed}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := len(b.accounts)
	for at > 0 && b.accounts[at-1].order > order {
		at--
	}
	b.accounts = slices.Insert(slices.Clone(b.accounts), at, a)
	return a
}

// Take asks for n bytes. Past the limit it sheds, account by account, then refuses; a refusal leaves
// nothing taken.
func (a *Account) Take(n int64) bool {
	used := a.used.Add(n)
	if used <= a.granted.Load() {
		return true
	}
	return a.grow(n)
}

// Give returns n bytes that were taken.
func (a *Account) Give(n int64) {
	if a.granted.Load()-a.used.Add(-n) > 2*batch {
		a.shrink()
	}
}

// Used returns the bytes taken and not given back.
func (a *Account) Used() int64 { return a.used.Load() }

// grow is Take where the grant does not cover it: what Take added goes back, and is added again with
// more granted.
func (a *Account) grow(n int64) bool {
	a.used.Add(-n)
	if a.raise(n) == 0 {
		return true
	}
	b := a.budget
	b.shedding.Lock()
	defer b.shedding.Unlock()
	b.mu.Lock()
	accounts := b.accounts
	b.mu.Unlock()
	b.reclaim(accounts)
	want := a.raise(n)
	if want > shedable(accounts) {
		accounts = nil // all of it would be lost in vain
	}
	for _, victim := range accounts {
		if want == 0 {
			break
		}
		if victim.shed != nil {
			victim.yield(want)
			want = a.raise(n)
		}
	}
	if want > 0 {
		a.refused.Add(1)
	}
	return want == 0
}

// shedable is the most that shedding can free.
func shedable(accounts []*Account) (sum int64) {
	for _, a := range accounts {
		if a.shed != nil {
			sum += a.used.Load()
		}
	}
	return sum
}

// yield has the account shed, and counts.
func (a *Account) yield(want int64) {
	if freed := a.shed(want); freed > 0 {
		a.lost.Add(uint64(freed))
		a.times.Add(1)
	}
	a.lower(0)
}

// raise takes n bytes with as much granted as they need, in batches where the limit allows. It returns
// 0, or how many bytes the budget lacks.
func (a *Account) raise(n int64) int64 {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		used, granted := a.used.Load(), a.granted.Load()
		need, free := used+n-granted, b.limit.Load()-b.granted
		if need > free {
			return need - free
		}
		if need > 0 {
			more := min((need+batch-1)/batch*batch, free)
			b.granted += more
			a.granted.Store(granted + more)
		}
		if a.used.CompareAndSwap(used, used+n) {
			a.peak.Store(max(a.peak.Load(), used+n))
			return 0
		}
	}
}

// shrink returns what an account does not use to the budget, but for one batch.
func (a *Account) shrink() { a.lower(batch) }

// reclaim takes back what accounts hold in advance.
func (b *Budget) reclaim(accounts []*Account) {
	for _, a := range accounts {
		a.lower(0)
	}
}

// lower leaves the account keep bytes more than it uses. The grant goes down before the use is read
// again: a Take that still saw the old grant is then part of that second reading.
func (a *Account) lower(keep int64) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	old := a.granted.Load()
	next := max(a.used.Load(), 0) + keep
	if next >= old {
		return
	}
	a.granted.Store(next)
	if used := a.used.Load(); used > next {
		next = min(used, old)
		a.granted.Store(next)
	}
	b.granted -= old - next
}

// SetLimit changes the limit. What is over a lower one is shed by the Takes that follow.
func (b *Budget) SetLimit(limit int64) { b.limit.Store(max(limit, 0)) }

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit.Load() }

// Used returns the bytes that all accounts hold.
func (b *Budget) Used() (sum int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		sum += a.used.Load()
	}
	return sum
}

// Row is one account as it stands.
type Row struct {
	Name    string
	Order   int
	Used    int64  // bytes
	Peak    int64  // bytes, to within 64 KiB
	Refused uint64 // Takes that were refused
	Shed    uint64 // bytes given up
	Sheds   uint64 // times that something was given up
}

// Stats returns the accounts in the order in which they are shed.
func (b *Budget) Stats() []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := make([]Row, len(b.accounts))
	for i, a := range b.accounts {
		used := a.used.Load()
		rows[i] = Row{a.name, a.order, used, max(a.peak.Load(), used), a.refused.Load(), a.lost.Load(),
			a.times.Load()}
	}
	return rows
}

// WritePrometheus writes the budget and its accounts in the text format of Prometheus.
func (b *Budget) WritePrometheus(w io.Writer) {
	var text strings.Builder
	fmt.Fprintf(&text, "plinth_memory_limit_bytes %d\nplinth_memory_used_bytes %d\n", b.Limit(), b.Used())
	for _, r := range b.Stats() {
		fmt.Fprintf(&text, "plinth_memory_account_bytes{account=%q} %d\n", r.Name, r.Used)
		fmt.Fprintf(&text, "plinth_memory_account_peak_bytes{account=%q} %d\n", r.Name, r.Peak)
		fmt.Fprintf(&text, "plinth_memory_refused_total{account=%q} %d\n", r.Name, r.Refused)
		fmt.Fprintf(&text, "plinth_memory_shed_bytes_total{account=%q} %d\n", r.Name, r.Shed)
		fmt.Fprintf(&text, "plinth_memory_sheds_total{account=%q} %d\n", r.Name, r.Sheds)
	}
	_, _ = io.WriteString(w, text.String()) // the scraper went away: there is nobody to tell
}

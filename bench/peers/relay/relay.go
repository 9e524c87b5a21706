// Package relay is the least that a call through an engine can cost: two hops and nothing else.
//
// It takes worker connections, keeps a table of functions, sends each call to the connection that
// registered its function and the answer back to the caller, and answers pings. Frames of one batch of
// reads leave in one write for each connection. It is what the engine is measured against, so it
// promises nothing that an engine must: no spans, no liveness, no limits, no timeouts, no namespaces.
// Run uses one goroutine for everything.
package relay

import (
	"context"
	"net"
)

// Run serves the connections that come in at l until ctx ends, and closes l.
func Run(ctx context.Context, l *net.TCPListener) error { return run(ctx, l) }

package engine

import (
	"errors"

	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

var errSilent = errors.New("engine: no sign of life")

// beat looks at every connection of a loop once a second: handshakes that take too long, workers that did
// not introduce themselves, silence.
func (e *Engine) beat(l *loop.Loop, n *lane) {
	now, b := l.Now(), &e.bounds
	if n == e.groups[0].lanes[0] {
		e.channels.Sweep(now)
	}
	for i := len(n.conns) - 1; i >= 0; i-- { // closing moves the last one into the gap
		k := n.conns[i]
		idle := now - k.seen
		switch {
		case k.phase == handshaking:
			if now-k.since > int64(b.HandshakeTimeout) {
				k.turnAway(408, "the request head did not arrive in time")
			}
		case k.phase == closed || k.phase == admitting: // an auth function has a deadline of its own
		case k.phase == piping:
			k.pipe.Beat(now)
		case idle > int64(b.DropAfter):
			e.log.Warn("worker dropped: silent", "worker", k.peer.Name(), "id", k.id.String())
			k.teardown()
			k.sock.Close(errSilent)
		default:
			if k.hold != nil && now > k.hold.until {
				e.log.Info("worker did not introduce itself: taken as namespace default", "id", k.id.String())
				k.settle("")
			}
			if idle > int64(b.PingAfter) && now-k.pinged > int64(b.PingAfter) {
				k.pinged = now
				k.control(ws.Ping, nil)
			}
		}
	}
}

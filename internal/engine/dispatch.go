package engine

import (
	"crypto/subtle"

	"github.com/plinth-run/plinth/wire"
)

// registerName is the call by which a worker introduces itself.
const registerName = "engine::workers::register"

// frame handles one frame; raw is its text, for what must be kept.
func (k *conn) frame(f *wire.Frame, raw []byte) {
	switch f.Type {
	case wire.TypeInvocationResult:
		k.result(f)
	case wire.TypeInvokeFunction:
		if !k.announced && k.early(f, raw) {
			return
		}
		k.invoke(f)
	case wire.TypePing:
		k.send(&wire.Frame{Type: wire.TypePong})
	case wire.TypePong:
	case wire.TypeReattach:
		k.reattach(f)
	case wire.TypeTriggerRegistrationResult:
		k.bound(f)
	case wire.TypeRegisterFunction, wire.TypeUnregisterFunction, wire.TypeRegisterService,
		wire.TypeRegisterTriggerType, wire.TypeUnregisterTriggerType, wire.TypeRegisterTrigger,
		wire.TypeUnregisterTrigger:
		if !k.announced {
			k.keep(raw)
			return
		}
		k.registration(f, raw)
	default:
		k.engine.stats.ignored.Add(1)
		k.engine.log.Debug("frame ignored", "worker", k.peer.Name(), "type", f.Type.String())
	}
}

// hold keeps what a worker sends before it has introduced itself: its registrations, which need to know
// the namespace, and the calls that came behind them.
type hold struct {
	frames [][]byte
	bytes  int
	until  int64 // Unix ns; the namespace grace
}

// keep holds a frame back. Past the bounds the worker is taken as it is, in the default namespace.
func (k *conn) keep(raw []byte) {
	e := k.engine
	if k.hold == nil {
		k.hold = &hold{until: k.sock.Loop().Now() + int64(e.bounds.NamespaceGrace)}
	}
	h := k.hold
	h.frames = append(h.frames, append([]byte(nil), raw...))
	h.bytes += len(raw)
	if len(h.frames) > e.bounds.MaxHeldFrames || h.bytes > e.bounds.MaxHeldBytes {
		e.stats.heldFull.Add(1)
		e.log.Warn("worker sends registrations without introducing itself: taken as namespace default",
			"id", k.id.String(), "frames", len(h.frames), "bytes", h.bytes)
		k.settle("")
	}
}

// early decides on a call of a worker that has not introduced itself: its introduction runs at once and
// lets the held frames go; another call waits behind held registrations, so that arrival order holds.
func (k *conn) early(f *wire.Frame, raw []byte) (handled bool) {
	if string(f.FunctionID) == registerName {
		k.invoke(f)
		k.replay()
		return true
	}
	if k.hold == nil {
		return false
	}
	k.keep(raw)
	return true
}

// settle fixes the namespace of a worker for good and applies what was held.
func (k *conn) settle(space string) {
	if !k.announced {
		k.announced, k.space = true, space
		if space == "" {
			k.space = "default"
		}
	}
	k.replay()
}

// replay handles the held frames in the order of their arrival, once the worker is announced. A frame that
// makes the connection wait holds up those behind it.
func (k *conn) replay() {
	if !k.announced || k.hold == nil {
		return
	}
	f := &k.lane.again
	for k.phase == serving && !k.waiting && len(k.hold.frames) > 0 {
		raw := k.hold.frames[0]
		k.hold.frames = k.hold.frames[1:]
		if err := f.Scan(raw); err == nil {
			k.frame(f, raw)
		}
		if k.hold == nil { // the frame ended the connection
			break
		}
	}
	f.Reset()
	if k.hold != nil && len(k.hold.frames) == 0 {
		k.drop()
	}
}

// drop forgets the held frames.
func (k *conn) drop() { k.hold = nil }

// reattach retires the connection that this worker had before, so that its registrations do not collide
// with their own ghosts. The next frame is read only when that is done. A wrong token, an unknown id and
// the connection's own id are ignored.
func (k *conn) reattach(f *wire.Frame) {
	e := k.engine
	id, ok := parseUUID(f.PreviousWorkerID)
	if !ok || id == k.id {
		return
	}
	old := e.find(id)
	token, ok := parseUUID(f.ReattachToken)
	if old == nil || !ok || subtle.ConstantTimeCompare(token[:], old.token[:]) != 1 {
		e.log.Info("reattach ignored", "worker", k.id.String(), "previous", id.String(), "known", old != nil)
		return
	}
	mine, its := k.sock.Loop(), old.sock.Loop()
	if mine == its {
		old.retire()
		return
	}
	done := k.wait()
	its.Post(func() {
		old.retire()
		done(nil)
	})
}

// wait stops reading until the function that it returns is called, once, on any goroutine: what must be
// asked elsewhere first is asked without holding up the loop, and arrival order holds. then runs on the
// connection's loop before the next frame is handled, unless the connection is gone by then.
func (k *conn) wait() (done func(then func())) {
	k.waiting = true
	k.sock.Pause()
	return func(then func()) {
		k.sock.Loop().Post(func() {
			k.waiting = false
			if k.phase == closed {
				return
			}
			if then != nil {
				then()
			}
			k.replay()
			k.resume()
		})
	}
}

// retire ends a connection whose worker has come back on another one.
func (k *conn) retire() {
	k.teardown()
	k.sock.Close(errRetired)
}

package worker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/plinth-run/plinth/wire/ws"
)

// ghostTime is how long an engine may take to notice that a connection is dead: its 90 s and some more.
const ghostTime = 2 * time.Minute

var errSilent = errors.New("worker: no sign of life from the engine")

// Run connects the worker and serves until ctx ends; then it takes no more calls (they are answered with
// DRAINING), finishes the running handlers within Options.Grace, sends what is left to send, and returns nil.
// When it returns, all its goroutines have ended, but for handlers that ignored the end of their context,
// and every call of this worker has its outcome.
//
// It returns an error at once when the engine refuses the name of the worker (ErrWorkerConflict), and when
// Reconnect.MaxAttempts is used up. A Worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("worker: Run was called before")
	}
	w.started = true
	w.mu.Unlock()

	// Handlers outlive ctx by the grace time.
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	if w.opts.Token+w.target.basic != "" && !w.target.secure && !w.target.local && w.opts.Dial == nil {
		w.log.Warn("the token goes over the network in clear text: use a wss URL", "host", w.target.host)
	}
	delivered := make(chan struct{})
	go func() { // ends in stop
		defer close(delivered)
		w.courier(hard)
	}()
	err := w.keep(ctx, hard, giveUp)
	w.stop(hard, giveUp, delivered)
	w.shut()
	w.tell(State{Phase: Closed, Err: err})
	return err
}

// keep holds a connection until ctx ends or connecting again is of no use.
func (w *Worker) keep(ctx, hard context.Context, giveUp func()) error {
	failures := 0
	var served time.Time // when the last good connection ended
	for ctx.Err() == nil {
		w.tell(State{Phase: Connecting, Attempt: failures})
		c, rest, err := w.dial(ctx)
		if err == nil {
			err = w.session(ctx, hard, giveUp, c, rest)
		}
		if ctx.Err() != nil {
			return nil
		}
		var end *fatal
		if errors.As(err, &end) {
			// After a good connection it is more likely its ghost that has our name, one whose greeting never
			// reached us: the engine will find out.
			if served.IsZero() || time.Since(served) > ghostTime {
				return end.err
			}
		} else if c != nil && c.greeted {
			failures = 0
		}
		if c != nil && c.settled {
			served = time.Now()
		}
		failures++
		if most := w.opts.Reconnect.MaxAttempts; most > 0 && failures >= most {
			return fmt.Errorf("worker: gave up after %d attempts: %w", failures, err)
		}
		delay := w.opts.Reconnect.delay(failures, rand.Float64())
		w.log.Warn("no connection to the engine", "address", w.target.address, "attempt", failures,
			"retry_in", delay, "error", err)
		w.tell(State{Phase: Waiting, Attempt: failures, Delay: delay, Err: err})
		if !pause(ctx, delay) {
			return nil
		}
	}
	return nil
}

// pause waits for d; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tell changes the state and reports it. Only the goroutine of Run calls it.
func (w *Worker) tell(s State) {
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
	if w.opts.OnState != nil {
		w.opts.OnState(s)
	}
}

// session serves one connection from its first frames to its end.
func (w *Worker) session(
	ctx, hard context.Context, giveUp func(), c *conn, rest []byte,
) error {
	w.count.connects.Add(1)
	intro := w.introduction()
	w.mu.Lock()
	w.replay(c, intro)
	w.release(c)
	w.conn = c
	w.mu.Unlock()
	c.kick <- struct{}{} // seal has set awake; nobody else sends for it
	c.done.Go(func() { c.read(hard, rest) })
	c.done.Go(c.write)
	w.attend(ctx, hard, giveUp, c)
	c.done.Wait()
	w.detach(c)
	return c.err // reader and writer have ended: its fields are ours
}

// attend watches over a connection until it is over: greeting, silence, and the end of ctx.
func (w *Worker) attend(ctx, hard context.Context, giveUp func(), c *conn) {
	silence := time.NewTimer(pingAfter)
	defer silence.Stop()
	greeted := false
	for {
		select {
		case <-c.down:
			return
		case <-ctx.Done():
			w.drain(hard, giveUp, c)
			c.fail(nil)
			return
		case <-c.news:
			greeted = w.welcome(c, greeted)
		case <-silence.C:
			quiet := time.Duration(w.now() - c.heard.Load())
			if quiet >= dropAfter {
				c.fail(errSilent)
				return
			}
			if quiet >= pingAfter {
				c.control(ws.Ping, nil)
			}
			silence.Reset(pingAfter - quiet%pingAfter)
		}
	}
}

// welcome makes known what the engine has said: first that it let us in, then that it knows our functions, so
// that who waits for the second finds the first.
func (w *Worker) welcome(c *conn, before bool) (greeted bool) {
	w.mu.Lock()
	greeted, settled, id := c.greeted, c.settled, c.id
	w.mu.Unlock()
	if greeted && !before {
		w.log.Info("connected", "address", w.target.address, "worker", w.opts.Name, "id", id)
		w.tell(State{Phase: Connected, WorkerID: id})
	}
	if settled {
		w.mu.Lock()
		if !w.isReady {
			w.isReady = true
			close(w.ready)
		}
		w.mu.Unlock()
	}
	return greeted
}

// detach takes a connection that is over out of use: what it did not send waits for the next one.
func (w *Worker) detach(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost := w.salvage(behind(c.sending, c.sent), c.out)
	w.count.lost.Add(uint64(lost))
	c.out, c.sending, w.conn = nil, nil, nil
	w.bound.age()
	if w.isReady {
		w.ready, w.isReady = make(chan struct{}), false
	}
	w.room.Broadcast()
}

// behind returns the frames of b that were not sent whole when only the first n bytes were sent.
func behind(b []byte, n int) []byte {
	at := 0
	for at < n {
		size := frameSize(b[at:])
		if size == 0 || at+size > n {
			break
		}
		at += size
	}
	return b[at:]
}

// frameSize returns the size of the masked frame at the start of b, 0 if there is none.
func frameSize(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	size, at := int(b[1]&0x7f), 2
	switch {
	case size == 126 && len(b) >= 4:
		size, at = int(binary.BigEndian.Uint16(b[2:])), 4
	case size == 127 && len(b) >= 10:
		size, at = int(binary.BigEndian.Uint64(b[2:])), 10
	}
	return at + 4 + size
}

// introduction is what the worker says of itself.
func (w *Worker) introduction() []byte {
	p := introduction{Runtime: "go", Version: Version, Name: w.opts.Name, Description: w.opts.Description,
		OS: runtime.GOOS + " (" + runtime.GOARCH + ")", PID: os.Getpid(), Namespace: w.opts.Namespace,
		Features: []string{"caller"}}
	if w.opts.Anonymous {
		p.PID = 0
	}
	if s := os.Getenv("III_ISOLATION"); s != "" {
		p.Isolation = &s
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return []byte("{}") // cannot be: texts and a number
	}
	return raw
}

// shut ends every call that still waits and lets nothing new in.
func (w *Worker) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.table.end(func(c *call) (outcome, bool) { return closed, true })
	w.queue = queue{}
	w.sweeper.Stop()
	w.reg.Lock()
	w.functions = map[string]*function{}
	w.reg.Unlock()
	w.order, w.kinds, w.triggers = nil, nil, nil
	if !w.isReady {
		w.isReady = true
		close(w.ready)
	}
}

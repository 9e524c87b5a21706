package worker

import (
	"strconv"
	"time"

	"github.com/plinth-run/plinth/wire"
)

// A call's invocation id is its place in the table and how often the place was used, in hexadecimal: the
// result finds its call without a map, and a late one finds that the place has moved on.
const (
	slotBits = 20
	maxSlots = 1 << slotBits
)

// outcome is how a call ended, for its caller to put into words.
type outcome uint8

const (
	succeeded outcome = iota
	failed            // raw is the error
	timedOut          // by the worker's own timer
	unknown           // the connection broke after it was sent
	closed            // the worker ended before it was sent
	tooLarge          // the result was
)

// call is one call that waits. Who takes it out of the table sets the outcome and sends to done, once;
// before that, fields but done belong to Worker.mu.
type call struct {
	done     chan struct{} // capacity 1, used again
	deadline int64         // on the worker's clock; 0: none
	held     int           // bytes in the offline queue; 0: sent, or on its way
	borrow   bool          // the caller only looks at the result: it may lie in buf

	outcome outcome
	raw     []byte // result or error; nil: absent
	buf     []byte

	frame wire.Frame // scratch for checking and encoding
	text  []byte     // scratch
}

const keepBytes = 64 << 10 // scratch that is kept for the next call; more was for a rare large one

func newCall() any { return &call{done: make(chan struct{}, 1)} }

// reset makes a call ready to be used again.
func (c *call) reset() {
	if cap(c.buf) > keepBytes {
		c.buf = nil
	}
	c.frame.Data, c.frame.Metadata = nil, nil // the caller's bytes
	c.raw, c.outcome, c.deadline, c.held, c.borrow = nil, succeeded, 0, 0, false
}

// table holds the calls that wait.
type table struct {
	slots []slot
	free  uint32 // index+1 of the first free slot; 0: none
	live  int
	limit int
}

type slot struct {
	call *call
	gen  uint32
	next uint32 // of the free list, index+1
}

// put files a call. ok is false when the table is full.
func (t *table) put(c *call) (id uint64, ok bool) {
	i := t.free
	switch {
	case i != 0:
		t.free = t.slots[i-1].next
	case len(t.slots) < t.limit:
		t.slots = append(t.slots, slot{})
		i = uint32(len(t.slots))
	default:
		return 0, false
	}
	s := &t.slots[i-1]
	s.call, s.next = c, 0
	s.gen++
	t.live++
	return uint64(s.gen)<<slotBits | uint64(i-1), true
}

// get returns the call of an id, nil if it does not wait any more.
func (t *table) get(id uint64) *call {
	i := id & (maxSlots - 1)
	if i >= uint64(len(t.slots)) {
		return nil
	}
	if s := &t.slots[i]; s.call != nil && uint64(s.gen) == id>>slotBits {
		return s.call
	}
	return nil
}

// take is get, and the call leaves the table.
func (t *table) take(id uint64) *call {
	c := t.get(id)
	if c != nil {
		t.clear(int(id & (maxSlots - 1)))
	}
	return c
}

func (t *table) clear(i int) {
	s := &t.slots[i]
	s.call, s.next = nil, t.free
	t.free = uint32(i + 1)
	t.live--
}

// end takes the calls out for which pick returns true and ends them with the outcome pick returns.
func (t *table) end(pick func(c *call) (outcome, bool)) (n int) {
	for i := range t.slots {
		c := t.slots[i].call
		if c == nil {
			continue
		}
		if o, ok := pick(c); ok {
			t.clear(i)
			c.outcome = o
			c.done <- struct{}{}
			n++
		}
	}
	return n
}

func appendID(dst []byte, id uint64) []byte { return strconv.AppendUint(dst, id, 16) }

// parseID reads what appendID wrote; ok is false for all other texts.
func parseID(b []byte) (id uint64, ok bool) {
	if len(b) == 0 || len(b) > 16 || b[0] == '0' {
		return 0, false
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			id = id<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			id = id<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return id, true
}

// now is the worker's clock: nanoseconds since New, at least 1.
func (w *Worker) now() int64 { return int64(time.Since(w.born)) + 1 }

// limit gives a call a deadline on the worker's clock. Caller holds mu. There is no timer a call: one timer
// stands at the earliest deadline that was known when it last ran, so that calls which end in time, nearly
// all, cost one comparison.
func (w *Worker) limit(c *call, timeout time.Duration) {
	c.deadline = w.now() + int64(timeout)
	if w.sweepAt == 0 || c.deadline < w.sweepAt {
		w.sweepAt = c.deadline
		w.sweeper.Reset(timeout)
	}
}

// sweep ends the calls whose time is up. It runs on the goroutine of the timer, which ends with it; the
// timer is stopped when the worker closes.
func (w *Worker) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, next := w.now(), int64(0)
	w.table.end(func(c *call) (outcome, bool) {
		switch {
		case c.deadline == 0:
		case c.deadline <= now:
			w.queue.dead += c.held
			return timedOut, true
		case next == 0 || c.deadline < next:
			next = c.deadline
		}
		return 0, false
	})
	w.sweepAt = next
	if next != 0 && !w.closed {
		w.sweeper.Reset(max(time.Duration(next-now), time.Millisecond))
	}
}

// finish hands a result to the call that waits for it.
func (w *Worker) finish(f *wire.Frame) {
	id, ok := parseID(f.InvocationID)
	if !ok {
		w.count.late.Add(1)
		return
	}
	w.mu.Lock()
	c := w.take(id)
	w.mu.Unlock()
	if c == nil {
		w.count.late.Add(1)
		return
	}
	raw := f.Result
	if f.Failed() {
		c.outcome, raw = failed, f.Error
	}
	switch {
	case raw == nil:
	case c.borrow && c.outcome == succeeded:
		c.buf = append(c.buf[:0], raw...)
		c.raw = c.buf
	default:
		c.raw = append(make([]byte, 0, len(raw)), raw...)
	}
	c.done <- struct{}{}
}

// take takes a call out of the table. Caller holds mu.
func (w *Worker) take(id uint64) *call {
	c := w.table.take(id)
	if c != nil {
		w.queue.dead += c.held
	}
	return c
}

package fn

import (
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
)

// sweepEvery is how often deadlines are looked at: a call may end this much after its deadline.
const sweepEvery = 250 * time.Millisecond

// table holds the calls that are parked. A slot is found by the low half of an id and is right only while
// its generation is the high half, so a late or made-up answer finds nothing.
type table struct {
	mu    sync.Mutex // guards everything below, and the call lists of every Peer
	slots []slot
	free  []uint32
	live  int
}

type slot struct {
	call     *Call
	deadline int64
	gen      uint32
}

func (t *table) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// Park keeps a call under way beyond Invoke, on behalf of host, and returns the id by which it can be
// completed. When host or caller is over its bound the call is finished with a typed error instead and ok
// is false: the target then returns without another word.
//
// From here on the record is the registry's: the call may end at any moment (its deadline, a peer that
// leaves), so the target reads what it needs from c before it parks. The borrowed bytes stay valid until
// Invoke returns. cancel, when not nil, runs once when the call ends, whatever ended it; it must not block.
func (c *Call) Park(host *Peer, cancel func()) (id uint64, ok bool) {
	r := c.registry
	deadline := c.Deadline
	if deadline == 0 && r.cfg.Ceiling > 0 {
		deadline = c.start + int64(r.cfg.Ceiling)
	}
	t := &r.calls
	t.mu.Lock()
	if err := r.bound(c.Caller, host); err != nil {
		t.mu.Unlock()
		r.stats.refused.Add(1)
		c.Finish(Outcome{Err: err})
		return 0, false
	}
	c.cancel, c.host = cancel, host
	id = t.put(c, deadline)
	if c.ref != nil {
		*c.ref = id
	}
	host.hosted.add(c, asHosted)
	c.Caller.made.add(c, asMade)
	t.mu.Unlock()
	return id, true
}

// bound is asked with the table locked.
func (r *Registry) bound(caller, host *Peer) *fault.Error {
	switch {
	case host.gone:
		return stopped(host)
	case caller.gone:
		return stopped(caller)
	case host.hosted.n >= r.cfg.MaxInFlight:
		return fault.Newf(fault.Limit, wire.CodeHostOverloaded,
			"worker %s already runs %d calls, its limit; retry later or add a replica",
			host.Name(), host.hosted.n)
	case caller.made.n >= r.cfg.MaxMade:
		return fault.Newf(fault.Limit, wire.CodeCallerOverloaded,
			"caller %s already has %d calls under way, its limit", caller.Name(), caller.made.n)
	}
	return nil
}

func (t *table) put(c *Call, deadline int64) uint64 {
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	s := &t.slots[i]
	s.gen++
	s.call, s.deadline = c, deadline
	c.slot = i
	t.live++
	return uint64(s.gen)<<32 | uint64(i)
}

// take removes the call from the table and from both peers' lists.
func (t *table) take(c *Call) {
	s := &t.slots[c.slot]
	s.call = nil
	t.free = append(t.free, c.slot)
	t.live--
	c.host.hosted.remove(c, asHosted)
	c.Caller.made.remove(c, asMade)
}

// find returns the parked call of an id.
func (t *table) find(id uint64) *Call {
	i := uint32(id)
	if uint64(i) >= uint64(len(t.slots)) {
		return nil
	}
	s := &t.slots[i]
	if s.call == nil || s.gen != uint32(id>>32) {
		return nil
	}
	return s.call
}

// Complete gives a parked call its outcome. host must be the peer that it was parked for, so that one
// worker cannot answer another's calls; l is the loop that the answer came in on, nil on a goroutine.
// It returns false, and counts, when nobody waits under that id: late, twice, or made up.
func (r *Registry) Complete(l *loop.Loop, id uint64, host *Peer, o Outcome) bool {
	t := &r.calls
	t.mu.Lock()
	c := t.find(id)
	if c == nil || c.host != host {
		t.mu.Unlock()
		r.stats.late.Add(1)
		return false
	}
	t.take(c)
	t.mu.Unlock()
	c.Loop = l
	c.settle(o)
	c.release()
	return true
}

// Abandon ends a parked call that its caller gave up: the outcome is err and nobody is told. It returns
// false when the call has just been completed, so that its outcome is on its way.
func (r *Registry) Abandon(id uint64, caller *Peer, err *fault.Error) bool {
	t := &r.calls
	t.mu.Lock()
	c := t.find(id)
	if c == nil || c.Caller != caller {
		t.mu.Unlock()
		return false
	}
	t.take(c)
	t.mu.Unlock()
	c.Loop, c.Done = nil, nil
	c.settle(Outcome{Err: err})
	c.release()
	return true
}

// sweep fails the calls whose deadline has passed.
func (r *Registry) sweep(now int64) {
	for _, c := range r.takeAll(func(s *slot) bool { return s.deadline != 0 && s.deadline < now }) {
		r.stats.timeout.Add(1)
		took := time.Duration(now - c.start).Round(time.Millisecond)
		c.end(Outcome{Err: fault.Newf(fault.Timeout, wire.CodeInvocationTimeout,
			"%s gave no answer within %s", c.Function.Name, took)})
	}
}

// drain fails everything that is still under way.
func (r *Registry) drain() {
	for _, c := range r.takeAll(func(*slot) bool { return true }) {
		c.end(Outcome{Err: fault.New(fault.Unavailable, wire.CodeDraining,
			"the engine stopped before the call was answered")})
	}
	r.running.close()
}

func (r *Registry) takeAll(which func(*slot) bool) (taken []*Call) {
	t := &r.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		if s := &t.slots[i]; s.call != nil && which(s) {
			c := s.call
			t.take(c)
			taken = append(taken, c)
		}
	}
	return taken
}

// end settles a call that was taken out of the table by the registry itself.
func (c *Call) end(o Outcome) {
	c.Loop = nil
	c.settle(o)
	c.release()
}

// Leave takes a peer out: its functions go, the calls that it hosts fail with invocation_stopped, the
// calls that it made are dropped. It is complete when it returns, and doing it twice does nothing. l is the
// loop that the caller runs on, nil on a goroutine.
func (r *Registry) Leave(l *loop.Loop, p *Peer) {
	r.RemoveAll(p)
	hosted, made := r.takeOut(p)
	if len(hosted)+len(made) > 0 {
		o := Outcome{Err: stopped(p)}
		e := ending{at: telemetry.Now()}
		r.explain(&e, o)
		for _, c := range append(made, hosted...) {
			if c.Caller == p {
				c.Done = nil // it is not there to be told
			}
			c.Loop = l
			c.close(o, &e)
			c.release()
		}
	}
	r.names.Release(p.span.Swap(0))
}

// takeOut empties the lists of a peer and lets it have no new calls.
func (r *Registry) takeOut(p *Peer) (hosted, made []*Call) {
	t := &r.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	p.gone = true
	if p.hosted.n > 0 {
		hosted = make([]*Call, 0, p.hosted.n)
	}
	for c := p.hosted.head; c != nil; c = p.hosted.head {
		hosted = append(hosted, c)
		t.take(c)
	}
	for c := p.made.head; c != nil; c = p.made.head {
		made = append(made, c)
		t.take(c)
	}
	return hosted, made
}

func stopped(p *Peer) *fault.Error {
	return fault.New(fault.Unavailable, wire.CodeInvocationStopped,
		"worker "+p.Name()+" disconnected while the call ran; whether it took effect is not known")
}

// Under reports how many calls a peer hosts and how many it has made that are not answered.
func (r *Registry) Under(p *Peer) (hosted, made int) {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	return p.hosted.n, p.made.n
}

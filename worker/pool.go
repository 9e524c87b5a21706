package worker

import "sync"

// pool runs jobs on goroutines that are used again, at most limit at a time; further jobs wait, in order.
//
// A runner that finds more jobs behind its own wakes one other before it starts, never more: while handlers
// return quickly one runner takes a whole batch without a change of goroutines, and as soon as one blocks,
// the woken one goes on and wakes the next. The runner that was used last is woken first: its stack is warm.
//
// Worker.Run owns the runners; close ends them.
type pool struct {
	run       func(*job)
	limit     int // runners that run at a time
	waiting   int // jobs that wait when all of them do
	waitBytes int // payload bytes of jobs that wait

	mu     sync.Mutex // guards all below
	queue  ring
	bytes  int // in queue
	idle   []*runner
	alive  int  // runners
	busy   int  // of them, in a job
	waking bool // a runner was woken and has not looked for a job yet
	closed bool
	calm   chan struct{} // capacity 1: a token is put in when busy and queue have become 0, or alive
}

// keepIdle is how many idle runners are kept; more were for a burst of slow handlers.
const keepIdle = 64

type runner struct{ wake chan struct{} } // capacity 1

func newPool(limit, waiting, waitBytes int, run func(*job)) *pool {
	return &pool{run: run, limit: limit, waiting: waiting, waitBytes: waitBytes, calm: make(chan struct{}, 1)}
}

// add takes jobs in order and returns how many: the others find no room.
func (p *pool) add(jobs []*job) (taken int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	for _, j := range jobs {
		over := p.busy + p.queue.n - p.limit // jobs that wait for another to end
		if over >= p.waiting || over >= 0 && p.bytes > 0 && p.bytes+j.size() > p.waitBytes {
			break
		}
		p.queue.push(j)
		p.bytes += j.size()
		taken++
	}
	if taken > 0 {
		p.rouse()
	}
	return taken
}

// rouse wakes a runner, or starts one, unless one is on its way already. Caller holds mu.
func (p *pool) rouse() {
	if p.waking {
		return
	}
	if n := len(p.idle); n > 0 {
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.waking = true
		r.wake <- struct{}{}
		return
	}
	if p.alive < p.limit {
		p.alive++
		p.waking = true
		go p.live(&runner{wake: make(chan struct{}, 1)})
	}
}

// live is the life of a runner. It begins as one that was woken.
func (p *pool) live(r *runner) {
	ended := false
	defer func() {
		if !ended { // the handler ended its goroutine with runtime.Goexit: another takes its place
			p.mu.Lock()
			p.busy--
			p.leave()
			p.mu.Unlock()
		}
	}()
	p.mu.Lock()
	p.waking = false
	for {
		j := p.queue.pop()
		if j == nil {
			if p.closed || len(p.idle) >= keepIdle {
				ended = true
				p.leave()
				p.mu.Unlock()
				return
			}
			p.idle = append(p.idle, r)
			p.mu.Unlock()
			<-r.wake
			p.mu.Lock()
			p.waking = false
			continue
		}
		p.bytes -= j.size()
		p.busy++
		if p.queue.n > 0 {
			p.rouse()
		}
		p.mu.Unlock()
		p.run(j)
		p.mu.Lock()
		p.busy--
		p.signal()
	}
}

// leave takes a runner out. Caller holds mu.
func (p *pool) leave() {
	p.alive--
	if p.queue.n > 0 {
		p.rouse()
	}
	p.signal()
}

// signal puts a token into calm if there is nothing to do any more. Caller holds mu.
func (p *pool) signal() {
	if p.busy == 0 && p.queue.n == 0 {
		select {
		case p.calm <- struct{}{}:
		default:
		}
	}
}

// quiet reports whether no job runs or waits.
func (p *pool) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy == 0 && p.queue.n == 0
}

func (p *pool) size() (running, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy, p.queue.n
}

// clear takes the jobs out that wait.
func (p *pool) clear() (left []*job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := p.queue.pop(); j != nil; j = p.queue.pop() {
		left = append(left, j)
	}
	p.bytes = 0
	return left
}

// close takes no more jobs, returns those that wait, and ends the runners: those in a job end after it.
// It waits for the others, and returns how many are still in a job.
func (p *pool) close() (left []*job, stuck int) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	left = p.clear()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.idle {
		r.wake <- struct{}{}
	}
	p.idle = nil
	for p.busy == 0 && p.alive > 0 {
		p.mu.Unlock()
		<-p.calm
		p.mu.Lock()
	}
	return left, p.busy
}

// ring is a queue of jobs that grows.
type ring struct {
	jobs []*job // length is a power of two
	head int
	n    int
}

func (r *ring) push(j *job) {
	if r.n == len(r.jobs) {
		jobs := make([]*job, max(64, 2*len(r.jobs)))
		for i := range r.n {
			jobs[i] = r.jobs[(r.head+i)&(len(r.jobs)-1)]
		}
		r.jobs, r.head = jobs, 0
	}
	r.jobs[(r.head+r.n)&(len(r.jobs)-1)] = j
	r.n++
}

// pop returns the oldest job, nil if there is none.
func (r *ring) pop() *job {
	if r.n == 0 {
		return nil
	}
	p := &r.jobs[r.head]
	j := *p
	*p = nil
	r.head = (r.head + 1) & (len(r.jobs) - 1)
	r.n--
	return j
}

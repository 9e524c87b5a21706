package load

// Conn is one connection of the generator. It belongs to the goroutine that runs the generator.
type Conn struct {
	gen     *Generator
	role    Role
	index   int
	speaker Speaker

	in    []byte // bytes of a frame that is not whole yet
	out   []byte // not yet sent
	dirty bool   // listed in gen.dirty
	open  int    // calls that wait for an answer here
	mark  bool   // Synced was called
	asked int64  // calls that it was to host, within the window

	queue *queue // of a host that takes its time; nil: answers at once
	peer  peer
}

// Detached returns a connection of no load, for the tests of a Speaker: what it sends goes nowhere,
// and every answer that it is told of is a stray.
func Detached(s Speaker) *Conn {
	return &Conn{gen: &Generator{job: &Job{}, rec: newRecorder()}, speaker: s}
}

// Send queues bytes that are no call and no answer.
func (c *Conn) Send(b []byte) {
	c.out = append(c.out, b...)
	c.touch()
}

// Asked tells of a call that this connection hosts. An empty token wants no answer.
func (c *Conn) Asked(token, name, payload []byte) {
	c.asked++
	if len(token) == 0 {
		return
	}
	if c.queue != nil {
		c.queue.push(c.gen.now, token, name, payload)
		return
	}
	c.out = c.speaker.Answer(c.out, token, name, payload)
	c.touch()
}

// Answered tells of the answer to call id: a code means that it failed.
func (c *Conn) Answered(id uint64, code, payload []byte) { c.gen.answered(c, id, code, payload) }

// Synced tells that the server has read all that this connection sent before its last greeting.
func (c *Conn) Synced() { c.mark = true }

// touch has what was appended sent: at once by a plain client, else after the batch of reads.
func (c *Conn) touch() {
	if c.gen.job.Plain && c.role != Idle {
		c.gen.write(c)
		return
	}
	if !c.dirty {
		c.dirty = true
		c.gen.dirty = append(c.gen.dirty, c)
	}
}

// receive feeds bytes that came in. b is the transport's and may be changed.
func (c *Conn) receive(b []byte) error {
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	used, err := c.speaker.Feed(c, b)
	if err != nil {
		return err
	}
	c.in = append(c.in[:0], b[used:]...)
	if len(c.in) == 0 && c.role == Idle {
		c.in = nil
	}
	return nil
}

// queue is a host that serves one call at a time and takes a fixed time for each.
type queue struct {
	service int64
	jobs    []work
	head    int
	next    int64 // when the job at head is done
}

type work struct{ token, name, payload []byte }

func (q *queue) push(now int64, token, name, payload []byte) {
	if q.head == len(q.jobs) {
		q.jobs, q.head = q.jobs[:0], 0
		q.next = max(q.next, now) + q.service
	}
	if q.head > 1024 && q.head > len(q.jobs)/2 {
		n := copy(q.jobs, q.jobs[q.head:])
		clear(q.jobs[n:])
		q.jobs, q.head = q.jobs[:n], 0
	}
	b := make([]byte, 0, len(token)+len(name)+len(payload))
	b = append(append(append(b, token...), name...), payload...)
	t, n := len(token), len(token)+len(name)
	q.jobs = append(q.jobs, work{b[:t], b[t:n], b[n:]})
}

// due returns when the next answer is ready; 0: none is under way.
func (q *queue) due() int64 {
	if q.head == len(q.jobs) {
		return 0
	}
	return q.next
}

// pop returns a job that is done by now.
func (q *queue) pop(now int64) (work, bool) {
	if q.head == len(q.jobs) || now < q.next {
		return work{}, false
	}
	w := q.jobs[q.head]
	q.jobs[q.head] = work{}
	q.head++
	if q.head == len(q.jobs) {
		q.jobs, q.head = q.jobs[:0], 0
	} else {
		q.next += q.service
	}
	return w, true
}

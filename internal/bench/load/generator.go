package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Generator drives the connections of one job from one goroutine, the one that calls run.
type Generator struct {
	job   *Job
	wires transport
	epoch time.Time
	now   int64 // since epoch, read once for each batch of bytes

	callers, hosts []*Conn
	dirty          []*Conn // have bytes to send
	spare          []*Conn // the other list of dirty ones, being sent
	slow           []*Conn // hosts that take their time

	payload []byte
	slots   []slot
	free    []uint32 // slots without a call, for an open loop
	open    int      // slots with one
	started int64    // calls made since the beginning, probes included
	turn    int      // function of the next call
	again   []uint32 // slots whose call a probe must repeat
	left    int      // probes without a good answer

	mode   mode
	target int     // slots of a closed loop
	gap    float64 // nanoseconds between calls of an open one
	due    float64 // when its next call is

	rec    *recorder
	writes int64
	late   int64 // the most a due call waited
	stray  int64
	err    error // of a connection; ends the job
}

type mode uint8

const (
	draining mode = iota // no new calls
	probing              // each function from each caller, until it answers
	closed               // a new call for each answer
	paced                // a new call when it is due
)

// slot is one call in flight.
type slot struct {
	start    int64
	caller   *Conn
	function int
	turn     uint32 // of this slot; an answer to an older one is a stray
	busy     bool
}

// maxOpen bounds what an open loop keeps; past it a due call fails with CodeBacklog.
const maxOpen = 1 << 20

// drainTime is how long the last calls of a step may take before they count as lost.
const drainTime = 15 * time.Second

var errNoCallers = errors.New("a load needs at least one caller and one host")

// transport moves bytes between the connections and the network.
type transport interface {
	// add takes over an open connection and sets c.peer.
	add(c *Conn, conn net.Conn) error
	// wait hands over what came in, at least one batch if there is one, and returns by the moment
	// until (since the epoch). b may be changed and is valid during the call only.
	wait(until time.Duration, ready func(c *Conn, b []byte, err error)) error
	close()
}

// peer is the transport's side of a connection.
type peer interface {
	// send sends what it can of c.out and sees to the rest.
	send(c *Conn)
}

// newGenerator connects what the job asks for.
func newGenerator(ctx context.Context, job *Job, dial Dial) (*Generator, error) {
	g := &Generator{job: job, epoch: time.Now(), payload: Payload(job.Payload), rec: newRecorder()}
	var err error
	if g.wires, err = newTransport(job.Portable, g.epoch); err != nil {
		return nil, err
	}
	for _, side := range []struct {
		role Role
		n    int
		to   *[]*Conn
	}{{Host, job.Hosts, &g.hosts}, {Caller, job.Callers, &g.callers}} {
		for i := range side.n {
			c, err := g.connect(ctx, dial, side.role, i)
			if err != nil {
				g.wires.close()
				return nil, err
			}
			*side.to = append(*side.to, c)
			if side.role == Host && job.Service > 0 {
				c.queue = &queue{service: int64(job.Service)}
				g.slow = append(g.slow, c)
			}
		}
	}
	return g, nil
}

// connect opens one connection and queues its greeting.
func (g *Generator) connect(ctx context.Context, dial Dial, role Role, index int) (*Conn, error) {
	target := g.job.target(role)
	link, err := dial(ctx, target, role, index)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", plain(target), err)
	}
	c := &Conn{gen: g, role: role, index: index, speaker: link.Speaker}
	if err := g.wires.add(c, link.Conn); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", plain(target), err)
	}
	if len(link.Rest) > 0 {
		if err := c.receive(slices.Clone(link.Rest)); err != nil {
			return nil, fmt.Errorf("connect to %s: %w", plain(target), err)
		}
	}
	c.out = append(c.out, link.Greet...)
	g.write(c)
	return c, nil
}

// Payload returns a JSON string of n bytes, the quotes included.
func Payload(n int) []byte {
	return []byte(`"` + strings.Repeat("plinth bench ", n/13+1)[:max(n-2, 0)] + `"`)
}

func (g *Generator) clock() int64 { return int64(time.Since(g.epoch)) }

// issue starts a call on a free slot.
func (g *Generator) issue(i uint32, caller *Conn, function int, start int64) {
	s := &g.slots[i]
	s.start, s.caller, s.function, s.busy = start, caller, function, true
	s.turn++
	g.open++
	g.started++
	caller.open++
	caller.out = caller.speaker.Call(caller.out, function, uint64(s.turn)<<32|uint64(i), g.payload)
	caller.touch()
}

// next starts the next call of a load on a free slot.
func (g *Generator) next(i uint32, start int64) {
	g.turn++
	g.issue(i, g.callers[int(i)%len(g.callers)], g.turn%len(g.hosts), start)
}

// answered takes the answer to a call.
func (g *Generator) answered(c *Conn, id uint64, code, payload []byte) {
	i := uint32(id)
	if int(i) >= len(g.slots) {
		g.stray++
		return
	}
	s := &g.slots[i]
	if !s.busy || s.turn != uint32(id>>32) || s.caller != c {
		g.stray++
		return
	}
	s.busy = false
	g.open--
	c.open--
	if g.mode == probing {
		g.probed(i, code)
		return
	}
	switch {
	case len(code) > 0:
		g.rec.fail(code)
	case !bytes.Equal(payload, g.payload):
		g.rec.fail([]byte(CodeDiffers))
	default:
		g.rec.ok(g.now - s.start)
	}
	switch {
	case g.mode == closed && int(i) < g.target:
		g.next(i, g.now)
	case g.mode == paced:
		g.free = append(g.free, i)
	}
}

// pace starts the calls of an open loop that are due.
func (g *Generator) pace() {
	for g.due <= float64(g.now) {
		start := int64(g.due)
		g.due += g.gap
		g.late = max(g.late, g.now-start)
		switch {
		case len(g.free) > 0:
			i := g.free[len(g.free)-1]
			g.free = g.free[:len(g.free)-1]
			g.next(i, start)
		case len(g.slots) < maxOpen:
			g.slots = append(g.slots, slot{})
			g.next(uint32(len(g.slots)-1), start)
		default:
			g.rec.fail([]byte(CodeBacklog))
		}
	}
}

// serve answers the calls that slow hosts are done with.
func (g *Generator) serve() {
	for _, c := range g.slow {
		for {
			w, ok := c.queue.pop(g.now)
			if !ok {
				break
			}
			c.out = c.speaker.Answer(c.out, w.token, w.name, w.payload)
			c.touch()
		}
	}
}

func (g *Generator) write(c *Conn) {
	g.writes++
	c.peer.send(c)
}

func (g *Generator) flush() {
	g.dirty, g.spare = g.spare[:0], g.dirty
	for _, c := range g.spare {
		c.dirty = false
		if len(c.out) > 0 {
			g.write(c)
		}
	}
}

// ready takes bytes of a connection, or its end.
func (g *Generator) ready(c *Conn, b []byte, err error) {
	g.now = g.clock()
	if err == nil {
		err = c.receive(b)
	}
	if err != nil && g.err == nil {
		g.err = fmt.Errorf("%s %d: %w", c.role, c.index, err)
	}
}

// String returns the name of the role.
func (r Role) String() string {
	switch r {
	case Caller:
		return "caller"
	case Host:
		return "host"
	}
	return "idle worker"
}

// wake is how often a quiet generator looks at its context.
const wake = int64(100 * time.Millisecond)

// spin runs the loop until the moment until, or until done says so; done may be nil.
func (g *Generator) spin(ctx context.Context, until int64, done func() bool) error {
	for {
		g.now = g.clock()
		if g.mode == paced {
			g.pace()
		}
		g.serve()
		g.flush()
		if g.err != nil {
			return g.err
		}
		if g.now >= until || (done != nil && done()) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		stop := min(until, g.now+wake)
		if g.mode == paced {
			stop = min(stop, int64(g.due)+1)
		}
		for _, c := range g.slow {
			if at := c.queue.due(); at > 0 {
				stop = min(stop, at)
			}
		}
		if err := g.wires.wait(time.Duration(stop), g.ready); err != nil {
			return err
		}
	}
}

// Package channel joins two WebSocket connections to a pipe: what a writer sends, bytes as binary and
// messages as text, a reader gets, through the engine and in the same order (protocol section 12).
//
// It promises: a channel holds at most Options.BufferBytes and the bytes of one read, however large a
// message is, as long ones go on in fragments while they come; a writer that is faster than its reader is
// held back by TCP and goes on when the reader has caught up; only a stream whose writer said that it is
// complete ends with 1000 at the reader, and one that was cut off never does; an access key opens one
// direction once; what nobody fetches is swept. Messages that were taken from a writer and never reached
// the queue of a reader are counted.
//
// Hub may be used by any goroutine, and owners and both ends of a channel may live on different loops and
// groups of loops. The methods of an End belong to the loop of its connection, Open to whoever took it.
//
// It does not: answer HTTP (the engine does), look into what passes but for UTF-8 in text, keep anything
// on disk, reconnect, or log.
package channel

import (
	"container/list"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

const (
	fewMessages  = 64   // that wait for a reader, unless the creator says otherwise
	manyMessages = 1024 // at most
)

// Options say how a Hub works. Zero values are replaced by the defaults given here.
type Options struct {
	PerOwner    int           // channels of one owner: 1,000
	Total       int           // channels: 10,000
	BufferBytes int           // bytes of a channel past which its writer is not read: 1 MiB
	MaxMessage  int64         // bytes of a message; the writer of a larger one is closed with 1009: 64 MiB
	Untaken     time.Duration // time for both ends to be opened: 5 minutes
	PingAfter   time.Duration // silence of an end after which it is pinged: 30 s
	DropAfter   time.Duration // silence of an end after which it is dropped: 90 s

	Take func(int64) bool // asks for memory for frames that wait, in bytes; nil: granted; must not block
	Give func(int64)      // gives n bytes back
	Now  func() int64     // ns since the Unix epoch; nil: the system's clock
}

func (o *Options) defaults() {
	for _, d := range []struct {
		field *int
		usual int
	}{{&o.PerOwner, 1000}, {&o.Total, 10_000}, {&o.BufferBytes, 1 << 20}} {
		if *d.field <= 0 {
			*d.field = d.usual
		}
	}
	for _, d := range []struct {
		field *time.Duration
		usual time.Duration
	}{{&o.Untaken, 5 * time.Minute}, {&o.PingAfter, 30 * time.Second}, {&o.DropAfter, 90 * time.Second}} {
		if *d.field <= 0 {
			*d.field = d.usual
		}
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
	if o.Take == nil {
		o.Take = func(int64) bool { return true }
	}
	if o.Give == nil {
		o.Give = func(int64) {}
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
}

// Ref is what a worker is given to open one end, and may hand on (protocol section 12). Whoever has it
// can open that end, so it is a secret.
type Ref struct {
	ChannelID string `json:"channel_id"` // UUID
	AccessKey string `json:"access_key"` // UUID, another one for each direction
	Direction string `json:"direction"`  // "write" or "read"
}

// Status is the answer to an attempt to open an end.
type Status uint8

const (
	Accepted Status = iota // upgrade, then call End.Open
	Unknown                // no such channel, or a wrong key: 404
	Taken                  // somebody has that end: upgrade and close at once
)

// Stats are counts since the hub was made, but for Open and Held, which are of now. Bytes are payload.
type Stats struct {
	Open, Held                uint64 // channels; writers that are not read just now
	Created, Swept            uint64 // channels
	MessagesIn, BytesIn       uint64 // from writers
	MessagesOut, BytesOut     uint64 // into the write queues of readers
	MessagesLost, BytesLost   uint64 // taken from a writer and dropped, as reader or owner went away
	Paused                    uint64 // times that a writer was not read on
	Unanswered                uint64 // pings of peers that do not read their pongs
	Refused, Broken, Finished uint64 // channels: over a bound, cut off, and complete
}

type counters struct {
	created, swept, paused, held, unanswered   atomic.Uint64
	refused, broken, finished                  atomic.Uint64
	messagesIn, messagesOut, bytesIn, bytesOut atomic.Uint64
	messagesLost, bytesLost                    atomic.Uint64
}

// Hub has all channels of an engine.
type Hub struct {
	o     Options
	codec ws.Config
	stats counters

	mu     sync.Mutex // guards what follows; taken after pipe.mu where both are
	pipes  map[string]*pipe
	owners map[any]map[*pipe]struct{}
	fresh  list.List // *pipe with an end that nobody took, oldest first
	closed bool
}

// New returns a hub without channels.
func New(o Options) *Hub {
	o.defaults()
	h := &Hub{o: o, pipes: map[string]*pipe{}, owners: map[any]map[*pipe]struct{}{}}
	// No memory for whole messages: one that does not lie whole in what was read comes in parts, and
	// goes on in parts.
	h.codec = ws.Config{Role: ws.Server, MaxMessage: o.MaxMessage, HardMessage: o.MaxMessage,
		Grow: func(n int64) bool { return n < 0 }}
	return h
}

// Create makes a channel that belongs to owner, which must be comparable; a nil owner never leaves.
// messages is how many wait for a reader before the writer is held back: 0 is 64, and more than 1,024
// are 1,024. The error is Limit LIMIT_EXCEEDED, Invalid INVALID_ARGUMENTS or Unavailable DRAINING.
func (h *Hub) Create(owner any, messages int) (writer, reader Ref, err *fault.Error) {
	switch {
	case messages < 0:
		return writer, reader, fault.Newf(fault.Invalid, wire.CodeInvalidArguments,
			"buffer_size is %d, must be 0 to %d messages", messages, manyMessages)
	case messages == 0:
		messages = fewMessages
	}
	p := &pipe{hub: h, id: newUUID(), keys: [2]string{newUUID(), newUUID()}, owner: owner,
		born: h.o.Now(), most: min(messages, manyMessages)}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return writer, reader, fault.New(fault.Unavailable, wire.CodeDraining, "the engine is about to stop")
	case len(h.pipes) >= h.o.Total:
		h.stats.refused.Add(1)
		return writer, reader, fault.Newf(fault.Limit, wire.CodeLimit,
			"there are %d channels already", h.o.Total)
	case owner != nil && len(h.owners[owner]) >= h.o.PerOwner:
		h.stats.refused.Add(1)
		return writer, reader, fault.Newf(fault.Limit, wire.CodeLimit,
			"this worker has %d channels already; close some first", h.o.PerOwner)
	}
	h.pipes[p.id] = p
	p.fresh = h.fresh.PushBack(p)
	if owner != nil {
		if h.owners[owner] == nil {
			h.owners[owner] = map[*pipe]struct{}{}
		}
		h.owners[owner][p] = struct{}{}
	}
	h.stats.created.Add(1)
	return Ref{p.id, p.keys[writes], "write"}, Ref{p.id, p.keys[reads], "read"}, nil
}

// Take opens one end for connection c. dir is "write" or "read". group is the same for two connections
// whose loops belong to one loop.Group, and comparable. With Accepted the caller answers the upgrade and
// then calls End.Open; from then on the End is to be told whatever happens on c.
func (h *Hub) Take(id, key, dir string, c *loop.Conn, group any) (*End, Status) {
	s := writes
	switch dir {
	case "write":
	case "read":
		s = reads
	default:
		return nil, Unknown
	}
	h.mu.Lock()
	p := h.pipes[id]
	h.mu.Unlock()
	if p == nil || subtle.ConstantTimeCompare([]byte(key), []byte(p.keys[s])) != 1 {
		return nil, Unknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cut:
		return nil, Unknown
	case p.ends[s] != nil:
		return nil, Taken
	}
	e := &End{pipe: p, side: s, conn: c, group: group, seen: c.Loop().Now()}
	p.ends[s] = e
	if p.ends[1-s] != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.settled(p)
	}
	return e, Accepted
}

// Leave removes the channels of owner: both ends are closed with 1001 and what waits is dropped. Only
// where the writer has finished and the reader was told, the reader gets what is left in peace.
func (h *Hub) Leave(owner any) {
	h.mu.Lock()
	all := h.owners[owner]
	delete(h.owners, owner)
	h.mu.Unlock()
	for p := range all {
		p.end(farewell{ws.CloseGoingAway, "the owner of the channel left"})
	}
}

// Sweep removes the channels with an end that was not taken in time. now is in ns since the Unix epoch.
func (h *Hub) Sweep(now int64) {
	var old []*pipe
	h.mu.Lock()
	for at := h.fresh.Front(); at != nil; at = h.fresh.Front() {
		p := at.Value.(*pipe)
		if now-p.born < int64(h.o.Untaken) {
			break
		}
		old = append(old, p)
		h.settled(p)
	}
	h.mu.Unlock()
	for _, p := range old {
		if p.end(farewell{ws.CloseGoingAway, "the other end was not opened in time"}) {
			h.stats.swept.Add(1)
		}
	}
}

// Close ends all channels with 1001, so that no reader takes what it has for the whole, and refuses new
// ones. It may be called again.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	all := make([]*pipe, 0, len(h.pipes))
	for _, p := range h.pipes {
		all = append(all, p)
	}
	h.mu.Unlock()
	for _, p := range all {
		p.end(farewell{ws.CloseGoingAway, "plinth is stopping"})
	}
}

// settled takes a channel off the list of those to be swept; under h.mu.
func (h *Hub) settled(p *pipe) {
	if p.fresh != nil {
		h.fresh.Remove(p.fresh)
		p.fresh = nil
	}
}

// forget removes a channel that is over.
func (h *Hub) forget(p *pipe) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pipes, p.id)
	h.settled(p)
	if all := h.owners[p.owner]; p.owner != nil && all != nil {
		delete(all, p)
		if len(all) == 0 {
			delete(h.owners, p.owner)
		}
	}
}

// Stats returns the counts.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	open := len(h.pipes)
	h.mu.Unlock()
	s := &h.stats
	return Stats{
		Open: uint64(open), Held: s.held.Load(), Created: s.created.Load(), Swept: s.swept.Load(),
		MessagesIn: s.messagesIn.Load(), BytesIn: s.bytesIn.Load(),
		MessagesOut: s.messagesOut.Load(), BytesOut: s.bytesOut.Load(),
		MessagesLost: s.messagesLost.Load(), BytesLost: s.bytesLost.Load(),
		Paused: s.paused.Load(), Unanswered: s.unanswered.Load(),
		Refused: s.refused.Load(), Broken: s.broken.Load(), Finished: s.finished.Load(),
	}
}

// newUUID returns a version 4 UUID (RFC 9562, section 5.4) in text form: 122 random bits.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:]) // never fails (crypto/rand)
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

package audit

import (
	"context"
	"sync"
	"time"
)

const (
	noteEvery = time.Second
	maxNotes  = 256 // kinds of notes in one second
	noteWait  = 5 * time.Second
)

// kind is what notes are gathered by.
type kind struct {
	action, actor, name, remote string
}

// notes gathers events of a flood until they are written.
type notes struct {
	mu      sync.Mutex
	open    map[kind]*Event
	order   []*Event // first come first
	dropped int64    // since the last line that told
	total   int64
}

// Note adds an event without waiting for it: those of one second with the same action, actor and remote
// become one line with a count and the texts of the first. At most 256 lines come of a second; what is above
// is dropped, and the trail tells how many in a line of its own, "audit.drop". Notes of the last second
// before a kill are lost. It does no I/O.
func (t *Trail) Note(e Event) {
	if e.Time.IsZero() {
		e.Time = t.o.Now()
	}
	e.Count = max(e.Count, 1)
	n := &t.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	k := kind{clip(e.Action), clip(e.Actor.ID), clip(e.Actor.Name), clip(e.Remote)}
	if first, ok := n.open[k]; ok {
		first.Count += e.Count
		return
	}
	if len(n.order) >= maxNotes {
		n.dropped += int64(e.Count)
		n.total += int64(e.Count)
		return
	}
	if n.open == nil {
		n.open = map[kind]*Event{}
	}
	// The texts may be cut out of something large; what is kept is their own.
	e.Target, e.Reason, e.Trace = clip(e.Target), clip(e.Reason), clip(e.Trace)
	n.open[k] = &e
	n.order = append(n.order, &e)
}

// take empties the notes, with a line about those that were dropped.
func (n *notes) take(now time.Time) []*Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.order
	if n.dropped > 0 {
		list = append(list, &Event{Time: now, Actor: Actor{Kind: "none"}, Action: "audit.drop", Outcome: Failed,
			Reason: "too many kinds of events in one second", Count: int(n.dropped)})
	}
	n.open, n.order, n.dropped = nil, nil, 0
	return list
}

func (n *notes) lose(count int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total += count
	n.dropped += count
}

func (n *notes) lost() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.total
}

// flush writes the notes. Those that the disk does not take are counted, and told with the next that it does.
func (t *Trail) flush() {
	list := t.notes.take(t.o.Now())
	var lines []byte
	var count, events int64
	for _, e := range list {
		line, err := encode(*e)
		if err != nil {
			t.notes.lose(int64(e.Count))
			continue
		}
		lines = append(lines, line...)
		count++
		events += int64(e.Count)
	}
	if count == 0 {
		return
	}
	// No context of Run: at its end, the last notes are still to be written.
	ctx, cancel := context.WithTimeout(context.Background(), noteWait)
	defer cancel()
	if err := t.put(ctx, lines, count); err != nil {
		t.notes.lose(events)
	}
}

package loop

import (
	"container/heap"
	"time"
)

// timer is one entry of a loop's heap; every > 0 puts it back after it ran.
type timer struct {
	when  int64 // ns, as Loop.Now
	every int64
	f     func()
}

type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].when < t[j].when }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(*timer)) }
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	return last
}

// start puts t into the heap; on the loop.
func (l *Loop) start(t *timer) { heap.Push(&l.timers, t) }

// tick runs what is due. A timer that fell behind runs once, not once for each period it missed.
func (l *Loop) tick() {
	now := l.now.Load()
	for len(l.timers) > 0 && l.timers[0].when <= now {
		t := l.timers[0]
		if t.every > 0 {
			t.when += t.every
			if t.when <= now {
				t.when = now + t.every
			}
			heap.Fix(&l.timers, 0)
		} else {
			heap.Pop(&l.timers)
		}
		l.call(t.f)
	}
}

// wait returns how long it is until the next timer is due, or a long time when there is none.
func (l *Loop) wait() time.Duration {
	if len(l.timers) == 0 {
		return time.Hour
	}
	return max(0, time.Duration(l.timers[0].when-l.group.cfg.Now()))
}

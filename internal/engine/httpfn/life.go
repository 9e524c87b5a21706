package httpfn

import (
	"context"
	"sync"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// life knows what is under way, so that Close can end it and wait for it. Dials are among it: the transport
// lets them go on after the call that wanted them.
type life struct {
	mu     sync.Mutex // guards all below
	closed bool
	next   uint64
	ends   map[uint64]context.CancelFunc
	all    sync.WaitGroup
}

// enter begins something that ends after d at the latest, with ctx, or with the life. The caller leaves once.
func (l *life) enter(ctx context.Context, d time.Duration) (context.Context, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, fault.New(fault.Unavailable, wire.CodeDraining, "Plinth is stopping")
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	if l.ends == nil {
		l.ends = map[uint64]context.CancelFunc{}
	}
	id := l.next
	l.next++
	l.ends[id] = cancel
	l.all.Add(1)
	return ctx, func() {
		cancel()
		l.mu.Lock()
		delete(l.ends, id)
		l.mu.Unlock()
		l.all.Done()
	}, nil
}

// over reports whether the life has ended.
func (l *life) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// end lets nothing begin any more, cancels what is under way and waits for it.
func (l *life) end() {
	l.mu.Lock()
	l.closed = true
	for _, cancel := range l.ends {
		cancel()
	}
	l.mu.Unlock()
	l.all.Wait()
}

// seats counts the calls under way, in all and for each host.
type seats struct {
	mu      sync.Mutex // guards all below
	most    int
	running int
	hosts   map[string]int
}

// take gives a call its place. One host has at most half of the places, so that a slow one leaves room.
func (s *seats) take(host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running >= s.most || s.hosts[host] >= (s.most+1)/2 {
		return false
	}
	s.running++
	s.hosts[host]++
	return true
}

func (s *seats) leave(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.hosts[host]--; s.hosts[host] == 0 {
		delete(s.hosts, host)
	}
}

func (s *seats) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

package fn_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/plinth-run/plinth/internal/fn"
)

// BenchmarkInvoke is a call through the core: lookup, access, target, span.
func BenchmarkInvoke(b *testing.B) {
	r := fn.New(fn.Config{})
	room := new(fn.Peer)
	r.Join(room, fn.Principal{Kind: "key", Name: "bench", Access: prefix("bench::")})
	add(b, r, room, "bench::echo", echo)
	name, payload := []byte("bench::echo"), []byte(`{"text":"0123456789012345678901234567890123456789012"}`)
	var o sink
	b.ReportAllocs()
	for b.Loop() {
		c := r.Acquire()
		c.Function, c.Caller, c.Done, c.Payload = r.Lookup(nil, name), room, &o, payload
		r.Invoke(c)
	}
}

// BenchmarkInvokeParked is the same with a target that answers later, as a worker does.
func BenchmarkInvokeParked(b *testing.B) {
	r := fn.New(fn.Config{})
	room, host := r.Room("room"), r.Room("host")
	add(b, r, host, "bench::echo", &answerer{r: r, peer: host})
	name := []byte("bench::echo")
	var o sink
	b.ReportAllocs()
	for b.Loop() {
		c := r.Acquire()
		c.Function, c.Caller, c.Done = r.Lookup(nil, name), room, &o
		r.Invoke(c)
	}
}

// BenchmarkCoreRuntime is the synchronous wrapper around a plain handler of this process.
func BenchmarkCoreRuntime(b *testing.B) {
	b.Run("engine_call_registered_handler", func(b *testing.B) {
		r := fn.New(fn.Config{})
		handler(b, r)
		payload := []byte(`{}`)
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Call(ctx, "bench::echo", payload); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkInvokeReplica is a call of a name that four hosts share.
func BenchmarkInvokeReplica(b *testing.B) {
	r := fn.New(fn.Config{})
	room := r.Room("room")
	for i := range 4 {
		host := r.Room(fmt.Sprint("host-", i))
		if _, err := r.Add(host, fn.Spec{Name: "bench::echo", Target: &answerer{r: r, peer: host},
			Replicas: true}); err != nil {
			b.Fatal(err)
		}
	}
	name := []byte("bench::echo")
	var o sink
	b.ReportAllocs()
	for b.Loop() {
		c := r.Acquire()
		c.Function, c.Caller, c.Done = r.Lookup(nil, name), room, &o
		r.Invoke(c)
	}
}

func handler(b *testing.B, r *fn.Registry) {
	if err := r.Register("bench::echo", func(_ context.Context, p []byte) ([]byte, error) {
		return p,
			nil
	}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkConcurrentCalls makes N calls at once to a function of this process and waits for all of them.
func BenchmarkConcurrentCalls(b *testing.B) {
	for _, n := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := fn.New(fn.Config{})
			handler(b, r)
			payload := []byte(`{"text":"0123456789012345678901234567890123456789012"}`)
			var all sync.WaitGroup
			for b.Loop() {
				for range n {
					all.Go(func() {
						if _, err := r.Call(b.Context(), "bench::echo", payload); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

// BenchmarkPayloadSize is one call that carries 1 KB to 1 MB of JSON.
func BenchmarkPayloadSize(b *testing.B) {
	for _, s := range []struct {
		name string
		n    int
	}{{"1kb", 1 << 10}, {"10kb", 10 << 10}, {"100kb", 100 << 10}, {"1mb", 1 << 20}} {
		b.Run(s.name, func(b *testing.B) {
			r := fn.New(fn.Config{})
			handler(b, r)
			payload := append(append([]byte{'"'}, bytes.Repeat([]byte("x"), s.n-2)...), '"')
			for b.Loop() {
				if _, err := r.Call(b.Context(), "bench::echo", payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRegistrationChurn registers and removes functions by the hundred and the thousand.
func BenchmarkRegistrationChurn(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint("functions_register_remove/", n), func(b *testing.B) {
			r := fn.New(fn.Config{})
			p := r.Room("room")
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("bench::f", i)
			}
			for b.Loop() {
				for _, name := range names {
					if _, err := r.Add(p, fn.Spec{Name: name, Target: echo}); err != nil {
						b.Fatal(err)
					}
				}
				for _, name := range names {
					r.Remove(p, "", name)
				}
			}
		})
	}
}

// silent parks and never answers.
type silent struct{ peer *fn.Peer }

func (s *silent) Invoke(c *fn.Call) { c.Park(s.peer, nil) }

// BenchmarkWorkerCleanup takes down a worker that leaves with its functions and calls in flight. The time
// includes setting them up.
func BenchmarkWorkerCleanup(b *testing.B) {
	for _, n := range []int{10, 50, 200} {
		b.Run(fmt.Sprint("functions/", n), func(b *testing.B) {
			r := fn.New(fn.Config{})
			for b.Loop() {
				b.StopTimer()
				p := r.Room("worker")
				for i := range n {
					if _, err := r.Add(p, fn.Spec{Name: fmt.Sprint("bench::f", i), Target: echo}); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				r.Leave(nil, p)
			}
		})
		b.Run(fmt.Sprint("invocations/", n), func(b *testing.B) {
			r := fn.New(fn.Config{})
			caller := r.Room("caller")
			var o sink
			for b.Loop() {
				b.StopTimer()
				p := r.Room("worker")
				f := add(b, r, p, "bench::f", &silent{p})
				for range n {
					c := r.Acquire()
					c.Function, c.Caller, c.Done = f, caller, &o
					r.Invoke(c)
				}
				b.StartTimer()
				r.Leave(nil, p)
			}
		})
	}
}

// BenchmarkInvocationTracking records which worker each call belongs to, and takes it out again.
func BenchmarkInvocationTracking(b *testing.B) {
	for _, c := range []struct {
		name  string
		there int
	}{{"add_remove_sequential", 0}, {"add_with_200_existing", 200}} {
		b.Run(c.name, func(b *testing.B) {
			r := fn.New(fn.Config{})
			host, caller := r.Room("host"), r.Room("caller")
			var o sink
			existing := add(b, r, host, "bench::there", &silent{host})
			for range c.there {
				c := r.Acquire()
				c.Function, c.Caller, c.Done = existing, caller, &o
				r.Invoke(c)
			}
			f := add(b, r, host, "bench::f", &answerer{r: r, peer: host})
			for b.Loop() {
				c := r.Acquire()
				c.Function, c.Caller, c.Done = f, caller, &o
				r.Invoke(c)
			}
		})
	}
}

// BenchmarkInvocationTrackingConcurrent is the same with N calls in flight at once.
func BenchmarkInvocationTrackingConcurrent(b *testing.B) {
	for _, n := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := fn.New(fn.Config{})
			host, caller := r.Room("host"), r.Room("caller")
			p := &keeper{peer: host}
			f := add(b, r, host, "bench::f", p)
			var o sink
			for b.Loop() {
				for range n {
					c := r.Acquire()
					c.Function, c.Caller, c.Done = f, caller, &o
					r.Invoke(c)
				}
				for _, id := range p.ids {
					r.Complete(nil, id, host, fn.Outcome{Result: one})
				}
				p.ids = p.ids[:0]
			}
		})
	}
}

// keeper parks and remembers, for one goroutine.
type keeper struct {
	peer *fn.Peer
	ids  []uint64
}

func (k *keeper) Invoke(c *fn.Call) {
	if id, ok := c.Park(k.peer, nil); ok {
		k.ids = append(k.ids, id)
	}
}

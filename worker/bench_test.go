//go:build unix

package worker_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plinth-run/plinth/worker"
)

const benchURL = "WORKER_BENCH_URL" // of an engine that runs already

// BenchmarkCall measures complete calls: two connections that call and two that host, in this process, and an
// engine in another. cpu-us/op is the CPU of this process a call, both sides and all system calls.
// Run it with -cpu 1, and pinned to one core, for the figure of the guide.
func BenchmarkCall(b *testing.B) {
	url := os.Getenv(benchURL)
	if url == "" {
		url = outside(b)
	}
	var callers, all []*worker.Worker
	for i := range 2 {
		host := start(b, url, worker.Options{Name: fmt.Sprintf("host-%d", i)}, func(w *worker.Worker) error {
			return w.Register(fmt.Sprintf("bench::echo-%d", i), echo)
		})
		caller := start(b, url, worker.Options{Name: fmt.Sprintf("caller-%d", i)}, nil)
		callers, all = append(callers, caller), append(all, host, caller)
	}
	payload := []byte(`{"id":"0123456789abcdef","n":12345,"text":"the quick brown fox jumps"}`)
	for _, flight := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("flight=%d", flight), func(b *testing.B) {
			var clients sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			writes, reads := transfers(all)
			cpu, began := spent(), time.Now()
			for i := range flight {
				w, name, n := callers[i%2], fmt.Sprintf("bench::echo-%d", i/2%2), share(b.N, flight, i)
				clients.Go(func() {
					for range n {
						if _, err := w.Call(context.Background(), name, payload); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			clients.Wait()
			b.ReportMetric(float64((spent()-cpu).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "calls/s")
			w, r := transfers(all)
			b.ReportMetric(float64(w-writes)/float64(b.N), "writes/op")
			b.ReportMetric(float64(r-reads)/float64(b.N), "reads/op")
		})
	}
}

// share divides n among of clients.
func share(n, of, i int) int {
	s := n / of
	if i < n%of {
		s++
	}
	return s
}

// spent returns the CPU time of this process.
func spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func transfers(all []*worker.Worker) (writes, reads uint64) {
	for _, w := range all {
		s := w.Stats()
		writes, reads = writes+s.Writes, reads+s.Reads
	}
	return writes, reads
}

package store_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/store"
)

// BenchmarkAppend measures durable appends of 200 bytes on a real disk, by the number of appenders and of the
// runtime's processors. It reports appends and syncs a second. One processor is what Open rules out.
func BenchmarkAppend(b *testing.B) {
	for _, processors := range []int{1, 2} {
		for _, gather := range []time.Duration{-1, 2 * time.Millisecond} {
			for _, writers := range []int{1, 64, 256, 1024} {
				name := fmt.Sprintf("processors=%d/gather=%v/writers=%d", processors, max(gather, 0), writers)
				b.Run(name, func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
					benchmarkAppend(b, writers, gather)
				})
			}
		}
	}
}

func benchmarkAppend(b *testing.B, writers int, gather time.Duration) {
	l := start(must(store.OpenLog(store.OS(), b.TempDir(), store.LogOptions{Gather: gather}))(b))
	payload := make([]byte, 200)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := l.Append(context.Background(), payload); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	s := l.Stats()
	b.ReportMetric(float64(s.Records)/b.Elapsed().Seconds(), "appends/s")
	b.ReportMetric(float64(s.Batches)/b.Elapsed().Seconds(), "syncs/s")
	ok(b, l.stop())
}

// BenchmarkAppendAsync keeps the queue full from one goroutine, as an event loop would.
func BenchmarkAppendAsync(b *testing.B) {
	l := start(must(store.OpenLog(store.OS(), b.TempDir(), store.LogOptions{}))(b))
	payload := make([]byte, 200)
	var failed atomic.Int64
	slots := make(chan struct{}, 4096)
	done := func(_ uint64, err error) {
		if err != nil {
			failed.Add(1)
		}
		<-slots
	}
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		slots <- struct{}{}
		ok(b, l.AppendAsync(payload, done))
	}
	ok(b, l.stop())
	if failed.Load() > 0 {
		b.Fatal("an append failed")
	}
}

// BenchmarkRead reads a log from its start; an operation is one record of 200 bytes.
func BenchmarkRead(b *testing.B) {
	l := start(must(store.OpenLog(store.OS(), b.TempDir(), store.LogOptions{}))(b))
	fill(b, l.Log, 1, 10_000, 200)
	r := must(l.Reader(1))(b)
	b.SetBytes(200)
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := r.Next()
		if err == io.EOF {
			ok(b, r.Close())
			r = must(l.Reader(1))(b)
			continue
		}
		ok(b, err)
	}
	ok(b, r.Close())
	ok(b, l.stop())
}

// BenchmarkOpen opens a log of 50,000 records of 200 bytes and replays it.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	l := start(must(store.OpenLog(store.OS(), dir, store.LogOptions{}))(b))
	for n := uint64(0); n < 50_000; n += 10_000 {
		fill(b, l.Log, n+1, n+10_000, 200)
	}
	ok(b, l.stop())
	for b.Loop() {
		n := 0
		l, err := store.OpenLog(store.OS(), dir, store.LogOptions{Replay: func(uint64,
			[]byte) error {
			n++
			return nil
		}})
		ok(b, err)
		ok(b, l.Close())
		if n != 50_000 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(50_000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

package worker

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

type ctxt = context.Context

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func jobs(n int) []*job {
	js := make([]*job, n)
	for i := range js {
		js[i] = new(job)
	}
	return js
}

func TestPoolRunsQuickJobsOnOneRunnerAndSlowOnesOnMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		var ran atomic.Int64
		block := make(chan struct{})
		slow := false
		p := newPool(50, 1000, 1<<20, func(*job) {
			ran.Add(1)
			if slow {
				<-block
			}
		})
		if n := p.add(jobs(200)); n != 200 {
			t.Fatalf("%d jobs taken", n)
		}
		synctest.Wait()
		if ran.Load() != 200 || p.alive > 3 {
			t.Errorf("%d quick jobs ran, on %d runners", ran.Load(), p.alive)
		}
		slow = true
		if n := p.add(jobs(100)); n != 100 {
			t.Fatalf("%d jobs taken", n)
		}
		synctest.Wait()
		if running, waiting := p.size(); running != 50 || waiting != 50 {
			t.Errorf("%d slow jobs run, %d wait", running, waiting)
		}
		close(block)
		synctest.Wait()
		if ran.Load() != 300 || !p.quiet() {
			t.Errorf("%d jobs ran", ran.Load())
		}
		if left, stuck := p.close(); len(left) != 0 || stuck != 0 || p.alive != 0 {
			t.Errorf("closed with %d left, %d stuck, %d alive", len(left), stuck, p.alive)
		}
		if p.add(jobs(1)) != 0 {
			t.Error("a closed pool takes jobs")
		}
	})
}

func TestPoolKeepsOrderAndCountsWhatItGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []*job
		block := make(chan struct{})
		p := newPool(1, 10, 1<<20, func(j *job) {
			mu.Lock()
			order = append(order, j)
			mu.Unlock()
			<-block
		})
		js := jobs(20)
		if n := p.add(js); n != 11 {
			t.Errorf("%d jobs taken, want the one that runs and ten that wait", n)
		}
		synctest.Wait()
		if n := p.add(js[11:]); n != 0 {
			t.Errorf("%d more taken", n)
		}
		block <- struct{}{}
		block <- struct{}{}
		synctest.Wait()
		left, stuck := p.close()
		if stuck != 1 || !slices.Equal(left, js[3:11]) {
			t.Errorf("%d left, %d stuck", len(left), stuck)
		}
		close(block)
		synctest.Wait()
		if !slices.Equal(order, js[:3]) || p.alive != 0 {
			t.Errorf("%d ran, %d alive", len(order), p.alive)
		}
	})
}

func TestPoolSurvivesJobsThatEndTheirGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64
		p := newPool(3, 1000, 1<<20, func(*job) {
			ran.Add(1)
			runtime.Goexit()
		})
		p.add(jobs(100))
		synctest.Wait()
		if ran.Load() != 100 || p.alive != 0 || !p.quiet() {
			t.Errorf("%d ran, %d alive", ran.Load(), p.alive)
		}
		p.close()
	})
}

func TestPoolKeepsFewIdleRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		p := newPool(500, 0, 1<<20, func(*job) { <-block })
		p.add(jobs(500))
		synctest.Wait()
		if p.alive != 500 {
			t.Errorf("%d runners", p.alive)
		}
		close(block)
		synctest.Wait()
		if p.alive != keepIdle {
			t.Errorf("%d runners are kept", p.alive)
		}
		p.close()
	})
}

func TestRingIsAQueue(t *testing.T) {
	var r ring
	var want []*job
	for i := range 1000 {
		j := new(job)
		r.push(j)
		want = append(want, j)
		if i%3 == 0 {
			if got := r.pop(); got != want[0] {
				t.Fatalf("step %d: wrong job", i)
			}
			want = want[1:]
		}
	}
	for _, j := range want {
		if r.pop() != j {
			t.Fatal("wrong job")
		}
	}
	if r.pop() != nil || r.n != 0 {
		t.Error("more jobs than were put in")
	}
}

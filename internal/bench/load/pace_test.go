package load

import (
	"slices"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load/loadtest"
)

// In a bubble nothing takes time but what says so: latencies are exact.

func TestAnOpenLoopCallsAtItsRate(t *testing.T) {
	bubble(t, &loadtest.Relay{}, func(t *testing.T, p Protocols) {
		job := &Job{Dialect: "pipe", Callers: 2, Hosts: 2, Payload: 64, Portable: true, Service: time.Millisecond}
		job.Steps = []Step{{Name: "steady", Rate: 200, Warm: time.Second, Measure: 10 * time.Second}}
		results, _, err := do(t.Context(), job, p)
		if err != nil {
			t.Fatal(err)
		}
		r := results[0]
		check(t, r)
		if r.Calls != 2000 {
			t.Errorf("%d calls in 10 s at 200 a second", r.Calls)
		}
		if r.P50 < time.Millisecond || r.Max > 1100*time.Microsecond {
			t.Errorf("calls that take 1 ms took %v to %v", r.P50, r.Max)
		}
		if len(r.Series) != 40 {
			t.Errorf("%d slices in 10 s, want 40", len(r.Series))
		}
	})
}

func TestLatencyOfAnOpenLoopRunsFromWhenACallWasDue(t *testing.T) {
	// One host serves 100 calls a second and is offered 200: call number k is due at 5k ms, is done
	// at 10k ms, and so the last one of a second waits for half a second.
	bubble(t, &loadtest.Relay{}, func(t *testing.T, p Protocols) {
		job := &Job{Dialect: "pipe", Callers: 1, Hosts: 1, Payload: 64, Portable: true}
		job.Service = 10 * time.Millisecond
		job.Steps = []Step{
			{Name: "overload", Rate: 200, Measure: time.Second, Keep: true},
			{Name: "recovery", Rate: 10, Measure: 3 * time.Second},
		}
		results, _, err := do(t.Context(), job, p)
		if err != nil {
			t.Fatal(err)
		}
		over, after := results[0], results[1]
		if over.Calls < 98 || over.Calls > 100 {
			t.Errorf("the host served %d calls in a second, want 98 to 100", over.Calls)
		}
		if over.Max < 480*time.Millisecond || over.Max > 510*time.Millisecond {
			t.Errorf("the slowest call took %v, want about 500 ms", over.Max)
		}
		// The 100 calls that were left over are answered in the second step.
		if all := over.Calls + after.Calls; all < 228 || all > 231 {
			t.Errorf("%d calls were answered, want about 200 and 30", all)
		}
		if last := after.Series[len(after.Series)-1]; last.P99 > 11*time.Millisecond {
			t.Errorf("the last calls still take %v", last.P99)
		}
		if over.Lost+after.Lost != 0 {
			t.Errorf("%d and %d calls lost", over.Lost, after.Lost)
		}
	})
}

func TestAClosedLoopOnSlowHostsIsBoundByThem(t *testing.T) {
	bubble(t, &loadtest.Relay{}, func(t *testing.T, p Protocols) {
		job := &Job{Dialect: "pipe", Callers: 1, Hosts: 2, Payload: 64, Portable: true}
		job.Service = 10 * time.Millisecond
		job.Steps = []Step{{Name: "closed", InFlight: 8, Warm: time.Second, Measure: time.Second}}
		results, _, err := do(t.Context(), job, p)
		if err != nil {
			t.Fatal(err)
		}
		r := results[0]
		check(t, r)
		if r.Calls < 199 || r.Calls > 201 || r.P50 < 39*time.Millisecond || r.P50 > 41*time.Millisecond {
			t.Errorf("%d calls a second at %v; two hosts at 10 ms with 4 calls each make 200 at 40 ms", r.Calls, r.P50)
		}
	})
}

func TestAHostServesInOrderOneCallAtATime(t *testing.T) {
	q := &queue{service: 10}
	if q.due() != 0 {
		t.Fatal("an empty host has work")
	}
	q.push(100, []byte("a"), []byte("f"), []byte("1"))
	q.push(105, []byte("b"), []byte("g"), []byte("2"))
	if q.due() != 110 {
		t.Fatalf("the first job is done at %d, want 110", q.due())
	}
	if w, ok := q.pop(109); ok {
		t.Fatalf("%q is done too early", w.token)
	}
	w, ok := q.pop(125)
	if !ok || string(w.token) != "a" || string(w.name) != "f" || string(w.payload) != "1" {
		t.Fatalf("got %q %q %q, %v", w.token, w.name, w.payload, ok)
	}
	if w, ok = q.pop(125); !ok || string(w.token) != "b" {
		t.Fatalf("got %q, %v; a late look costs the host no time", w.token, ok)
	}
	if _, ok = q.pop(1000); ok || q.due() != 0 {
		t.Fatal("the host has work left")
	}
	q.push(1000, []byte("c"), nil, nil)
	if q.due() != 1010 {
		t.Fatalf("after a rest the next job is done at %d, want 1010", q.due())
	}
}

func TestALongQueueKeepsItsOrder(t *testing.T) {
	q := &queue{service: 1}
	var got, want []byte
	for i := range 10_000 {
		q.push(int64(i), []byte{byte(i)}, nil, nil)
		want = append(want, byte(i))
		if i%3 == 0 { // slower than they come
			if w, ok := q.pop(1 << 40); ok {
				got = append(got, w.token...)
			}
		}
	}
	for w, ok := q.pop(1 << 40); ok; w, ok = q.pop(1 << 40) {
		got = append(got, w.token...)
	}
	if !slices.Equal(got, want) {
		t.Fatal("jobs were lost or changed places")
	}
	if cap(q.jobs) > 1<<15 {
		t.Fatalf("a queue of 10,000 keeps room for %d", cap(q.jobs))
	}
}

func TestPayloadsAreJSONOfTheirSize(t *testing.T) {
	for _, n := range []int{2, 3, 64, 1 << 20} {
		if p := Payload(n); len(p) != n || p[0] != '"' || p[n-1] != '"' {
			t.Errorf("Payload(%d) has %d bytes", n, len(p))
		}
	}
	if p := string(Payload(0)); p != `""` {
		t.Errorf("Payload(0) = %s, want the shortest string", p)
	}
}

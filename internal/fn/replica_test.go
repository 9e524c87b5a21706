package fn_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
)

// replicas registers one name from n hosts that park their calls.
func replicas(t *testing.T, r *fn.Registry, n int) []*parker {
	t.Helper()
	hosts := make([]*parker, n)
	for i := range hosts {
		hosts[i] = &parker{peer: r.Room(fmt.Sprint("host-", i))}
		if _, err := r.Add(hosts[i].peer, fn.Spec{Name: "x::y", Target: hosts[i], Replicas: true}); err != nil {
			t.Fatal(err)
		}
	}
	return hosts
}

func TestCallsGoToTheReplicaWithFewestInFlight(t *testing.T) {
	r := fn.New(fn.Config{})
	hosts, caller := replicas(t, r, 4), r.Room("caller")
	var o outcomes
	call := func(n int) {
		for range n {
			invoke(r, r.Lookup(nil, []byte("x::y")), caller, "tag", &o)
		}
	}
	call(400)
	for i, h := range hosts {
		if len(h.ids) != 100 {
			t.Errorf("host %d has %d calls, want 100", i, len(h.ids))
		}
	}
	for _, id := range hosts[2].ids[:60] {
		r.Complete(nil, id, hosts[2].peer, fn.Outcome{})
	}
	call(60)
	if n := len(hosts[2].ids); n != 160 {
		t.Errorf("the host that was free got %d of 60 calls", n-100)
	}
	// A host that is busy with another function is busy.
	add(t, r, hosts[0].peer, "other::z", hosts[0])
	for range 50 {
		invoke(r, r.Lookup(nil, []byte("other::z")), caller, "tag", &o)
	}
	call(30)
	if n := len(hosts[0].ids); n != 150 {
		t.Errorf("the busy host got %d more calls", n-150)
	}
}

func TestALostReplicaFailsItsCallsAndTheOthersServeOn(t *testing.T) {
	r := fn.New(fn.Config{})
	hosts, caller := replicas(t, r, 3), r.Room("caller")
	var o outcomes
	name := []byte("x::y")
	for range 9 {
		invoke(r, r.Lookup(nil, name), caller, "tag", &o)
	}
	for i, left := range []int{2, 1} { // the first one stands in the directory for all
		r.Leave(nil, hosts[i].peer)
		if n := o.size(); n != 3*(i+1) {
			t.Fatalf("%d calls have an outcome after %d hosts left", n, i+1)
		}
		if f := r.Lookup(nil, name); f == nil || len(f.Replicated()) != left {
			t.Fatalf("after %d hosts left the name leads to %v", i+1, f)
		}
	}
	for _, code := range o.codes() {
		if code != "tag="+wire.CodeInvocationStopped {
			t.Errorf("outcome %s", code)
		}
	}
	invoke(r, r.Lookup(nil, name), caller, "last", &o)
	if n := len(hosts[2].ids); n != 4 {
		t.Errorf("the last host has %d calls, want 4", n)
	}
	r.Leave(nil, hosts[2].peer)
	if r.Lookup(nil, name) != nil || r.Stats().Functions != 0 {
		t.Error("the name stayed without a host")
	}
}

func TestOnlyHostsThatAllSaySoShareAName(t *testing.T) {
	r := fn.New(fn.Config{})
	a, b := r.Room("a"), r.Room("b")
	put := func(p *fn.Peer, shared bool) error {
		_, err := r.Add(p, fn.Spec{Name: "x::y", Target: echo, Replicas: shared})
		return err
	}
	var conflict *fn.Conflict
	for _, c := range []struct {
		name          string
		first, second bool
	}{{"a single owner", false, true}, {"replicas", true, false}, {"neither", false, false}} {
		if err := put(a, c.first); err != nil {
			t.Fatal(err)
		}
		if err := put(b, c.second); !errors.As(err, &conflict) || conflict.Owner != a {
			t.Errorf("%s: got %v", c.name, err)
		}
		r.RemoveAll(a)
	}
	if put(a, true) != nil || put(b, true) != nil {
		t.Fatal("replicas were refused")
	}
	if err := put(a, false); !errors.As(err, &conflict) || conflict.Owner != b {
		t.Errorf("one of two replicas became the only host: %v", err)
	}
	r.Remove(b, "", "x::y")
	if err := put(a, false); err != nil {
		t.Errorf("the last replica may become the only host: %v", err)
	}
	if err := put(b, true); !errors.As(err, &conflict) {
		t.Errorf("got %v", err)
	}
}

func TestReplicasAreBounded(t *testing.T) {
	r := fn.New(fn.Config{})
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = r.Add(r.Room(fmt.Sprint("host-", n)), fn.Spec{Name: "x::y", Target: echo, Replicas: true})
	}
	if n != 257 || codeOf(err) != wire.CodeLimit {
		t.Errorf("replica %d: %v", n, err)
	}
}

// TestReplicasAreAModel drives hosts that come, go and change beside a plain map.
func TestReplicasAreAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := fn.New(fn.Config{})
		peers := make([]*fn.Peer, 4)
		for i := range peers {
			peers[i] = r.Room(fmt.Sprint(i))
		}
		model := map[int]bool{} // host -> said Replicas
		which := rapid.IntRange(0, len(peers)-1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				i, shared := which.Draw(t, "host"), rapid.Bool().Draw(t, "shared")
				allowed := true
				for j, s := range model {
					allowed = allowed && (j == i || s && shared)
				}
				_, err := r.Add(peers[i], fn.Spec{Name: "x::y", Target: echo, Replicas: shared})
				if (err == nil) != allowed {
					t.Fatalf("host %d, shared %v, others %v: %v", i, shared, model, err)
				}
				if allowed {
					model[i] = shared
				}
			},
			"remove": func(t *rapid.T) {
				i := which.Draw(t, "host")
				_, there := model[i]
				if got := r.Remove(peers[i], "", "x::y"); got != there {
					t.Fatalf("host %d: removed %v", i, got)
				}
				delete(model, i)
			},
			"": func(t *rapid.T) {
				f := r.Lookup(nil, []byte("x::y"))
				if (f == nil) != (len(model) == 0) {
					t.Fatalf("the name leads to %v, hosts %v", f, model)
				}
				if f != nil && len(f.Replicated()) != len(model) {
					t.Fatalf("%d replicas, hosts %v", len(f.Replicated()), model)
				}
				for i, p := range peers {
					_, there := model[i]
					if n := r.Count(p); (n == 1) != there {
						t.Fatalf("host %d has %d functions, hosts %v", i, n, model)
					}
				}
			},
		})
	})
}

package trigger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plinth-run/plinth/internal/engine/trigger"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire"
)

// party writes down what it is told.
type party struct {
	name string
	told []string
	has  map[string]bool // bindings that it was given and not told to forget
}

func (p *party) Deliver(_ *loop.Loop, b *trigger.Binding) {
	p.told = append(p.told, "deliver "+b.ID)
	if p.has == nil {
		p.has = map[string]bool{}
	}
	p.has[b.ID] = true
}

func (p *party) Retract(_ *loop.Loop, b *trigger.Binding) {
	p.told = append(p.told, "retract "+b.ID)
	delete(p.has, b.ID)
}

func (p *party) Failed(_ *loop.Loop, b *trigger.Binding, fail []byte) {
	p.told = append(p.told, "failed "+b.ID+" "+string(fail))
}

// take returns what was told since the last time.
func (p *party) take() string {
	s := strings.Join(p.told, ", ")
	p.told = nil
	return s
}

func bind(t *testing.T, table *trigger.Table, p trigger.Party, id, kind string) {
	t.Helper()
	if _, err := table.Bind(nil, &trigger.Binding{ID: id, Type: kind, Function: "f::x", Binder: p},
		false); err != nil {
		t.Fatal(err)
	}
}

func offer(t *testing.T, table *trigger.Table, p *party, kind string) {
	t.Helper()
	if err := table.Offer(nil, trigger.Type{ID: kind, Provider: p}); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, p *party, want string) {
	t.Helper()
	if got := p.take(); got != want {
		t.Errorf("%s was told %q, want %q", p.name, got, want)
	}
}

func TestABindingWaitsForItsProvider(t *testing.T) {
	table, p, b := trigger.New(10), &party{name: "provider"}, &party{name: "binder"}
	bind(t, table, b, "1", "webhook")
	if s := table.Stats(); s.Parked != 1 {
		t.Errorf("got %+v", s)
	}
	offer(t, table, p, "webhook")
	check(t, p, "deliver 1")
	bind(t, table, b, "2", "webhook")
	check(t, p, "deliver 2")
	if !table.Unbind(nil, b, "1", "webhook") {
		t.Error("the binder could not take its binding back")
	}
	check(t, p, "retract 1")
	table.Leave(nil, b)
	check(t, p, "retract 2")
	check(t, b, "")
}

func TestBindingsParkWhenTheProviderLeavesAndGoToTheNext(t *testing.T) {
	table, p, q, b := trigger.New(10), &party{name: "first"}, &party{name: "second"}, &party{name: "binder"}
	offer(t, table, p, "webhook")
	bind(t, table, b, "1", "webhook")
	p.take()
	table.Leave(nil, p)
	check(t, p, "")
	if s, _ := table.Find("1"); !s.Parked() {
		t.Error("a binding without a provider is not parked")
	}
	offer(t, table, q, "webhook")
	check(t, q, "deliver 1")
	offer(t, table, p, "webhook") // replaces a provider that is still there
	check(t, q, "retract 1")
	check(t, p, "deliver 1")
	offer(t, table, p, "webhook")
	check(t, p, "deliver 1")
	if !table.Withdraw(nil, p, "", "webhook") || table.Withdraw(nil, q, "", "webhook") {
		t.Error("only the provider can withdraw a type")
	}
	check(t, p, "")
	check(t, b, "")
}

func TestARefusalIsForwardedAndKeptAsAnIntent(t *testing.T) {
	table, p, b := trigger.New(10), &party{name: "provider"}, &party{name: "binder"}
	offer(t, table, p, "webhook")
	bind(t, table, b, "1", "webhook")
	if table.Answer(nil, b, "1", []byte(`"forged"`)) {
		t.Error("somebody else than the provider was heard")
	}
	if !table.Answer(nil, p, "1", nil) {
		t.Error("a success was not taken")
	}
	check(t, b, "")
	table.Answer(nil, p, "1", []byte(`{"code":"x"}`))
	check(t, b, `failed 1 {"code":"x"}`)
	if s, _ := table.Find("1"); !s.Parked() || string(s.Failure) != `{"code":"x"}` {
		t.Errorf("got %+v", s)
	}
	p.take()
	offer(t, table, p, "webhook")
	check(t, p, "deliver 1")
	if s, _ := table.Find("1"); s.Parked() {
		t.Error("the second try begins with the failure of the first")
	}
}

func TestTheProviderIsSoughtInTheOwnNamespaceFirst(t *testing.T) {
	table := trigger.New(10)
	def, own, b := &party{name: "default"}, &party{name: "own"}, &party{name: "binder"}
	for space, p := range map[string]*party{"": def, "ns": own} {
		if err := table.Offer(nil, trigger.Type{Namespace: space, ID: "hook", Provider: p}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(id, space, explicit string) {
		if _, err := table.Bind(nil, &trigger.Binding{ID: id, Type: "hook", Namespace: space,
			TypeNamespace: explicit,
			Binder:        b}, false); err != nil {
			t.Fatal(err)
		}
	}
	put("1", "ns", "")
	put("2", "ns", "default")
	put("3", "elsewhere", "")
	put("4", "ns", "nowhere")
	check(t, own, "deliver 1")
	check(t, def, "deliver 2, deliver 3")
	table.Leave(nil, own)
	check(t, def, "deliver 1")
}

func TestAnIdBelongsToItsBinder(t *testing.T) {
	table, a, b, p := trigger.New(10), &party{name: "a"}, &party{name: "b"}, &party{name: "provider"}
	offer(t, table, p, "hook")
	bind(t, table, a, "1", "hook")
	_, err := table.Bind(nil, &trigger.Binding{ID: "1", Type: "hook", Binder: b}, false)
	if err == nil || err.Kind != fault.Conflict || err.Code != wire.CodeTriggerFailed {
		t.Errorf("got %v", err)
	}
	if table.Unbind(nil, b, "1", "") || table.Unbind(nil, nil, "1", "") {
		t.Error("a stranger removed a binding")
	}
	p.take()
	bind(t, table, a, "1", "hook")
	check(t, p, "retract 1, deliver 1")
}

func TestABindingWithoutABinderStays(t *testing.T) {
	table, p := trigger.New(10), &party{name: "provider"}
	wait, err := table.Bind(nil, &trigger.Binding{ID: "1", Type: "hook"}, true)
	if err != nil {
		t.Fatal(err)
	}
	offer(t, table, p, "hook")
	select {
	case <-wait:
		t.Fatal("nobody has answered")
	default:
	}
	table.Answer(nil, p, "1", nil)
	<-wait
	table.Answer(nil, p, "1", []byte(`{}`)) // a second answer harms nobody
	table.Leave(nil, p)
	if s := table.Stats(); s != (trigger.Stats{Bindings: 1, Parked: 1}) {
		t.Errorf("got %+v", s)
	}
	if !table.Unbind(nil, nil, "1", "") {
		t.Error("it cannot be removed")
	}
}

func TestSharesAreBounded(t *testing.T) {
	table, p := trigger.New(3), &party{}
	offer(t, table, p, "a")
	bind(t, table, p, "1", "a")
	bind(t, table, p, "2", "a")
	_, err := table.Bind(nil, &trigger.Binding{ID: "3", Type: "a", Binder: p}, false)
	if err == nil || err.Code != wire.CodeLimit {
		t.Errorf("got %v", err)
	}
	if err := table.Offer(nil, trigger.Type{ID: "b", Provider: p}); err == nil || err.Code != wire.CodeLimit {
		t.Errorf("got %v", err)
	}
	if err := table.Offer(nil, trigger.Type{ID: "a", Provider: p}); err != nil {
		t.Errorf("offering again takes no more room: %v", err)
	}
	for i := range 4 {
		_, err = table.Bind(nil, &trigger.Binding{ID: fmt.Sprint("free", i), Type: "a"}, false)
	}
	if err == nil || err.Code != wire.CodeLimit {
		t.Errorf("got %v", err)
	}
}

// TestProvidersHaveWhatTheTableSays drives a table at random: what each party was told must always add up to
// the bindings that the table says it has.
func TestProvidersHaveWhatTheTableSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := trigger.New(100)
		parties := []*party{{name: "0"}, {name: "1"}, {name: "2"}}
		which := rapid.SampledFrom(parties)
		kind := rapid.SampledFrom([]string{"a", "b"})
		space := rapid.SampledFrom([]string{"", "ns"})
		id := rapid.Map(rapid.IntRange(0, 5), func(i int) string { return fmt.Sprint(i) })
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				_ = table.Offer(nil, trigger.Type{Namespace: space.Draw(t, "ns"), ID: kind.Draw(t, "type"),
					Provider: which.Draw(t, "party")})
			},
			"withdraw": func(t *rapid.T) {
				table.Withdraw(nil, which.Draw(t, "party"), space.Draw(t, "ns"), kind.Draw(t, "type"))
			},
			"bind": func(t *rapid.T) {
				var binder trigger.Party
				if i := rapid.IntRange(-1, 2).Draw(t, "binder"); i >= 0 {
					binder = parties[i]
				}
				_, _ = table.Bind(nil, &trigger.Binding{ID: id.Draw(t, "id"), Type: kind.Draw(t, "type"), Binder: binder,
					Namespace: space.Draw(t, "ns"), TypeNamespace: space.Draw(t, "explicit")}, false)
			},
			"unbind": func(t *rapid.T) { table.Unbind(nil, which.Draw(t, "party"), id.Draw(t, "id"), "") },
			"answer": func(t *rapid.T) { table.Answer(nil, which.Draw(t, "party"), id.Draw(t, "id"), nil) },
			"leave": func(t *rapid.T) {
				p := which.Draw(t, "party")
				table.Leave(nil, p)
				p.has = nil // a connection that is gone has nothing
			},
			"": func(t *rapid.T) {
				want := map[string][]string{}
				for _, s := range table.Bindings() {
					if s.Type != nil {
						want[s.Type.Provider.(*party).name] = append(want[s.Type.Provider.(*party).name], s.ID)
					}
				}
				for _, p := range parties {
					var has []string
					for id := range p.has {
						if s, ok := table.Find(id); ok && s.Type != nil && s.Type.Provider == trigger.Party(p) {
							has = append(has, id)
						}
					}
					slices.Sort(has)
					if !slices.Equal(has, want[p.name]) {
						t.Fatalf("party %s has %v, the table says %v", p.name, has, want[p.name])
					}
				}
			},
		})
	})
}

func BenchmarkChurn(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("triggers_register_unregister/%d", n), func(b *testing.B) {
			table, p, binder := trigger.New(2*n), quiet{1}, quiet{2}
			_ = table.Offer(nil, trigger.Type{ID: "hook", Provider: &p})
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprint("trigger-", i)
			}
			for b.Loop() {
				for _, id := range ids {
					_, _ = table.Bind(nil, &trigger.Binding{ID: id, Type: "hook", Function: "f::x", Binder: &binder}, false)
				}
				for _, id := range ids {
					table.Unbind(nil, &binder, id, "")
				}
			}
		})
	}
	for _, n := range []int{10, 50, 200} {
		b.Run(fmt.Sprintf("worker_cleanup/triggers/%d", n), func(b *testing.B) {
			table, p, binder := trigger.New(2*n), quiet{1}, quiet{2}
			_ = table.Offer(nil, trigger.Type{ID: "hook", Provider: &p})
			for b.Loop() {
				b.StopTimer()
				for i := range n {
					_, _ = table.Bind(nil, &trigger.Binding{ID: fmt.Sprint(i), Type: "hook", Binder: &binder}, false)
				}
				b.StartTimer()
				table.Leave(nil, &binder)
			}
		})
	}
}

// quiet is a party that does nothing.
type quiet struct{ n int }

func (*quiet) Deliver(*loop.Loop, *trigger.Binding)        {}
func (*quiet) Retract(*loop.Loop, *trigger.Binding)        {}
func (*quiet) Failed(*loop.Loop, *trigger.Binding, []byte) {}

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// clock is a provider that writes down what it is told.
type clock struct {
	mu     sync.Mutex
	log    []string
	bound  map[string]worker.Binding
	refuse error
}

func (c *clock) provider() worker.TriggerProvider {
	c.bound = map[string]worker.Binding{}
	return worker.TriggerProvider{
		Register: func(_ context.Context, b worker.Binding) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.log = append(c.log, fmt.Sprintf("+%s/%s %s", b.Namespace, b.Function, b.Config))
			if c.refuse == nil {
				c.bound[b.ID] = b
			}
			return c.refuse
		},
		Unregister: func(_ context.Context, b worker.Binding) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.log = append(c.log, "-"+b.Function)
			delete(c.bound, b.ID)
		},
	}
}

// take returns what was written down since the last call.
func (c *clock) take() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.log, ", ")
	c.log = nil
	return s
}

func (c *clock) offer(w *worker.Worker) error {
	return w.RegisterTriggerType(worker.TriggerType{ID: "clock", Description: "Tells the time",
		ConfigSchema: json.RawMessage(`{"type":"object"}`), PayloadSchema: json.RawMessage(`true`)}, c.provider())
}

// instant reconnects after a millisecond.
var instant = worker.Reconnect{First: time.Millisecond, Max: time.Millisecond}

func TestTriggerGoesToItsProviderAndCallsItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := workertest.New(t), &clock{}
		p := e.Worker(t, worker.Options{Name: "p"}, c.offer)
		rung := make(chan string, 1)
		var h *worker.TriggerHandle
		e.Worker(t, worker.Options{Name: "w", Namespace: "home"}, func(w *worker.Worker) (err error) {
			err = w.Register("wake", func(ctx context.Context, payload []byte) ([]byte, error) {
				inv, _ := worker.Current(ctx)
				rung <- string(payload) + " with " + string(inv.Metadata())
				return nil, nil
			})
			if err == nil {
				h, err = w.RegisterTrigger(worker.Trigger{Type: "clock", Function: "wake",
					Config: map[string]int{"hour": 7}, Metadata: json.RawMessage(`[1]`)})
			}
			return err
		})
		if got := c.take(); got != `+home/wake {"hour":7}` {
			t.Fatalf("got %s", got)
		}
		b := c.bound[h.ID()]
		if b.Type != "clock" || string(b.Metadata) != "[1]" {
			t.Errorf("got %+v", b)
		}
		_, err := p.CallWith(t.Context(), b.Function, []byte(`"7:00"`), worker.CallBinding(b))
		if err != nil {
			t.Error(err)
		}
		if got := <-rung; got != `"7:00" with [1]` {
			t.Errorf("rung with %s", got)
		}
		if !h.Unregister() || h.Unregister() {
			t.Error("Unregister does not tell whether the trigger was there")
		}
		if got := c.take(); got != "-wake" {
			t.Errorf("got %s", got)
		}
	})
}

func TestTriggerWaitsForItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := workertest.New(t), &clock{}
		e.Worker(t, worker.Options{Name: "w", Namespace: "home"}, func(w *worker.Worker) error {
			_, err := w.RegisterTrigger(worker.Trigger{Type: "clock", Function: "wake", TypeNamespace: "time"})
			return err
		})
		p := e.Worker(t, worker.Options{Name: "p", Namespace: "time"}, nil)
		if err := c.offer(p); err != nil {
			t.Fatal(err)
		}
		if got := c.take(); got != "+home/wake " {
			t.Errorf("got %s", got)
		}
		if !p.UnregisterTriggerType("clock") || p.UnregisterTriggerType("clock") {
			t.Error("UnregisterTriggerType does not tell whether the type was there")
		}
		if got := c.take(); got != "-wake" {
			t.Errorf("got %s", got)
		}
		if err := c.offer(p); err != nil {
			t.Fatal(err)
		}
		if got := c.take(); got != "+home/wake " {
			t.Errorf("offered again: %s", got)
		}
	})
}

func TestRefusedTriggersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := workertest.New(t), &clock{}
		e.Worker(t, worker.Options{Name: "p"}, c.offer)
		failures := make(chan worker.TriggerFailure, 10)
		w := e.Worker(t, worker.Options{Name: "w", Logger: silent(),
			OnTriggerFailed: func(f worker.TriggerFailure) { failures <- f }}, nil)
		for _, refusal := range []struct {
			err     error
			code    string
			message string
		}{
			{errors.New("no such hour"), wire.CodeTriggerFailed, "no such hour"},
			{worker.Errorf("bad_hour", "hour 25"), "bad_hour", "hour 25"},
		} {
			c.refuse = refusal.err
			h, err := w.RegisterTrigger(worker.Trigger{Type: "clock", Function: "wake"})
			if err != nil {
				t.Fatal(err)
			}
			f := <-failures
			if f.ID != h.ID() || f.Type != "clock" || f.Function != "wake" || f.Err.Code != refusal.code ||
				f.Err.Message != refusal.message {
				t.Errorf("got %+v", f)
			}
			h.Unregister()
			if got := c.take(); strings.Contains(got, "-") {
				t.Errorf("what was never taken was taken back: %s", got)
			}
		}
		e.Reject("moon")
		if err := w.RegisterTriggerType(worker.TriggerType{ID: "moon"}, new(clock).provider()); err != nil {
			t.Fatal(err)
		}
		if f := <-failures; f.ID != "" || f.Type != "moon" || f.Err.Code != wire.CodeTriggerFailed {
			t.Errorf("got %+v", f)
		}
	})
}

func TestProviderThatPanicsRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		p := e.Worker(t, worker.Options{Name: "p", Logger: silent()}, func(w *worker.Worker) error {
			return w.RegisterTriggerType(worker.TriggerType{ID: "clock"}, worker.TriggerProvider{
				Register: func(_ context.Context, b worker.Binding) error {
					if b.Function == "bad" {
						panic("no hands")
					}
					return nil
				},
				Unregister: func(context.Context, worker.Binding) { panic("no feet") },
			})
		})
		failures := make(chan worker.TriggerFailure, 1)
		w := e.Worker(t, worker.Options{Name: "w", Logger: silent(),
			OnTriggerFailed: func(f worker.TriggerFailure) { failures <- f }}, nil)
		for _, name := range []string{"bad", "good"} {
			h, err := w.RegisterTrigger(worker.Trigger{Type: "clock", Function: name})
			if err != nil {
				t.Fatal(err)
			}
			if name == "bad" && !strings.Contains((<-failures).Err.Message, "no hands") {
				t.Error("the panic is not told")
			}
			synctest.Wait()
			h.Unregister()
			synctest.Wait()
		}
		if n := p.Stats().Panics; n != 2 {
			t.Errorf("%d panics", n)
		}
	})
}

func TestBindingsOutliveTheConnectionOfTheirProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := workertest.New(t), &clock{}
		e.Worker(t, worker.Options{Name: "p", Reconnect: instant, Logger: silent()}, c.offer)
		bind := func(name, function string) (h *worker.TriggerHandle) {
			e.Worker(t, worker.Options{Name: name, Reconnect: instant, Logger: silent()},
				func(w *worker.Worker) (err error) {
					h, err = w.RegisterTrigger(worker.Trigger{Type: "clock", Function: function})
					return err
				})
			return h
		}
		bind("stays", "a")
		leaves := bind("leaves", "b")
		if got := c.take(); got != "+default/a , +default/b " {
			t.Fatalf("got %s", got)
		}
		e.CutWorker("p")
		<-time.After(time.Second)
		if got := c.take(); got != "" {
			t.Errorf("they came again unchanged, yet: %s", got)
		}
		if _, n := e.Trigger("clock"); n != 2 {
			t.Errorf("the engine has %d", n)
		}

		e.Refuse(true)
		e.Cut()
		leaves.Unregister()
		<-time.After(time.Second)
		if got := c.take(); got != "" {
			t.Errorf("without a connection: %s", got)
		}
		e.Refuse(false)
		<-time.After(time.Second)
		got := c.take()
		if len(c.bound) != 1 || !strings.Contains(got, "-b") || strings.Contains(got, "+default/b") {
			t.Errorf("the one that is gone stays, or the other does not: %s", got)
		}
	})
}

func TestBindingThatChangesIsBoundAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := workertest.New(t), &clock{}
		e.Worker(t, worker.Options{Name: "p"}, c.offer)
		for _, config := range []string{"1", "1", "2"} {
			e.Send("p", fmt.Appendf(nil, `{"type":"registertrigger","id":"x","trigger_type":"clock",`+
				`"function_id":"f","config":%s}`, config))
		}
		got := c.take()
		if !strings.HasSuffix(got, "+default/f 2") || strings.Count(got, "+") > strings.Count(got, "-")+1 {
			t.Errorf("got %s", got)
		}
		before := len(c.bound)
		e.Send("p", []byte(`{"type":"registertrigger","id":"y","trigger_type":"moon","function_id":"f"}`))
		e.Send("p", []byte(`{"type":"unregistertrigger","id":"nobody"}`))
		e.Send("p", []byte(`{"type":"unregistertrigger","id":"x"}`))
		if got := c.take(); got != "-f" || before != 1 || len(c.bound) != 0 {
			t.Errorf("got %s", got)
		}
	})
}

func TestEndOfRunLetsBindingsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := workertest.New(t), &clock{}
		e.Worker(t, worker.Options{Name: "w"}, func(w *worker.Worker) error {
			_, err := w.RegisterTrigger(worker.Trigger{Type: "clock", Function: "f"})
			return err
		})
		p := fresh(t, worker.Options{Name: "p", Dial: e.Dial})
		if err := c.offer(p); err != nil {
			t.Fatal(err)
		}
		stop := run(t, p)
		if err := p.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.take(); got != "+default/f " {
			t.Errorf("got %s", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := c.take(); got != "-f" {
			t.Errorf("got %s", got)
		}
		if offered, n := e.Trigger("clock"); offered || n != 0 {
			t.Errorf("the engine still has the type, or %d triggers of it", n)
		}
		if err := c.offer(p); !errors.Is(err, worker.ErrClosed) {
			t.Errorf("a type: %v", err)
		}
		_, err := p.RegisterTrigger(worker.Trigger{Type: "clock", Function: "f"})
		if !errors.Is(err, worker.ErrClosed) {
			t.Errorf("a trigger: %v", err)
		}
	})
}

func TestProviderThatHangsDoesNotKeepRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		hang := make(chan struct{})
		p := fresh(t, worker.Options{Name: "p", Dial: e.Dial, Grace: time.Second})
		if err := p.RegisterTriggerType(worker.TriggerType{ID: "clock"}, worker.TriggerProvider{
			Register:   func(context.Context, worker.Binding) error { <-hang; return nil },
			Unregister: func(context.Context, worker.Binding) {},
		}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, p)
		e.Worker(t, worker.Options{Name: "w"}, func(w *worker.Worker) error {
			_, err := w.RegisterTrigger(worker.Trigger{Type: "clock", Function: "f"})
			return err
		})
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(hang)
	})
}

func TestBadTriggersAreRefusedAtOnce(t *testing.T) {
	w := fresh(t, worker.Options{MaxMessage: 1 << 20})
	ok := new(clock).provider()
	long, huge := strings.Repeat("x", 513), strings.Repeat("x", 1<<20)
	for name, k := range map[string]struct {
		kind     worker.TriggerType
		provider worker.TriggerProvider
	}{
		"no id":       {worker.TriggerType{}, ok},
		"long":        {worker.TriggerType{ID: long}, ok},
		"reserved":    {worker.TriggerType{ID: "engine::x"}, ok},
		"no JSON":     {worker.TriggerType{ID: "x", ConfigSchema: json.RawMessage("{")}, ok},
		"large":       {worker.TriggerType{ID: "x", PayloadSchema: slices.Repeat(json.RawMessage("1"), 1<<20)}, ok},
		"huge":        {worker.TriggerType{ID: "x", Description: huge}, ok},
		"no provider": {worker.TriggerType{ID: "x"}, worker.TriggerProvider{Register: ok.Register}},
	} {
		if err := w.RegisterTriggerType(k.kind, k.provider); err == nil {
			t.Errorf("type, %s: accepted", name)
		}
	}
	for name, trigger := range map[string]worker.Trigger{
		"no type":     {Function: "f"},
		"no function": {Type: "t"},
		"no UTF-8":    {Type: "t", Function: "\xff"},
		"no JSON":     {Type: "t", Function: "f", Config: func() {}},
		"huge":        {Type: "t", Function: "f", Config: huge},
		"bad JSON":    {Type: "t", Function: "f", Metadata: json.RawMessage("\"\xff\"")},
	} {
		if _, err := w.RegisterTrigger(trigger); err == nil {
			t.Errorf("trigger, %s: accepted", name)
		}
	}
	if err := w.RegisterWith("f", echo, worker.Metadata(huge)); err == nil {
		t.Error("a huge function: accepted")
	}
	if err := w.RegisterTriggerType(worker.TriggerType{ID: "x"}, ok); err != nil {
		t.Error(err)
	}
	if err := w.RegisterTriggerType(worker.TriggerType{ID: "x"}, ok); err == nil {
		t.Error("the same type twice: accepted")
	}
}

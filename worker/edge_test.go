package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

func TestCallsOfWhatWeDoNotHostAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		answers := make(chan string, 10)
		e.Intercept(func(m workertest.Message) workertest.Verdict {
			if !m.ToWorker && m.Type == wire.TypeInvocationResult {
				answers <- string(m.Text)
			}
			return workertest.Pass
		})
		w := e.Worker(t, worker.Options{Name: "host", MaxMessage: 1000, Logger: silent()}, hostEcho)
		large := strings.Repeat("x", 2000)
		for _, frame := range []string{
			`{"type":"invokefunction","invocation_id":"q1","function_id":"none"}`,
			`{"type":"invokefunction","function_id":"none"}`, // nobody to tell
			`{"type":"invokefunction","data":"` + large + `","function_id":"echo","invocation_id":"q2"}`,
			`{"type":"invokefunction","data":"` + large + `","function_id":"echo"}`,
			`{"type":"invocationresult","result":"` + large + `","invocation_id":"100000"}`,
			`{"type":"somethingelse","data":"` + large + `"}`,
		} {
			e.Send("host", []byte(frame))
			synctest.Wait()
		}
		for _, want := range []struct{ id, code string }{
			{"q1", wire.CodeFunctionNotFound}, {"q2", wire.CodeMessageTooLarge},
		} {
			got := <-answers
			if !strings.Contains(got, `"`+want.id+`"`) || !strings.Contains(got, `"`+want.code+`"`) {
				t.Errorf("answer %s, want %s with %s", got, want.id, want.code)
			}
		}
		s := w.Stats()
		if len(answers) != 0 || s.Refused != 4 || s.Oversized != 4 || s.Late != 1 || s.Connects != 1 {
			t.Errorf("%d more answers, stats %+v", len(answers), s)
		}
	})
}

func TestPingsOfTheEngineAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pongs := make(chan string, 1)
		w := fresh(t, worker.Options{Dial: mute(t, func(c net.Conn) {
			go func() { _, _ = c.Write(ws.AppendFrame(nil, ws.Ping, []byte("are you there"))) }()
			drainFrames(c, func(ev ws.Event) {
				if ev.Kind == ws.KindPong {
					pongs <- string(ev.Payload)
				}
			})
		})})
		run(t, w)
		if got := <-pongs; got != "are you there" {
			t.Errorf("pong %q", got)
		}
	})
}

func TestReadyEndsWithItsContextAndWithTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := fresh(t, worker.Options{Dial: e.Dial})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before Run: %v", err)
		}
		stop := run(t, w)
		if err := w.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := w.Ready(t.Context()); !errors.Is(err, worker.ErrClosed) {
			t.Errorf("after Run: %v", err)
		}
	})
}

func TestFunctionsOfAWorkerAreBounded(t *testing.T) {
	w := fresh(t, worker.Options{})
	for i := range 10_000 {
		if err := w.Register(fmt.Sprint("f", i), echo); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Register("one more", echo); err == nil {
		t.Error("accepted")
	}
	w.Unregister("f17")
	if err := w.Register("one more", echo); err != nil {
		t.Error(err)
	}
}

func TestAllFunctionsArriveHoweverManyThereAre(t *testing.T) {
	e := workertest.New(t)
	w := e.Worker(t, worker.Options{SendBuffer: 10_000, Logger: silent()}, func(w *worker.Worker) error {
		for i := range 3000 {
			if err := w.Register(fmt.Sprint("f", i), echo); err != nil {
				return err
			}
		}
		return nil
	})
	if !e.Hosts("", "f0") || !e.Hosts("", "f2999") {
		t.Error("registrations are lost")
	}
	if _, err := w.Call(t.Context(), "f1500", nil); err != nil {
		t.Error(err)
	}
}

func TestTokenInClearTextIsWarnedOf(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for address, warned := range map[string]bool{"ws://192.0.2.1:1": true, "wss://192.0.2.1:1": false,
		"ws://127.0.0.1:1": false, "ws://any:s3cret@192.0.2.1:1": true, "wss://any:s3cret@192.0.2.1:1": false} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		o := worker.Options{Token: "s3cret", Logger: log}
		if strings.Contains(address, "@") {
			o.Token = ""
		}
		w, err := worker.New(address, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(ended); err != nil {
			t.Error(err)
		}
		text := out.String()
		if strings.Contains(text, "clear text") != warned || strings.Contains(text, "s3cret") {
			t.Errorf("%s: log %q", address, text)
		}
	}
}

func TestOfflineAndQueuedCallsFailAsOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := fresh(t, worker.Options{Dial: e.Dial, MaxMessage: 200})
		_, err := w.Call(t.Context(), "echo", []byte(`"`+strings.Repeat("x", 180)+`"`))
		if !errors.Is(err, worker.ErrTooLarge) || w.Stats().Queued != 0 || w.Stats().Pending != 0 {
			t.Errorf("too large, offline: %v, %+v", err, w.Stats())
		}
		run(t, w)
		if _, err := w.Enqueue(t.Context(), "q", "none", nil); !errors.Is(err, worker.ErrNotFound) {
			t.Errorf("enqueue of a missing function: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Void(ctx, "none", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("void call of a context that has ended: %v", err)
		}
	})
}

func TestCallsThatHaveNotBegunWhenTheGraceTimeIsOverMayBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		caller := e.Worker(t, worker.Options{Name: "caller", Logger: silent()}, nil)
		host := fresh(t, worker.Options{Name: "host", Dial: e.Dial, Concurrency: 1, Grace: time.Second})
		if err := wait(host, "slow", time.Hour); err != nil {
			t.Fatal(err)
		}
		stop := run(t, host)
		if err := host.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		codes := make(chan string, 3)
		for range 3 {
			go func() {
				_, err := caller.Call(t.Context(), "slow", nil)
				codes <- code(err)
			}()
			synctest.Wait()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := map[string]int{}
		for range 3 {
			got[<-codes]++
		}
		if got["gave_up"] != 1 || got[wire.CodeDraining] != 2 {
			t.Errorf("codes %v", got)
		}
	})
}

func TestStuckConnectionDoesNotKeepRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		var gate *stuckConn
		w := fresh(t, worker.Options{Grace: 3 * time.Second, Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := e.Dial(ctx)
			gate = &stuckConn{Conn: c}
			return gate, err
		}})
		stop := run(t, w)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		open := make(chan struct{})
		gate.mu.Lock()
		gate.stuck = open
		gate.mu.Unlock()
		if err := w.Void(t.Context(), "none", nil); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(4*time.Second, func() { close(open) }) // a closed socket lets its writer go
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d < 3*time.Second || d > 5*time.Second {
			t.Errorf("Run took %v to end", d)
		}
	})
}

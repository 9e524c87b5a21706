package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// states records the states of a worker.
type states struct {
	mu  sync.Mutex
	all []worker.State
}

func (s *states) add(x worker.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, x)
}

func (s *states) phases() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, x := range s.all {
		fmt.Fprintf(&b, "%s ", x.Phase)
	}
	return strings.TrimSpace(b.String())
}

// run starts a worker and returns what ends it and waits.
func run(t *testing.T, w *worker.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		err = w.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func fresh(t *testing.T, opts worker.Options) *worker.Worker {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = silent()
	}
	w, err := worker.New("", opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// cutAll cuts the connections once all workers are ready, and waits until they have noticed.
func cutAll(t *testing.T, e *workertest.Engine) {
	t.Helper()
	synctest.Wait()
	e.Cut()
	synctest.Wait()
}

func TestReconnectsWithGrowingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		e.Refuse(true)
		var seen states
		w := fresh(t, worker.Options{Dial: e.Dial, OnState: seen.add})
		run(t, w)
		<-time.After(10 * time.Minute)
		want := time.Second
		seen.mu.Lock()
		failures := 0
		for _, s := range seen.all {
			if s.Phase != worker.Waiting {
				continue
			}
			failures++
			if s.Attempt != failures || s.Err == nil {
				t.Errorf("failure %d: state %+v", failures, s)
			}
			if least, most := want*7/10, want*13/10; s.Delay < least || s.Delay > most {
				t.Errorf("failure %d: delay %v, want %v to %v", failures, s.Delay, least, most)
			}
			want = min(2*want, 30*time.Second)
		}
		seen.mu.Unlock()
		if failures < 15 || failures > 40 {
			t.Errorf("%d attempts in ten minutes", failures)
		}
		e.Refuse(false)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.Cut()
		synctest.Wait()
		if s := w.State(); s.Phase != worker.Waiting || s.Attempt != 1 || s.Delay > 1300*time.Millisecond {
			t.Errorf("a greeted connection starts the schedule anew: %+v", s)
		}
	})
}

func TestGivesUpAfterMaxAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		e.Refuse(true)
		w := fresh(t, worker.Options{Dial: e.Dial, Reconnect: worker.Reconnect{MaxAttempts: 3}})
		waits := make(chan error, 2)
		go func() {
			_, err := w.Call(t.Context(), "x", nil)
			waits <- err
		}()
		go func() { waits <- w.Ready(t.Context()) }()
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "3 attempts") {
			t.Errorf("Run: %v", err)
		}
		for range 2 {
			if err := <-waits; !errors.Is(err, worker.ErrClosed) {
				t.Errorf("waiting when Run ended: %v", err)
			}
		}
		if _, err := w.Call(t.Context(), "x", nil); !errors.Is(err, worker.ErrClosed) {
			t.Errorf("after Run: %v", err)
		}
		if s := w.State(); s.Phase != worker.Closed || s.Err == nil {
			t.Errorf("state %+v", s)
		}
	})
}

// trail records what a worker sends.
func trail(e *workertest.Engine) func() []string {
	var mu sync.Mutex
	var all []string
	e.Intercept(func(m workertest.Message) workertest.Verdict {
		if m.ToWorker {
			return workertest.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, strings.TrimSpace(m.Type.String()+" "+m.Function))
		return workertest.Pass
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		got := all
		all = nil
		return got
	}
}

func TestFirstFramesComeInTheOrderOfTheProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		sent := trail(e)
		w := fresh(t, worker.Options{Name: "w", Dial: e.Dial})
		for _, name := range []string{"z", "a", "m"} {
			if err := w.Register(name, echo); err != nil {
				t.Fatal(err)
			}
		}
		w.Unregister("a")
		call := func(name string) chan error {
			c := make(chan error, 1)
			go func() {
				_, err := w.Call(t.Context(), name, nil)
				c <- err
			}()
			synctest.Wait()
			return c
		}
		if err := w.Void(t.Context(), "m", nil); err != nil {
			t.Fatal(err)
		}
		first := call("z")
		run(t, w)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		want := "registerfunction z, registerfunction m, invokefunction engine::workers::register, ping, " +
			"invokefunction m, invokefunction z, invocationresult z"
		if got := strings.Join(sent(), ", "); got != want {
			t.Errorf("first connection:\ngot  %s\nwant %s", got, want)
		}
		cutAll(t, e)
		second := call("z")
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		want = "reattach, registerfunction z, registerfunction m, invokefunction engine::workers::register, " +
			"ping, invokefunction z, invocationresult z"
		if got := strings.Join(sent(), ", "); got != want {
			t.Errorf("second connection:\ngot  %s\nwant %s", got, want)
		}
	})
}

func TestIntroductionSaysWhoWeAre(t *testing.T) {
	t.Setenv("III_ISOLATION", "vm")
	t.Setenv("III_WORKER_NAME", "from-env")
	t.Setenv("III_NAMESPACE", "space")
	e := workertest.New(t)
	got := make(chan []byte, 1)
	e.Intercept(func(m workertest.Message) workertest.Verdict {
		if m.Function == "engine::workers::register" {
			got <- append([]byte(nil), m.Text...)
		}
		return workertest.Pass
	})
	e.Worker(t, worker.Options{Description: "tests", Logger: silent()}, nil)
	var f struct {
		ID     *string `json:"invocation_id"`
		Action struct{ Type string }
		Data   struct {
			Runtime, Version, Name, Description, OS, Isolation, Namespace string
			PID                                                           int
			Features                                                      []string
		}
	}
	if err := json.Unmarshal(<-got, &f); err != nil {
		t.Fatal(err)
	}
	d := f.Data
	if f.ID != nil || f.Action.Type != "void" || d.Runtime != "go" || d.Version != worker.Version ||
		d.Name != "from-env" ||
		d.Description != "tests" || d.OS == "" || d.PID <= 0 || d.Isolation != "vm" || d.Namespace != "space" {
		t.Errorf("introduction %+v", f)
	}
}

func TestAnonymousWorkerSaysNoPID(t *testing.T) {
	e := workertest.New(t)
	got := make(chan []byte, 1)
	e.Intercept(func(m workertest.Message) workertest.Verdict {
		if m.Function == "engine::workers::register" {
			got <- append([]byte(nil), m.Text...)
		}
		return workertest.Pass
	})
	e.Worker(t, worker.Options{Anonymous: true, Logger: silent()}, nil)
	if text := string(<-got); strings.Contains(text, `"pid"`) || !strings.Contains(text, `"runtime":"go"`) {
		t.Errorf("introduction %s", text)
	}
}

func TestCallsMadeBeforeRunAreSentAndTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := fresh(t, worker.Options{Dial: e.Dial})
		if err := w.Register("echo", echo); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := w.CallWith(t.Context(), "echo", nil, worker.CallTimeout(2*time.Second))
		var e1 *worker.Error
		if !errors.As(err, &e1) || !errors.Is(err, worker.ErrTimeout) || !e1.Retryable() ||
			time.Since(began) != 2*time.Second {
			t.Errorf("never sent: %v after %v, retryable %v", err, time.Since(began), e1.Retryable())
		}
		done := make(chan error, 1)
		go func() {
			_, err := w.Call(t.Context(), "echo", nil)
			done <- err
		}()
		synctest.Wait()
		sent := trail(e)
		run(t, w)
		if err := <-done; err != nil {
			t.Error(err)
		}
		n := 0
		for _, s := range sent() {
			if s == "invokefunction echo" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d calls were sent, want only the one that still waits", n)
		}
	})
}

func TestSentCallsEndUnknownAndUnsentOnesAreSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var mu sync.Mutex
		runs := map[string]int{}
		e, _, caller := pair(t, func(w *worker.Worker) error {
			return w.Register("work", func(ctx context.Context, p []byte) ([]byte, error) {
				mu.Lock()
				runs[string(p)]++
				mu.Unlock()
				<-block
				return p, nil
			})
		})
		sent, unsent := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := caller.Call(t.Context(), "work", []byte("1"))
			sent <- err
		}()
		synctest.Wait()
		e.CutWorker("caller")
		synctest.Wait()
		var e1 *worker.Error
		if err := <-sent; !errors.As(err, &e1) || !errors.Is(err, worker.ErrOutcomeUnknown) || e1.Retryable() {
			t.Errorf("sent before the cut: %v", err)
		}
		go func() {
			_, err := caller.Call(t.Context(), "work", []byte("2"))
			unsent <- err
		}()
		synctest.Wait()
		if s := caller.Stats(); s.Queued == 0 || s.Pending != 1 {
			t.Errorf("offline: %+v", s)
		}
		close(block)
		if err := <-unsent; err != nil {
			t.Errorf("made after the cut: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if runs["1"] != 1 || runs["2"] != 1 {
			t.Errorf("runs %v", runs)
		}
	})
}

// stuckConn takes no bytes any more once it is stuck, like a full socket.
type stuckConn struct {
	net.Conn
	mu    sync.Mutex
	stuck chan struct{} // nil: not stuck
}

func (s *stuckConn) Write(b []byte) (int, error) {
	s.mu.Lock()
	stuck := s.stuck
	s.mu.Unlock()
	if stuck != nil {
		<-stuck
		n := min(len(b), 10) // a part of the first frame goes out
		_, _ = s.Conn.Write(b[:n])
		return n, net.ErrClosed
	}
	return s.Conn.Write(b)
}

func TestCallsInTheBufferOfABrokenConnectionAreSentOnTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		var mu sync.Mutex
		var conns []*stuckConn
		w := fresh(t, worker.Options{Name: "w", Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := e.Dial(ctx)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, &stuckConn{Conn: c})
			return conns[len(conns)-1], nil
		}})
		runs := 0
		if err := w.Register("count", func(context.Context, []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			runs++
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		run(t, w)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := conns[0]
		stuck := make(chan struct{})
		first.mu.Lock()
		first.stuck = stuck
		first.mu.Unlock()
		const n = 20
		done := make(chan error, n)
		for i := range n { // half of them in the write that is stuck, half behind it
			go func() {
				_, err := w.Call(t.Context(), "count", nil)
				done <- err
			}()
			if i == n/2 {
				synctest.Wait()
			}
		}
		if err := w.Void(t.Context(), "count", nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := w.Call(ctx, "count", nil)
			gone <- err
		}()
		synctest.Wait()
		cancel() // nobody waits for this one any more
		if err := <-gone; !errors.Is(err, worker.ErrCanceled) || !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		first.Conn.Close()
		close(stuck)
		for range n {
			if err := <-done; err != nil {
				t.Errorf("a call that never left: %v", err)
			}
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if runs != n+1 {
			t.Errorf("%d runs, want %d", runs, n+1)
		}
	})
}

func TestRefusedWorkerNameEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		e.Worker(t, worker.Options{Name: "same", Logger: silent()}, nil)
		rejected := make(chan worker.Rejection, 1)
		w := fresh(t, worker.Options{Name: "same", Dial: e.Dial,
			OnRejected: func(r worker.Rejection) { rejected <- r }})
		if err := w.Run(t.Context()); !errors.Is(err, worker.ErrWorkerConflict) {
			t.Errorf("Run: %v", err)
		}
		if r := <-rejected; r.Worker != "same" || r.Owner == "" || r.Code != wire.CodeWorkerConflict {
			t.Errorf("rejection %+v", r)
		}
	})
}

func TestTwoWorkersOfOneProcessWithoutNamesLiveTogether(t *testing.T) {
	e := workertest.New(t)
	e.Worker(t, worker.Options{Logger: silent()}, nil)
	e.Worker(t, worker.Options{Logger: silent()}, nil)
	if n := len(e.Workers()); n != 2 {
		t.Errorf("%d workers", n)
	}
}

func TestRejectedFunctionIsReportedAndTheRestWorks(t *testing.T) {
	e := workertest.New(t)
	e.Reject("taken")
	rejected := make(chan worker.Rejection, 4)
	w := e.Worker(t, worker.Options{Logger: silent(), OnRejected: func(r worker.Rejection) { rejected <- r }},
		func(w *worker.Worker) error { return errors.Join(w.Register("taken", echo), w.Register("free", echo)) })
	r := <-rejected
	if r.Function != "taken" || r.Code != wire.CodeFunctionConflict || r.Namespace != "default" {
		t.Errorf("rejection %+v", r)
	}
	if _, err := w.Call(t.Context(), "free", nil); err != nil {
		t.Error(err)
	}
	if s := w.Stats(); s.Rejected != 1 || s.Connects != 1 {
		t.Errorf("stats %+v", s)
	}
}

// mute is an engine that answers the handshake and then does only what the test says.
func mute(t *testing.T, after func(c net.Conn)) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		t.Cleanup(func() { server.Close() })
		go func() {
			b := make([]byte, 4096)
			n, err := server.Read(b)
			if err != nil {
				return
			}
			r, used, err := ws.ParseRequest(b[:n])
			if err != nil || used == 0 {
				t.Errorf("handshake: %v", err)
				return
			}
			if _, err := server.Write(ws.AppendAccept(nil, r.Key)); err == nil {
				after(server)
			}
		}()
		return client, nil
	}
}

func TestSilentEngineIsPingedAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pings := make(chan time.Time, 100)
		var seen states
		w := fresh(t, worker.Options{OnState: seen.add, Dial: mute(t, func(c net.Conn) {
			drainFrames(c, func(ev ws.Event) {
				if ev.Kind == ws.KindPing {
					pings <- time.Now()
				}
			})
		})})
		began := time.Now()
		run(t, w)
		<-time.After(59 * time.Second)
		if s := w.State(); s.Phase != worker.Connecting {
			t.Errorf("given up too early: %+v", s)
		}
		<-time.After(time.Second + time.Millisecond)
		synctest.Wait()
		if s := w.State(); s.Phase != worker.Waiting || !strings.Contains(s.Err.Error(), "sign of life") {
			t.Errorf("after 60 s of silence: %+v", s)
		}
		for i := range 2 {
			if d := (<-pings).Sub(began); d != time.Duration(i+1)*20*time.Second {
				t.Errorf("ping %d after %v", i+1, d)
			}
		}
		if len(pings) != 0 {
			t.Errorf("%d more pings", len(pings))
		}
	})
}

func TestAnsweredPingsKeepAnIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		w := e.Worker(t, worker.Options{Logger: silent()}, nil)
		before := w.Stats()
		<-time.After(time.Hour)
		s := w.Stats()
		if s.Connects != 1 || s.Phase != worker.Connected {
			t.Errorf("stats %+v", s)
		}
		if n := s.Writes - before.Writes; n < 170 || n > 181 {
			t.Errorf("%d pings in an hour", n)
		}
	})
}

func TestRefusedHandshakeTellsWhyAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t, worker.Options{Token: "old", Dial: func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				b := make([]byte, 4096)
				n, _ := server.Read(b)
				if r, _, err := ws.ParseRequest(b[:n]); err != nil || r.Header("Authorization") != "Bearer old" {
					t.Errorf("request %q: %v", b[:n], err)
				}
				_, _ = server.Write(ws.AppendRefusal(nil, 401, "this token is not known"))
			}()
			return client, nil
		}})
		run(t, w)
		<-time.After(5 * time.Second)
		s := w.State()
		var refused *worker.RefusedError
		if s.Attempt < 2 || !errors.As(s.Err, &refused) ||
			*refused != (worker.RefusedError{Status: 401, Reason: "this token is not known"}) ||
			s.Err.Error() != "worker: connect: the engine refused the connection with status 401: "+
				"this token is not known" {
			t.Errorf("state %+v", s)
		}
	})
}

// textFrame is what an engine sends.
func textFrame(text string) []byte { return ws.AppendFrame(nil, ws.Text, []byte(text)) }

// drainFrames reads what a worker sends until the connection ends.
func drainFrames(c net.Conn, see func(ws.Event)) {
	var d ws.Decoder
	cfg := ws.Config{Role: ws.Server}
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := c.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		used := 0
		for {
			ev, n, err := d.Next(&cfg, buf[used:have])
			used += n
			if err != nil {
				return
			}
			if ev.Kind == ws.KindNone {
				break
			}
			see(ev)
		}
		have = copy(buf, buf[used:have])
	}
}

func TestHandshakeThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t, worker.Options{Dial: func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() { drainFrames(server, func(ws.Event) {}) }()
			return client, nil
		}})
		run(t, w)
		<-time.After(10*time.Second + time.Millisecond)
		synctest.Wait()
		if s := w.State(); s.Phase != worker.Waiting || !errors.Is(s.Err, context.DeadlineExceeded) {
			t.Errorf("state %+v", s)
		}
	})
}

func TestWhatTheEngineDoesWrongNeverEndsTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  []byte
		reason string // of the end of the connection; empty: it stays
	}{
		"masked frame":     {ws.AppendMaskedFrame(nil, ws.Text, []byte(`{}`), 7), "masked"},
		"reserved bits":    {[]byte{0xf1, 0}, "reserved"},
		"close":            {ws.AppendClose(nil, ws.CloseGoingAway, "restart"), "restart"},
		"close, normal":    {ws.AppendClose(nil, ws.CloseNormal, ""), "closed"},
		"no JSON":          {textFrame(`{{{`), ""},
		"blank":            {textFrame(" \n"), ""},
		"unknown type":     {textFrame(`{"type":"observerstatus","id":"1"}`), ""},
		"a frame of ours":  {textFrame(`{"type":"registerfunction","id":"x"}`), ""},
		"call of nothing":  {textFrame(`{"type":"invokefunction"}`), ""},
		"result of none":   {textFrame(`{"type":"invocationresult","invocation_id":"100000"}`), ""},
		"result of text":   {textFrame(`{"type":"invocationresult","invocation_id":"ü"}`), ""},
		"rejected nothing": {textFrame(`{"type":"registrationrejected"}`), ""},
		"error of null":    {textFrame(`{"type":"error","error":null}`), ""},
		"auth error": {textFrame(`{"type":"error","error":{"code":"AUTH_ERROR","message":"who are you"}}`),
			"who are you"},
		"binary":            {ws.AppendFrame(nil, ws.Binary, []byte("OTLP{}")), ""},
		"trigger refused":   {textFrame(`{"type":"triggerregistrationresult","error":{"code":"x"}}`), ""},
		"json ping":         {textFrame(`{"type":"ping"}`), ""},
		"pong, unasked":     {ws.AppendFrame(nil, ws.Pong, []byte("x")), ""},
		"reset of the pipe": {nil, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				greeting := textFrame(`{"type":"workerregistered","worker_id":"1"}`)
				pongs := make(chan string, 10)
				w := fresh(t, worker.Options{Dial: mute(t, func(sock net.Conn) {
					if c.bytes == nil {
						sock.Close()
						return
					}
					go func() { _, _ = sock.Write(append(greeting, c.bytes...)) }()
					drainFrames(sock, func(ev ws.Event) { pongs <- string(ev.Payload) })
				})})
				run(t, w)
				<-time.After(time.Millisecond)
				synctest.Wait()
				s := w.State()
				switch {
				case c.reason == "" && s.Phase != worker.Connected:
					t.Errorf("the connection did not stay: %+v", s)
				case c.reason != "" && (s.Phase != worker.Waiting || !strings.Contains(s.Err.Error(), c.reason)):
					t.Errorf("got %+v, want an end with %q", s, c.reason)
				}
				if name == "json ping" {
					<-pongs // the introduction
					<-pongs // the ping behind it
					if got := <-pongs; got != `{"type":"pong"}` {
						t.Errorf("ping was answered with %s", got)
					}
				}
			})
		})
	}
}

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// connectTimeout is how long an engine may take to greet.
const connectTimeout = 5 * time.Second

// client is a connection to a running engine, for one verb. It is in no listing.
type client struct {
	url    string
	door   *door
	w      *worker.Worker
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned; err is set by then
	err    error
}

// connect reaches the engine or tells at once why not.
func (p *program) connect(ctx context.Context, timeout time.Duration) (*client, error) {
	d, err := p.door()
	if err != nil {
		return nil, err
	}
	p.url = d.URL
	greeted := make(chan struct{}, 1)
	w, err := worker.New(d.URL, worker.Options{
		Anonymous: true,
		Token:     d.token,
		Reconnect: worker.Reconnect{MaxAttempts: 1},
		Timeout:   -1, // every call has a deadline of its own
		Grace:     -1,
		Logger:    slog.New(slog.DiscardHandler),
		OnState: func(s worker.State) {
			if s.Phase == worker.Connected {
				select {
				case greeted <- struct{}{}:
				default:
				}
			}
		},
	})
	if err != nil {
		return nil, usage(err.Error(), "give the socket of the engine with --url, such as "+worker.DefaultURL)
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &client{url: d.URL, door: d, w: w, cancel: cancel, ended: make(chan struct{})}
	go func() { // ends with close
		defer close(c.ended)
		c.err = w.Run(own)
	}()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-greeted:
		return c, nil
	case <-c.ended:
		return nil, c.unreachable(c.err)
	case <-late.C:
		c.close()
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			return nil, c.tooLate()
		}
		return nil, c.unreachable(fmt.Errorf("no greeting within %s", timeout))
	case <-ctx.Done():
		c.close()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, c.tooLate()
		}
		return nil, context.Cause(ctx)
	}
}

// tooLate tells that the time of the verb was over before the engine greeted.
func (c *client) tooLate() error {
	return &house.Problem{Kind: fault.Timeout, Code: "TIMEOUT",
		What: "the connection to the engine at " + c.url + " timed out",
		Why:  "the time was over before the engine greeted, so nothing was called",
		Do:   "allow more time with --timeout", Err: context.DeadlineExceeded}
}

// close leaves the engine and waits until the connection is gone.
func (c *client) close() {
	c.cancel()
	<-c.ended
}

func (c *client) unreachable(err error) error {
	if refused := c.door.refused(err); refused != nil {
		return refused
	}
	why := "the connection ended"
	if err != nil {
		why = err.Error()
	}
	do := "check the address, and that it is the socket of a Plinth engine"
	if errors.Is(err, syscall.ECONNREFUSED) {
		why, do = "connection refused", "Is it running? Start it with: plinth serve"
	}
	return &house.Problem{Kind: fault.Unavailable, Code: codeUnreachable,
		What: "cannot reach the engine at " + c.url,
		Why:  why, Do: do, Err: err}
}

// request is one call of a function.
type request struct {
	name, namespace   string
	payload, metadata json.RawMessage
	void              bool
}

// call runs a function. A nil result is an absent one. The error is a *house.Problem with the code of the
// call and its trace id.
func (c *client) call(ctx context.Context, r request) (json.RawMessage, error) {
	trace, parent := newTrace()
	ctx = worker.WithTrace(ctx, parent, "")
	var options []worker.CallOption
	if r.namespace != "" {
		options = append(options, worker.CallNamespace(r.namespace))
	}
	if r.metadata != nil {
		options = append(options, worker.CallMetadata(r.metadata))
	}
	if r.void {
		return nil, c.failed(ctx, r, trace, c.w.Void(ctx, r.name, r.payload, options...))
	}
	b, err := c.w.CallWith(ctx, r.name, r.payload, options...)
	return b, c.failed(ctx, r, trace, err)
}

// failed puts the failure of a call into words.
func (c *client) failed(ctx context.Context, r request, trace string, err error) error {
	if err == nil {
		return nil
	}
	one := &house.Problem{What: "the call of " + r.name + " failed", Why: err.Error(), Code: "failed",
		Trace: trace, Err: err}
	if e := (*worker.Error)(nil); errors.As(err, &e) {
		one.Code, one.Why, one.Kind = e.Code, e.Message, kindOfCode(e.Code)
		if e.Retryable() {
			one.Do = "the function did not run: call again in a moment"
		}
	}
	var signal house.Interrupted
	switch {
	case errors.As(context.Cause(ctx), &signal):
		one.Code, one.Kind, one.Why = codeInterrupted, fault.Unavailable, signal.Error()
		one.Do = "the function may have run all the same"
	case one.Kind == fault.Timeout:
		one.What = "the call of " + r.name + " timed out"
		one.Do = "the function may still run; allow more time with --timeout"
	case one.Code == worker.CodeClosed:
		one.What, one.Do = "the connection to the engine at "+c.url+" ended",
			"the function may have run all the same"
	}
	return one
}

// newTrace makes a trace id, and the W3C traceparent that hands it over.
func newTrace() (id, traceparent string) {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	id = hex.EncodeToString(b[:16])
	return id, "00-" + id + "-" + hex.EncodeToString(b[16:]) + "-01"
}

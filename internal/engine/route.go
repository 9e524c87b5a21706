package engine

import (
	"errors"
	"strconv"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

var (
	errRetired = errors.New("engine: the worker has connected anew")
	errRevoked = errors.New("engine: the credential is no longer valid")
	errNoID    = errors.New("no such invocation")
)

// idBase is the base in which a host gets the id of a call: an opaque text of at most 16 digits.
const idBase = 16

// invoke routes a call that this worker makes.
func (k *conn) invoke(f *wire.Frame) {
	e := k.engine
	if err := k.check(f); err != nil {
		k.refuse(f.InvocationID, f.FunctionID, err)
		return
	}
	void := len(f.InvocationID) == 0
	if !wire.IsNull(f.Action) {
		switch action, _ := wire.ParseAction(f.Action); action {
		case wire.ActionVoid:
			void = true
		case wire.ActionEnqueue:
			k.refuse(f.InvocationID, f.FunctionID, fault.New(fault.Unavailable, wire.CodeEnqueueError,
				"this Plinth has no queues yet: call without the enqueue action, or with void"))
			return
		case wire.ActionUnknown:
			k.refuse(f.InvocationID, f.FunctionID, fault.New(fault.Invalid, wire.CodeInvalidArguments,
				"unknown action: use void or enqueue, or leave it out"))
			return
		}
	}
	target := e.fn.Lookup(f.Namespace, f.FunctionID)
	if target == nil {
		k.refuse(f.InvocationID, f.FunctionID, k.missing(f))
		return
	}
	c := e.fn.Acquire()
	c.Function, c.Caller, c.Loop = target, &k.peer, k.sock.Loop()
	c.Payload, c.Metadata, c.Baggage = f.Data, f.Metadata, f.Baggage
	if len(f.Baggage) > e.bounds.MaxBaggageBytes {
		c.Baggage = nil
	}
	if f.Traceparent != nil {
		c.Trace, _ = telemetry.ParseTraceparent(f.Traceparent)
	}
	if !void {
		c.SetTag(f.InvocationID)
	}
	c.Done = (*caller)(k)
	if rule := k.door.Rules; rule != nil && rule.Middleware != "" && !engineOwned(target.Name) {
		k.mediate(c, f)
		return
	}
	e.fn.Invoke(c)
}

// missing tells of a function that is not there, without telling of others to those who may not call it.
func (k *conn) missing(f *wire.Frame) *fault.Error {
	space, name := string(f.Namespace), string(f.FunctionID)
	if a := k.peer.Principal.Access; a != nil {
		n := fn.Function{Spec: fn.Spec{Namespace: space, Name: name}}
		if n.Namespace == "" {
			n.Namespace = fn.Default
		}
		if err := a.Call(&n); err != nil {
			return err
		}
	}
	return k.engine.fn.NotFound(space, name)
}

// check refuses a call that cannot be routed.
func (k *conn) check(f *wire.Frame) *fault.Error {
	b := &k.engine.bounds
	switch {
	case k.engine.draining.Load():
		return fault.New(fault.Unavailable, wire.CodeDraining, "Plinth is stopping")
	case len(f.FunctionID) == 0:
		return fault.New(fault.Invalid, wire.CodeInvalidArguments, "function_id is missing")
	case f.BadNamespace || f.Namespace != nil && wire.Blank(f.Namespace):
		return fault.New(fault.Invalid, wire.CodeInvalidNamespace,
			"namespace must be a text that is not blank; leave it out for default")
	case len(f.InvocationID) > b.MaxInvocationIDBytes:
		return over("invocation_id", b.MaxInvocationIDBytes)
	case len(f.FunctionID) > b.MaxIDBytes:
		return over("function_id", b.MaxIDBytes)
	case len(f.Metadata) > b.MaxMetadataBytes:
		return over("metadata", b.MaxMetadataBytes)
	}
	return nil
}

func over(field string, limit int) *fault.Error {
	return fault.Newf(fault.Limit, wire.CodeLimit, "%s is longer than %d bytes", field, limit)
}

// refuse answers a call that was not made. A call without an id has nobody to tell, so it is logged.
func (k *conn) refuse(id, function []byte, err *fault.Error) {
	if len(id) == 0 {
		k.complain("call dropped", "function", clipText(function), "code", err.Code, "error", err.Message)
		return
	}
	k.reply(k.sock.Loop(), id, function, fn.Outcome{Err: err})
}

// caller is a connection seen as the one that waits for an outcome.
type caller conn

// Complete relays the outcome of a call to the worker that made it. It may run on any loop.
func (w *caller) Complete(c *fn.Call, o fn.Outcome) {
	k := (*conn)(w)
	if len(c.Tag()) == 0 {
		if err := o.Error(); err != nil {
			k.engine.log.Warn("void call failed", "worker", k.peer.Name(), "function", c.Function.Name,
				"code", err.Code, "error", err.Message)
		}
		return
	}
	k.reply(c.Loop, c.Tag(), []byte(c.Function.Name), o)
}

// reply writes an invocationresult. Answers have more room than calls: as much as the largest message,
// since their reader has asked for them, and asks for no more while its queue is long (Data). When the
// caller does not read and even that is full, a short error takes the place of the answer; when not even
// that fits, the connection is closed, and so ends every call that it made.
func (k *conn) reply(l *loop.Loop, id, function []byte, o fn.Outcome) {
	if k.write(l, id, function, o, k.engine.bounds.MaxMessageBytes) {
		return
	}
	k.engine.stats.answersLost.Add(1)
	lost := fn.Outcome{Err: fault.Newf(fault.Limit, wire.CodeCallerOverloaded,
		"the answer of %d bytes does not fit your connection's write queue: read faster", len(o.Result))}
	if !k.write(l, id, function, lost, k.engine.bounds.MaxMessageBytes+roomForErrors) {
		k.sock.Close(loop.ErrQueueFull)
	}
}

// roomForErrors is what a write queue keeps for the errors that take the place of answers.
const roomForErrors = 1 << 20

// write queues an invocationresult within a bound; it reports false when there is no room.
func (k *conn) write(l *loop.Loop, id, function []byte, o fn.Outcome, limit int64) bool {
	f := wire.Frame{Type: wire.TypeInvocationResult, InvocationID: id, FunctionID: function, Result: o.Result}
	if o.Err != nil {
		f.Error = wire.AppendError(nil, &wire.Error{Code: o.Err.Code, Message: o.Err.Message,
			Stacktrace: o.Err.Stack})
	} else if o.Fail != nil {
		f.Error = o.Fail
		f.Result = nil
	}
	out := k.sock.Begin()
	start := len(out)
	out = wire.AppendResult(ws.Begin(out), &f)
	err := k.sock.EndWithin(l, ws.End(out, start, ws.Text), int(limit))
	return !errors.Is(err, loop.ErrQueueFull) // a connection that is gone has nobody to tell
}

// host is a connection seen as the target of its worker's functions.
type host conn

// Invoke sends a call to the worker that hosts the function. It may run on any loop or goroutine.
func (h *host) Invoke(c *fn.Call) {
	k := (*conn)(h)
	l, function := c.Loop, c.Function.Name
	f := wire.Frame{Type: wire.TypeInvokeFunction, FunctionID: []byte(function), Data: c.Payload,
		Metadata: c.Metadata}
	if k.session != nil {
		f.FunctionID = k.bare(function)
	}
	var room struct {
		id, trace [64]byte
		baggage   [192]byte
	}
	f.Traceparent = telemetry.AppendTraceparent(room.trace[:0], c.Trace)
	f.Baggage = appendFunction(room.baggage[:0], c.Baggage, function)
	if k.callers {
		f.Caller = appendCaller(nil, c)
	}
	id, ok := c.Park(&k.peer, nil)
	if !ok {
		return
	}
	f.InvocationID = strconv.AppendUint(room.id[:0], id, idBase)
	out := k.sock.Begin()
	start := len(out)
	out = wire.AppendInvoke(ws.Begin(out), &f)
	err := k.sock.End(l, ws.End(out, start, ws.Text))
	if err == nil {
		return
	}
	lost := fault.Newf(fault.Unavailable, wire.CodeChannelSendFailed, "worker %s is gone", k.peer.Name())
	if errors.Is(err, loop.ErrQueueFull) {
		k.engine.stats.overloaded.Add(1)
		lost = fault.Newf(fault.Limit, wire.CodeHostOverloaded,
			"worker %s does not read: %d bytes wait for it, its limit", k.peer.Name(), k.sock.Queued())
	}
	k.engine.fn.Complete(l, id, &k.peer, fn.Outcome{Err: lost})
}

// result takes a host's answer.
func (k *conn) result(f *wire.Frame) {
	o := fn.Outcome{Result: f.Result}
	if f.Failed() {
		o = fn.Outcome{Fail: f.Error}
		if f.Error[0] != '{' {
			o.Fail = wire.AppendError(nil, wire.ParseError(f.Error))
		}
	}
	k.answer(f.InvocationID, o)
}

// answer completes a call that this worker hosts. An id that is not one of its own is ignored and counted.
func (k *conn) answer(id []byte, o fn.Outcome) {
	n, err := parseID(id)
	if err != nil {
		k.engine.stats.ignored.Add(1)
		return
	}
	k.engine.fn.Complete(k.sock.Loop(), n, &k.peer, o)
}

// parseID reads an invocation id as Invoke writes it: hexadecimal, lower case, no leading zero.
func parseID(b []byte) (n uint64, err error) {
	if len(b) == 0 || len(b) > 16 || b[0] == '0' && len(b) > 1 {
		return 0, errNoID
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, errNoID
		}
	}
	return n, nil
}

// appendFunction adds the baggage member that names the called function (protocol section 11) to what the
// caller sent.
func appendFunction(dst, baggage []byte, function string) []byte {
	const member = "iii.function.id"
	if len(baggage) > 0 {
		return telemetry.SetBaggage(dst, baggage, member, function)
	}
	return telemetry.AppendBaggage(dst, member, function)
}

// appendCaller writes the `caller` member (protocol section 6.4).
func appendCaller(dst []byte, c *fn.Call) []byte {
	dst = append(dst, `{"worker_name":`...)
	dst = wire.AppendString(dst, c.Caller.Name())
	if k, ok := c.Caller.Data.(*conn); ok {
		dst = append(dst, `,"worker_id":"`...)
		dst = append(append(dst, k.id.String()...), '"')
	}
	if c.Principal.ID != "" {
		dst = append(dst, `,"principal":{"kind":`...)
		dst = wire.AppendString(dst, c.Principal.Kind)
		dst = append(dst, `,"name":`...)
		dst = wire.AppendString(dst, c.Principal.Name)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func clipText(b []byte) string {
	if len(b) > 80 {
		b = b[:80]
	}
	return string(b)
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

const (
	maxName      = 512
	maxFunctions = 10_000
	maxSchema    = 256 << 10

	registerName = "engine::workers::register"
)

// Handler runs a function: JSON in, JSON out. A nil payload is an absent one, a nil result too; null is the
// four bytes. An *Error gives the caller its Code, any other error is invocation_failed.
//
// payload is valid until the handler returns; copy what must stay longer. The result may be (part of) the
// payload and must not be changed after the handler returned it. ctx ends when Run gives up on the handler,
// after its grace time, and at the deadline of the function, if it has one; it does not end when the
// connection breaks.
type Handler = func(ctx context.Context, payload []byte) ([]byte, error)

// FunctionOption changes one registration.
type FunctionOption func(*function)

// Description describes the function in listings, up to 4 KiB.
func Description(text string) FunctionOption {
	return func(f *function) { f.description = text }
}

// Metadata attaches a value, as JSON, to the registration. {"internal": true} hides the function from
// listings.
func Metadata(v any) FunctionOption {
	return func(f *function) {
		raw, err := json.Marshal(v)
		if err != nil {
			f.err = fmt.Errorf("metadata: %w", err)
		}
		f.metadata = raw
	}
}

// Formats sets the JSON Schemas of request and response. nil leaves one as it is.
func Formats(request, response json.RawMessage) FunctionOption {
	return func(f *function) {
		if request != nil {
			f.request = request
		}
		if response != nil {
			f.response = response
		}
	}
}

// Replicas lets several workers host the function at a time, if all of them say so; each call goes to the
// one with the fewest in flight. A draining worker takes back such a registration first. It sets the member
// replicas of the metadata, which must be an object if there are any.
func Replicas() FunctionOption {
	return func(f *function) { f.replicas = true }
}

// Deadline ends the context of the handler after d.
func Deadline(d time.Duration) FunctionOption {
	return func(f *function) { f.deadline = d }
}

// function is a registered function. It does not change.
type function struct {
	name              string
	id                []byte // name, for frames
	handler           Handler
	description       string
	metadata          []byte
	request, response []byte
	invocation        []byte // how the engine calls it by HTTP; nil: this worker runs it
	replicas          bool
	deadline          time.Duration
	trusted           bool   // results come from json.Marshal
	err               error  // of an option
	frame             []byte // registerfunction
}

// Register offers a function under a name such as billing::charge, at once or when the worker connects, and
// again on every connection. It fails for a name that is registered already, that begins with engine:: or
// that is longer than 512 bytes. Whether the engine accepts is told by Options.OnRejected.
func (w *Worker) Register(name string, h Handler) error { return w.RegisterWith(name, h) }

// RegisterWith is Register with options.
func (w *Worker) RegisterWith(name string, h Handler, opts ...FunctionOption) error {
	f := &function{name: name, id: []byte(name), handler: h}
	for _, o := range opts {
		o(f)
	}
	err := f.build()
	if err == nil {
		err = w.fits(f.frame)
	}
	if err != nil {
		return fmt.Errorf("worker: register %q: %w", name, err)
	}
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		return &Error{Code: CodeClosed, Message: "register " + name + ": the worker has ended"}
	case w.functions[name] != nil:
		w.mu.Unlock()
		return fmt.Errorf("worker: register %q: the name is registered already", name)
	case len(w.functions) >= maxFunctions:
		w.mu.Unlock()
		return fmt.Errorf("worker: register %q: a worker has at most %d functions", name, maxFunctions)
	}
	w.reg.Lock()
	w.functions[name] = f
	w.reg.Unlock()
	w.order = append(w.order, f)
	w.announce(f.frame)
	return nil
}

// Unregister takes a function back. Calls that are running are finished. It reports whether there was one.
func (w *Worker) Unregister(name string) bool {
	w.mu.Lock()
	f := w.functions[name]
	if f == nil {
		w.mu.Unlock()
		return false
	}
	w.reg.Lock()
	delete(w.functions, name)
	w.reg.Unlock()
	w.order = slices.DeleteFunc(w.order, func(g *function) bool { return g == f })
	w.announce(f.withdrawal())
	return true
}

// fits refuses a registration that no engine would take: it would break each connection anew.
func (w *Worker) fits(frame []byte) error {
	if len(frame) > w.opts.MaxMessage {
		return fmt.Errorf("the registration has %d bytes, more than MaxMessage, %d", len(frame), w.opts.MaxMessage)
	}
	return nil
}

// announce sends a frame about a function if there is a connection; else the replay will tell. It releases
// mu, which the caller holds.
func (w *Worker) announce(frame []byte) {
	c, wake := w.conn, false
	if c != nil {
		wake = c.text(frame)
	}
	w.mu.Unlock()
	if wake {
		c.kick <- struct{}{}
	}
}

func (f *function) withdrawal() []byte {
	return (&wire.Frame{Type: wire.TypeUnregisterFunction, ID: f.id}).Append(nil)
}

// build checks the registration and makes its frame.
func (f *function) build() error {
	switch {
	case f.err != nil:
		return f.err
	case f.handler == nil:
		return errors.New("no handler")
	case strings.TrimSpace(f.name) == "" || len(f.name) > maxName || !utf8.ValidString(f.name):
		return fmt.Errorf("a name has 1 to %d bytes of UTF-8", maxName)
	case strings.HasPrefix(f.name, "engine::"):
		return errors.New("names that begin with engine:: are the engine's own")
	}
	if f.replicas {
		if err := f.markReplicas(); err != nil {
			return err
		}
	}
	var scratch wire.Frame
	for _, raw := range [][]byte{f.request, f.response, f.metadata} {
		if raw != nil && !validJSON(&scratch, raw) {
			return errors.New("a format or the metadata is no JSON in UTF-8")
		}
	}
	if len(f.request) > maxSchema || len(f.response) > maxSchema {
		return fmt.Errorf("a format is larger than %d bytes", maxSchema)
	}
	r := wire.Frame{Type: wire.TypeRegisterFunction, ID: f.id, RequestFormat: f.request,
		ResponseFormat: f.response, Metadata: f.metadata, Invocation: f.invocation}
	if f.description != "" {
		r.Description = []byte(f.description)
	}
	f.frame = r.Append(nil)
	return nil
}

func (f *function) markReplicas() error {
	members := map[string]json.RawMessage{}
	if f.metadata != nil {
		if err := json.Unmarshal(f.metadata, &members); err != nil {
			return fmt.Errorf("metadata of a function with replicas must be an object: %w", err)
		}
	}
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	members["replicas"] = json.RawMessage("true")
	raw, err := json.Marshal(members)
	f.metadata = raw
	return err
}

// lookup finds the function of a call.
func (w *Worker) lookup(name []byte) *function {
	w.reg.RLock()
	f := w.functions[string(name)]
	w.reg.RUnlock()
	return f
}

// introduction is the payload of engine::workers::register (protocol section 3.2).
type introduction struct {
	Runtime     string   `json:"runtime"`
	Version     string   `json:"version"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	OS          string   `json:"os"`
	PID         int      `json:"pid,omitempty"` // without one a worker is not listed
	Isolation   *string  `json:"isolation"`
	Namespace   string   `json:"namespace,omitempty"`
	Features    []string `json:"features"`
}

// replay writes the first frames of a connection: who we were (more than once if connections broke before the
// engine had read that), what we offer, who we are. The ping behind
// them is answered when the engine has read them all. Caller holds mu.
func (w *Worker) replay(c *conn, introduction []byte) {
	for _, g := range w.ghosts {
		f := wire.Frame{Type: wire.TypeReattach, PreviousWorkerID: []byte(g.workerID)}
		if g.token != "" {
			f.ReattachToken = []byte(g.token)
		}
		c.append(&f)
	}
	for _, k := range w.kinds {
		c.text(k.frame)
	}
	for _, f := range w.order {
		c.text(f.frame)
	}
	for _, h := range w.triggers {
		c.text(h.frame)
	}
	c.append(&wire.Frame{Type: wire.TypeInvokeFunction, FunctionID: []byte(registerName), Action: voidAction,
		Data: introduction})
	c.append(&wire.Frame{Type: wire.TypePing})
}

// text appends a frame that is encoded already. Caller holds Worker.mu.
func (c *conn) text(frame []byte) (wake bool) {
	start := len(c.out)
	c.out = append(ws.Begin(c.out), frame...)
	return c.seal(start, ws.Text)
}

// append appends one frame. Caller holds Worker.mu.
func (c *conn) append(f *wire.Frame) (wake bool) {
	start := len(c.out)
	c.out = f.Append(ws.Begin(c.out))
	return c.seal(start, ws.Text)
}

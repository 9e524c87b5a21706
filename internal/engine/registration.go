package engine

import (
	"context"
	"encoding/json"
	"errors"
	"unicode"
	"unicode/utf8"
	"unique"

	"github.com/plinth-run/plinth/internal/engine/httpfn"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
)

// registration handles a frame that registers something, once a hook of the listener has been asked, where
// there is one; raw is its text.
func (k *conn) registration(f *wire.Frame, raw []byte) {
	if hook := k.hooked(f.Type); hook != "" {
		k.consult(hook, f, raw)
		return
	}
	k.apply(f)
}

// apply makes a registration take effect, in the worker's namespace.
func (k *conn) apply(f *wire.Frame) {
	switch f.Type {
	case wire.TypeRegisterFunction:
		if err := k.add(f); err != nil {
			k.reject(string(f.ID), err)
			return
		}
		k.engine.news.functions()
	case wire.TypeUnregisterFunction:
		if k.engine.fn.Remove(&k.peer, k.space, k.prefixed(f.ID)) {
			k.engine.news.functions()
		}
	case wire.TypeRegisterService:
		// Services are derived from function ids; the frame carries only metadata for listings.
	case wire.TypeRegisterTriggerType:
		if err := k.offer(f); err != nil {
			k.deny(f, err)
		}
	case wire.TypeUnregisterTriggerType:
		if space, err := k.spaceOf(f); err != nil ||
			!k.engine.triggers.Withdraw(k.sock.Loop(), (*party)(k), space, string(f.ID)) {
			k.engine.stats.ignored.Add(1)
		}
	case wire.TypeRegisterTrigger:
		if err := k.bind(f); err != nil {
			k.deny(f, err)
		}
	case wire.TypeUnregisterTrigger:
		k.unbind(f)
	}
}

// deny answers a registration that was refused.
func (k *conn) deny(f *wire.Frame, err *fault.Error) {
	switch f.Type {
	case wire.TypeRegisterFunction:
		k.reject(string(f.ID), err)
	case wire.TypeRegisterTriggerType:
		k.refuseBinding(&wire.Frame{TriggerType: f.ID}, err)
	default:
		k.refuseBinding(f, err)
	}
}

// add registers a function of this worker.
func (k *conn) add(f *wire.Frame) error {
	e, b := k.engine, &k.engine.bounds
	switch {
	case len(f.ID) == 0:
		return fault.New(fault.Invalid, wire.CodeInvalidArguments, "registerfunction without an id")
	case len(f.ID) > b.MaxIDBytes:
		return over("id", b.MaxIDBytes)
	case len(f.RequestFormat) > b.MaxSchemaBytes:
		return over("request_format", b.MaxSchemaBytes)
	case len(f.ResponseFormat) > b.MaxSchemaBytes:
		return over("response_format", b.MaxSchemaBytes)
	case len(f.Metadata) > b.MaxMetadataBytes:
		return over("metadata", b.MaxMetadataBytes)
	}
	name := k.prefixed(f.ID)
	if n := e.fn.Count(&k.peer); n >= b.MaxFunctionsPerWorker &&
		e.fn.Lookup([]byte(k.space), []byte(name)) == nil {
		return over("the list of this worker's functions", b.MaxFunctionsPerWorker)
	}
	if err := k.mayRegister(k.space, name); err != nil {
		return err
	}
	marks, target := marksOf(f.Metadata), fn.Target((*host)(k))
	if !wire.IsNull(f.Invocation) {
		s, err := httpfn.Parse(f.Invocation)
		if err != nil {
			return err
		}
		if err := e.http.Check(context.Background(), s); err != nil {
			// Each call says so, with its own code; the worker's SDK would ignore a rejection.
			k.complain("HTTP function may not be called", "function", clipText(f.ID), "code", err.Code, "error",
				err.Message)
		}
		target = e.endpoint(s)
	}
	_, err := e.fn.Add(&k.peer, fn.Spec{
		Namespace: k.space, Name: name, Target: target,
		Description: cut(string(f.Description), b.MaxDescriptionBytes),
		Request:     keepRaw(f.RequestFormat), Response: keepRaw(f.ResponseFormat), Metadata: keepRaw(f.Metadata),
		Internal: marks.Internal, Replicas: marks.Replicas,
	})
	return err
}

// marks are the members of a function's metadata that mean something to the engine.
type marks struct {
	Internal bool `json:"internal"` // hidden from default listings
	Replicas bool `json:"replicas"` // other workers may host it too, if they say the same
}

func marksOf(metadata []byte) (m marks) {
	if !wire.IsNull(metadata) && json.Unmarshal(metadata, &m) != nil {
		return marks{}
	}
	return m
}

// reject tells the worker, and the log, that a function was not registered.
func (k *conn) reject(id string, err error) {
	e := k.engine
	e.stats.rejected.Add(1)
	out := wire.Frame{Type: wire.TypeRegistrationRejected, Namespace: []byte(k.space), FunctionID: []byte(id),
		Code: []byte(wire.CodeFunctionConflict), OwnerWorkerID: []byte{}}
	var fe *fault.Error
	var conflict *fn.Conflict
	switch {
	case errors.As(err, &conflict):
		if conflict.Owner != nil {
			if owner, ok := conflict.Owner.Data.(*conn); ok {
				out.OwnerWorkerID = []byte(owner.id.String())
			}
		}
	case errors.As(err, &fe):
		out.Code = []byte(fe.Code)
	}
	k.complain("function not registered", "function", clipText([]byte(id)), "namespace", k.space, "code",
		string(out.Code), "error", err.Error())
	k.send(&out)
}

// keepRaw copies a raw value out of a frame; null is absent.
func keepRaw(raw []byte) []byte {
	if wire.IsNull(raw) {
		return nil
	}
	return append(make([]byte, 0, len(raw)), raw...)
}

// cut shortens a text to at most n bytes at a character boundary.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// plain strips what a terminal or a page could be fooled with: control and bidirectional characters.
func plain(s string) string {
	clean := true
	for _, r := range s {
		clean = clean && !tricky(r)
	}
	if clean {
		return s
	}
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if !tricky(r) {
			out = append(out, r)
		}
	}
	return string(out)
}

func tricky(r rune) bool {
	return unicode.IsControl(r) || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' ||
		r == '\u200e' || r == '\u200f' || r == '\u061c' || r == utf8.RuneError
}

// shared returns one copy of a text that thousands of workers have in common.
func shared(s string) string { return unique.Make(s).Value() }

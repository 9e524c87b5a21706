// Package fault is the vocabulary of failure: one error type with a kind that decides what a door
// answers, and a stable code that clients match on.
//
// It promises that Code and Kind survive any number of %w wraps, and that an error which nobody
// classified counts as Internal, whose text a door must keep inside. An *Error is not changed after it
// was made, so everything here may be used from any goroutine. The package does not log, does not
// collect stack traces of its own and does not know HTTP statuses or wire frames: every door has its
// own table from Kind to those.
package fault

import (
	"errors"
	"fmt"
)

// Kind says what sort of failure it is, and so what the caller can do about it.
type Kind uint8

const (
	Internal    Kind = iota // our fault, or unknown: the text stays inside
	Invalid                 // the request is wrong and will stay wrong
	NotFound                // no such thing, or not for the caller's eyes
	Denied                  // the caller may not
	Conflict                // it collides with what is there
	Limit                   // a bound was hit; less or later may work
	Timeout                 // it took too long; it may have happened
	Unavailable             // the other side is gone or closing; later may work
)

// String returns the kind in lower case, as logs and metrics show it.
func (k Kind) String() string {
	switch k {
	case Internal:
		return "internal"
	case Invalid:
		return "invalid"
	case NotFound:
		return "not_found"
	case Denied:
		return "denied"
	case Conflict:
		return "conflict"
	case Limit:
		return "limit"
	case Timeout:
		return "timeout"
	case Unavailable:
		return "unavailable"
	}
	return "internal"
}

// Error is a failure with a kind. Code is the stable text that clients match on: a code of the wire
// protocol (engine-protocol section 7.1) or one of our own. Message is for people and may change
// between releases.
type Error struct {
	Kind    Kind
	Code    string
	Op      string // what was being done, as "store: open"; may be empty
	Message string
	Stack   string // a stack trace that a remote party sent, carried through as it came
	Err     error  // the cause; may be nil
}

// New returns an error of the given kind.
func New(kind Kind, code, message string) *Error {
	return &Error{Kind: kind, Code: code, Message: message}
}

// Newf is New with a formatted message. A %w verb sets the cause; with several, the causes stay together.
func Newf(kind Kind, code, format string, args ...any) *Error {
	whole := fmt.Errorf(format, args...)
	e := &Error{Kind: kind, Code: code, Message: whole.Error(), Err: errors.Unwrap(whole)}
	if _, many := whole.(interface{ Unwrap() []error }); many {
		e.Err = whole
	}
	return e
}

// Error returns "op: code: message", without the parts that are empty. The text of the cause stands in
// for an empty message and is left out otherwise.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	text := e.Message
	if text == "" && e.Err != nil {
		text = e.Err.Error()
	}
	switch {
	case e.Code == "":
	case text == "":
		text = e.Code
	default:
		text = e.Code + ": " + text
	}
	if e.Op == "" {
		return text
	}
	return e.Op + ": " + text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Is reports whether target is an *Error with the same code. Errors without a code match by identity
// only.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	if !ok || e == nil || t == nil {
		return false
	}
	return e == t || e.Code != "" && e.Code == t.Code
}

// In returns a copy of e that says which operation failed.
func (e *Error) In(op string) *Error {
	c := *e
	c.Op = op
	return &c
}

// KindOf returns the kind of the first *Error in the chain of err; Internal when there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok && e != nil {
		return e.Kind
	}
	return Internal
}

// CodeOf returns the code of the first *Error in the chain of err; empty when there is none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e != nil {
		return e.Code
	}
	return ""
}

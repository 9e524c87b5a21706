package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/plinth-run/plinth/wire"
)

// Codes that only this SDK gives; they never travel.
const (
	// CodeCanceled is the code of a call whose context was canceled.
	CodeCanceled = "CANCELED"
	// CodeClosed is the code of a call that was not sent because the worker has ended.
	CodeClosed = "CLOSED"
	// CodeInvalidJSON is the code of a call whose payload or metadata is no JSON in UTF-8.
	CodeInvalidJSON = "INVALID_JSON"
)

// Errors to compare with: errors.Is(err, worker.ErrNotFound) asks for the code.
var (
	ErrNotFound         = &Error{Code: wire.CodeFunctionNotFound}
	ErrTimeout          = &Error{Code: wire.CodeTimeout} // also the engine's INVOCATION_TIMEOUT
	ErrFailed           = &Error{Code: wire.CodeInvocationFailed}
	ErrStopped          = &Error{Code: wire.CodeInvocationStopped}
	ErrForbidden        = &Error{Code: wire.CodeForbidden}
	ErrTooLarge         = &Error{Code: wire.CodeMessageTooLarge}
	ErrHostOverloaded   = &Error{Code: wire.CodeHostOverloaded}
	ErrCallerOverloaded = &Error{Code: wire.CodeCallerOverloaded}
	ErrDraining         = &Error{Code: wire.CodeDraining}
	ErrOutcomeUnknown   = &Error{Code: wire.CodeOutcomeUnknown}
	ErrWorkerConflict   = &Error{Code: wire.CodeWorkerConflict}
	ErrCanceled         = &Error{Code: CodeCanceled}
	ErrClosed           = &Error{Code: CodeClosed}
)

// Error is how a call fails, and how a handler may fail on purpose: Code for programs, Message for people.
type Error struct {
	Code    string
	Message string
	Stack   string // of the remote handler, where it sent one

	called bool  // the outcome of a call, not made by a handler
	unsent bool  // the call never left this process
	cause  error // what ended the call here, such as context.DeadlineExceeded
}

// Errorf makes an error with a code of the application's own. A handler that returns it gives its callers
// exactly that code.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns "code: message".
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns what ended the call in this process, if that was it: the error of the context.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error of the same code. ErrTimeout stands for both timers, that of the
// caller and that of the engine.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	if !ok {
		return false
	}
	return t.Code == e.Code || t.Code == wire.CodeTimeout && e.Code == wire.CodeInvocationTimeout
}

// Retryable reports whether the function certainly did not run and the same call may succeed later: the
// host or this worker is busy, the host is draining, or the call was never sent. For OUTCOME_UNKNOWN it is
// false: only the application knows whether its function may run twice.
func (e *Error) Retryable() bool {
	switch e.Code {
	case wire.CodeHostOverloaded, wire.CodeCallerOverloaded, wire.CodeDraining:
		return true
	case wire.CodeTimeout:
		return e.unsent
	}
	return false
}

// private reports whether a code says something of the call that failed, and nothing of a call around it.
func private(code string) bool {
	switch code {
	case wire.CodeFunctionNotFound, wire.CodeFunctionNotInvokable, wire.CodeTimeout, wire.CodeInvocationTimeout,
		wire.CodeInvocationStopped, wire.CodeHostOverloaded, wire.CodeCallerOverloaded, wire.CodeDraining,
		wire.CodeOutcomeUnknown, wire.CodeMessageTooLarge, wire.CodeChannelSendFailed, wire.CodeForbidden,
		wire.CodeInvalidNamespace, CodeCanceled, CodeClosed, CodeInvalidJSON:
		return true
	}
	return false
}

// wireError turns what a handler returned into what its caller gets. The code of an error of the
// application's own is kept. The code of a call that the handler made itself, such as
// function_not_found, would be mistaken for that of the handler's function, so it moves into the message.
func wireError(err error) *wire.Error {
	var e *Error
	if !errors.As(err, &e) || e.Code == "" || e.called && private(e.Code) {
		return &wire.Error{Code: wire.CodeInvocationFailed, Message: err.Error()}
	}
	return &wire.Error{Code: e.Code, Message: e.Message, Stacktrace: e.Stack}
}

// remote makes the error of a call from the error field of its result.
func remote(raw []byte) *Error {
	e := wire.ParseError(raw)
	return &Error{Code: e.Code, Message: e.Message, Stack: e.Stacktrace, called: true}
}

// ended makes the error of a call whose context ended.
func ended(name string, err error, unsent bool) *Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: wire.CodeTimeout, called: true, unsent: unsent, cause: err,
			Message: "call of " + name + ": the deadline of its context has passed" + neverSent(unsent)}
	}
	return &Error{Code: CodeCanceled, called: true, unsent: unsent, cause: err,
		Message: "call of " + name + ": its context was canceled" + neverSent(unsent)}
}

func neverSent(unsent bool) string {
	if unsent {
		return "; it was never sent: there is no connection to the engine"
	}
	return ""
}

package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestErrorSaysOperationCodeAndMessage(t *testing.T) {
	for want, e := range map[string]*Error{
		"<nil>":                      nil,
		"":                           {},
		"message":                    {Message: "message"},
		"CODE":                       {Code: "CODE"},
		"CODE: message":              {Code: "CODE", Message: "message"},
		"store: open: CODE: message": {Op: "store: open", Code: "CODE", Message: "message"},
		"op: ":                       {Op: "op"},
		"CODE: EOF":                  {Code: "CODE", Err: io.EOF},
		"CODE: mine":                 {Code: "CODE", Message: "mine", Err: io.EOF},
		"EOF":                        {Err: io.EOF},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestKindAndCodeSurviveWrapping(t *testing.T) {
	e := New(Timeout, "INVOCATION_TIMEOUT", "too long")
	wrapped := fmt.Errorf("call orders::create: %w", fmt.Errorf("wait: %w", e))
	joined := errors.Join(io.EOF, wrapped)
	for _, err := range []error{e, wrapped, joined} {
		if KindOf(err) != Timeout || CodeOf(err) != "INVOCATION_TIMEOUT" {
			t.Errorf("%v is %v, %s", err, KindOf(err), CodeOf(err))
		}
	}
	outer := Newf(Unavailable, "GONE", "worker: %w", e)
	if KindOf(outer) != Unavailable || !errors.Is(outer, e) ||
		outer.Message != "worker: INVOCATION_TIMEOUT: too long" {
		t.Errorf("the outer error is %v, %v", KindOf(outer), outer)
	}
}

func TestUnknownErrorIsInternal(t *testing.T) {
	var none *Error
	for _, err := range []error{nil, io.EOF, errors.New("x"), none, fmt.Errorf("x: %w", none)} {
		if KindOf(err) != Internal || CodeOf(err) != "" {
			t.Errorf("%v is %v, %q", err, KindOf(err), CodeOf(err))
		}
	}
	if none.Unwrap() != nil || none.Is(New(Internal, "X", "")) {
		t.Error("an error that is none matches something")
	}
}

func TestErrorsMatchByCode(t *testing.T) {
	e := New(Limit, "TOO_MUCH", "one")
	if !errors.Is(fmt.Errorf("x: %w", e), &Error{Code: "TOO_MUCH"}) {
		t.Error("the same code does not match")
	}
	if errors.Is(e, &Error{Code: "OTHER", Kind: Limit}) || errors.Is(e, &Error{Kind: Limit}) ||
		errors.Is(e, io.EOF) {
		t.Error("it matches without the same code")
	}
	bare := &Error{Message: "m"}
	if errors.Is(bare, &Error{Message: "m"}) || !errors.Is(bare, bare) {
		t.Error("an error without a code matches others than itself")
	}
	if e.Is((*Error)(nil)) {
		t.Error("it matches no error at all")
	}
}

func TestFormattedErrorKeepsItsCauses(t *testing.T) {
	for name, c := range map[string]struct {
		err    *Error
		text   string
		causes []error
	}{
		"none": {Newf(Invalid, "C", "bad %d", 7), "bad 7", nil},
		"one":  {Newf(Invalid, "C", "read: %w", io.EOF), "read: EOF", []error{io.EOF}},
		"two": {Newf(Invalid, "C", "%w and %w", io.EOF, io.ErrClosedPipe), "EOF and io: read/write on closed pipe",
			[]error{io.EOF, io.ErrClosedPipe}},
	} {
		if c.err.Message != c.text || c.err.Kind != Invalid || c.err.Code != "C" {
			t.Errorf("%s: got %+v", name, c.err)
		}
		for _, cause := range c.causes {
			if !errors.Is(c.err, cause) {
				t.Errorf("%s: %v is lost", name, cause)
			}
		}
		if c.causes == nil && c.err.Err != nil {
			t.Errorf("%s: a cause was invented: %v", name, c.err.Err)
		}
	}
}

func TestOperationIsAddedToACopy(t *testing.T) {
	e := New(NotFound, "NOT_FOUND", "no such key")
	in := e.In("state: get")
	if e.Op != "" || in.Op != "state: get" || in.Code != e.Code || !errors.Is(in, e) {
		t.Errorf("got %+v from %+v", in, e)
	}
}

func TestKindsHaveNames(t *testing.T) {
	names := map[string]bool{}
	for k := Internal; k <= Unavailable; k++ {
		names[k.String()] = true
	}
	if len(names) != 8 || Kind(99).String() != "internal" || Conflict.String() != "conflict" {
		t.Errorf("got %v", names)
	}
}

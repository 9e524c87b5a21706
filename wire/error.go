package wire

import "unicode/utf8"

// Error is a failure as it travels: the shape of the field error of a frame, and what Scan returns.
type Error struct {
	Code       string // what programs match on, see the Code constants
	Message    string // for people
	Stacktrace string // of the handler, if its SDK sent one
}

// Error returns "code: message".
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Is reports whether target is an *Error of the same code, so that errors.Is(err, &Error{Code: c})
// asks for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// ParseError reads Frame.Error. It returns nil if raw is absent or null: nothing failed. An object with
// a text code and a text message (and a text stacktrace) is taken as it is. All else is CodeUnknown,
// with the message where there is a readable one and otherwise the start of the value itself.
func ParseError(raw []byte) *Error {
	if IsNull(raw) {
		return nil
	}
	var code, message, stack []byte
	ok := members(raw, func(key, value []byte) {
		switch string(key) {
		case "code":
			code = text(value)
		case "message":
			message = text(value)
		case "stacktrace":
			stack = text(value)
		}
	})
	if ok && code != nil && message != nil {
		return &Error{Code: string(code), Message: string(message), Stacktrace: string(stack)}
	}
	e := &Error{Code: CodeUnknown}
	switch {
	case ok && message != nil:
		e.Message, e.Stacktrace = string(message), string(stack)
	case loneText(raw):
		e.Message = string(text(raw))
	default:
		e.Message = excerpt(raw)
	}
	return e
}

// loneText reports whether raw is one valid JSON string.
func loneText(raw []byte) bool {
	if raw[0] != '"' {
		return false
	}
	end, _ := stringEnd(raw, 1)
	return end == len(raw)-1
}

// excerpt returns the start of a value as readable text.
func excerpt(raw []byte) string {
	const most = 256
	if len(raw) <= most {
		return string(toValid(raw))
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(raw[cut]) {
		cut--
	}
	return string(toValid(raw[:cut])) + "…"
}

func toValid(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	dst := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

// AppendError appends e as the value of the field error: an object with code, message and, if there
// is one, stacktrace. A nil e is null.
func AppendError(dst []byte, e *Error) []byte {
	if e == nil {
		return append(dst, "null"...)
	}
	dst = AppendString(append(dst, `{"code":`...), e.Code)
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	if e.Stacktrace != "" {
		dst = AppendString(append(dst, `,"stacktrace":`...), e.Stacktrace)
	}
	return append(dst, '}')
}

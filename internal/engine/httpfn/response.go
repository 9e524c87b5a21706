package httpfn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Bounds of an answer that says what went wrong.
const (
	maxErrorBody = 64 << 10
	maxCode      = 128
	maxMessage   = 4 << 10
	firstRead    = 4 << 10
)

// answer makes an outcome of a response. An error that has a cause broke off while it was read: the caller
// says why.
func (c *Client) answer(res *http.Response) ([]byte, *fault.Error) {
	most := c.policy.MaxResponse
	if res.StatusCode >= 400 {
		most = min(most, maxErrorBody)
	}
	switch {
	case res.StatusCode < 100:
		return nil, fault.New(fault.Unavailable, wire.CodeHTTPResponseFailed, "the answer has a status below 100")
	case res.StatusCode == http.StatusSwitchingProtocols:
		return nil, nil // what follows is no body, and nobody asked for it
	}
	b := buffer{client: c}
	defer b.release()
	ferr := b.read(res.Body, res.ContentLength, most)
	if res.StatusCode >= 400 {
		return nil, refusal(res.StatusCode, b.bytes, ferr == nil)
	}
	if ferr != nil {
		return nil, ferr
	}
	value, why := result(b.bytes)
	coded := res.Header.Get("Content-Encoding")
	if coded != "" && !strings.EqualFold(coded, "identity") && len(b.bytes) > 0 {
		value, why = nil, "it is encoded, for which the engine did not ask"
	}
	if why != "" && res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil, fault.New(fault.Invalid, wire.CodeInvalidResponse, "the answer is no result: "+why)
	}
	return value, nil
}

// result returns the JSON value that a body is, nil for a blank one, or why it is none. Everything that the
// frames of the protocol would not carry is none.
func result(body []byte) (value []byte, why string) {
	body = bytes.Trim(body, " \t\r\n")
	switch {
	case len(body) == 0:
		return nil, ""
	case !utf8.Valid(body):
		return nil, "it is not UTF-8"
	case !json.Valid(body):
		return nil, "it is not JSON"
	case deeper(body, wire.MaxDepth-1): // the frame around it is one level
		return nil, fmt.Sprintf("it is nested deeper than %d levels", wire.MaxDepth-1)
	}
	return body, ""
}

// deeper reports whether valid JSON nests deeper than most.
func deeper(b []byte, most int) bool {
	depth, inText := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// refusal makes an error of an answer of 400 and more: the endpoint's own if the body is {"error": {...}}.
func refusal(status int, body []byte, whole bool) *fault.Error {
	e := &fault.Error{Kind: kindOf(status), Code: wire.CodeHTTPError, Message: fmt.Sprintf("HTTP %d", status)}
	var own struct {
		Error map[string]json.RawMessage `json:"error"`
	}
	if !whole || json.Unmarshal(body, &own) != nil {
		return e
	}
	var code, message string
	if json.Unmarshal(own.Error["code"], &code) == nil && token(code) && len(code) <= maxCode {
		e.Code = code
	}
	if json.Unmarshal(own.Error["message"], &message) == nil {
		e.Message = cmp.Or(readable(message), e.Message)
	}
	return e
}

func kindOf(status int) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound, http.StatusGone:
		return fault.NotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return fault.Conflict
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return fault.Limit
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return fault.Timeout
	}
	if status < 500 {
		return fault.Invalid
	}
	return fault.Unavailable
}

// readable cuts a foreign message and takes out what could fool a terminal.
func readable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError) {
			return -1
		}
		return r
	}, s)
	if len(s) <= maxMessage {
		return s
	}
	n := maxMessage
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// withoutSecret takes the secret of a request out of an error that an endpoint sent back.
func withoutSecret(e *fault.Error, secret string) *fault.Error {
	if secret == "" || !strings.Contains(e.Message, secret) && !strings.Contains(e.Code, secret) {
		return e
	}
	out := *e
	out.Message = strings.ReplaceAll(e.Message, secret, "[secret]")
	if strings.Contains(e.Code, secret) {
		out.Code = wire.CodeHTTPError
	}
	return &out
}

// buffer takes in a body. What all buffers hold together is bounded.
type buffer struct {
	client *Client
	bytes  []byte
	held   int64
}

// read reads all of r. A length that was announced is believed only as far as it is cheap.
func (b *buffer) read(r io.Reader, announced, most int64) *fault.Error {
	if announced > most {
		return tooLarge(most)
	}
	size := min(max(announced+1, 512), firstRead, most+1)
	if announced == 0 {
		size = 1
	}
	for {
		if int64(cap(b.bytes)) < size && !b.grow(size) {
			return overloaded("too many bytes of answers are being read; retry later")
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case int64(len(b.bytes)) > most:
			return tooLarge(most)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &fault.Error{Code: wire.CodeHTTPResponseFailed, Err: err}
		case len(b.bytes) == cap(b.bytes):
			size = min(2*int64(cap(b.bytes))+1, most+1)
		}
	}
}

func (b *buffer) grow(size int64) bool {
	c := b.client
	if c.stats.held.Add(size-b.held) > heldResponses*c.policy.MaxResponse {
		c.stats.held.Add(b.held - size)
		return false
	}
	b.held = size
	fresh := make([]byte, len(b.bytes), size)
	copy(fresh, b.bytes)
	b.bytes = fresh
	return true
}

func (b *buffer) release() { b.client.stats.held.Add(-b.held) }

func tooLarge(most int64) *fault.Error {
	return fault.Newf(fault.Limit, wire.CodeHTTPResponseFailed, "the answer is larger than %d bytes", most)
}

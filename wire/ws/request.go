package ws

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/plinth-run/plinth/wire"
)

const (
	maxHeaders = 100
	keySize    = 24 // base64 of 16 bytes
)

// HandshakeError is a handshake that failed: what a server refuses with, or was refused with.
type HandshakeError struct {
	Status int    // HTTP status; 0 if the peer's answer was none
	Reason string // one line for people
}

// Error returns the reason.
func (e *HandshakeError) Error() string { return "websocket: handshake: " + e.Reason }

func refuse(status int, reason string) error { return &HandshakeError{Status: status, Reason: reason} }

// Request is the head of one HTTP/1.1 GET request. Its texts are copies.
type Request struct {
	Method string
	Path   string // as it was sent, percent signs and all; begins with a slash
	Query  string // behind the question mark, as it was sent
	Host   string
	Origin string // empty if there was none: not a browser
	// Upgrade: the request asks for a WebSocket, and Key is good. Otherwise it is a plain request
	// without a body.
	Upgrade bool
	Key     string // Sec-WebSocket-Key

	headers []headerLine
}

type headerLine struct{ name, value string }

// Header returns the value of the first header of a name, in any case, or "".
func (r *Request) Header(name string) string {
	for _, h := range r.headers {
		if strings.EqualFold(h.name, name) {
			return h.value
		}
	}
	return ""
}

// Headers returns all headers, with names in lower case; the values of one name are joined by ", " in the
// order in which they came (RFC 9110 section 5.3).
func (r *Request) Headers() map[string]string {
	all := make(map[string]string, len(r.headers))
	for _, h := range r.headers {
		name := strings.ToLower(h.name)
		if v, ok := all[name]; ok {
			all[name] = v + ", " + h.value
			continue
		}
		all[name] = h.value
	}
	return all
}

// ParseRequest reads the request head at the start of b and returns how many bytes it has; 0 without
// an error means that more bytes are needed. It takes GET of HTTP/1.1 and no body. The error is a
// *HandshakeError with the status to refuse with: 400 for what is malformed or ambiguous (folded or
// bad headers; host, key or other singular headers missing or repeated), 405 for another method, 426
// for another WebSocket version, 431 for more than wire.MaxHeadBytes or 100 headers, 505 for another
// HTTP version.
func ParseRequest(b []byte) (r Request, n int, err error) {
	if len(b) > 0 && !isToken(string(b[:1])) {
		if b[0] == 0x16 {
			return r, 0, refuse(400, "TLS on a port that speaks plain HTTP")
		}
		return r, 0, refuse(400, "malformed request line")
	}
	end := headEnd(b)
	if end < 0 {
		if len(b) >= wire.MaxHeadBytes {
			return r, 0, refuse(431, "request head too large")
		}
		return r, 0, nil
	}
	if end > wire.MaxHeadBytes {
		return r, 0, refuse(431, "request head too large")
	}
	line, rest, _ := strings.Cut(string(b[:end-2]), "\r\n")
	if err = r.requestLine(line); err != nil {
		return r, 0, err
	}
	if r.headers, err = parseHeaders(rest); err != nil {
		return r, 0, err
	}
	if err = r.check(); err != nil {
		return r, 0, err
	}
	return r, end, nil
}

// headEnd returns the index behind the empty line that ends a head, or -1.
func headEnd(b []byte) int {
	i := bytes.Index(b[:min(len(b), wire.MaxHeadBytes+4)], []byte("\r\n\r\n"))
	if i < 0 {
		return -1
	}
	return i + 4
}

func (r *Request) requestLine(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !isToken(method) {
		return refuse(400, "malformed request line")
	}
	if proto != "HTTP/1.1" {
		if strings.HasPrefix(proto, "HTTP/") && !strings.Contains(proto, " ") {
			return refuse(505, "only HTTP/1.1 is spoken here")
		}
		return refuse(400, "malformed request line")
	}
	if method != "GET" {
		return refuse(405, "only GET is allowed here")
	}
	if !strings.HasPrefix(target, "/") || !visible(target) || strings.Contains(target, "#") {
		return refuse(400, "malformed request target")
	}
	r.Method = method
	r.Path, r.Query, _ = strings.Cut(target, "?")
	return nil
}

// parseHeaders reads header lines, each with its line end.
func parseHeaders(s string) ([]headerLine, error) {
	n := strings.Count(s, "\r\n")
	if n > maxHeaders {
		return nil, refuse(431, "too many headers")
	}
	hs := make([]headerLine, 0, n)
	for s != "" {
		var line string
		line, s, _ = strings.Cut(s, "\r\n")
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			return nil, refuse(400, "folded header")
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !isToken(name) || !isValue(value) {
			return nil, refuse(400, "malformed header")
		}
		hs = append(hs, headerLine{name, value})
	}
	return hs, nil
}

// check fills the fields of r from its headers.
func (r *Request) check() error {
	for _, name := range []string{"Host", "Origin", "Authorization", "Content-Length", "Transfer-Encoding",
		"Sec-WebSocket-Key", "Sec-WebSocket-Version"} {
		if r.count(name) > 1 {
			return refuse(400, "repeated header "+name)
		}
	}
	if r.count("Host") == 0 {
		return refuse(400, "missing header Host")
	}
	r.Host, r.Origin = r.Header("Host"), r.Header("Origin")
	if r.count("Transfer-Encoding") > 0 || r.count("Content-Length") > 0 && r.Header("Content-Length") != "0" {
		return refuse(400, "request with a body")
	}
	if !r.has("Upgrade", "websocket") || !r.has("Connection", "upgrade") {
		return nil
	}
	if r.Header("Sec-WebSocket-Version") != "13" {
		return refuse(426, "WebSocket version 13 is spoken here")
	}
	r.Key = r.Header("Sec-WebSocket-Key")
	if !validKey(r.Key) {
		return refuse(400, "missing or malformed Sec-WebSocket-Key")
	}
	r.Upgrade = true
	return nil
}

func (r *Request) count(name string) (n int) {
	for _, h := range r.headers {
		if strings.EqualFold(h.name, name) {
			n++
		}
	}
	return n
}

func (r *Request) has(name, token string) bool { return hasToken(r.headers, name, token) }

// hasToken reports whether a comma separated header has a token, in any case.
func hasToken(hs []headerLine, name, token string) bool {
	for _, h := range hs {
		if !strings.EqualFold(h.name, name) {
			continue
		}
		for part := range strings.SplitSeq(h.value, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), token) {
				return true
			}
		}
	}
	return false
}

func validKey(key string) bool {
	var raw [18]byte
	if len(key) != keySize {
		return false
	}
	n, err := base64.StdEncoding.Decode(raw[:], []byte(key))
	return err == nil && n == 16
}

// isToken reports whether s is a token of HTTP (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// isValue reports whether s may be the value of a header: no control characters but tabs.
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// visible reports whether s has only visible ASCII.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

package httpfn

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Spec says how a function is called: the member "invocation" of a registration. It is not changed after
// Parse.
type Spec struct {
	URL     string
	Method  string
	Timeout time.Duration
	Headers map[string]string // as they were given; no two differ in case alone
	Auth    *Auth             // nil is none
}

// Auth says with which secret a request proves itself. The keys are names of environment variables, never
// the secrets.
type Auth struct {
	Type      string // "hmac", "bearer" or "api_key"
	SecretKey string // hmac
	TokenKey  string // bearer
	Header    string // api_key: where the key goes
	ValueKey  string // api_key
}

// Kinds of Auth.
const (
	authHMAC   = "hmac"
	authBearer = "bearer"
	authAPIKey = "api_key"
)

// Parse reads a Spec and checks all that can be told without a policy. Members that it does not know are
// passed over. The errors are of the kind Invalid, with INVALID_ARGUMENTS or, for the URL,
// url_validation_failed.
func Parse(raw []byte) (*Spec, *fault.Error) {
	if len(raw) > maxRaw {
		return nil, invalid("invocation is larger than %d bytes", maxRaw)
	}
	m, ok := object(raw)
	if !ok {
		return nil, invalid("invocation is not an object")
	}
	s := &Spec{Method: http.MethodPost, Timeout: defaultTimeout}
	if err := text(m, "url", &s.URL); err != nil {
		return nil, err
	}
	if err := text(m, "method", &s.Method); err != nil {
		return nil, err
	}
	if v := m["timeout_ms"]; !wire.IsNull(v) {
		var ms float64
		if json.Unmarshal(v, &ms) != nil || !(ms >= 0 && ms <= float64(maxTimeout/time.Millisecond)) {
			return nil, invalid("timeout_ms must be a number of milliseconds from 1 to %d",
				maxTimeout/time.Millisecond)
		}
		s.Timeout = time.Duration(math.Ceil(ms)) * time.Millisecond
	}
	if v := m["headers"]; !wire.IsNull(v) {
		if json.Unmarshal(v, &s.Headers) != nil {
			return nil, invalid("headers must be an object of texts")
		}
	}
	var err *fault.Error
	if s.Auth, err = parseAuth(m["auth"]); err != nil {
		return nil, err
	}
	if _, err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func parseAuth(raw []byte) (*Auth, *fault.Error) {
	if wire.IsNull(raw) {
		return nil, nil
	}
	m, ok := object(raw)
	if !ok {
		return nil, invalid("auth is not an object")
	}
	a := &Auth{}
	if err := text(m, "type", &a.Type); err != nil {
		return nil, err
	}
	for name, to := range a.members() {
		if err := text(m, name, to); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// members are the texts that belong to the kind of a, in no order.
func (a *Auth) members() map[string]*string {
	switch a.Type {
	case authHMAC:
		return map[string]*string{"secret_key": &a.SecretKey}
	case authBearer:
		return map[string]*string{"token_key": &a.TokenKey}
	case authAPIKey:
		return map[string]*string{"header": &a.Header, "value_key": &a.ValueKey}
	}
	return nil
}

// variable returns the name of the environment variable.
func (a *Auth) variable() string {
	switch a.Type {
	case authHMAC:
		return a.SecretKey
	case authBearer:
		return a.TokenKey
	}
	return a.ValueKey
}

// object reads the members of a JSON object. Their names are compared as they are, and of two with the same
// name the last counts.
func object(raw []byte) (m map[string]json.RawMessage, ok bool) {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	return m, json.Unmarshal(raw, &m) == nil
}

// text reads a member that must be a text where it is there; null is absent. The value is not repeated in
// the error: it may be a secret at a wrong place.
func text(m map[string]json.RawMessage, name string, to *string) *fault.Error {
	v := m[name]
	if wire.IsNull(v) {
		return nil
	}
	if json.Unmarshal(v, to) != nil {
		return invalid("%s must be a text", name)
	}
	return nil
}

// check tells whether s is well formed, and returns its URL.
func (s *Spec) check() (*target, *fault.Error) {
	t, err := parseURL(s.URL)
	if err != nil {
		return nil, err
	}
	switch s.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil, invalid("method must be GET, POST, PUT, PATCH or DELETE")
	}
	if s.Timeout < minTimeout || s.Timeout > maxTimeout {
		return nil, invalid("timeout_ms must be from %d to %d", minTimeout/time.Millisecond,
			maxTimeout/time.Millisecond)
	}
	taken, err := s.checkHeaders()
	if err != nil {
		return nil, err
	}
	if s.Auth != nil {
		if err := s.Auth.check(taken); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// checkHeaders returns the names of the configured headers in lower case.
func (s *Spec) checkHeaders() (map[string]bool, *fault.Error) {
	if len(s.Headers) > maxHeaders {
		return nil, invalid("there are %d headers, at most %d", len(s.Headers), maxHeaders)
	}
	seen := make(map[string]bool, len(s.Headers))
	size := 0
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value := s.Headers[name]
		size += len(name) + len(value)
		if size > maxHeader {
			return nil, invalid("the headers have more than %d bytes", maxHeader)
		}
		lower := strings.ToLower(name)
		switch {
		case !token(name):
			return nil, invalid("a header has a name that HTTP does not allow")
		case reserved(lower):
			return nil, invalid("header %s is set by the engine", name)
		case seen[lower]:
			return nil, invalid("header %s is there twice", name)
		case !visible(value):
			return nil, invalid("header %s has a value that HTTP does not allow", name)
		}
		seen[lower] = true
	}
	return seen, nil
}

func (a *Auth) check(taken map[string]bool) *fault.Error {
	header := ""
	switch a.Type {
	case authHMAC:
	case authBearer:
		header = "authorization"
	case authAPIKey:
		header = strings.ToLower(a.Header)
		if !token(a.Header) {
			return invalid("auth.header is not the name of a header")
		}
		if reserved(header) {
			return invalid("auth.header %s is set by the engine", a.Header)
		}
	default:
		return invalid("auth.type must be hmac, bearer or api_key")
	}
	if taken[header] {
		return invalid("the header of auth stands in headers too")
	}
	// A secret in the place of a name is the likely mistake here, so the text does not repeat it.
	if !envName(a.variable()) {
		return invalid("auth of type %s must name an environment variable of the engine", a.Type)
	}
	return nil
}

// token reports whether s is a token of RFC 9110 section 5.6.2.
func token(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !alnum(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

func alnum(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// visible reports whether s may be a header value: visible ASCII, with spaces and tabs inside only.
func visible(s string) bool {
	for i := range len(s) {
		c := s[i]
		blank := c == ' ' || c == '\t'
		if blank && (i == 0 || i == len(s)-1) || !blank && (c <= ' ' || c >= 0x7f) {
			return false
		}
	}
	return true
}

func envName(s string) bool {
	if s == "" || len(s) > maxName || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && s[i] != '_' {
			return false
		}
	}
	return true
}

// reserved names the headers that frame a message, belong to one hop, or are the engine's to say. The name is
// in lower case.
func reserved(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding", "trailer", "te", "connection", "keep-alive", "upgrade",
		"proxy-connection", "proxy-authenticate", "proxy-authorization", "expect", "http2-settings",
		"accept-encoding", "content-encoding", "traceparent":
		return true
	}
	return strings.HasPrefix(name, "x-iii-")
}

// Append appends s as JSON, in the shape that Parse reads, for the disk and for listings.
func (s *Spec) Append(dst []byte) []byte {
	dst = wire.AppendString(append(dst, `{"url":`...), s.URL)
	dst = wire.AppendString(append(dst, `,"method":`...), s.Method)
	dst = strconv.AppendInt(append(dst, `,"timeout_ms":`...), s.Timeout.Milliseconds(), 10)
	dst = append(dst, `,"headers":{`...)
	for i, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(wire.AppendString(dst, name), ':')
		dst = wire.AppendString(dst, s.Headers[name])
	}
	dst = append(dst, '}')
	if a := s.Auth; a != nil {
		dst = wire.AppendString(append(dst, `,"auth":{"type":`...), a.Type)
		m := a.members()
		for _, name := range slices.Sorted(maps.Keys(m)) {
			dst = append(wire.AppendString(append(dst, ','), name), ':')
			dst = wire.AppendString(dst, *m[name])
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// MarshalJSON is Append for encoding/json.
func (s *Spec) MarshalJSON() ([]byte, error) { return s.Append(nil), nil }

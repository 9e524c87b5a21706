package httpfn

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Names of headers as section 10 writes them. HTTP does not tell case in them.
const (
	headerFunction   = "x-iii-Function-Path"
	headerInvocation = "x-iii-Invocation-ID"
	headerTimestamp  = "x-iii-Timestamp"
	headerTrace      = "x-iii-Trace-ID"
	headerCaller     = "x-iii-Caller-Function"
	headerType       = "x-iii-Trigger-Type"
	headerTrigger    = "x-iii-Trigger-ID"
	headerSignature  = "x-iii-Signature"
)

// request is an HTTP request and the secret that is in it, which no error may repeat.
type request struct {
	*http.Request
	secret string
	body   *payload // nil is none
}

// payload is a body that tells when the transport has let go of it.
type payload struct {
	bytes.Reader
	once   sync.Once
	closed chan struct{}
}

// Close is called by the transport, which promises to do so whatever happens.
func (p *payload) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// wait returns when the body is not read any more.
func (r *request) wait() {
	if r.body != nil {
		<-r.body.closed
	}
}

// request builds the request. It has no GetBody: a body that was begun is never sent a second time.
func (c *Client) request(s *Spec, t *target, call *Call) (*request, *fault.Error) {
	now := c.now().Unix()
	if now <= 0 {
		return nil, fault.New(fault.Internal, wire.CodeTimestampError, "the clock stands before 1970")
	}
	stamp := strconv.FormatInt(now, 10)
	h := make(http.Header, len(s.Headers)+12)
	h.Set("User-Agent", "plinth")
	h.Set("Accept", "application/json")
	if call.Payload != nil {
		h.Set("Content-Type", "application/json")
	}
	for name, value := range s.Headers {
		h.Set(name, value)
	}
	for name, value := range map[string]string{
		headerFunction: call.Function, headerInvocation: call.InvocationID, headerTimestamp: stamp,
		headerTrace: call.TraceID, headerCaller: call.Caller, headerType: call.TriggerType,
		headerTrigger: call.TriggerID, "traceparent": call.Traceparent,
	} {
		if value != "" {
			h[name] = []string{escape(value)}
		}
	}
	r := &request{Request: &http.Request{Method: s.Method, URL: t.url, Host: t.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody}}
	if s.Auth != nil {
		var err *fault.Error
		if r.secret, err = c.prove(h, s.Auth, stamp, call.Payload); err != nil {
			return nil, err
		}
	}
	if n := len(call.Payload); n > 0 {
		r.body = &payload{closed: make(chan struct{})}
		r.body.Reset(call.Payload)
		r.Body, r.ContentLength = r.body, int64(n)
	}
	return r, nil
}

// prove adds the header of auth.
func (c *Client) prove(h http.Header, a *Auth, stamp string, body []byte) (string, *fault.Error) {
	code := map[string]string{authHMAC: wire.CodeSecretNotFound, authBearer: wire.CodeTokenNotFound,
		authAPIKey: wire.CodeAPIKeyNotFound}[a.Type]
	secret, ok := c.getenv(a.variable())
	switch {
	case !ok || secret == "":
		return "", fault.Newf(fault.Unavailable, code, "the environment variable %s is not set where Plinth runs",
			a.variable())
	case a.Type != authHMAC && !visible(secret):
		return "", fault.Newf(fault.Unavailable, code,
			"the environment variable %s holds what no HTTP header can carry, such as a line break", a.variable())
	}
	switch a.Type {
	case authHMAC:
		h[headerSignature] = []string{Signature(secret, stamp, body)}
	case authBearer:
		h.Set("Authorization", "Bearer "+secret)
	case authAPIKey:
		h.Set(a.Header, secret)
	}
	return secret, nil
}

// Signature returns the text of the header x-iii-Signature: HMAC-SHA256 with the secret over the timestamp
// (Unix seconds, decimal), a colon, and the body in standard base64 with padding; in hexadecimal after
// "sha256=".
func Signature(secret, timestamp string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	// Writing to a hash does not fail, nor does an encoder over it.
	_, _ = io.WriteString(m, timestamp+":")
	w := base64.NewEncoder(base64.StdEncoding, m)
	_, _ = w.Write(body)
	_ = w.Close()
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// escape makes a header value of an id, which may be any text: what is not visible ASCII, and the percent
// sign, is percent-encoded.
func escape(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && s[i] > ' ' && s[i] < 0x7f && s[i] != '%'
	}
	if plain {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

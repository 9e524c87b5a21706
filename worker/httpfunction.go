package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/plinth-run/plinth/wire"
)

// HTTPInvocation says how the engine calls a function that is an HTTP endpoint: the payload is the body of
// the request, and the JSON of the answer is the result.
type HTTPInvocation struct {
	URL     string            // http or https; the engine's rules say which hosts it may be
	Method  string            // GET, POST, PUT, PATCH or DELETE; empty: POST
	Timeout time.Duration     // of one request, in whole milliseconds, rounded up; 0: 30 s
	Headers map[string]string // sent with each request; no place for secrets: listings show them
	Auth    *HTTPAuth         // nil: none
}

// HTTPAuth says how a request proves itself. It names environment variables of the engine, never secrets.
// Make it with HTTPBearer, HTTPSignature or HTTPKey.
type HTTPAuth struct {
	Type      string `json:"type"` // "bearer", "hmac" or "api_key"
	TokenKey  string `json:"token_key,omitempty"`
	SecretKey string `json:"secret_key,omitempty"`
	Header    string `json:"header,omitempty"`
	ValueKey  string `json:"value_key,omitempty"`
}

// HTTPBearer sends the value of an environment variable of the engine as Authorization: Bearer.
func HTTPBearer(variable string) *HTTPAuth { return &HTTPAuth{Type: "bearer", TokenKey: variable} }

// HTTPSignature signs each request by HMAC-SHA256 with the value of an environment variable of the engine.
func HTTPSignature(variable string) *HTTPAuth { return &HTTPAuth{Type: "hmac", SecretKey: variable} }

// HTTPKey sends the value of an environment variable of the engine as a header.
func HTTPKey(header, variable string) *HTTPAuth {
	return &HTTPAuth{Type: "api_key", Header: header, ValueKey: variable}
}

// HandleHTTP registers a function that the engine calls by HTTP. This worker only owns it: it goes with the
// worker's connection. A call that reaches the worker all the same, through an engine that does not call by
// HTTP, fails with function_not_invokable. What the engine does not allow is told by Options.OnRejected.
func (w *Worker) HandleHTTP(name string, i HTTPInvocation, opts ...FunctionOption) error {
	raw, err := i.encode()
	if err != nil {
		return fmt.Errorf("worker: register %q: %w", name, err)
	}
	return w.RegisterWith(name, func(context.Context, []byte) ([]byte, error) {
		return nil, &Error{Code: wire.CodeFunctionNotInvokable,
			Message: "the engine calls " + name + " by HTTP, its worker cannot run it"}
	}, append(opts[:len(opts):len(opts)], func(f *function) { f.invocation = raw })...)
}

// encode checks what needs no policy and returns the invocation as it travels.
func (i *HTTPInvocation) encode() ([]byte, error) {
	u, err := url.Parse(i.URL)
	switch {
	case err != nil:
		return nil, errors.New("the URL of its endpoint is malformed")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("the URL of its endpoint has to be an absolute http or https URL")
	case u.User != nil:
		return nil, errors.New("the URL of its endpoint must not hold a password; use Auth")
	case i.Timeout < 0:
		return nil, errors.New("its timeout is negative")
	}
	return json.Marshal(struct {
		URL     string            `json:"url"`
		Method  string            `json:"method,omitempty"`
		Timeout int64             `json:"timeout_ms,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
		Auth    *HTTPAuth         `json:"auth,omitempty"`
	}{i.URL, i.Method, int64((i.Timeout + time.Millisecond - 1) / time.Millisecond), i.Headers, i.Auth})
}

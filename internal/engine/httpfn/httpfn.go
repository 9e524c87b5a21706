// Package httpfn runs functions that are HTTP endpoints (protocol section 10): it parses how such a function
// is called, makes the call, and keeps the registrations that outlive their worker.
//
// It promises that no connection is opened to an address that the policy blocks: the address is looked at
// when the socket is about to connect, so a name that resolves to another address later gains nothing. It
// follows no redirect, uses no proxy, keeps no cookie and asks for no compression. What an endpoint sends is
// bounded in bytes and in time, and a result is JSON that fits into a frame. Secrets are read from the
// environment for each call and stand in no error, log line or record. A change of the Catalog is answered
// when it is on disk, and seen in memory only then.
//
// A Client and a Catalog may be used from any goroutine. Do blocks, so an event loop must not call it. The
// package registers nothing and knows no worker: package engine does that. It retries nothing but a request
// of which a stale connection has sent no byte.
package httpfn

import (
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Bounds of a Spec.
const (
	maxURL     = 8 << 10
	maxHeaders = 64
	maxHeader  = 16 << 10 // names and values together
	maxName    = 256      // of a header or an environment variable
	maxRaw     = 256 << 10

	minTimeout     = time.Millisecond
	maxTimeout     = 15 * time.Minute
	defaultTimeout = 30 * time.Second
)

// Policy says which endpoints may be called, and how much at once. The zero value allows no host.
type Policy struct {
	// Allow lists the hosts: "api.example.org", "*.example.org" (what is below it, at any depth), each also with
	// ":port", or "*". A host that no entry matches is refused, so an empty list refuses all.
	Allow []string
	// BlockPrivate refuses addresses that are not public: this machine, its networks, and what embeds or
	// stands for such an address.
	BlockPrivate bool
	RequireHTTPS bool
	// Env lists patterns of the environment variables that Auth may name; "*" stands for any text. Nil is
	// "*", an empty list is none. Names that begin with PLINTH_ are refused whatever it says.
	Env []string

	MaxResponse int64          // bytes of a body; 0 is 8 MiB
	MaxRunning  int            // calls at a time; 0 is 1,024. One host may have half of them
	PerHost     int            // connections to one host and port, for which further calls wait; 0 is 128
	RootCAs     *x509.CertPool // nil: those of the system
}

// Options are what a Client uses of the process around it. The zero value is good for use.
type Options struct {
	Getenv   func(string) (string, bool) // nil is os.LookupEnv
	Resolver Resolver                    // nil is Go's
	Log      *slog.Logger
	Now      func() time.Time
}

// Call is one call of a function: what the request tells the endpoint.
type Call struct {
	Function     string
	InvocationID string
	TraceID      string // hex; empty is unknown, as below
	Traceparent  string
	Caller       string // the function that calls
	TriggerType  string
	TriggerID    string
	Payload      []byte // JSON; nil is absent and sends no body. Not changed, and not kept
}

// Stats are the counters of a Client since New, but for Running and Held, which are of now.
type Stats struct {
	Calls       uint64
	Succeeded   uint64
	Failed      uint64 // all others, those below included
	Blocked     uint64 // by the policy: a URL, a host, an address, a variable
	TimedOut    uint64
	Refused     uint64 // too many at once, or too many bytes of answers
	Connections uint64 // opened
	Running     int64
	Held        int64 // bytes of answers that are being read
}

func invalid(format string, args ...any) *fault.Error {
	return fault.Newf(fault.Invalid, wire.CodeInvalidArguments, format, args...)
}

func badURL(kind fault.Kind, format string, args ...any) *fault.Error {
	return fault.Newf(kind, wire.CodeURLValidationFailed, format, args...)
}

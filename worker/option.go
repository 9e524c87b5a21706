package worker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/plinth-run/plinth/wire"
)

// Options say how a worker behaves. The zero value is ready to use.
type Options struct {
	// Name is shown in listings and must be the only one of its namespace. Default: the environment
	// variable III_WORKER_NAME, else hostname:pid and a few random digits.
	Name string
	// Anonymous keeps the worker out of listings: right for a program that calls once and is gone.
	Anonymous bool
	// Description is shown in listings; the engine keeps 280 characters.
	Description string
	// Namespace is where the functions are registered and where calls go unless told otherwise (but for
	// engine:: and configuration:: functions). Default: III_NAMESPACE, else "default".
	Namespace string
	// Token is a key of the engine, sent as Authorization: Bearer with every connection, those of channels too.
	// Default: the password in the URL, else PLINTH_TOKEN, else III_TOKEN.
	Token string
	// Header is sent with the handshake; http.Header fits.
	Header map[string][]string
	// TLS is used for wss and https URLs. Default: the zero tls.Config.
	TLS *tls.Config
	// Dial opens the byte stream to the engine, for tests, tunnels and proxies. Default: TCP to the URL.
	Dial func(ctx context.Context) (net.Conn, error)

	// Timeout ends a call whose context has no deadline. Default 30 s; negative: never.
	Timeout time.Duration
	// Grace is how long Run waits for running handlers when its context ends, and then for what they left to be
	// sent. Default 10 s; negative: not.
	Grace time.Duration
	// Concurrency bounds the handlers that run at a time. Default 1024.
	Concurrency int
	// Waiting bounds the calls that wait for a handler, in number; WaitingBytes bounds their payloads. One
	// more is refused with HOST_OVERLOADED. Defaults 3072 and 64 MiB; a negative Waiting is none.
	Waiting      int
	WaitingBytes int
	// SendBuffer bounds the bytes that wait to be sent, connected or not. A call that does not fit is
	// refused with CALLER_OVERLOADED, a result waits. Default 8 MiB.
	SendBuffer int
	// MaxMessage bounds one message in bytes, in both directions. Default 64 MiB.
	MaxMessage int
	// MaxCalls bounds the calls of this worker that have no outcome yet. Default 16,384.
	MaxCalls int

	// Reconnect says when a lost connection is made again.
	Reconnect Reconnect
	// Logger gets what happens to the connection, and handlers that panic. Payloads are never logged.
	// Default: warnings and errors as text on the standard error output.
	Logger *slog.Logger
	// OnState is told of each change of the connection, one at a time, from the goroutine of Run: it must
	// return soon.
	OnState func(State)
	// OnRejected is told of each registration that the engine refused, from the goroutine that reads: it
	// must return soon.
	OnRejected func(Rejection)
	// OnTriggerFailed is told of each trigger and trigger type that was refused, from the goroutine that reads:
	// it must return soon.
	OnTriggerFailed func(TriggerFailure)
}

// Reconnect is the schedule of attempts: First, then each delay Factor times the one before, up to Max,
// each made longer or shorter by up to Jitter of itself. A connection that the engine has greeted starts
// the schedule anew.
type Reconnect struct {
	First       time.Duration // default 1 s
	Factor      float64       // default 2
	Max         time.Duration // default 30 s
	Jitter      float64       // default 0.3; negative: none
	MaxAttempts int           // failures in a row before Run gives up; 0: never
}

// delay returns how long to wait after that many failures in a row; random is in [0, 1).
func (r *Reconnect) delay(failures int, random float64) time.Duration {
	d := float64(r.First)
	for range failures - 1 {
		if d *= r.Factor; d >= float64(r.Max) {
			break
		}
	}
	d = min(d, float64(r.Max))
	return time.Duration(d * (1 + r.Jitter*(2*random-1)))
}

// Phase is how far the connection of a worker is.
type Phase uint8

// The phases. A worker goes from Idle through the others to Closed, where it stays.
const (
	Idle       Phase = iota // Run has not been called
	Connecting              // an attempt is under way
	Connected               // the engine has greeted the worker
	Waiting                 // the attempt or the connection failed; State.Delay until the next one
	Draining                // the context of Run has ended: running handlers are finished
	Closed                  // Run has returned
)

// String returns the name of the phase in lower case.
func (p Phase) String() string {
	switch p {
	case Idle:
		return "idle"
	case Connecting:
		return "connecting"
	case Connected:
		return "connected"
	case Waiting:
		return "waiting"
	case Draining:
		return "draining"
	case Closed:
		return "closed"
	}
	return "unknown"
}

// State is the state of a worker's connection.
type State struct {
	Phase    Phase
	WorkerID string        // given by the engine, while Connected
	Attempt  int           // failures in a row so far
	Delay    time.Duration // until the next attempt, while Waiting
	Err      error         // why it is Waiting or Closed; nil after an orderly end
}

// Rejection is a registration that the engine refused.
type Rejection struct {
	Code      string // FUNCTION_NAMESPACE_CONFLICT, WORKER_NAMESPACE_CONFLICT, RESERVED_PREFIX, ...
	Namespace string
	Function  string // the function that is refused, or
	Worker    string // the worker name that is refused: then Run returns the error
	Owner     string // id of the worker that has it
}

const (
	handshakeTimeout = 10 * time.Second
	pingAfter        = 20 * time.Second // silence after which the engine is pinged
	dropAfter        = 60 * time.Second // silence after which the connection is given up
	leaveTimeout     = time.Second      // for the last bytes and the engine's goodbye
)

// fill puts the defaults in.
func (o *Options) fill() error {
	b := wire.DefaultBounds()
	o.Name = first(o.Name, os.Getenv("III_WORKER_NAME"))
	o.Namespace = first(o.Namespace, os.Getenv("III_NAMESPACE"))
	if o.Name == "" {
		o.Name = defaultName()
	}
	switch {
	case len(o.Name) > b.MaxIDBytes:
		return fmt.Errorf("worker: name is longer than %d bytes", b.MaxIDBytes)
	case o.Namespace != "" && strings.TrimSpace(o.Namespace) == "":
		return fmt.Errorf("worker: namespace is blank")
	case len(o.Namespace) > b.MaxNamespaceBytes:
		return fmt.Errorf("worker: namespace is longer than %d bytes", b.MaxNamespaceBytes)
	}
	preset(&o.Timeout, 30*time.Second)
	preset(&o.Grace, 10*time.Second)
	preset(&o.Concurrency, 1024)
	preset(&o.Waiting, b.MaxInFlightPerWorker-1024)
	preset(&o.WaitingBytes, 64<<20)
	preset(&o.SendBuffer, b.WriteQueueBytes)
	preset(&o.MaxMessage, int(b.MaxMessageBytes))
	preset(&o.MaxCalls, b.MaxCallsPerWorker)
	o.Timeout, o.Grace, o.Waiting = max(o.Timeout, 0), max(o.Grace, 0), max(o.Waiting, 0)
	if o.MaxCalls > maxSlots {
		return fmt.Errorf("worker: MaxCalls is over %d", maxSlots)
	}
	if o.Concurrency < 0 || o.SendBuffer < 0 || o.MaxMessage < 0 || o.MaxCalls < 0 || o.WaitingBytes < 0 {
		return fmt.Errorf("worker: a bound is negative")
	}
	r := &o.Reconnect
	preset(&r.First, time.Second)
	preset(&r.Factor, 2)
	preset(&r.Max, 30*time.Second)
	preset(&r.Jitter, 0.3)
	r.Jitter = max(r.Jitter, 0)
	if r.First < 0 || r.Max < r.First || r.Factor < 1 || r.Jitter > 1 || r.MaxAttempts < 0 {
		return fmt.Errorf("worker: Reconnect needs 0 < First <= Max, Factor >= 1, Jitter <= 1")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	return nil
}

func preset[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// first returns the first text that is not empty.
func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// defaultName is unique even for two workers of one process, which would else refuse each other.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	var digits [3]byte
	_, _ = rand.Read(digits[:]) // never fails: crypto/rand ends the process instead
	return fmt.Sprintf("%s:%d-%s", host, os.Getpid(), hex.EncodeToString(digits[:]))
}

package httpfn

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Bounds of a Client that no setting changes.
const (
	defaultResponse = 8 << 20
	defaultRunning  = 1024
	defaultPerHost  = 128
	heldResponses   = 16       // answers of the largest size that are held at a time, all together
	maxHead         = 64 << 10 // bytes of an answer's headers
	idleConns       = 512      // connections that wait for a next call, of all hosts
	idleTime        = time.Minute
	tellEvery       = time.Second // lines about calls that the policy blocked
)

// Client calls functions that are HTTP endpoints.
type Client struct {
	policy    Policy
	allow     []pattern
	getenv    func(string) (string, bool)
	resolver  Resolver
	log       *slog.Logger
	now       func() time.Time
	transport *http.Transport
	life      life
	seats     seats
	stats     counters
	told      atomic.Int64 // Unix ns of the last line about a blocked call
}

type counters struct {
	calls, succeeded, failed, blocked, timedOut, refused, connections atomic.Uint64
	held                                                              atomic.Int64
}

// New returns a Client with the policy. Close ends it.
func New(p Policy, o Options) *Client {
	p.MaxResponse = cmp.Or(max(p.MaxResponse, 0), defaultResponse)
	p.MaxRunning = cmp.Or(max(p.MaxRunning, 0), defaultRunning)
	p.PerHost = cmp.Or(max(p.PerHost, 0), defaultPerHost)
	if p.Env == nil {
		p.Env = []string{"*"}
	}
	c := &Client{policy: p, getenv: o.Getenv, resolver: o.Resolver, log: o.Log, now: o.Now,
		seats: seats{most: p.MaxRunning, hosts: map[string]int{}}}
	for _, s := range p.Allow {
		c.allow = append(c.allow, parsePattern(s))
	}
	if c.getenv == nil {
		c.getenv = os.LookupEnv
	}
	if c.resolver == nil {
		c.resolver = &net.Resolver{}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	// Proxy stays nil: a proxy would connect for us, to addresses that nobody has looked at. HTTP/2 stays off:
	// one connection for many calls would let one slow body hold up the others, and it is more to trust.
	c.transport = &http.Transport{
		DialContext:            c.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.RootCAs},
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    p.PerHost,
		MaxConnsPerHost:        p.PerHost,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxHead,
		ForceAttemptHTTP2:      false,
	}
	return c
}

// Close refuses further calls, ends those under way and closes all connections. It returns when they are
// gone.
func (c *Client) Close() {
	c.life.end()
	c.transport.CloseIdleConnections()
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	n := &c.stats
	return Stats{Calls: n.calls.Load(), Succeeded: n.succeeded.Load(), Failed: n.failed.Load(),
		Blocked: n.blocked.Load(), TimedOut: n.timedOut.Load(), Refused: n.refused.Load(),
		Connections: n.connections.Load(), Running: int64(c.seats.taken()), Held: n.held.Load()}
}

// Check tells whether the policy lets a function be registered: what can be told without resolving a name or
// reading a secret. The kinds are Invalid and Denied. It does no I/O.
func (c *Client) Check(_ context.Context, s *Spec) *fault.Error {
	t, err := s.check()
	if err != nil {
		return err
	}
	return c.admit(s, t)
}

// admit holds a Spec against the policy.
func (c *Client) admit(s *Spec, t *target) *fault.Error {
	switch {
	case c.policy.RequireHTTPS && t.url.Scheme != "https":
		return badURL(fault.Denied, "the URL must begin with https://; see engine.http.require_https")
	case !c.allowed(t):
		return badURL(fault.Denied, "calls to %s port %s are not allowed; see engine.http.allow", t.host, t.port)
	case c.policy.BlockPrivate && (t.addr.IsValid() && private(t.addr) || local(t.host)):
		return refusedAddress()
	case s.Auth != nil && !c.mayName(s.Auth.variable()):
		return fault.Newf(fault.Denied, wire.CodeMissingEnvVar,
			"auth must not name the environment variable %s; see engine.http.env", s.Auth.variable())
	}
	return nil
}

// local names this machine by definition (RFC 6761 section 6.3), whatever a resolver says.
func local(host string) bool { return host == "localhost" || strings.HasSuffix(host, ".localhost") }

func (c *Client) allowed(t *target) bool {
	for _, p := range c.allow {
		if p.match(t) {
			return true
		}
	}
	return false
}

// mayName keeps the secrets of Plinth itself out of reach. Some systems do not tell case in these names.
func (c *Client) mayName(name string) bool {
	if strings.HasPrefix(strings.ToUpper(name), "PLINTH_") {
		return false
	}
	for _, p := range c.policy.Env {
		if glob(p, name) {
			return true
		}
	}
	return false
}

// Do calls the function and returns its result, nil for none. It blocks until the answer is there, the
// timeout of s or ctx has ended, or the Client is closed. The result belongs to the caller.
//
// The codes are those of protocol section 10, INVOCATION_TIMEOUT for the timeout of s, TIMEOUT for the
// deadline of ctx, invocation_stopped when ctx was cancelled, HOST_OVERLOADED and DRAINING.
func (c *Client) Do(ctx context.Context, s *Spec, call *Call) ([]byte, *fault.Error) {
	c.stats.calls.Add(1)
	result, err := c.do(ctx, s, call)
	if err == nil {
		c.stats.succeeded.Add(1)
		return result, nil
	}
	c.stats.failed.Add(1)
	switch err.Code {
	case wire.CodeTimeout, wire.CodeInvocationTimeout:
		c.stats.timedOut.Add(1)
	case wire.CodeHostOverloaded:
		c.stats.refused.Add(1)
	}
	policy := err.Code == wire.CodeURLValidationFailed || err.Code == wire.CodeMissingEnvVar
	if err.Kind == fault.Denied && policy {
		c.stats.blocked.Add(1)
		c.tell(call.Function, err)
	}
	return nil, err
}

// tell logs that the policy blocked a call, seldom: the caller has the error, and whoever wants to fill the
// log could call all day.
func (c *Client) tell(function string, err *fault.Error) {
	now, last := c.now().UnixNano(), c.told.Load()
	if now-last >= int64(tellEvery) && c.told.CompareAndSwap(last, now) {
		c.log.Warn("http function blocked by the policy", "function", function, "error", err.Error(),
			"blocked", c.stats.blocked.Load())
	}
}

func (c *Client) do(ctx context.Context, s *Spec, call *Call) ([]byte, *fault.Error) {
	t, ferr := s.check()
	if ferr != nil {
		return nil, ferr
	}
	if ferr := c.admit(s, t); ferr != nil {
		return nil, ferr
	}
	if !c.seats.take(t.key()) {
		return nil, overloaded("too many calls of HTTP functions are under way, in all or to this host; retry later")
	}
	defer c.seats.leave(t.key())
	r, ferr := c.request(s, t, call)
	if ferr != nil {
		return nil, ferr
	}
	return c.send(ctx, s, r)
}

// send makes the call. It returns when the transport has let go of the payload, so that the caller may use it
// again.
func (c *Client) send(ctx context.Context, s *Spec, r *request) ([]byte, *fault.Error) {
	inner, leave, err := c.life.enter(ctx, s.Timeout)
	if err != nil {
		return nil, c.failed(ctx, ctx, s, err, stageRequest)
	}
	defer r.wait()
	defer leave()
	res, err := c.transport.RoundTrip(r.WithContext(inner))
	if err != nil {
		return nil, c.failed(ctx, inner, s, err, stageRequest)
	}
	defer func() { _ = res.Body.Close() }() // all that was wanted of it has been read
	result, ferr := c.answer(res)
	switch {
	case ferr == nil:
		return result, nil
	case ferr.Err != nil:
		return nil, c.failed(ctx, inner, s, ferr.Err, stageResponse)
	}
	return nil, withoutSecret(ferr, r.secret)
}

func overloaded(text string) *fault.Error {
	return fault.New(fault.Limit, wire.CodeHostOverloaded, text)
}

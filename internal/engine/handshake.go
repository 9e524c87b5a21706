package engine

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// handshake reads the upgrade request and answers it. It returns how many bytes it used.
func (k *conn) handshake(b []byte) int {
	e := k.engine
	r, n, err := ws.ParseRequest(b)
	if err == nil && n == 0 {
		if len(b) > e.bounds.HandshakeBytes {
			k.turnAway(431, "the request head is larger than the limit")
			return len(b)
		}
		return 0
	}
	var he *ws.HandshakeError
	if errors.As(err, &he) {
		k.turnAway(he.Status, he.Reason)
		return len(b)
	}
	if err != nil {
		k.turnAway(400, err.Error())
		return len(b)
	}
	if k.full {
		k.turnAway(503, "there are enough connections already")
		return len(b)
	}
	if status, why := k.admit(&r); status != 0 {
		k.turnAway(status, why)
		return len(b)
	}
	who, denied := e.identify(k, &r)
	if denied != nil {
		k.turnAway(statusOf(denied), denied.Message)
		return len(b)
	}
	k.peer.Principal = who
	out := k.sock.Begin()
	k.sent(k.sock.End(k.sock.Loop(), ws.AppendAccept(out, r.Key)))
	if r.Path == "/otel" {
		k.phase = reporting
		return n
	}
	k.welcome()
	return n
}

// admit decides on an upgrade: 0, or the HTTP status and the reason of a refusal. Browser pages are kept
// out by their Origin, and names that somebody pointed at us (DNS rebinding) by their Host.
func (k *conn) admit(r *ws.Request) (status int, why string) {
	e := k.engine
	switch {
	case r.Origin != "" && !slices.Contains(k.door.Origins, r.Origin):
		return 403, "browser pages may not connect from origin " + clip(r.Origin)
	case !k.door.known(r.Host):
		return 403, "unknown host " + clip(r.Host)
	case e.draining.Load():
		return 503, "plinth is stopping"
	case r.Path == "/" || r.Path == "/otel":
	default:
		return 404, "no such path: workers connect to /"
	}
	if !r.Upgrade {
		return 426, "this is the worker socket: connect with a WebSocket client"
	}
	return 0, ""
}

// known reports whether a Host header names this machine's loopback or a configured name.
func (d *door) known(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(d.Hosts, name) {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.IsLoopback()
}

// clip makes a header value safe and short for a message.
func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return url.QueryEscape(s)
}

// turnAway refuses an upgrade with a plain HTTP answer.
func (k *conn) turnAway(status int, why string) {
	k.engine.stats.refused.Add(1)
	k.engine.log.Info("connection refused", "remote", k.sock.RemoteAddr().String(), "status", status, "why", why)
	out := k.sock.Begin()
	k.sent(k.sock.End(k.sock.Loop(), ws.AppendRefusal(out, status, why)))
	k.phase = closed
	k.sock.Finish()
}

// welcome makes a worker of the connection and tells it who it is.
func (k *conn) welcome() {
	k.phase = serving
	k.engine.enroll(k)
	k.send(&wire.Frame{Type: wire.TypeWorkerRegistered, WorkerID: []byte(k.id.String()),
		ReattachToken: []byte(k.token.String()), Features: features})
}

// anonymous is the name of a connection that has not announced itself.
const anonymous = "(unannounced)"

// features is what this engine can do beyond the base protocol: it tells a host who called.
var features = []byte(`["caller"]`)

package engine

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/engine/channel"
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
	if id, ok := strings.CutPrefix(r.Path, channelPath); ok {
		k.open(&r, id)
		return n
	}
	rule := k.door.Rules
	if rule != nil && rule.AuthFunction != "" {
		k.admission(r)
		return n
	}
	who, denied := e.identify(k, &r)
	if denied != nil {
		k.turnAway(statusOf(denied), denied.Message)
		return len(b)
	}
	if rule != nil {
		who.Access = &rules{base: who.Access, policy: rule}
	}
	k.peer.Principal = who
	k.enter(&r)
	return n
}

// enter lets a client in.
func (k *conn) enter(r *ws.Request) {
	out := k.sock.Begin()
	k.sent(k.sock.End(k.sock.Loop(), ws.AppendAccept(out, r.Key)))
	if r.Path == "/otel" {
		k.phase = reporting
		return
	}
	k.welcome()
}

// channelPath is what the path of a channel's end begins with; its id follows.
const channelPath = "/ws/channels/"

// open makes the connection one end of a channel. The key of that end is its credential: whoever was given
// it by a worker may use it (protocol section 12). A credential that comes beside it must be right all the
// same.
func (k *conn) open(r *ws.Request, id string) {
	if r.Header("Authorization") != "" {
		who, denied := k.engine.identify(k, r)
		if denied != nil {
			k.turnAway(statusOf(denied), denied.Message)
			return
		}
		k.peer.Principal = who
	}
	query, err := url.ParseQuery(r.Query)
	if err != nil {
		k.turnAway(400, "the query cannot be read")
		return
	}
	end, status := k.engine.channels.Take(id, query.Get("key"), query.Get("dir"), k.sock, k.door.group)
	if status == channel.Unknown {
		k.turnAway(404, "no such channel, or not with this key")
		return
	}
	out := k.sock.Begin()
	out = ws.AppendAccept(out, r.Key)
	if status == channel.Taken {
		k.phase = closed
		k.sent(k.sock.End(k.sock.Loop(), ws.AppendClose(out, ws.ClosePolicy, "this end of the channel is taken")))
		k.sock.Finish()
		return
	}
	k.phase, k.pipe = piping, end
	k.sent(k.sock.End(k.sock.Loop(), out))
	end.Open()
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
	case r.Path == "/" || r.Path == "/otel" || strings.HasPrefix(r.Path, channelPath):
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

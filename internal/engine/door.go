package engine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/plinth-run/plinth/internal/engine/rbac"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

// Listener is one worker listener: an address, and who is let in there.
type Listener struct {
	Name    string       // in logs; "" for the main one
	Listen  string       // host:port
	Hosts   []string     // host names besides loopback ones that a client may have dialled
	Origins []string     // origins of browser pages that may connect; none by default
	TLS     *tls.Config  // nil: plain
	Rules   *rbac.Policy // nil: what the client's key allows, and no more rules
}

// Attempt is what a client shows that wants to connect.
type Attempt struct {
	Authorization string // the header, as it came
	Remote        netip.Addr
	Browser       bool // a page whose origin the listener does not name
}

// door is a listener with its event loops.
type door struct {
	Listener
	group   *group
	address net.Addr
}

// group is event loops and what the connections of each share. Doors without TLS have one group together;
// a door with TLS has one of its own, whose connections have goroutines.
type group struct {
	loops *loop.Group
	lanes []*lane
}

func newGroup(c loop.Config) *group {
	g := &group{loops: loop.New(c)}
	for _, l := range g.loops.Loops() {
		g.lanes = append(g.lanes, &lane{loop: l})
	}
	return g
}

// furnish makes the doors and the loops behind them.
func (e *Engine) furnish(c loop.Config) {
	shared := newGroup(c)
	e.groups = append(e.groups, shared)
	for _, l := range append([]Listener{e.cfg.Listener}, e.cfg.More...) {
		d := &door{Listener: l, group: shared}
		if l.TLS != nil {
			own := c
			own.Portable, own.TLS, own.Loops = true, l.TLS, 1
			d.group = newGroup(own)
			e.groups = append(e.groups, d.group)
		}
		e.doors = append(e.doors, d)
	}
}

// everywhere calls do for every lane.
func (e *Engine) everywhere(do func(*lane)) {
	for _, g := range e.groups {
		for _, n := range g.lanes {
			do(n)
		}
	}
}

// ListenError says which listener could not be had.
type ListenError struct {
	Name, Address string
	Err           error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("engine: listen on %s: %v", e.Address, e.Err)
}

// Unwrap gives the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// Listen binds all listeners and returns their addresses, the main one first. Workers are served once Run
// runs. The error is a *ListenError.
func (e *Engine) Listen(ctx context.Context) ([]net.Addr, error) {
	all := make([]net.Addr, 0, len(e.doors))
	for _, d := range e.doors {
		a, err := d.group.loops.Listen(ctx, "tcp", d.Listener.Listen, func(c *loop.Conn) loop.Handler {
			if k := e.accept(d, c); k != nil {
				return k
			}
			return nil
		})
		if err != nil {
			return nil, &ListenError{d.Name, d.Listener.Listen, err}
		}
		d.address = a
		all = append(all, a)
	}
	return all, nil
}

// identify says on whose behalf a connection will act.
func (e *Engine) identify(k *conn, r *ws.Request) (fn.Principal, *fault.Error) {
	if e.cfg.Authenticate == nil {
		return fn.Principal{Kind: "worker", Name: anonymous}, nil
	}
	return e.cfg.Authenticate(Attempt{Authorization: r.Header("Authorization"),
		Remote: k.sock.RemoteAddr().Addr(), Browser: r.Origin == "" && r.Header("Sec-Fetch-Site") != ""})
}

// Revoke ends the connections of a principal that lost its rights; "" ends those that came before there was
// an account. Their clients may come back with what is valid now.
func (e *Engine) Revoke(id string) {
	e.everywhere(func(n *lane) {
		n.loop.Post(func() {
			for i := len(n.conns) - 1; i >= 0; i-- {
				k := n.conns[i]
				who := &k.peer.Principal
				if k.phase == handshaking || (id == "" || who.ID != id) && (id != "" || who.Kind != "loopback") {
					continue
				}
				if k.phase == piping {
					k.sock.Close(errRevoked)
				}
				k.shut(ws.ClosePolicy, "the credential is no longer valid")
			}
		})
	})
}

// statusOf is the HTTP status that refuses an upgrade.
func statusOf(err *fault.Error) int {
	switch err.Kind {
	case fault.Limit:
		return 429
	case fault.Unavailable:
		return 503
	case fault.Denied:
		if err.Code == "FORBIDDEN" {
			return 403
		}
	}
	return 401
}

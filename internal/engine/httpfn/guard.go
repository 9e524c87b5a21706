package httpfn

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
)

// Resolver turns a name into addresses, best first. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// blockedBlocks are the parts of the address space that are not the public internet's (the IANA registries of
// special-purpose addresses), and one public address that is a cloud's own control channel.
var blockedBlocks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's host agent
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, metadata of clouds
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/3"),      // multicast, reserved, broadcast
	netip.MustParsePrefix("2001::/23"),        // protocol assignments: Teredo, benchmarks, ORCHID
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4: embeds any IPv4 address
	netip.MustParsePrefix("3fff::/20"),        // documentation
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

// private reports whether an address is not the public internet's. Of IPv6 only global unicast is, and the
// form by which NAT64 writes a public IPv4 address, which is how IPv4 looks on networks without it.
func private(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return true
	}
	a = a.Unmap()
	if a.Is6() {
		b := a.As16()
		tail := netip.AddrFrom4([4]byte(b[12:]))
		switch {
		case nat64.Contains(a):
			return private(tail)
		case !globalUnicast.Contains(a):
			return true
		case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
			return true
		}
	}
	for _, block := range blockedBlocks {
		if block.Contains(a) {
			return true
		}
	}
	return false
}

// Bounds of one way to a host.
const (
	maxAddresses = 8 // of a name that are tried
	dialTimeout  = 10 * time.Second
)

// refusedAddress does not say which address it was: a worker must not learn the names of an inner network.
func refusedAddress() *fault.Error {
	return badURL(fault.Denied, "the host has no address that may be called; see engine.http.block_private")
}

// dial opens a connection for the transport. It resolves the name once, passes over addresses that are
// blocked, and connects to exactly those that were looked at. The dialer looks once more at the address of
// the socket itself, so that no other way in can be forgotten.
func (c *Client) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	ctx, leave, err := c.life.enter(ctx, dialTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{ControlContext: c.control}
	for i, a := range addrs {
		conn, err := c.attempt(ctx, &d, len(addrs)-i, net.JoinHostPort(a.String(), port))
		if err == nil {
			c.stats.connections.Add(1)
			return conn, nil
		}
		if i == len(addrs)-1 || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, refusedAddress()
}

// attempt connects to one address, with its share of the time that is left.
func (c *Client) attempt(ctx context.Context, d *net.Dialer, left int, addr string) (net.Conn, error) {
	if at, ok := ctx.Deadline(); ok && left > 1 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Until(at)/time.Duration(left))
		defer stop()
	}
	return d.DialContext(ctx, "tcp", addr)
}

// resolve returns the addresses of a host that may be called.
func (c *Client) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = c.resolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	good := make([]netip.Addr, 0, min(len(addrs), maxAddresses))
	for _, a := range addrs {
		if len(good) < maxAddresses && !c.bars(a) {
			good = append(good, a.Unmap())
		}
	}
	if len(good) == 0 {
		return nil, refusedAddress()
	}
	return good, nil
}

// bars reports whether the policy blocks an address. One with a zone means something on this machine only.
func (c *Client) bars(a netip.Addr) bool {
	return a.Zone() != "" || c.policy.BlockPrivate && private(a)
}

// control looks at the address of a socket that is about to connect.
func (c *Client) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || c.bars(at.Addr()) {
		return refusedAddress()
	}
	return nil
}

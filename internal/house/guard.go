package house

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guard refuses what a web page of another site could send through a visitor's browser: a Host
// that is no name of this machine (DNS rebinding) and an Origin other than the door itself. Browsers
// that send no Origin tell by Sec-Fetch-Site; http.CrossOriginProtection reads that for requests that change.
func guard(hosts []string, next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "origin_refused", "the request comes from another site")
	}))
	next = cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hostKnown(r.Host, hosts) && !ownAddress(r) {
			refuse(w, http.StatusForbidden, "host_refused",
				"this door does not answer to that host name; add it to "+KeyAdminHosts)
			return
		}
		origins := r.Header.Values("Origin")
		if len(origins) > 1 || len(origins) == 1 && !sameOrigin(origins[0], r.Host, hosts) {
			refuse(w, http.StatusForbidden, "origin_refused", "the request comes from another site")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostKnown accepts localhost, loopback addresses and the configured names, with any port.
func hostKnown(hostPort string, hosts []string) bool {
	host := hostOf(hostPort)
	return IsLoopback(host) || listed(host, hosts)
}

// ownAddress accepts the very address that the request came in on. No name can be made to mean it in a
// visitor's browser: the page would have to come from that address itself.
func ownAddress(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	host, err := netip.ParseAddr(hostOf(r.Host))
	return err == nil && host.Unmap() == local.AddrPort().Addr().Unmap()
}

// sameOrigin accepts the origin of the door itself, and of a configured name. Another port of this
// machine is another site.
func sameOrigin(origin, hostPort string, hosts []string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	if strings.EqualFold(u.Host, hostPort) {
		return true
	}
	return listed(u.Hostname(), hosts)
}

func listed(host string, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// hostOf is the host without its port and brackets.
func hostOf(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostPort, "["), "]")
}

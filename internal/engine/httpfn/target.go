package httpfn

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
)

// target is a URL that was looked at.
type target struct {
	url  *url.URL
	host string     // in lower case; an address without brackets
	addr netip.Addr // of a host that is an address
	port string     // never empty
}

// key names the place that is connected to.
func (t *target) key() string { return t.host + " " + t.port }

// parseURL takes URLs of printable ASCII with a host that is a name or a plain address. Everything that two
// readers of a URL could understand in two ways is refused: userinfo, escapes in the host, backslashes, and
// numbers that some programs take for addresses, such as 127.1, 0x7f.1 and 2130706433.
func parseURL(s string) (*target, *fault.Error) {
	switch {
	case s == "":
		return nil, badURL(fault.Invalid, "the URL is missing")
	case len(s) > maxURL:
		return nil, badURL(fault.Invalid, "the URL is longer than %d bytes", maxURL)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return nil, badURL(fault.Invalid, "the URL has a character at byte %d that must be escaped", i)
		}
	}
	u, err := url.Parse(s)
	switch {
	case err != nil: // not repeated: it holds the URL, which may hold a secret
		return nil, badURL(fault.Invalid, "the URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badURL(fault.Invalid, "the URL must begin with https:// or http://")
	case u.Opaque != "" || u.Host == "":
		return nil, badURL(fault.Invalid, "the URL has no host")
	case u.User != nil || strings.Contains(u.Host, "@"):
		return nil, badURL(fault.Invalid, "the URL must not hold a user or a password; use auth")
	case strings.Contains(s, "#"):
		return nil, badURL(fault.Invalid, "the URL must not have a fragment")
	}
	t := &target{url: u, host: strings.ToLower(u.Hostname()), port: u.Port()}
	if t.port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return nil, badURL(fault.Invalid, "the URL has a colon without a port")
		}
		t.port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, err := strconv.ParseUint(t.port, 10, 16); err != nil || n == 0 || t.port[0] == '0' {
		return nil, badURL(fault.Invalid, "the port of the URL must be from 1 to 65535")
	}
	if ferr := t.checkHost(strings.HasPrefix(u.Host, "[")); ferr != nil {
		return nil, ferr
	}
	return t, nil
}

func (t *target) checkHost(brackets bool) *fault.Error {
	addr, err := netip.ParseAddr(t.host)
	switch {
	case err == nil && addr.Zone() != "":
		return badURL(fault.Invalid, "the host must not have a zone")
	case err == nil && addr.Is6() != brackets, err != nil && brackets:
		return badURL(fault.Invalid, "brackets in the host are for IPv6 addresses, which need them")
	case err == nil:
		t.addr = addr
		return nil
	case !hostName(t.host):
		return badURL(fault.Invalid, "the host is neither a name nor an address in its usual form")
	}
	return nil
}

// hostName takes what can be a name in the DNS and nothing that a resolver of the C library could read as a
// number: its last label is none.
func hostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	last := ""
	for last = range strings.SplitSeq(s, ".") {
		if last == "" || len(last) > 63 {
			return false
		}
		for i := range len(last) {
			c := last[i]
			edge := i == 0 || i == len(last)-1
			if !alnum(c) && c != '_' && (c != '-' || edge) {
				return false
			}
		}
	}
	return !numeric(last)
}

// numeric reports whether a label could be read as a number: of decimals, or of hexadecimals after 0x.
func numeric(label string) bool {
	digits, set := label, "0123456789"
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		digits, set = rest, "0123456789abcdef"
	}
	return strings.Trim(digits, set) == ""
}

// pattern is one entry of Policy.Allow.
type pattern struct {
	host string // "" is any; ".example.org" is what is below it
	port string // "" is any
}

// parsePattern cannot fail: an entry that makes no sense matches nothing.
func parsePattern(s string) pattern {
	p := pattern{host: strings.ToLower(strings.TrimSpace(s))}
	if i := strings.LastIndexByte(p.host, ':'); i >= 0 {
		// An IPv6 address without brackets has colons and no port.
		if _, err := netip.ParseAddr(p.host); err != nil {
			p.host, p.port = p.host[:i], p.host[i+1:]
			if p.port == "" || p.port == "*" {
				p.port = ""
			}
		}
	}
	p.host = strings.TrimSuffix(strings.TrimPrefix(p.host, "["), "]")
	switch {
	case p.host == "*":
		p.host = ""
	case strings.HasPrefix(p.host, "*."):
		p.host = p.host[1:]
	case p.host == "":
		p.host = "nothing at all" // no host has a space
	default:
		if a, err := netip.ParseAddr(p.host); err == nil {
			p.host = a.String()
		}
	}
	return p
}

func (p pattern) match(t *target) bool {
	if p.port != "" && p.port != t.port {
		return false
	}
	host := t.host
	if t.addr.IsValid() {
		host = t.addr.String()
	}
	switch {
	case p.host == "":
		return true
	case p.host[0] == '.':
		return !t.addr.IsValid() && strings.HasSuffix(host, p.host)
	}
	return host == p.host
}

// glob matches a text against a pattern in which "*" stands for any text.
func glob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, head)
	for ok {
		var part string
		if part, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(s, part)
		}
		_, s, ok = strings.Cut(s, part)
	}
	return false
}

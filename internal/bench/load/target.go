package load

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
)

// address is where a worker connects and what it shows there.
type address struct {
	host, path string
	key        string // "": none
}

// parseTarget reads host:port or a ws URL, whose password is a key.
func parseTarget(target string) (a address, err error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return address{host: target, path: "/"}, nil // host:port
	}
	if u.Scheme != "ws" {
		return a, fmt.Errorf("target %s: only ws:// can be driven", plain(target))
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	a.host, a.path = u.Host, u.RequestURI()
	a.key, _ = u.User.Password()
	return a, nil
}

// header is what goes along with the handshake: the key, in the way of the public SDK.
func (a address) header() map[string][]string {
	if a.key == "" {
		return nil
	}
	return map[string][]string{
		"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+a.key))},
	}
}

// url is the address for a client library, without the key.
func (a address) url() string { return (&url.URL{Scheme: "ws", Host: a.host}).String() + a.path }

// plain is a target as it may be shown.
func plain(target string) string {
	if u, err := url.Parse(target); err == nil && u.User != nil {
		return u.Redacted()
	}
	return target
}

// target is where connections of a role go.
func (j *Job) target(r Role) string {
	if r == Caller && j.CallAt != "" {
		return j.CallAt
	}
	return j.Target
}

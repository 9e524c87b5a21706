package httpfn

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

func TestAddressesThatAreNotPublicAreTold(t *testing.T) {
	for _, s := range []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1",
		"127.255.255.255", "168.63.129.16", "169.254.0.0", "169.254.169.254", "172.16.0.0", "172.31.255.255",
		"192.0.0.1", "192.0.2.255", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
		"198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:0:127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8",
		"100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1",
		"2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1",
		"fd00:ec2::254", "fdff::1", "fe80::1", "febf::1", "fec0::1", "feff::1", "ff02::1", "ff0e::1",
		"2a00:1450::5efe:a00:1", "2a00:1450::200:5efe:808:808", "fe80::1%eth0", "2a00:1450::1%1", "4000::1",
	} {
		if !private(netip.MustParseAddr(s)) {
			t.Errorf("%s is taken for public", s)
		}
	}
	if !private(netip.Addr{}) {
		t.Error("no address is taken for public")
	}
}

func TestPublicAddressesAreTold(t *testing.T) {
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.1", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.167.0.1", "192.169.0.1",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2001:200::1",
		"2001:4860:4860::8888", "2606:4700:4700::1111", "2a00:1450:4001::1", "2400:cb00::1", "2000::1",
	} {
		if private(netip.MustParseAddr(s)) {
			t.Errorf("%s is taken for private", s)
		}
	}
}

func TestLiteralPrivateAddressesAreRefusedAtRegistration(t *testing.T) {
	c := client(t, Policy{Allow: []string{"*"}, BlockPrivate: true}, Options{})
	for _, host := range []string{"127.0.0.1", "10.0.0.1:8080", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254",
		"localhost", "LOCALHOST", "a.localhost", "[64:ff9b::a00:1]", "[2002:7f00:1::]"} {
		wants(t, c.Check(t.Context(), spec("https://"+host)), fault.Denied, wire.CodeURLValidationFailed)
	}
	if err := c.Check(t.Context(), spec("https://8.8.8.8")); err != nil {
		t.Error(err)
	}
}

// door counts the connections that reach it.
func door(t *testing.T) (port string, reached *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached = &atomic.Int64{}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`"inside"`))
	}), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			reached.Add(1)
		}
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }() // ends with the test
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return ":" + port, reached
}

func TestANameThatChangesItsAddressGainsNothing(t *testing.T) {
	at, reached := door(t)
	n := &names{answers: [][]netip.Addr{addrs("192.0.2.1"), addrs("127.0.0.1"), addrs("::1"),
		addrs("10.0.0.1", "127.0.0.1"),
		addrs("::ffff:127.0.0.1"), addrs("0.0.0.0"), addrs("fe80::1%lo"), addrs("127.0.0.1")}}
	c := client(t, Policy{Allow: []string{"*"}, BlockPrivate: true}, Options{Resolver: n})
	s := spec("http://rebind.example" + at)
	if err := c.Check(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		_, err := do(t, c, s, `1`)
		wants(t, err, fault.Denied, wire.CodeURLValidationFailed)
		if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "10.0.0.1") {
			t.Errorf("the error tells an address: %v", err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections reached the inner server", n)
	}
	if st := c.Stats(); st.Blocked != 10 || st.Failed != 10 || st.Connections != 0 {
		t.Errorf("counted %+v", st)
	}
	// The test can fail: the same calls arrive where the policy lets them.
	lax := client(t, open(), Options{Resolver: &names{answers: [][]netip.Addr{addrs("127.0.0.1")}}})
	if got, err := do(t, lax, s, `1`); err != nil || got != `"inside"` || reached.Load() != 1 {
		t.Errorf("got %s, %v, %d connections", got, err, reached.Load())
	}
}

func TestTheSocketItselfIsLookedAt(t *testing.T) {
	c := client(t, Policy{BlockPrivate: true}, Options{})
	for _, at := range []string{"127.0.0.1:80", "[::1]:80", "[fe80::1%lo]:80", "nonsense", ""} {
		if c.control(t.Context(), "tcp", at, nil) == nil {
			t.Errorf("a socket to %q may connect", at)
		}
	}
	if err := c.control(t.Context(), "tcp", "8.8.8.8:443", nil); err != nil {
		t.Error(err)
	}
}

func TestBlockedAddressesBesideGoodOnesArePassedOver(t *testing.T) {
	c := client(t, Policy{BlockPrivate: true}, Options{Resolver: &names{answers: [][]netip.Addr{
		addrs("10.0.0.1", "8.8.8.8", "::1", "::ffff:9.9.9.9")}}})
	got, err := c.resolve(t.Context(), "mixed.example")
	if err != nil || len(got) != 2 || got[0].String() != "8.8.8.8" || got[1].String() != "9.9.9.9" {
		t.Errorf("got %v, %v", got, err)
	}
	many := client(t, Policy{}, Options{Resolver: &names{answers: [][]netip.Addr{
		addrs(strings.Split(strings.Repeat("8.8.8.8,", 100)+"9.9.9.9", ",")...)}}})
	if got, err := many.resolve(t.Context(), "many.example"); err != nil || len(got) != maxAddresses {
		t.Errorf("%d addresses are tried, %v", len(got), err)
	}
}

func TestTheNextAddressIsTriedWhenOneRefuses(t *testing.T) {
	at, reached := door(t)
	// The server listens on 127.0.0.1 alone, so the first address refuses.
	c := client(t, open(), Options{Resolver: &names{answers: [][]netip.Addr{addrs("127.0.0.2", "127.0.0.1")}}})
	if got, err := do(t, c, spec("http://two.example"+at), ``); err != nil || got != `"inside"` || reached.Load() != 1 {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAllowListDecidesByHostAndPort(t *testing.T) {
	for _, x := range []struct {
		allow, url string
		want       bool
	}{
		{"", "https://a.org", false},
		{"*", "https://a.org", true},
		{"a.org", "https://a.org", true},
		{" A.org ", "https://a.ORG", true},
		{"a.org", "https://b.a.org", false},
		{"a.org", "https://a.org.evil.example", false},
		{"a.org", "https://xa.org", false},
		{"*.a.org", "https://b.a.org", true},
		{"*.a.org", "https://c.b.a.org:99", true},
		{"*.a.org", "https://a.org", false},
		{"*.a.org", "https://xa.org", false},
		{"a.org:8443", "https://a.org:8443", true},
		{"a.org:8443", "https://a.org", false},
		{"a.org:443", "https://a.org", true},
		{"a.org:80", "http://a.org", true},
		{"a.org:*", "https://a.org:1", true},
		{"*:443", "https://a.org", true},
		{"*:443", "https://a.org:444", false},
		{"*.a.org:1", "https://b.a.org:1", true},
		{"8.8.8.8", "https://8.8.8.8", true},
		{"8.8.8.8", "https://8.8.8.80", false},
		{"*.8.8.8", "https://8.8.8.8", false},
		{"2001:db8:0::1", "https://[2001:db8::1]", true},
		{"[2001:db8::1]:8443", "https://[2001:db8::1]:8443", true},
		{"[2001:db8::1]:8443", "https://[2001:db8::1]", false},
		{"https://a.org", "https://a.org", false},
		{":443", "https://a.org", false},
	} {
		var allow []string
		if x.allow != "" {
			allow = []string{"other.example", x.allow}
		}
		err := client(t, Policy{Allow: allow}, Options{}).Check(t.Context(), spec(x.url))
		if (err == nil) != x.want {
			t.Errorf("%q and %s: %v", x.allow, x.url, err)
		} else if err != nil {
			wants(t, err, fault.Denied, wire.CodeURLValidationFailed)
		}
	}
}

func TestPolicyHoldsForEachCallNotOnlyAtRegistration(t *testing.T) {
	at, reached := door(t)
	for name, p := range map[string]Policy{
		"host":    {Allow: []string{"example.org"}},
		"https":   {Allow: []string{"*"}, RequireHTTPS: true},
		"address": {Allow: []string{"*"}, BlockPrivate: true},
	} {
		_, err := do(t, client(t, p, Options{}), spec("http://127.0.0.1"+at), ``)
		if err == nil || err.Kind != fault.Denied || err.Code != wire.CodeURLValidationFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if reached.Load() != 0 {
		t.Error("the server was reached")
	}
}

func TestEnvironmentVariablesAreHeldAgainstThePolicy(t *testing.T) {
	for _, x := range []struct {
		env  []string
		name string
		want bool
	}{
		{nil, "TOKEN", true},
		{nil, "PLINTH_KEY", false},
		{nil, "plinth_key", false},
		{[]string{"PLINTH_*", "*"}, "PLINTH_ADMIN", false},
		{[]string{}, "TOKEN", false},
		{[]string{"FN_*"}, "FN_TOKEN", true},
		{[]string{"FN_*"}, "XFN_TOKEN", false},
		{[]string{"*_TOKEN"}, "A_TOKEN", true},
		{[]string{"*_TOKEN"}, "A_TOKEN2", false},
		{[]string{"A*B*C"}, "AxxBxxC", true},
		{[]string{"A*B*C"}, "AxxCxxB", false},
		{[]string{"A*A"}, "A", false},
		{[]string{"A", "B"}, "B", true},
	} {
		s := spec("https://e.org")
		s.Auth = &Auth{Type: "bearer", TokenKey: x.name}
		err := client(t, Policy{Allow: []string{"*"}, Env: x.env}, Options{}).Check(t.Context(), s)
		if (err == nil) != x.want {
			t.Errorf("%q and %s: %v", x.env, x.name, err)
		} else if err != nil {
			wants(t, err, fault.Denied, wire.CodeMissingEnvVar)
		}
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	proxied := atomic.Int64{}
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy)
	}
	at, reached := door(t)
	c := client(t, open(), Options{Resolver: &names{answers: [][]netip.Addr{addrs("127.0.0.1")}}})
	if got, err := do(t, c, spec("http://direct.example"+at), ``); err != nil || got != `"inside"` {
		t.Errorf("got %s, %v", got, err)
	}
	if proxied.Load() != 0 || reached.Load() != 1 {
		t.Errorf("the proxy was reached %d times", proxied.Load())
	}
	if c.transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
}

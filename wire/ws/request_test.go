package ws_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// head writes a request: the line, then headers.
func head(line string, headers ...string) string {
	return line + "\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
}

var goodHeaders = []string{
	"Host: 127.0.0.1:49134", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
}

// but returns the good headers without those of a name, and with more.
func but(name string, more ...string) []string {
	var hs []string
	for _, h := range goodHeaders {
		if !strings.HasPrefix(h, name+":") {
			hs = append(hs, h)
		}
	}
	return append(hs, more...)
}

func TestRequestOfTheRFC(t *testing.T) {
	in := head("GET /chat?a=b&c HTTP/1.1", "Host: server.example.com", "Upgrade: websocket",
		"Connection: Upgrade",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: http://example.com",
		"Sec-WebSocket-Protocol: chat, superchat", "Sec-WebSocket-Version: 13")
	r, n, err := ws.ParseRequest([]byte(in + "frames"))
	if err != nil || n != len(in) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	for _, c := range [][2]string{
		{r.Method, "GET"}, {r.Path, "/chat"}, {r.Query, "a=b&c"}, {r.Host, "server.example.com"},
		{r.Origin, "http://example.com"}, {r.Key, "dGhlIHNhbXBsZSBub25jZQ=="},
		{r.Header("sec-websocket-PROTOCOL"), "chat, superchat"}, {r.Header("X-None"), ""},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
	if !r.Upgrade {
		t.Error("no upgrade")
	}
	want := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
	if got := string(ws.AppendAccept(nil, r.Key)); got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
}

func TestRequestNeedsItsWholeHead(t *testing.T) {
	in := head("GET / HTTP/1.1", goodHeaders...)
	for n := range len(in) {
		if _, used, err := ws.ParseRequest([]byte(in[:n])); used != 0 || err != nil {
			t.Fatalf("%d bytes: %d used, %v", n, used, err)
		}
	}
}

func TestUpgradeIsFoundAmongTokens(t *testing.T) {
	for _, hs := range [][]string{
		but("Connection", "connection:keep-alive ,  UPGRADE"),
		but("Connection", "Connection: keep-alive", "Connection: upgrade"),
		but("Upgrade", "UPGRADE: h2c, WebSocket"),
	} {
		if r, _, err := ws.ParseRequest([]byte(head("GET / HTTP/1.1", hs...))); err != nil || !r.Upgrade {
			t.Errorf("%q: upgrade %v, %v", hs, r.Upgrade, err)
		}
	}
}

func TestPlainRequestIsNoUpgrade(t *testing.T) {
	for _, hs := range [][]string{
		{"Host: localhost"},
		but("Upgrade"),
		but("Connection", "Connection: close"),
		but("Upgrade", "Upgrade: websockets"),
		{"Host: localhost", "Content-Length: 0"},
	} {
		r, n, err := ws.ParseRequest([]byte(head("GET /healthz HTTP/1.1", hs...)))
		if err != nil || n == 0 || r.Upgrade || r.Path != "/healthz" {
			t.Errorf("%q: %+v, %v", hs, r, err)
		}
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	const get = "GET / HTTP/1.1"
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprintf("X-%d: y", i)
	}
	for _, c := range []struct {
		name   string
		in     string
		status int
	}{
		{"another method", head("POST / HTTP/1.1", goodHeaders...), 405},
		{"another method without upgrade", head("HEAD / HTTP/1.1", "Host: a"), 405},
		{"HTTP/1.0", head("GET / HTTP/1.0", goodHeaders...), 505},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"no version", head("GET /", goodHeaders...), 400},
		{"two spaces", head("GET  / HTTP/1.1", goodHeaders...), 400},
		{"more behind the version", head("GET / HTTP/1.1 x", goodHeaders...), 400},
		{"lower case version", head("GET / http/1.1", goodHeaders...), 400},
		{"absolute target", head("GET http://a/ HTTP/1.1", goodHeaders...), 400},
		{"star target", head("GET * HTTP/1.1", goodHeaders...), 400},
		{"fragment", head("GET /#x HTTP/1.1", goodHeaders...), 400},
		{"control character in the target", head("GET /\x01 HTTP/1.1", goodHeaders...), 400},
		{"byte over ASCII in the target", head("GET /\xc3\xa9 HTTP/1.1", goodHeaders...), 400},
		{"empty line first", "\r\n" + head(get, goodHeaders...), 400},
		{"a byte that begins no method", "\x00", 400},
		{"TLS, first byte", "\x16", 400},
		{"TLS", "\x16\x03\x01\x02\x00", 400},
		{"line feeds alone in the head", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
		{"line feed in a value", head(get, but("", "X: a\nb")...), 400},
		{"return in a value", head(get, but("", "X: a\rb")...), 400},
		{"zero byte in a value", head(get, but("", "X: a\x00b")...), 400},
		{"folded header", head(get, but("", "X: a", " b")...), 400},
		{"folded first header", head(get, " X: a"), 400},
		{"tab before a header", head(get, but("", "\tX: a")...), 400},
		{"space before the colon", head(get, but("", "X : a")...), 400},
		{"no colon", head(get, but("", "Xa")...), 400},
		{"empty name", head(get, but("", ": a")...), 400},
		{"no host", head(get, but("Host")...), 400},
		{"two hosts", head(get, but("", "host: b")...), 400},
		{"two keys", head(get, but("", "Sec-Websocket-Key: dGhlIHNhbXBsZSBub25jZQ==")...), 400},
		{"two origins", head(get, but("", "Origin: a", "Origin: b")...), 400},
		{"two credentials", head(get, but("", "Authorization: a", "authorization: b")...), 400},
		{"no key", head(get, but("Sec-WebSocket-Key")...), 400},
		{"short key", head(get, but("Sec-WebSocket-Key", "Sec-WebSocket-Key: AAAA")...), 400},
		{"key of 17 bytes", head(get, but("Sec-WebSocket-Key",
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWU=")...), 400},
		{"key that is no base64", head(get, but("Sec-WebSocket-Key",
			"Sec-WebSocket-Key: !GhlIHNhbXBsZSBub25jZQ==")...), 400},
		{"version 8", head(get, but("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8")...), 426},
		{"no version header", head(get, but("Sec-WebSocket-Version")...), 426},
		{"body", head(get, but("", "Content-Length: 5")...), 400},
		{"empty length", head(get, but("", "Content-Length:")...), 400},
		{"chunked body", head(get, but("", "Transfer-Encoding: chunked")...), 400},
		{"both lengths", head(get, but("", "Content-Length: 0", "Content-Length: 5")...), 400},
		{"101 headers", head(get, many...), 431},
		{"large head", head(get, but("", "X: "+strings.Repeat("a", wire.MaxHeadBytes))...), 431},
		{"large head that does not end", "GET /" + strings.Repeat("a", wire.MaxHeadBytes), 431},
	} {
		_, n, err := ws.ParseRequest([]byte(c.in))
		var refusal *ws.HandshakeError
		if !errors.As(err, &refusal) || refusal.Status != c.status || n != 0 {
			t.Errorf("%s: %v, want status %d", c.name, err, c.status)
			continue
		}
		answer := string(ws.AppendRefusal(nil, refusal.Status, refusal.Reason))
		if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", c.status)) {
			t.Errorf("%s: answer %q", c.name, answer)
		}
	}
}

func TestHeadAtTheBoundIsTaken(t *testing.T) {
	fixed := len(head("GET / HTTP/1.1", but("", "X: ")...))
	in := head("GET / HTTP/1.1", but("", "X: "+strings.Repeat("a", wire.MaxHeadBytes-fixed))...)
	if len(in) != wire.MaxHeadBytes {
		t.Fatalf("the head has %d bytes", len(in))
	}
	if _, n, err := ws.ParseRequest([]byte(in + "frame")); n != len(in) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, _, err := ws.ParseRequest([]byte(in[:len(in)-4] + "a\r\n\r\n")); err == nil {
		t.Error("a head one byte longer was taken")
	}
}

func TestNamesOfHeadersAreTokens(t *testing.T) {
	for c := range 256 {
		in := head("GET / HTTP/1.1", "Host: a", string([]byte{'X', byte(c)})+": v")
		_, _, err := ws.ParseRequest([]byte(in))
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		good := letter || c < 127 && strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) || c == ':'
		if (err == nil) != good {
			t.Errorf("byte %q in a name: %v", byte(c), err)
		}
		in = head("GET / HTTP/1.1", "Host: a", "X: a"+string([]byte{byte(c)})+"b")
		_, _, err = ws.ParseRequest([]byte(in))
		if good = c == '\t' || c >= ' ' && c != 127; (err == nil) != good {
			t.Errorf("byte %q in a value: %v", byte(c), err)
		}
		in = head("GET /a"+string([]byte{byte(c)})+"b HTTP/1.1", "Host: a")
		_, _, err = ws.ParseRequest([]byte(in))
		if good = c > ' ' && c < 127 && c != '#'; (err == nil) != good {
			t.Errorf("byte %q in a target: %v", byte(c), err)
		}
	}
}

func TestHundredHeadersAreTaken(t *testing.T) {
	hs := but("")
	for len(hs) < 100 {
		hs = append(hs, "X: y")
	}
	if r, _, err := ws.ParseRequest([]byte(head("GET / HTTP/1.1", hs...))); err != nil || !r.Upgrade {
		t.Errorf("upgrade %v, %v", r.Upgrade, err)
	}
}

func TestRequestKeepsNoReferenceToItsBytes(t *testing.T) {
	b := []byte(head("GET /path HTTP/1.1", goodHeaders...))
	r, _, err := ws.ParseRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = 'x'
	}
	if r.Path != "/path" || r.Host != "127.0.0.1:49134" {
		t.Errorf("the request changed with its bytes: %q %q", r.Path, r.Host)
	}
}

func TestHeadersAreJoinedUnderOneName(t *testing.T) {
	r, _, err := ws.ParseRequest([]byte("GET / HTTP/1.1\r\nHost: a\r\nX-Tag: one\r\nx-tag: two\r\nCookie: c\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := r.Headers()
	if len(got) != 3 || got["x-tag"] != "one, two" || got["cookie"] != "c" || got["host"] != "a" {
		t.Errorf("got %v", got)
	}
}

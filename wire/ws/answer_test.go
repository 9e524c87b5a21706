package ws_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

func TestRefusalsAreHTTP(t *testing.T) {
	for status := range map[int]string{200: "", 400: "", 401: "", 403: "", 404: "", 405: "", 408: "", 421: "",
		426: "", 429: "", 431: "", 500: "", 503: "", 505: "", 418: ""} {
		b := ws.AppendRefusal(nil, status, "because of "+strconv.Itoa(status))
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
		if err != nil {
			t.Fatalf("%d: %v in %q", status, err, b)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "because of "+strconv.Itoa(status)+"\n" {
			t.Errorf("%d: body %q, %v", status, body, err)
		}
		if r.StatusCode != status || !r.Close {
			t.Errorf("%d: status %d, close %v", status, r.StatusCode, r.Close)
		}
		want := http.StatusText(status)
		if status == 418 {
			want = "Refused"
		}
		if r.Status != strconv.Itoa(status)+" "+want {
			t.Errorf("%d: status line %q", status, r.Status)
		}
		if status == 426 && r.Header.Get("Sec-WebSocket-Version") != "13" {
			t.Error("426 does not say which version is spoken")
		}
		if status == 405 && r.Header.Get("Allow") != "GET" {
			t.Error("405 does not say what is allowed")
		}
	}
}

func TestAcceptTakesNoMemory(t *testing.T) {
	dst := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() {
		dst = ws.AppendAccept(dst[:0], "dGhlIHNhbXBsZSBub25jZQ==")
		dst = ws.AppendRefusal(dst[:0], 503, "full")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// serve answers one handshake on a pipe and returns the client's end.
func serve(answer func(r ws.Request) []byte) net.Conn {
	client, server := net.Pipe()
	// Owned by the test: it ends when the answer is written or the client's end is closed.
	go func() {
		defer server.Close()
		var b []byte
		for {
			part := make([]byte, 64)
			n, err := server.Read(part)
			b = append(b, part[:n]...)
			r, used, bad := ws.ParseRequest(b)
			if bad != nil {
				_, _ = server.Write(ws.AppendRefusal(nil, 400, bad.Error()))
				return
			}
			if used > 0 {
				_, _ = server.Write(answer(r))
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return client
}

func TestHandshakeOfClientAndServer(t *testing.T) {
	seen := make(chan ws.Request, 1)
	conn := serve(func(r ws.Request) []byte {
		seen <- r
		return ws.AppendFrame(ws.AppendAccept(nil, r.Key), ws.Text, []byte("first"))
	})
	defer conn.Close()
	rest, err := ws.ClientHandshake(conn, "engine:49134", "/otel?x=1", map[string][]string{
		"X-Api-Key": {"k1", "k2"}, "Authorization": {"Bearer t"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(rest) != "\x81\x05first" {
		t.Errorf("rest %q", rest)
	}
	r := <-seen
	if r.Path != "/otel" || r.Query != "x=1" || r.Host != "engine:49134" || !r.Upgrade ||
		r.Header("X-Api-Key") != "k1" || r.Header("Authorization") != "Bearer t" {
		t.Errorf("request %+v", r)
	}
}

func TestEachHandshakeHasItsOwnKey(t *testing.T) {
	keys := map[string]bool{}
	for range 20 {
		conn := serve(func(r ws.Request) []byte {
			keys[r.Key] = true
			return ws.AppendAccept(nil, r.Key)
		})
		if _, err := ws.ClientHandshake(conn, "a", "/", nil); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if len(keys) != 20 {
		t.Errorf("%d keys in 20 handshakes", len(keys))
	}
}

func TestRefusedClientKnowsWhy(t *testing.T) {
	conn := serve(func(ws.Request) []byte { return ws.AppendRefusal(nil, 401, "no such\r\nkey") })
	defer conn.Close()
	_, err := ws.ClientHandshake(conn, "a", "/", nil)
	var refusal *ws.HandshakeError
	if !errors.As(err, &refusal) || refusal.Status != 401 ||
		refusal.Reason != "refused with 401: no such  key" {
		t.Errorf("error %v", err)
	}
	if err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("the text does not name the status: %v", err)
	}
}

// canned is a server that answers the same whatever it is asked.
type canned struct {
	io.Reader
	sent bytes.Buffer
}

func (c *canned) Write(p []byte) (int, error) { return c.sent.Write(p) }

func TestBadAnswersAreRefused(t *testing.T) {
	accept := func(change func(string) string) func(ws.Request) []byte {
		return func(r ws.Request) []byte { return []byte(change(string(ws.AppendAccept(nil, r.Key)))) }
	}
	always := func(s string) func(ws.Request) []byte {
		return func(ws.Request) []byte { return []byte(s) }
	}
	replace := func(old, new string) func(ws.Request) []byte {
		return accept(func(s string) string { return strings.Replace(s, old, new, 1) })
	}
	for name, answer := range map[string]func(ws.Request) []byte{
		"no upgrade":       replace("Upgrade: websocket\r\n", ""),
		"other upgrade":    replace("websocket", "h2c"),
		"no connection":    replace("Connection: Upgrade\r\n", ""),
		"no proof":         replace("Sec-WebSocket-Accept", "X"),
		"two proofs":       replace("\r\n\r\n", "\r\nSec-WebSocket-Accept: x\r\n\r\n"),
		"wrong proof":      func(ws.Request) []byte { return ws.AppendAccept(nil, "dGhlIHNhbXBsZSBub25jZQ==") },
		"extension":        replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"),
		"subprotocol":      replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n"),
		"another status":   replace("101", "200"),
		"HTTP/1.0":         replace("HTTP/1.1", "HTTP/1.0"),
		"no status":        replace("101 Switching Protocols", "abc"),
		"status too long":  replace("101", "1011"),
		"bad header":       replace("\r\n\r\n", "\r\nbad header\r\n\r\n"),
		"folded header":    replace("\r\n\r\n", "\r\n folded\r\n\r\n"),
		"ends too early":   accept(func(s string) string { return s[:len(s)-2] }),
		"nothing":          func(ws.Request) []byte { return nil },
		"endless head":     func(ws.Request) []byte { return bytes.Repeat([]byte("a"), wire.MaxHeadBytes+100) },
		"no HTTP at all":   func(ws.Request) []byte { return []byte("SSH-2.0-x\r\n\r\n") },
		"redirect":         always("HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"),
		"refusal cut off":  always("HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\nfu"),
		"negative length":  always("HTTP/1.1 503 No\r\nContent-Length: -1\r\n\r\n"),
		"text is not text": always("HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\n\xff\x01\n"),
	} {
		conn := serve(answer)
		rest, err := ws.ClientHandshake(conn, "a", "/", nil)
		conn.Close()
		if err == nil {
			t.Errorf("%s: taken, rest %q", name, rest)
		}
	}
}

func TestBrokenConnectionIsReported(t *testing.T) {
	broken := errors.New("broken")
	_, err := ws.ClientHandshake(&canned{Reader: iotest.ErrReader(broken)}, "a", "/", nil)
	if !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
	_, err = ws.ClientHandshake(&canned{Reader: strings.NewReader("")}, "a", "/", nil)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("end: %v", err)
	}
	client, server := net.Pipe()
	server.Close()
	if _, err = ws.ClientHandshake(client, "a", "/", nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writing: %v", err)
	}
}

func TestNothingCanBeSmuggledIntoTheRequest(t *testing.T) {
	for _, c := range []struct {
		host, path  string
		name, value string
	}{
		{"", "/", "", ""},
		{"a b", "/", "", ""},
		{"a\r\nX: y", "/", "", ""},
		{"a", "", "", ""},
		{"a", "x", "", ""},
		{"a", "/ HTTP/1.1\r\nX: y", "", ""},
		{"a", "/#x", "", ""},
		{"a", "/\xff", "", ""},
		{"a", "/", "X\r\nY", "v"},
		{"a", "/", "X Y", "v"},
		{"a", "/", "X", "v\r\nY: z"},
		{"a", "/", "X", "v\x00"},
		{"a", "/", "Host", "b"},
		{"a", "/", "upgrade", "b"},
		{"a", "/", "Connection", "close"},
		{"a", "/", "Content-Length", "3"},
		{"a", "/", "Transfer-Encoding", "chunked"},
		{"a", "/", "sec-websocket-extensions", "x"},
		{"a", "/", "X", strings.Repeat("a", wire.MaxHeadBytes)},
	} {
		header := map[string][]string{}
		if c.name != "" {
			header[c.name] = []string{c.value}
		}
		conn := &canned{Reader: strings.NewReader("")}
		if _, err := ws.ClientHandshake(conn, c.host, c.path, header); err == nil || conn.sent.Len() > 0 {
			t.Errorf("%+v: %d bytes were sent, %v", c, conn.sent.Len(), err)
		}
	}
}

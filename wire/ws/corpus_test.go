package ws_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire/ws"
)

var update = flag.Bool("update", false, "write the corpus under testdata/fuzz")

// streams are connections worth a look; the names say why.
func streams() map[string][]byte {
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	cut := func(b []byte, n int) []byte { return b[:n] }
	plain := ws.AppendFrame
	m := map[string][]byte{
		"text":                    raw(text, "hello"),
		"empty-messages":          cat(raw(text, ""), raw(bin, "")),
		"ping-pong":               cat(raw(ping, "p"), raw(pong, "q")),
		"control-of-125":          raw(ping, strings.Repeat("*", 125)),
		"control-of-126":          raw(ping, strings.Repeat("*", 126)),
		"fragments":               cat(raw(text&more, "a"), raw(cont&more, "b"), raw(cont, "c")),
		"control-in-fragments":    cat(raw(text&more, "a"), raw(ping, "p"), raw(cont, "b")),
		"close-in-fragments":      cat(raw(text&more, "a"), raw(closF, status(1000, "x"))),
		"bytes-behind-close":      cat(raw(closF, status(1001, "bye")), []byte("\xff\xff")),
		"close-of-one-byte":       raw(closF, "x"),
		"close-1005":              raw(closF, status(1005, "")),
		"close-bad-reason":        raw(closF, status(1000, "\xff")),
		"continuation-of-nothing": raw(cont, "x"),
		"message-in-message":      cat(raw(text&more, "a"), raw(bin, "b")),
		"reserved-bit":            raw(text|0x40, "x"),
		"reserved-opcode":         raw(0x83, "x"),
		"fragmented-control":      raw(ping&more, "x"),
		"unmasked":                plain(nil, ws.Text, []byte("x")),
		"length-126-not-minimal":  {text, 0xfe, 0, 5, 1, 2, 3, 4, 'a', 'b', 'c', 'd', 'e'},
		"length-127-not-minimal":  {text, 0xff, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4},
		"length-with-top-bit":     {bin, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0},
		"length-of-63-bits":       {bin, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0},
		"cut-in-the-first-byte":   {},
		"cut-in-the-length":       cut(raw(text, strings.Repeat("x", 300)), 3),
		"cut-in-the-mask":         cut(raw(text, "hello"), 4),
		"cut-in-the-payload":      cut(raw(text, "hello"), 9),
		"cut-in-a-large-frame":    cut(raw(bin, strings.Repeat("x", 40_000)), 20_000),
		"over-the-bound":          cat(raw(text, strings.Repeat("x", 3000)), raw(ping, "p")),
		"fragments-over-the-bound": cat(raw(text&more, strings.Repeat("x", 900)),
			raw(cont, strings.Repeat("y", 900))),
		"over-the-hard-bound": raw(text, strings.Repeat("x", 9000)),
	}
	m["from-a-server"] = cat(plain(nil, ws.Text, []byte("x")), plain(nil, ws.Close, []byte(status(1000, ""))))
	return m
}

// heads are handshakes worth a look: requests, and answers to the sample key.
func heads() map[string]string {
	get := "GET / HTTP/1.1"
	accept := string(ws.AppendAccept(nil, sampleKey))
	return map[string]string{
		"request":             head("GET /otel?x=1 HTTP/1.1", goodHeaders...),
		"plain-request":       head("GET /healthz HTTP/1.1", "Host: a"),
		"post":                head("POST / HTTP/1.1", goodHeaders...),
		"folded":              head(get, but("", "X: a", " b")...),
		"two-hosts":           head(get, but("", "Host: b")...),
		"two-lengths":         head(get, but("", "Content-Length: 0", "Content-Length: 4")...),
		"empty-length":        head(get, but("", "Content-Length:")...),
		"chunked":             head(get, but("", "Transfer-Encoding: chunked")...),
		"line-feeds-alone":    "GET / HTTP/1.1\nHost: a\n\n",
		"absolute-target":     head("GET http://b/ HTTP/1.1", goodHeaders...),
		"odd-target":          head("GET //b/%zz?a#b HTTP/1.1", goodHeaders...),
		"tls":                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"http2":               "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"bytes-behind":        head(get, goodHeaders...) + "\x81\x80",
		"answer":              accept + "\x81\x05first",
		"answer-two-proofs":   strings.Replace(accept, "\r\n\r\n", "\r\nSec-WebSocket-Accept: x\r\n\r\n", 1),
		"answer-refused":      string(ws.AppendRefusal(nil, 401, "no key")),
		"answer-other-length": "HTTP/1.1 503 No\r\nContent-Length: 18446744073709551616\r\n\r\nx",
	}
}

// seed writes one value of a corpus file.
func seed(v any) string {
	switch v := v.(type) {
	case []byte:
		return fmt.Sprintf("[]byte(%q)\n", v)
	default:
		return fmt.Sprintf("%T(%v)\n", v, v)
	}
}

// TestCorpusIsCommitted holds the files of the corpus to the lists above; -update writes them.
func TestCorpusIsCommitted(t *testing.T) {
	files := map[string]string{}
	for name, b := range streams() {
		server := name != "from-a-server"
		bounds := seed(uint16(1000)) + seed(uint16(4000))
		files["FuzzDecoder/"+name] = seed(b) + seed(server) + bounds + seed(uint64(0))
	}
	for name, s := range heads() {
		files["FuzzHandshake/"+name] = seed([]byte(s))
	}
	for name, body := range files {
		path := filepath.Join("testdata", "fuzz", filepath.FromSlash(name))
		want := "go test fuzz v1\n" + body
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the list says: run go test -update", path)
		}
	}
}

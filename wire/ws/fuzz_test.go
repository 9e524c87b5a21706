package ws_test

import (
	"bufio"
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// FuzzDecoder: however the bytes of a connection are split, and whether the budget gives memory or
// not, a decoder tells what the reference tells, holds at most twice what came, and gives all back.
func FuzzDecoder(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte, server bool, most, hard uint16, seed uint64) {
		cfg := ws.Config{Role: ws.Client, MaxMessage: int64(most) + 1, HardMessage: int64(most) + int64(hard) + 1}
		if server {
			cfg.Role = ws.Server
		}
		rnd := rand.New(rand.NewPCG(seed, 2))
		if diff := differ(t, rnd, stream, cfg, seed%4 == 3); diff != "" {
			t.Fatal(diff)
		}
	})
}

const sampleKey = "dGhlIHNhbXBsZSBub25jZQ=="

// FuzzHandshake: a request that is taken is one that net/http takes too and reads alike; its head does
// not depend on what follows; a prefix of it is never judged otherwise. An answer that is taken is one
// that net/http reads as 101 with the proof for the key.
func FuzzHandshake(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzRequest(t, b)
		fuzzAnswer(t, b)
	})
}

func fuzzAnswer(t *testing.T, b []byte) {
	rest, err := ws.Answer(b, sampleKey)
	if err != nil {
		if len(err.Error()) > 1000 {
			t.Fatalf("error of %d bytes", len(err.Error()))
		}
		return
	}
	if !bytes.HasSuffix(b, rest) {
		t.Fatalf("rest %q", rest)
	}
	std, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		t.Fatalf("net/http refuses it: %v", err)
	}
	if std.StatusCode != 101 || std.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("net/http reads %d with %v", std.StatusCode, std.Header)
	}
}

func fuzzRequest(t *testing.T, b []byte) {
	r, n, err := ws.ParseRequest(b)
	var refusal *ws.HandshakeError
	if err != nil {
		if !errors.As(err, &refusal) || refusal.Status < 400 || n != 0 {
			t.Fatalf("error %v, %d bytes", err, n)
		}
		return
	}
	if n == 0 {
		if len(b) >= wire.MaxHeadBytes {
			t.Fatal("asks for more than the bound")
		}
		return
	}
	for _, cut := range []int{0, 1, n / 2, n - 1} {
		if _, m, err := ws.ParseRequest(b[:cut]); m != 0 || err != nil {
			t.Fatalf("%d of %d bytes: %d, %v", cut, n, m, err)
		}
	}
	std, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b[:n])))
	if err != nil {
		t.Fatalf("net/http refuses it: %v", err)
	}
	if std.Method != r.Method || std.RequestURI != strings.TrimSuffix(r.Path+"?"+r.Query, "?") && r.Query != "" {
		t.Fatalf("target %q %q, net/http reads %q", r.Path, r.Query, std.RequestURI)
	}
	if std.Host != r.Host || std.Header.Get("Origin") != r.Origin {
		t.Fatalf("host %q and origin %q, net/http reads %q and %q", r.Host, r.Origin, std.Host,
			std.Header.Get("Origin"))
	}
	for name, values := range std.Header {
		if r.Header(name) != values[0] {
			t.Fatalf("header %s is %q, net/http reads %q", name, r.Header(name), values[0])
		}
	}
	if r.Upgrade && len(ws.AppendAccept(nil, r.Key)) != 129 {
		t.Fatalf("answer %q", ws.AppendAccept(nil, r.Key))
	}
}

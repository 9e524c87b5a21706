package ws

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/plinth-run/plinth/wire"
)

// ClientHandshake asks for a WebSocket over rw: it writes the request and reads the answer. path may
// carry a query. header may hold any header but those of the handshake itself. rest is what was read
// behind the answer: the first bytes of frames.
//
// A refusal by the server is a *HandshakeError with its status and the start of its text. Set
// deadlines on the connection; ClientHandshake has none. It reads at most wire.MaxHeadBytes of a head.
func ClientHandshake(
	rw io.ReadWriter, host, path string, header map[string][]string,
) (rest []byte, err error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails: crypto/rand ends the process instead
	key := base64.StdEncoding.EncodeToString(nonce[:])
	request, err := appendRequest(nil, host, path, key, header)
	if err != nil {
		return nil, err
	}
	if _, err := rw.Write(request); err != nil {
		return nil, fmt.Errorf("websocket: write handshake: %w", err)
	}
	b, end, err := readHead(rw)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(rw, b, end, key); err != nil {
		return nil, err
	}
	return b[end:], nil
}

func appendRequest(dst []byte, host, path, key string, header map[string][]string) ([]byte, error) {
	if host == "" || !visible(host) || !visible(path) || path == "" || path[0] != '/' ||
		strings.Contains(path, "#") {
		return nil, errors.New("websocket: handshake: bad host or path")
	}
	dst = append(dst, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+key+"\r\n"...)
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names) // the same request for the same headers
	for _, name := range names {
		if !isToken(name) || reserved(name) {
			return nil, fmt.Errorf("websocket: handshake: header %q may not be set", name)
		}
		for _, value := range header[name] {
			if !isValue(value) {
				return nil, fmt.Errorf("websocket: handshake: bad value of header %q", name)
			}
			dst = append(dst, name+": "+value+"\r\n"...)
		}
	}
	if dst = append(dst, "\r\n"...); len(dst) > wire.MaxHeadBytes {
		return nil, errors.New("websocket: handshake: headers too large")
	}
	return dst, nil
}

// reserved reports whether a header belongs to the handshake or would change where the request ends.
func reserved(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "upgrade", "connection", "content-length", "transfer-encoding":
		return true
	}
	return strings.HasPrefix(name, "sec-websocket-")
}

// readHead reads until a head is whole; end is the index behind it.
func readHead(r io.Reader) (b []byte, end int, err error) {
	b = make([]byte, 0, 1<<10)
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if end := headEnd(b); end >= 0 {
			return b, end, nil
		}
		if len(b) > wire.MaxHeadBytes {
			return nil, 0, refuse(0, "answer head too large")
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, 0, fmt.Errorf("websocket: read handshake: %w", err)
		}
	}
}

// checkAnswer judges the answer head b[:end].
func checkAnswer(r io.Reader, b []byte, end int, key string) error {
	line, rest, _ := strings.Cut(string(b[:end-2]), "\r\n")
	status, ok := statusOf(line)
	if !ok {
		return refuse(0, "the answer is not HTTP/1.1")
	}
	hs, err := parseHeaders(rest)
	if err != nil {
		return refuse(0, "the answer has malformed headers")
	}
	if status != 101 {
		return refuse(status, "refused with "+strconv.Itoa(status)+body(r, b[end:], hs))
	}
	answer := Request{headers: hs}
	switch {
	case !hasToken(hs, "Upgrade", "websocket"), !hasToken(hs, "Connection", "upgrade"):
		return refuse(101, "the answer does not upgrade")
	case answer.count("Sec-WebSocket-Accept") != 1,
		answer.Header("Sec-WebSocket-Accept") != string(appendProof(nil, key)):
		return refuse(101, "the answer has a wrong Sec-WebSocket-Accept")
	case answer.count("Sec-WebSocket-Extensions") > 0, answer.count("Sec-WebSocket-Protocol") > 0:
		return refuse(101, "the answer has an extension or subprotocol that was not asked for")
	}
	return nil
}

// statusOf reads the status of "HTTP/1.1 101 Switching Protocols".
func statusOf(line string) (int, bool) {
	rest, ok := strings.CutPrefix(line, "HTTP/1.1 ")
	if !ok || len(rest) < 3 || len(rest) > 3 && rest[3] != ' ' {
		return 0, false
	}
	status, err := strconv.Atoi(rest[:3])
	return status, err == nil && status >= 100 && status <= 599
}

// body returns the start of the text of a refusal, for the error, with a colon before it.
func body(r io.Reader, b []byte, hs []headerLine) string {
	const most = 256
	answer := Request{headers: hs}
	n, err := strconv.Atoi(answer.Header("Content-Length"))
	if err != nil || n <= 0 {
		return ""
	}
	n = min(n, most)
	text := append(make([]byte, 0, most), b[:min(len(b), n)]...)
	if len(text) < n {
		m, _ := io.ReadFull(r, text[len(text):n]) // what there is of it will do
		text = text[:len(text)+m]
	}
	s := strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
	if s == "" {
		return ""
	}
	return ": " + strings.Map(printable, s)
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

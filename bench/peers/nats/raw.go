// Package nats drives a NATS server with request/reply in two ways: with the event loop of package load,
// which speaks just enough of the protocol, and with the client library nats.go, as its users do.
//
// It promises the frames that nats.go would send: one subscription for all replies of a connection,
// headers and no-responder notices switched on. It serves benchmarks only; a connection that the
// server ends is not opened again.
package nats

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load"
)

const (
	dialTime = 10 * time.Second
	subject  = "bench.echo" // of a host; its index follows
	maxLine  = 4096         // of control; INFO is the longest
)

var crlf = []byte("\r\n")

// DialRaw is a load.Dial: target is host:port.
func DialRaw(ctx context.Context, target string, role load.Role, index int) (load.Link, error) {
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return load.Link{}, err
	}
	_ = conn.SetDeadline(time.Now().Add(dialTime)) // a socket that is closed by now says so below
	s := &speaker{inbox: fmt.Sprintf("_INBOX.bench%017d.", index)}
	if err := s.open(conn, role, index); err != nil {
		_ = conn.Close()
		return load.Link{}, fmt.Errorf("handshake: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return load.Link{Conn: conn, Speaker: s}, nil
}

// speaker speaks the client side of the NATS protocol on one connection.
type speaker struct {
	inbox   string // of all replies; a token follows
	scratch []byte
}

// open introduces the connection and subscribes, and waits until the server has done both: its PONG
// comes after it has read what stands before the PING.
func (s *speaker) open(conn io.ReadWriter, role load.Role, index int) error {
	greeting := `CONNECT {"verbose":false,"pedantic":false,"tls_required":false,"name":"bench",` +
		`"lang":"go","version":"1.55.0","protocol":1,"echo":true,"headers":true,"no_responders":true}` + "\r\n"
	switch role {
	case load.Host:
		greeting += "SUB " + subject + strconv.Itoa(index) + " 1\r\n"
	case load.Caller:
		greeting += "SUB " + s.inbox + "* 1\r\n"
	}
	if _, err := io.WriteString(conn, greeting+"PING\r\n"); err != nil {
		return err
	}
	var b [1]byte
	var line []byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		line = append(line, b[0])
		switch {
		case len(line) > maxLine:
			return errors.New("the server's first line does not end")
		case b[0] != '\n':
		case bytes.HasPrefix(line, []byte("PONG")):
			return nil
		case bytes.HasPrefix(line, []byte("-ERR")):
			return fmt.Errorf("the server refuses: %s", bytes.TrimSpace(line))
		default:
			line = line[:0] // INFO
		}
	}
}

// Call implements load.Speaker.
func (s *speaker) Call(dst []byte, function int, id uint64, payload []byte) []byte {
	dst = strconv.AppendInt(append(append(dst, "PUB "...), subject...), int64(function), 10)
	dst = append(append(dst, ' '), s.inbox...)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], id)
	dst = append(base64.RawURLEncoding.AppendEncode(dst, b[:]), ' ')
	return appendPayload(dst, payload)
}

// Answer implements load.Speaker: the token is the subject that the caller waits at.
func (s *speaker) Answer(dst, token, _, payload []byte) []byte {
	dst = append(append(append(dst, "PUB "...), token...), ' ')
	return appendPayload(dst, payload)
}

func appendPayload(dst, payload []byte) []byte {
	dst = append(strconv.AppendInt(dst, int64(len(payload)), 10), crlf...)
	return append(append(dst, payload...), crlf...)
}

// Feed implements load.Speaker.
func (s *speaker) Feed(c *load.Conn, b []byte) (int, error) {
	used := 0
	for {
		n, err := s.next(c, b[used:])
		if n == 0 || err != nil {
			return used, err
		}
		used += n
	}
}

var errLine = errors.New("a line from the server that makes no sense")

// next reads one operation of the server; 0: it is not whole.
func (s *speaker) next(c *load.Conn, b []byte) (int, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > maxLine {
			return 0, errLine
		}
		return 0, nil
	}
	line, size := bytes.TrimSuffix(b[:end], crlf[:1]), end+1
	switch {
	case bytes.HasPrefix(line, []byte("MSG ")):
		return s.message(c, b, line[4:], size, false)
	case bytes.HasPrefix(line, []byte("HMSG ")):
		return s.message(c, b, line[5:], size, true)
	case bytes.Equal(line, []byte("PING")):
		c.Send([]byte("PONG\r\n"))
	case bytes.HasPrefix(line, []byte("-ERR")):
		return 0, fmt.Errorf("the server says %s", line)
	}
	return size, nil // PONG, +OK, INFO
}

// message reads MSG subject sid [reply] bytes, or HMSG with the bytes of the header before the total.
func (s *speaker) message(c *load.Conn, b, args []byte, size int, header bool) (int, error) {
	var field [5][]byte
	n := 0
	for len(args) > 0 && n < len(field) {
		field[n], args, _ = bytes.Cut(args, []byte(" "))
		n++
	}
	least, head := 3, 0
	if header {
		least = 4
	}
	if n < least || n > least+1 {
		return 0, errLine
	}
	total, ok := number(field[n-1])
	if header {
		var good bool
		head, good = number(field[n-2])
		ok = ok && good && head <= total
	}
	if !ok {
		return 0, errLine
	}
	if len(b) < size+total+2 {
		return 0, nil
	}
	var reply []byte
	if n == least+1 {
		reply = field[2]
	}
	s.deliver(c, field[0], reply, b[size:size+head], b[size+head:size+total])
	return size + total + 2, nil
}

func (s *speaker) deliver(c *load.Conn, to, reply, head, payload []byte) {
	token, own := bytes.CutPrefix(to, []byte(s.inbox))
	if !own {
		c.Asked(reply, to, payload)
		return
	}
	s.scratch = s.scratch[:0]
	id, err := base64.RawURLEncoding.AppendDecode(s.scratch, token)
	if err != nil || len(id) != 8 {
		c.Answered(^uint64(0), nil, payload) // a stray
		return
	}
	s.scratch = id
	var code []byte
	if bytes.HasPrefix(head, []byte("NATS/1.0 503")) {
		code = []byte("no_responders")
	}
	c.Answered(binary.BigEndian.Uint64(id), code, payload)
}

// number reads a decimal number of up to nine digits.
func number(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, true
}

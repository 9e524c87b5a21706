package worker

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/plinth-run/plinth/wire/ws"
)

// RefusedError is why the engine did not open a connection: it answered the handshake with an HTTP status.
// 401 is a key that is missing, wrong, expired or revoked, 404 a channel that is not there, 429 too many
// attempts, 503 an engine that is full or not set up yet. State.Err, Run and the openers of channels wrap it.
type RefusedError struct {
	Status int    // HTTP status, 200 to 599
	Reason string // the engine's line of text; empty if it sent none
}

// Error returns the status and the reason.
func (e *RefusedError) Error() string {
	text := "the engine refused the connection with status " + strconv.Itoa(e.Status)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// refusal makes a RefusedError of a handshake that was answered with a status, and leaves other errors alone.
func refusal(err error) error {
	var e *ws.HandshakeError
	if !errors.As(err, &e) || e.Status < 200 {
		return err
	}
	reason, _ := strings.CutPrefix(e.Reason, "refused with "+strconv.Itoa(e.Status))
	return &RefusedError{Status: e.Status, Reason: strings.TrimPrefix(reason, ": ")}
}

// dial opens the connection of the worker. rest are the first bytes the engine sent.
func (w *Worker) dial(ctx context.Context) (c *conn, rest []byte, err error) {
	sock, rest, err := w.open(ctx, w.target.path)
	if err != nil {
		return nil, nil, fmt.Errorf("worker: connect: %w", err)
	}
	return w.newConn(sock), rest, nil
}

// open opens a connection and asks for the WebSocket at path, with the credential of the worker. It takes no
// longer than handshakeTimeout. rest are the first bytes the engine sent.
func (w *Worker) open(ctx context.Context, path string) (sock net.Conn, rest []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if w.opts.Dial != nil {
		sock, err = w.opts.Dial(ctx)
	} else {
		sock, err = new(net.Dialer).DialContext(ctx, "tcp", w.target.address)
	}
	if err != nil {
		return nil, nil, err
	}
	raw := sock
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer func() {
		if err == nil && !stop() {
			err = ctx.Err()
		}
		if err != nil {
			stop()
			_ = raw.Close()
		}
	}()
	if w.target.secure {
		sock = w.secure(sock)
	}
	rest, err = ws.ClientHandshake(sock, w.target.host, path, w.header())
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
		return nil, nil, refusal(err)
	}
	return sock, rest, nil
}

// secure puts TLS over a connection; the first write does its handshake.
func (w *Worker) secure(sock net.Conn) net.Conn {
	cfg := w.opts.TLS
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = w.target.host
		if host, _, err := net.SplitHostPort(w.target.host); err == nil {
			cfg.ServerName = host
		}
	}
	return tls.Client(sock, cfg)
}

// header returns the headers of a handshake: those of the options, and one credential. The token comes before
// the key in the URL (New leaves the environment out where there is one); a header Authorization of the
// options counts only where there is neither.
func (w *Worker) header() map[string][]string {
	credential := w.target.basic
	if w.opts.Token != "" {
		credential = "Bearer " + w.opts.Token
	}
	if credential == "" {
		return w.opts.Header
	}
	h := make(map[string][]string, len(w.opts.Header)+1)
	for k, v := range w.opts.Header {
		if !strings.EqualFold(k, "Authorization") {
			h[k] = v
		}
	}
	h["Authorization"] = []string{credential}
	return h
}

// hidden reports whether a rune may not stand in a header.
func hidden(r rune) bool { return r <= ' ' || r >= 0x7f }

// target is where the engine is.
type target struct {
	address string // host:port to dial
	host    string // for the request and the certificate
	path    string // with the query
	channel string // the path of channels, up to their id
	basic   string // the user info of the URL as a value of Authorization: a secret
	secure  bool
	local   bool // a loopback address
}

// parseTarget reads the URL of an engine. Its errors show nothing of it: it may hold a key, and where that is
// in one that is wrong nobody knows.
func parseTarget(address string) (t target, err error) {
	const form = "; it looks like ws://host:port or ws://any:KEY@host:port"
	u, err := url.Parse(address)
	if err != nil {
		return t, errors.New("worker: the URL is malformed" + form)
	}
	port := "80"
	switch u.Scheme {
	case "ws", "http":
	case "wss", "https":
		t.secure, port = true, "443"
	default:
		return t, errors.New("worker: URL: the scheme must be ws, wss, http or https" + form)
	}
	if u.Hostname() == "" {
		return t, errors.New("worker: the URL has no host" + form)
	}
	if strings.ContainsAny(u.Hostname(), "[]") || strings.ContainsFunc(u.Host, hidden) {
		return t, errors.New("worker: the host of the URL is no name (in ASCII) and no address" + form)
	}
	if user := u.User; user != nil {
		password, _ := user.Password()
		if password == "" {
			return t, errors.New("worker: the URL has a user name and no key" + form)
		}
		t.basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
	}
	t.host, t.path = u.Host, u.EscapedPath()
	t.channel = strings.TrimRight(t.path, "/") + "/ws/channels/"
	if t.path == "" {
		t.path = "/"
	}
	if u.RawQuery != "" {
		t.path += "?" + u.RawQuery
	}
	if strings.ContainsFunc(t.path, hidden) {
		return t, errors.New("worker: the URL has characters that have to be escaped" + form)
	}
	t.address = net.JoinHostPort(u.Hostname(), first(u.Port(), port))
	ip := net.ParseIP(u.Hostname())
	t.local = u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	return t, nil
}

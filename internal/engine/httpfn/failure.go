package httpfn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// stage is how far a call had come.
type stage uint8

const (
	stageRequest  stage = iota // no head of an answer yet
	stageResponse              // its body is being read
)

// failed makes an error of what the transport said. It takes over no text of the transport's: such texts
// quote bytes of the other side, which may have sent a secret back, and addresses of inner networks. inner is
// the context of the call itself, inside of the caller's ctx.
func (c *Client) failed(ctx, inner context.Context, s *Spec, err error, at stage) *fault.Error {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own
	}
	switch {
	case c.life.over():
		return fault.New(fault.Unavailable, wire.CodeDraining, "Plinth is stopping")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.New(fault.Timeout, wire.CodeTimeout, "the caller's time ended before the endpoint answered")
	case ctx.Err() != nil:
		return fault.New(fault.Unavailable, wire.CodeInvocationStopped, "the call was cancelled")
	case errors.Is(inner.Err(), context.DeadlineExceeded):
		return fault.Newf(fault.Timeout, wire.CodeInvocationTimeout, "the endpoint did not answer within %v",
			s.Timeout)
	}
	if at == stageResponse {
		return fault.New(fault.Unavailable, wire.CodeHTTPResponseFailed, "the answer broke off: "+brief(err))
	}
	return fault.New(fault.Unavailable, wire.CodeHTTPRequestFailed, "the request failed: "+brief(err))
}

// brief says in our own words what kind of failure err is.
func brief(err error) string {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case e.IsNotFound:
			return "the host name does not exist"
		case e.IsTimeout:
			return "the host name could not be resolved in time"
		}
		return "the host name could not be resolved"
	}
	if text := certificate(err); text != "" {
		return text
	}
	var slow net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the host cannot be reached"
	case errors.As(err, &slow) && slow.Timeout():
		return "the connection took too long"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection was closed"
	case strings.Contains(err.Error(), "response headers exceeded"):
		return "the headers of the answer are too large"
	case strings.Contains(err.Error(), "malformed"):
		return "what came back is not HTTP"
	}
	return "the connection broke or what came back is not HTTP"
}

// certificate tells what is wrong with the TLS side, or "".
func certificate(err error) string {
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return "the certificate has expired or is not valid yet"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another host"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the endpoint does not speak TLS"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return "the TLS handshake failed"
	}
	return ""
}

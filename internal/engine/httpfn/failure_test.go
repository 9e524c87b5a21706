package httpfn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

func TestEveryFailureHasWordsOfOurOwn(t *testing.T) {
	const foreign = "10.9.8.7 said hunter2"
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect "+foreign, err)}
	}
	seen := map[string]bool{}
	for want, err := range map[string]error{
		"the host name does not exist":                    &net.DNSError{Err: foreign, IsNotFound: true},
		"the host name could not be resolved in time":     &net.DNSError{Err: foreign, IsTimeout: true},
		"the host name could not be resolved":             &net.DNSError{Err: foreign},
		"the connection was refused":                      dial(syscall.ECONNREFUSED),
		"the connection was reset":                        dial(syscall.ECONNRESET),
		"the host cannot be reached":                      dial(syscall.ENETUNREACH),
		"the connection took too long":                    dial(os.ErrDeadlineExceeded),
		"the connection was closed":                       fmt.Errorf("%s: %w", foreign, io.ErrUnexpectedEOF),
		"the headers of the answer are too large":         errors.New("server response headers exceeded 1 " + foreign),
		"what came back is not HTTP":                      errors.New("malformed HTTP response " + foreign),
		"the connection broke or what came back is not H": errors.New(foreign),
		"the certificate has expired or is not valid yet": x509.CertificateInvalidError{Reason: x509.Expired, Detail: foreign},
		"the certificate is for another host": x509.HostnameError{Host: foreign,
			Certificate: &x509.Certificate{DNSNames: []string{foreign}}},
		"the certificate is signed by an unknown": x509.UnknownAuthorityError{},
		"the certificate is not valid":            &tls.CertificateVerificationError{Err: errors.New(foreign)},
		"the endpoint does not speak TLS":         tls.RecordHeaderError{Msg: foreign},
		"the TLS handshake failed":                tls.AlertError(40),
		"the connection was reset ":               dial(syscall.EPIPE),
		"the connection was closed ":              io.EOF,
	} {
		got := brief(fmt.Errorf("transport: %w", err))
		leaks := strings.Contains(got, "hunter2") || strings.Contains(got, "10.9")
		if !strings.HasPrefix(got, strings.TrimSpace(want)) || leaks {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
		seen[got] = true
	}
	if len(seen) != 17 {
		t.Errorf("%d texts", len(seen))
	}
}

func TestSpecsThatWereNotParsedAreCheckedAllTheSame(t *testing.T) {
	c := client(t, open(), Options{})
	for _, s := range []*Spec{{}, {URL: "https://e.org"}, {URL: "https://e.org", Method: "POST"}, {URL: "file:///x"}} {
		if err := c.Check(t.Context(), s); err == nil || err.Kind != fault.Invalid {
			t.Errorf("%+v: %v", s, err)
		}
		if _, err := do(t, c, s, `1`); err == nil || err.Kind != fault.Invalid {
			t.Errorf("%+v: %v", s, err)
		}
	}
	bad := spec("https://e.org")
	bad.Headers = map[string]string{"a": "b\r\nc: d"}
	_, err := do(t, c, bad, `1`)
	wants(t, err, fault.Invalid, wire.CodeInvalidArguments)
}

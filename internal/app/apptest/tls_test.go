package apptest_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/app/apptest"
	"github.com/plinth-run/plinth/worker"
)

// certificate makes a certificate for 127.0.0.1, in two files, and what trusts it.
func certificate(t *testing.T) (cert, key string, trust *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	model := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, model, model, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", raw),
		&tls.Config{RootCAs: pool}
}

// TestAWorkerOverTLSCallsOneWithout crosses the two kinds of event loops, in calls and in a channel.
func TestAWorkerOverTLSCallsOneWithout(t *testing.T) {
	cert, key, trust := certificate(t)
	h := apptest.Start(t, map[string]string{"engine.listeners.secure.listen": "127.0.0.1:0",
		"engine.listeners.secure.tls_cert": cert, "engine.listeners.secure.tls_key": key})
	h.Claim()
	secret, _ := h.Key("worker", "w", 0, "engine:*")
	plain, _ := h.Worker(worker.Options{Name: "plain", Token: secret},
		func(w *worker.Worker) { mustRegister(t, w, "plain::echo") })
	h.URL = h.Listeners["secure"]
	secure, _ := h.Worker(worker.Options{Name: "secure", Token: secret, TLS: trust},
		func(w *worker.Worker) { mustRegister(t, w, "secure::echo") })
	for name, from := range map[string]*worker.Worker{"plain::echo": secure, "secure::echo": plain} {
		if b, err := from.Call(t.Context(), name, []byte(`"hello"`)); err != nil || string(b) != `"hello"` {
			t.Errorf("%s: got %s, %v", name, b, err)
		}
	}
	for _, ends := range [][2]*worker.Worker{{plain, secure}, {secure, plain}} {
		write, read, err := ends[0].CreateChannel(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: more than fits the channel
		done := make(chan error, 1)
		go func() {
			w, err := ends[0].OpenWriter(t.Context(), write)
			if err == nil {
				_, err = w.Write(want)
			}
			if err == nil {
				err = w.Close()
			}
			done <- err
		}()
		r, err := ends[1].OpenReader(t.Context(), read)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came through, %v", len(got), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := tls.Dial("tcp", h.URL[len("wss://"):], &tls.Config{RootCAs: trust.RootCAs,
		MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("an old TLS was taken")
	}
}

package loop_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/loop"
)

// shelf is a folder with the files of a certificate.
type shelf struct {
	t         *testing.T
	cert, key string
	log       bytes.Buffer
	get       func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// put writes files whose time of change is now: the bubble's, since real time stands nearly still there.
func (s *shelf) put(texts map[string][]byte) {
	s.t.Helper()
	for name, text := range texts {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Now(), time.Now()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// want asks for the certificate and for the number of lines that the log has.
func (s *shelf) want(name string, lines int) {
	s.t.Helper()
	c, err := s.get(nil)
	if err != nil || c == nil || c.Leaf.VerifyHostname(name) != nil {
		s.t.Errorf("got %v, %v, want the certificate of %s", c, err, name)
	}
	if n := strings.Count(s.log.String(), "\n"); n != lines {
		s.t.Errorf("the log has %d lines, want %d:\n%s", n, lines, s.log.String())
	}
}

// shelved runs f in a bubble with the certificate of a.example loaded.
func shelved(t *testing.T, f func(s *shelf)) {
	t.Helper()
	cert, key := issue(t, "a.example")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{t: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
		s.put(map[string][]byte{s.cert: cert, s.key: key})
		get, err := loop.LoadCertificate(s.cert, s.key, slog.New(slog.NewTextHandler(&s.log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		s.get = get
		s.want("a.example", 0)
		f(s)
	})
}

func TestARenewedCertificateIsTakenUpWithinASecond(t *testing.T) {
	shelved(t, func(s *shelf) {
		for i, name := range []string{"b.example", "c.example"} {
			cert, key := issue(s.t, name)
			<-time.After(500 * time.Millisecond)
			s.put(map[string][]byte{s.cert: cert, s.key: key})
			s.want([]string{"a.example", "b.example"}[i], i) // looked at a moment ago
			<-time.After(500 * time.Millisecond)
			s.want(name, i+1)
			<-time.After(time.Hour)
			s.want(name, i+1)
		}
		if strings.Contains(s.log.String(), "ERROR") {
			s.t.Errorf("the log says %s", s.log.String())
		}
	})
}

func TestABrokenPairKeepsTheOldOneAndIsToldOnce(t *testing.T) {
	shelved(t, func(s *shelf) {
		cert, key := issue(s.t, "b.example")
		lines := 0
		for name, files := range map[string]map[string][]byte{
			"no PEM":               {s.cert: []byte("no certificate")},
			"another's key":        {s.key: key},
			"an empty certificate": {s.cert: {}},
		} {
			<-time.After(time.Minute)
			s.put(files)
			lines++
			for range 3 {
				<-time.After(time.Second)
				s.want("a.example", lines)
			}
			if strings.Contains(s.log.String(), "PRIVATE") {
				s.t.Errorf("%s: the log tells the key", name)
			}
		}
		if err := os.Remove(s.key); err != nil {
			s.t.Fatal(err)
		}
		lines++
		for range 3 {
			<-time.After(time.Second)
			s.want("a.example", lines)
		}
		s.put(map[string][]byte{s.cert: cert}) // half of the new pair
		<-time.After(time.Second)
		s.want("a.example", lines) // the key is still missing, as was told
		s.put(map[string][]byte{s.key: key})
		<-time.After(time.Second)
		s.want("b.example", lines+1)
	})
}

func TestAPairThatComesBackUnchangedIsStillGood(t *testing.T) {
	shelved(t, func(s *shelf) {
		cert, err := os.ReadFile(s.cert)
		if err != nil {
			s.t.Fatal(err)
		}
		was := time.Now()
		for round := range 2 { // told again the second time: it was well in between
			<-time.After(time.Minute)
			s.put(map[string][]byte{s.cert: nil})
			<-time.After(time.Second)
			s.want("a.example", round+1)
			s.put(map[string][]byte{s.cert: cert})
			if err := os.Chtimes(s.cert, was, was); err != nil {
				s.t.Fatal(err)
			}
			<-time.After(time.Second)
			s.want("a.example", round+1)
		}
	})
}

func TestACertificateThatCannotBeUsedIsAnErrorAtFirst(t *testing.T) {
	cert, key := issue(t, "a.example")
	_, other := issue(t, "a.example")
	for name, texts := range map[string][2][]byte{
		"no files": {}, "no key": {cert, nil}, "no certificate": {nil, key},
		"another's key": {cert, other}, "no PEM": {[]byte("x"), []byte("y")}, "exchanged": {key, cert},
	} {
		dir := t.TempDir()
		var paths [2]string
		for i, text := range texts {
			paths[i] = filepath.Join(dir, []string{"cert", "key"}[i])
			if text == nil {
				continue
			}
			if err := os.WriteFile(paths[i], text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		get, err := loop.LoadCertificate(paths[0], paths[1], nil)
		if err == nil || get != nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestHandshakesShareACertificateWhileItIsRenewed(t *testing.T) {
	shelved(t, func(s *shelf) {
		<-time.After(time.Minute)
		cert, key := issue(s.t, "b.example")
		s.put(map[string][]byte{s.cert: cert, s.key: key})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 50 {
					if c, err := s.get(nil); err != nil || len(c.Certificate) != 1 {
						s.t.Errorf("got %v, %v", c, err)
					}
				}
			})
		}
		all.Wait()
		s.want("b.example", 1)
	})
}

func TestAGroupServesTheRenewedCertificate(t *testing.T) {
	shelved(t, func(s *shelf) {
		g := loop.New(loop.Config{Portable: true, Loops: 1, TLS: &tls.Config{GetCertificate: s.get}})
		run(s.t, g)
		for _, name := range []string{"a.example", "b.example"} {
			if name == "b.example" {
				cert, key := issue(s.t, name)
				<-time.After(time.Second)
				s.put(map[string][]byte{s.cert: cert, s.key: key})
				<-time.After(time.Second)
			}
			ours, theirs := net.Pipe()
			if _, err := g.Attach(theirs, &hooks{data: echo}); err != nil {
				s.t.Fatal(err)
			}
			nc := tls.Client(ours, &tls.Config{InsecureSkipVerify: true}) // the names are looked at below
			write(s.t, nc, "hello")
			expect(s.t, nc, "hello")
			if err := nc.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
				s.t.Error(err)
			}
		}
	})
}

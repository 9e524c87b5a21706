package loop

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// lookAgain is how often the files of a certificate are looked at, at most.
const lookAgain = time.Second

// LoadCertificate reads a certificate chain and its key from PEM files and returns what GetCertificate of a
// tls.Config wants: the pair as the files have it now, so that a renewed certificate needs no restart. The
// files are looked at by handshakes, at most once a second, and read when the time of their last change or
// their size is another. A pair that cannot be used is logged once and the one before stays in use; it is
// tried again until it can. An error means that there is no pair to begin with. log may be nil.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error), err error,
) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &pair{files: [2]string{certFile, keyFile}, log: log, looked: time.Now()}
	p.seen, err = p.look()
	if err == nil {
		err = p.read()
	}
	if err != nil {
		return nil, fmt.Errorf("loop: load certificate: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		p.renew()
		return p.current.Load(), nil
	}, nil
}

// pair is a certificate and its key, and the files that they come from.
type pair struct {
	files   [2]string
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // held by the one handshake that looks; guards all below
	looked  time.Time
	seen    [2]stamp // what the files were when current was read
	blamed  bool     // the log has told that
	blameOf [2]stamp // these cannot be used
}

// stamp is what a file that has changed differs in.
type stamp struct {
	changed time.Time
	size    int64
}

func (p *pair) look() (now [2]stamp, err error) {
	for i, name := range p.files {
		info, err := os.Stat(name)
		if err != nil {
			return [2]stamp{}, err
		}
		now[i] = stamp{info.ModTime(), info.Size()}
	}
	return now, nil
}

func (p *pair) read() error {
	c, err := tls.LoadX509KeyPair(p.files[0], p.files[1])
	if err != nil {
		return err
	}
	p.current.Store(&c)
	return nil
}

// renew reads the files again when it is time and they have changed. Handshakes do not wait for one
// another: while one looks, the others use what there is.
func (p *pair) renew() {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if time.Since(p.looked) < lookAgain {
		return
	}
	p.looked = time.Now()
	now, err := p.look()
	if err == nil && now == p.seen {
		p.blamed = false
		return
	}
	if err == nil {
		err = p.read()
	}
	switch {
	case err == nil:
		p.seen, p.blamed = now, false
		p.log.Info("certificate renewed", "file", p.files[0])
	case !p.blamed || p.blameOf != now:
		p.blamed, p.blameOf = true, now
		p.log.Error("new certificate cannot be used, the one before stays", "file", p.files[0], "error", err)
	}
}

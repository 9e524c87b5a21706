package npm_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// proxy passes connections on to an engine and can break them. The engine's address is asked for on
// each connection.
type proxy struct {
	engine *engine
	lis    net.Listener

	mu     sync.Mutex
	links  map[*link]bool // open ones
	ghosts []net.Conn     // engine sides kept open without a worker
	seen   []*link        // all ever made
}

// link is one connection through the proxy.
type link struct {
	worker, engine net.Conn
	path           string
	bytes          atomic.Int64 // from the worker
	haunted        atomic.Bool  // the engine side stays open
}

func listen(t *testing.T, e *engine) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{engine: e, lis: lis, links: map[*link]bool{}}
	done := make(chan struct{})
	go func() { // ends when the listener closes
		defer close(done)
		p.accept()
	}()
	t.Cleanup(func() {
		lis.Close()
		p.mend()
		<-done
	})
	return p
}

func (p *proxy) accept() {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		worker, err := p.lis.Accept()
		if err != nil {
			p.cut()
			return
		}
		engine, err := net.Dial("tcp", p.engine.workers)
		if err != nil {
			worker.Close()
			continue
		}
		l := &link{worker: worker, engine: engine}
		p.mu.Lock()
		p.links[l] = true
		p.seen = append(p.seen, l)
		p.mu.Unlock()
		all.Go(func() { p.forth(l) })
		all.Go(func() { p.back(l) })
	}
}

// forth copies what the worker sends, and reads the path off the first line.
func (p *proxy) forth(l *link) {
	buf := make([]byte, 32<<10)
	for first := true; ; first = false {
		n, err := l.worker.Read(buf)
		if n > 0 && first {
			line, _, _ := bytes.Cut(buf[:n], []byte("\r\n"))
			if part := strings.Fields(string(line)); len(part) == 3 {
				p.mu.Lock()
				l.path = part[1]
				p.mu.Unlock()
			}
		}
		l.bytes.Add(int64(n))
		if n > 0 {
			if _, werr := l.engine.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			p.end(l)
			return
		}
	}
}

func (p *proxy) back(l *link) {
	io.Copy(l.worker, l.engine)
	p.end(l)
}

func (p *proxy) end(l *link) {
	l.worker.Close()
	if !l.haunted.Load() {
		l.engine.Close()
	}
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// cut breaks every connection on both sides, without a word.
func (p *proxy) cut() {
	p.each(func(l *link) {
		reset(l.worker)
		reset(l.engine)
	})
}

// ghost breaks every connection on the worker's side. The engine is not told.
func (p *proxy) ghost() {
	p.each(func(l *link) {
		l.haunted.Store(true)
		p.ghosts = append(p.ghosts, l.engine)
		reset(l.worker)
	})
}

// each runs f on the open connections, under the lock.
func (p *proxy) each(f func(l *link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}

// mend closes the engine sides that ghost left open.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.ghosts {
		c.Close()
	}
	p.ghosts = nil
}

// paths lists all connections ever made: path, and bytes from the worker.
func (p *proxy) paths() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s strings.Builder
	for _, l := range p.seen {
		fmt.Fprintf(&s, "%s %d\n", l.path, l.bytes.Load())
	}
	return s.String()
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// levers offers a script what only the parent process can do, by HTTP on a loopback port.
func levers(t *testing.T, e *engine, p *proxy) *httptest.Server {
	t.Helper()
	done := func(f func()) func() (string, error) {
		return func() (string, error) { f(); return "done", nil }
	}
	verbs := map[string]func() (string, error){
		"restart": func() (string, error) { return "done", e.again(syscall.SIGTERM) },
		"kill":    func() (string, error) { return "done", e.again(syscall.SIGKILL) },
		"cut":     done(p.cut),
		"ghost":   done(p.ghost),
		"mend":    done(p.mend),
		"paths":   func() (string, error) { return p.paths(), nil },
		"metrics": func() (string, error) { return fetch("http://" + e.admin + "/metrics") },
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := verbs[strings.TrimPrefix(r.URL.Path, "/")]
		if verb == nil {
			http.NotFound(w, r)
			return
		}
		text, err := verb()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s
}

func fetch(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: %s", url, r.Status, b)
	}
	return string(b), err
}

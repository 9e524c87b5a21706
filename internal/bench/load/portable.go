package load

import (
	"net"
	"sync"
	"time"
)

// goroutines is the transport for platforms without epoll: a reader and a writer for each connection.
// They belong to the transport and end with close.
type goroutines struct {
	epoch time.Time
	came  chan arrival
	quit  chan struct{}
	busy  sync.WaitGroup
	conns []net.Conn
	open  []*writer
}

// arrival is what a reader got; the reader goes on once free is told.
type arrival struct {
	conn *Conn
	b    []byte
	err  error
	free chan struct{}
}

func newGoroutines(epoch time.Time) *goroutines {
	return &goroutines{epoch: epoch, came: make(chan arrival), quit: make(chan struct{})}
}

func (t *goroutines) add(c *Conn, conn net.Conn) error {
	w := &writer{conn: conn}
	w.more.L = &w.mu
	c.peer = w
	t.conns, t.open = append(t.conns, conn), append(t.open, w)
	t.busy.Add(2)
	go t.read(c, conn)
	go func() { defer t.busy.Done(); w.run() }()
	return nil
}

func (t *goroutines) read(c *Conn, conn net.Conn) {
	defer t.busy.Done()
	b := make([]byte, 64<<10)
	free := make(chan struct{})
	for {
		n, err := conn.Read(b)
		if n > 0 {
			err = nil // comes again with the next read
		}
		select {
		case t.came <- arrival{conn: c, b: b[:n], err: err, free: free}:
		case <-t.quit:
			return
		}
		if err != nil {
			return
		}
		select {
		case <-free:
		case <-t.quit:
			return
		}
	}
}

// wait implements transport.
func (t *goroutines) wait(until time.Duration, ready func(c *Conn, b []byte, err error)) error {
	timer := time.NewTimer(until - time.Since(t.epoch))
	defer timer.Stop()
	select {
	case a := <-t.came:
		t.hand(a, ready)
	case <-timer.C:
		return nil
	}
	for range 64 { // what came meanwhile belongs to the same batch
		select {
		case a := <-t.came:
			t.hand(a, ready)
		default:
			return nil
		}
	}
	return nil
}

func (t *goroutines) hand(a arrival, ready func(c *Conn, b []byte, err error)) {
	ready(a.conn, a.b, a.err)
	if a.err == nil {
		a.free <- struct{}{}
	}
}

// close implements transport.
func (t *goroutines) close() {
	close(t.quit)
	for i, conn := range t.conns {
		t.open[i].close()
		_ = conn.Close() // ends the reader
	}
	t.busy.Wait()
}

// writer sends in the background, so that a full socket stops nobody; what one push brought leaves in
// one write.
type writer struct {
	conn net.Conn

	mu     sync.Mutex
	more   sync.Cond
	queue  [][]byte
	closed bool
}

// send implements peer.
func (w *writer) send(c *Conn) {
	w.mu.Lock()
	w.queue = append(w.queue, append([]byte(nil), c.out...))
	w.mu.Unlock()
	w.more.Signal()
	c.out = c.out[:0]
}

func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.more.Signal()
}

func (w *writer) run() {
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.closed {
			w.more.Wait()
		}
		queue := w.queue
		w.queue = nil
		w.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, b := range queue {
			if _, err := w.conn.Write(b); err != nil {
				return // the reader tells
			}
		}
	}
}

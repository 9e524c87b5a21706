package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func newTransport(portable bool, epoch time.Time) (transport, error) {
	if portable {
		return newGoroutines(epoch), nil
	}
	return newEpoll(epoch)
}

// epoll is the transport that costs least: one set of sockets, one buffer for all reads, system calls
// that never block but for the one that waits.
type epoll struct {
	epoch   time.Time
	set     int
	buf     []byte
	events  []unix.EpollEvent
	sockets map[int32]*socket
	coarse  bool // no epoll_pwait2 here
}

// socket is one connection of an epoll.
type socket struct {
	set     int
	fd      int
	conn    *Conn
	sent    int   // bytes of conn.out that have left already
	blocked bool  // waits for room; send leaves everything to drain
	failed  error // of a write; told with the next event
}

// size is what one read takes at most.
const size = 256 << 10

func newEpoll(epoch time.Time) (*epoll, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the event set: %w", err)
	}
	return &epoll{
		epoch:   epoch,
		set:     set,
		buf:     make([]byte, size),
		events:  make([]unix.EpollEvent, 256),
		sockets: map[int32]*socket{},
		coarse:  !fine,
	}, nil
}

// add takes the descriptor out of the Go runtime's hands.
func (t *epoll) add(c *Conn, conn net.Conn) error {
	defer conn.Close()
	tcp, ok := conn.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("a %T has no descriptor", conn)
	}
	f, err := tcp.File()
	if err != nil {
		return fmt.Errorf("take over the descriptor: %w", err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("take over the descriptor: %w", err)
	}
	s := &socket{set: t.set, fd: fd, conn: c}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("take over the descriptor: %w", err)
	}
	if err := s.watch(unix.EPOLL_CTL_ADD, unix.EPOLLIN); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("watch the descriptor: %w", err)
	}
	t.sockets[int32(fd)] = s
	c.peer = s
	return nil
}

func (s *socket) watch(op int, events uint32) error {
	return unix.EpollCtl(s.set, op, s.fd, &unix.EpollEvent{Events: events, Fd: int32(s.fd)})
}

// wait implements transport.
func (t *epoll) wait(until time.Duration, ready func(c *Conn, b []byte, err error)) error {
	n, err := t.poll(until - time.Since(t.epoch))
	if err != nil {
		return fmt.Errorf("wait for the network: %w", err)
	}
	for _, e := range t.events[:n] {
		s := t.sockets[e.Fd]
		if s == nil {
			continue
		}
		if e.Events&unix.EPOLLOUT != 0 {
			s.drain()
		}
		if s.failed != nil {
			t.drop(s, s.failed, ready)
			continue
		}
		if e.Events&^unix.EPOLLOUT == 0 {
			continue
		}
		n, err := read(s.fd, t.buf)
		switch {
		case n > 0:
			ready(s.conn, t.buf[:n], nil)
		case err == nil:
			t.drop(s, io.EOF, ready)
		case !errors.Is(err, unix.EAGAIN):
			t.drop(s, err, ready)
		}
	}
	return nil
}

// drop closes a connection that has ended and says so.
func (t *epoll) drop(s *socket, err error, ready func(c *Conn, b []byte, err error)) {
	delete(t.sockets, int32(s.fd))
	_ = unix.Close(s.fd)
	s.blocked = true // nothing is sent any more
	ready(s.conn, nil, err)
}

// poll waits to the nearest microsecond where the kernel can, else to the nearest millisecond.
func (t *epoll) poll(left time.Duration) (int, error) {
	left = max(left, 0)
	for !t.coarse {
		n, err := pwait2(t.set, t.events, left)
		if err == nil || errors.Is(err, unix.EINTR) {
			return n, nil
		}
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return 0, err
		}
		t.coarse = true
	}
	n, err := unix.EpollWait(t.set, t.events, int((left+time.Millisecond-1)/time.Millisecond))
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return n, err
}

// close implements transport.
func (t *epoll) close() {
	for _, s := range t.sockets {
		_ = unix.Close(s.fd)
	}
	clear(t.sockets)
	_ = unix.Close(t.set)
}

// send implements peer.
func (s *socket) send(c *Conn) {
	if s.blocked || s.failed != nil {
		return
	}
	n, err := write(s.fd, c.out[s.sent:])
	s.sent += n
	if s.sent < len(c.out) {
		s.wait(err)
		return
	}
	s.sent, c.out = 0, c.out[:0]
	if c.role == Idle {
		c.out = nil
	}
}

// wait has the rest sent later: when there is room, or never after an error.
func (s *socket) wait(err error) {
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		s.failed = err
	}
	s.blocked = true
	// With EPOLLOUT a failed socket is told of at once, too.
	_ = s.watch(unix.EPOLL_CTL_MOD, unix.EPOLLIN|unix.EPOLLOUT)
}

// drain sends what had no room.
func (s *socket) drain() {
	if s.failed != nil {
		return
	}
	s.blocked = false
	if len(s.conn.out) > 0 {
		s.send(s.conn)
	}
	if !s.blocked {
		_ = s.watch(unix.EPOLL_CTL_MOD, unix.EPOLLIN)
	}
}

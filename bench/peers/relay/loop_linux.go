package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loop is one set of sockets and all that is known about them.
type loop struct {
	set      int
	listener int
	conns    map[int32]*conn
	dirty    []*conn // have bytes to send
	buf      []byte
	table
}

// conn is one worker.
type conn struct {
	fd      int
	in, out []byte
	dirty   bool
	blocked bool // waits for room in the socket
	closed  bool
	session
}

const readSize = 256 << 10

func run(ctx context.Context, l *net.TCPListener) error {
	runtime.LockOSThread() // it blocks in system calls
	defer runtime.UnlockOSThread()
	f, err := l.File()
	if err != nil {
		return fmt.Errorf("take over the listener: %w", err)
	}
	defer f.Close()
	_ = l.Close()
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create the event set: %w", err)
	}
	p := &loop{set: set, listener: int(f.Fd()), conns: map[int32]*conn{}, buf: make([]byte, readSize)}
	p.table = newTable()
	defer p.close()
	if err := unix.SetNonblock(p.listener, true); err != nil {
		return fmt.Errorf("take over the listener: %w", err)
	}
	if err := p.watch(unix.EPOLL_CTL_ADD, p.listener, unix.EPOLLIN); err != nil {
		return fmt.Errorf("watch the listener: %w", err)
	}
	events := make([]unix.EpollEvent, 256)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(set, events, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the network: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			p.event(e)
		}
		p.flush()
	}
	return nil
}

func (p *loop) watch(op, fd int, events uint32) error {
	return unix.EpollCtl(p.set, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (p *loop) event(e unix.EpollEvent) {
	if int(e.Fd) == p.listener {
		p.accept()
		return
	}
	c := p.conns[e.Fd]
	if c == nil {
		return
	}
	if e.Events&unix.EPOLLOUT != 0 && c.blocked {
		c.blocked = false
		_ = p.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN)
		p.write(c)
	}
	if e.Events&^unix.EPOLLOUT != 0 {
		p.read(c)
	}
}

func (p *loop) accept() {
	for {
		fd, _, err := unix.Accept4(p.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if p.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN) != nil {
			_ = unix.Close(fd)
			continue
		}
		p.conns[int32(fd)] = &conn{fd: fd}
	}
}

func (p *loop) read(c *conn) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&p.buf[0])), readSize)
	if errno == unix.EAGAIN || errno == unix.EINTR {
		return
	}
	if errno != 0 || n == 0 {
		p.drop(c)
		return
	}
	b := p.buf[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	used, err := p.feed(c, b)
	if err != nil {
		p.drop(c)
		return
	}
	c.in = append(c.in[:0], b[used:]...)
}

// touch has the connection's output sent after this batch of reads.
func (p *loop) touch(c *conn) {
	if !c.dirty {
		c.dirty = true
		p.dirty = append(p.dirty, c)
	}
}

func (p *loop) flush() {
	for _, c := range p.dirty {
		c.dirty = false
		p.write(c)
	}
	p.dirty = p.dirty[:0]
}

func (p *loop) write(c *conn) {
	if c.blocked || c.closed || len(c.out) == 0 {
		return
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE,
		uintptr(c.fd), uintptr(unsafe.Pointer(&c.out[0])), uintptr(len(c.out)))
	if errno != 0 {
		n = 0
	}
	if int(n) == len(c.out) {
		c.out = c.out[:0]
		return
	}
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		p.drop(c)
		return
	}
	c.out = c.out[:copy(c.out, c.out[n:])]
	c.blocked = true
	_ = p.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN|unix.EPOLLOUT)
}

func (p *loop) drop(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	p.forget(c)
	delete(p.conns, int32(c.fd))
	_ = unix.Close(c.fd)
}

func (p *loop) close() {
	for _, c := range p.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(p.set)
}

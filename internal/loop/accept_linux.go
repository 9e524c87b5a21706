package loop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// take moves the socket of nl to a descriptor of our own, so that the runtime's poller does not watch it
// too.
func (ln *listener) take(nl net.Listener) error {
	sc, ok := nl.(syscall.Conn)
	if !ok {
		return fmt.Errorf("no descriptor in a %T", nl)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var e syscall.Errno
	err = raw.Control(func(fd uintptr) {
		var dup uintptr
		if dup, _, e = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, 0); e == 0 {
			ln.fd = int(dup)
		}
	})
	if err != nil {
		return err
	}
	if e != 0 {
		return os.NewSyscallError("fcntl", e)
	}
	switch nl := nl.(type) {
	case *net.UnixListener:
		nl.SetUnlinkOnClose(false)
		ln.path = nl.Addr().String()
	case *net.TCPListener:
		// Accepted sockets inherit it, which saves a call for each.
		if err := syscall.SetsockoptInt(ln.fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
			return errors.Join(os.NewSyscallError("setsockopt", err), ln.drop())
		}
	}
	return nl.Close()
}

func (ln *listener) drop() error {
	err := syscall.Close(ln.fd)
	if ln.path != "" {
		err = errors.Join(err, os.Remove(ln.path))
	}
	return err
}

// listen has the kernel report connections that wait at the i-th listener.
func (l *Loop) listen(i int, ln *listener) {
	if l.ended {
		return
	}
	err := l.control(syscall.EPOLL_CTL_ADD, ln.fd, syscall.EPOLLIN, int32(-1-i), 0)
	if err != nil {
		l.group.cfg.Log.Error("listening socket is not served", "error", err)
	}
}

// acceptFrom accepts what waits, up to a batch, and deals it to the loops. Without descriptors it stops
// asking for a while, as the socket stays ready and would keep the loop busy.
func (l *Loop) acceptFrom(ln *listener) {
	for range acceptBatch {
		fd, sa, err := syscall.Accept4(ln.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch err {
		case nil:
			ln.tired = false
			l.group.deal(&Conn{fd: int32(fd), remote: addrPort(sa), accepted: ln.accept})
		case syscall.EINTR, syscall.ECONNABORTED, syscall.EPROTO:
		case syscall.EAGAIN:
			return
		default:
			l.rest(ln, err)
			return
		}
	}
}

func (l *Loop) rest(ln *listener, err error) {
	if !ln.tired {
		l.group.cfg.Log.Error("cannot accept connections", "error", err, "retry", l.group.span.rest)
	}
	ln.tired = true
	for i := range l.listeners {
		if l.listeners[i] == ln {
			_ = l.control(syscall.EPOLL_CTL_DEL, ln.fd, 0, 0, 0)
			l.start(&timer{when: l.now.Load() + int64(l.group.span.rest), f: func() { l.listen(i, ln) }})
		}
	}
}

func addrPort(sa syscall.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

package loop

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	havePoller = true
	maxEvents  = 256 // readiness events of one batch
	wakeSlot   = -1  // event of the eventfd; listeners are below
)

// poller is the part of a loop that the kernel knows.
type poller struct {
	epfd, wakefd int
	events       [maxEvents]syscall.EpollEvent
	buf          []byte // kept bytes and what is read behind them; the part not needed is never touched
}

// acquire opens the descriptors of l.
func (l *Loop) acquire() error {
	l.poll.epfd, l.poll.wakefd = -1, -1
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	l.poll.epfd = epfd
	fd, _, e := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if e != 0 {
		return fmt.Errorf("eventfd2: %w", e)
	}
	l.poll.wakefd = int(fd)
	// Edge triggered: each write to the eventfd is one event, so that nobody has to read it.
	if err := l.control(syscall.EPOLL_CTL_ADD, l.poll.wakefd, syscall.EPOLLIN|edge, wakeSlot, 0); err != nil {
		return err
	}
	l.poll.buf = make([]byte, maxKept+2*l.group.cfg.ReadBytes)
	return nil
}

// edge is EPOLLET, which package syscall has as a negative number.
const edge = 1 << 31

// release closes the descriptors of l; after run returned, or instead of it.
func (l *Loop) release() {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	for _, fd := range []int{l.poll.epfd, l.poll.wakefd} {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
	l.poll.epfd, l.poll.wakefd = -1, -1
}

func (l *Loop) control(op, fd int, events uint32, slot int32, mark uint32) error {
	ev := syscall.EpollEvent{Events: events, Fd: slot, Pad: int32(mark)}
	_, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, uintptr(l.poll.epfd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	if e != 0 {
		return fmt.Errorf("epoll_ctl: %w", e)
	}
	return nil
}

// ring wakes the loop if it sleeps; one eventfd write for any number of calls. The inbox's lock keeps the
// descriptor open meanwhile.
func (l *Loop) ring() {
	if !l.asleep.Load() || !l.asleep.CompareAndSwap(true, false) {
		return
	}
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	if l.poll.wakefd >= 0 {
		l.count.wakeups.Add(1)
		one := uint64(1)
		syscall.RawSyscall(syscall.SYS_WRITE, uintptr(l.poll.wakefd), uintptr(unsafe.Pointer(&one)), 8)
	}
}

// runEpoll is the loop: wait, read, do chores, send.
func (l *Loop) runEpoll() {
	for {
		n := l.await()
		l.now.Store(l.group.cfg.Now())
		l.count.batches.Add(1)
		for i := range n {
			l.event(&l.poll.events[i])
		}
		l.chores()
		l.tick()
		l.flush()
		if l.wind() {
			return
		}
	}
}

// await returns the number of ready events. It blocks only when other goroutines had their turn and there
// is still nothing to do.
func (l *Loop) await() int {
	if n := l.pollNow(); n > 0 || l.inbox.full.Load() {
		return n
	}
	runtime.Gosched()
	if n := l.pollNow(); n > 0 || l.inbox.full.Load() {
		return n
	}
	l.asleep.Store(true)
	if l.inbox.full.Load() || l.group.ending.Load() && (!l.ended || l.group.live.Load() == 0) {
		l.asleep.Store(false)
		return 0
	}
	timeout := l.wait()
	if timeout > 0 {
		timeout = (timeout + 999_999) / 1_000_000
	}
	n, _, e := syscall.Syscall6(syscall.SYS_EPOLL_PWAIT, uintptr(l.poll.epfd),
		uintptr(unsafe.Pointer(&l.poll.events[0])), maxEvents, uintptr(timeout), 0, 0)
	l.asleep.Store(false)
	if e != 0 {
		return 0
	}
	return int(n)
}

func (l *Loop) pollNow() int {
	n, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(l.poll.epfd),
		uintptr(unsafe.Pointer(&l.poll.events[0])), maxEvents, 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}

// event handles one readiness event. The mark tells a connection from an earlier one in the same slot.
func (l *Loop) event(ev *syscall.EpollEvent) {
	if ev.Fd == wakeSlot {
		return
	}
	if ev.Fd < wakeSlot {
		if i := int(wakeSlot - 1 - ev.Fd); i < len(l.listeners) {
			l.acceptFrom(l.listeners[i])
		}
		return
	}
	c := l.conns[ev.Fd]
	if c == nil || uint32(c.id) != uint32(ev.Pad) {
		return
	}
	if ev.Events&syscall.EPOLLOUT != 0 {
		c.unblock(l)
	}
	if ev.Events&(syscall.EPOLLIN|syscall.EPOLLHUP|syscall.EPOLLERR) == 0 {
		return
	}
	if c.state.Load()&(closing|paused) == 0 {
		l.read(c)
	} else if ev.Events&(syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		// Neither of these can be masked, and nothing can follow: a paused connection that the peer reset
		// is over.
		c.Close(c.trouble())
	}
}

// read reads once and delivers; what is left is reported again by the next epoll_wait, so that each
// connection has the same share of a batch.
func (l *Loop) read(c *Conn) {
	k := copy(l.poll.buf, c.kept)
	room := l.poll.buf[k : k+l.group.cfg.ReadBytes]
	r, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&room[0])),
		uintptr(len(room)))
	if e == syscall.EAGAIN || e == syscall.EINTR {
		return
	}
	l.count.reads.Add(1)
	if e != 0 {
		c.Close(fmt.Errorf("loop: read: %w", e))
		return
	}
	if r == 0 {
		c.Close(io.EOF)
		return
	}
	l.count.bytesIn.Add(uint64(r))
	if c.state.Load()&finishing == 0 {
		l.keep(c, l.deliver(c, l.poll.buf[:k+int(r)]))
	}
}

// keep stores what the handler left unused.
func (l *Loop) keep(c *Conn, rest []byte) {
	if len(rest) == 0 {
		c.kept = nil
		return
	}
	c.kept = append(c.kept[:0], rest...)
}

// again delivers kept bytes once more and has the kernel report new ones; after Resume.
func (l *Loop) again(c *Conn) {
	if c.state.Load()&(closing|finishing|paused) == 0 && len(c.kept) > 0 {
		l.keep(c, l.deliver(c, l.poll.buf[:copy(l.poll.buf, c.kept)]))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arm()
}

// watch puts a new descriptor under the loop's epoll.
func (c *Conn) watch() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interest = syscall.EPOLLIN
	return c.loop.control(syscall.EPOLL_CTL_ADD, int(c.fd), c.interest, c.slot, uint32(c.id))
}

// arm tells epoll what to watch for, if that changed; under c.mu.
func (c *Conn) arm() {
	if c.stream != nil || c.state.Load()&gone != 0 {
		return
	}
	var want uint32
	if c.state.Load()&paused == 0 {
		want |= syscall.EPOLLIN
	}
	if c.blocked {
		want |= syscall.EPOLLOUT
	}
	if want == c.interest {
		return
	}
	c.interest = want
	if err := c.loop.control(syscall.EPOLL_CTL_MOD, int(c.fd), want, c.slot, uint32(c.id)); err != nil {
		c.fail(err)
	}
}

// unblock goes on with a queue that the kernel has room for again; on c's loop.
func (c *Conn) unblock(l *Loop) {
	c.mu.Lock()
	c.blocked = false
	c.mu.Unlock()
	c.write(l)
	c.mu.Lock()
	c.arm()
	c.mu.Unlock()
}

// write sends what is queued, with one system call unless others queue more meanwhile. It runs on the
// loop that touched c, which need not be c's. The write is outside the lock; while writing is set nobody
// else writes and the descriptor stays open.
func (c *Conn) write(l *Loop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = false
	if c.writing || c.blocked || c.state.Load()&(closing|broken|gone) != 0 {
		return
	}
	c.writing = true
	for c.state.Load()&closing == 0 {
		b := c.pick()
		if b == nil {
			break
		}
		c.mu.Unlock()
		n, e := send(int(c.fd), b)
		c.mu.Lock()
		l.count.writes.Add(1)
		if e == syscall.EAGAIN || e == syscall.EINTR {
			n, e = 0, 0
		}
		if e != 0 {
			c.snap(e)
			break
		}
		l.count.bytesOut.Add(uint64(n))
		c.sent(n)
		if n < len(b) {
			c.blocked = true
			c.arm()
			break
		}
		if c.listed {
			break // whoever queued more is going to send it
		}
	}
	c.settle()
}

// snap records that writing failed. After a reset the peer's last bytes may still wait to be read, and
// reading is what finds the end; any other error ends c at once.
func (c *Conn) snap(e syscall.Errno) {
	c.state.Or(broken)
	c.empty()
	if e != syscall.EPIPE && e != syscall.ECONNRESET || c.state.Load()&(paused|finishing) != 0 {
		c.fail(fmt.Errorf("loop: write: %w", e))
	}
}

func send(fd int, b []byte) (int, syscall.Errno) {
	b = b[:min(len(b), maxWrite)]
	n, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// part reports whether the descriptor may be closed now; under c.mu. A peer that only ended its own side,
// or one that is left because the process ends, gets a last try of what is queued.
func (c *Conn) part() bool {
	if c.writing {
		return false
	}
	if errors.Is(c.reason, io.EOF) || errors.Is(c.reason, ErrShutdown) {
		for b := c.pick(); b != nil; b = c.pick() {
			n, e := send(int(c.fd), b)
			if e != 0 {
				break
			}
			c.sent(n)
			c.loop.count.writes.Add(1)
			c.loop.count.bytesOut.Add(uint64(n))
		}
	}
	return true
}

// drop closes the descriptor; under c.mu, after gone was set, so that nobody uses its number again.
func (c *Conn) drop() {
	syscall.Close(int(c.fd))
	c.fd = -1
}

// halve ends the sending side. It reports whether the peer is to be waited for.
func (c *Conn) halve() bool { return syscall.Shutdown(int(c.fd), syscall.SHUT_WR) == nil }

// trouble returns the error that the kernel holds for c.
func (c *Conn) trouble() error {
	v, err := syscall.GetsockoptInt(int(c.fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	if err != nil || v == 0 {
		return io.EOF
	}
	return fmt.Errorf("loop: %w", syscall.Errno(v))
}

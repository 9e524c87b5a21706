package loop

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const (
	havePoller = true
	maxEvents  = 256 // readiness events of one batch
)

// poller is the part of a loop that the kernel knows. The epoll descriptor is itself watched by the
// runtime's poller: a loop with nothing to do parks like any goroutine, which is cheaper than blocking in
// epoll_wait, as the scheduler need not take the processor away from a system call
// (docs/decisions/0002-event-loop.md).
type poller struct {
	epfd     int
	file     *os.File // epfd for the runtime's poller
	raw      syscall.RawConn
	wait     func(fd uintptr) bool // poll, made once
	events   [maxEvents]syscall.EpollEvent
	ready    int    // of events
	deadline int64  // when parking ends at the latest, as Loop.Now; 0: never, -1: has passed
	buf      []byte // kept bytes and what is read behind them; the part not needed is never touched
}

// past is a deadline that ends parking at once.
func past() time.Time { return time.Unix(1, 0) }

// acquire opens the descriptor of l.
func (l *Loop) acquire() error {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(epfd, true); err != nil {
		return errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(epfd))
	}
	p := &l.poll
	p.epfd = epfd
	p.file = os.NewFile(uintptr(epfd), "epoll")
	p.wait = func(uintptr) bool { return l.pollNow() }
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return err
	}
	// Fails when the runtime does not watch the descriptor; then parking would not end.
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("park on epoll: %w", err)
	}
	p.buf = make([]byte, maxKept+2*l.group.cfg.ReadBytes)
	return nil
}

// release closes the descriptor of l; after run returned, or instead of it.
func (l *Loop) release() {
	if l.poll.file != nil {
		l.poll.file.Close()
	}
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

// ring ends the parking of a loop; once for any number of calls while it is parked.
func (l *Loop) ring() {
	if l.asleep.Load() && l.asleep.CompareAndSwap(true, false) {
		l.count.wakeups.Add(1)
		_ = l.poll.file.SetReadDeadline(past()) // fails when the group has ended, and then nobody waits
	}
}

// runEpoll is the loop: wait, read, do chores, send.
func (l *Loop) runEpoll() {
	for {
		l.await()
		l.now.Store(l.group.cfg.Now())
		l.count.batches.Add(1)
		for i := range l.poll.ready {
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

// await fills l.poll.events. It parks only when other goroutines had their turn and there is still
// nothing to do.
func (l *Loop) await() {
	if l.pollNow() || l.inbox.full.Load() {
		return
	}
	runtime.Gosched()
	if !l.aim() {
		return
	}
	l.asleep.Store(true)
	if l.inbox.full.Load() || l.group.ending.Load() && (!l.ended || l.group.live.Load() == 0) {
		l.asleep.Store(false)
		l.pollNow()
		return
	}
	l.poll.ready = 0
	if err := l.poll.raw.Read(l.poll.wait); err != nil {
		l.poll.deadline = -1 // a timer is due or somebody rang
	}
	l.asleep.Store(false)
}

// aim sets when parking has to end. It reports false when that is now. It comes before the loop says that
// it sleeps, so that it cannot undo a ring that somebody waits for; a ring that comes late ends one
// parking for nothing.
func (l *Loop) aim() bool {
	var when int64
	if len(l.timers) > 0 {
		when = l.timers[0].when
	}
	if when == l.poll.deadline {
		return true
	}
	var t time.Time
	if when > 0 {
		d := when - l.group.cfg.Now()
		if d <= 0 {
			l.pollNow()
			return false
		}
		t = time.Now().Add(time.Duration(d))
	}
	l.poll.deadline = when
	_ = l.poll.file.SetReadDeadline(t) // cannot fail before release; parking then fails too
	return true
}

// pollNow reports whether events are ready.
func (l *Loop) pollNow() bool {
	n, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(l.poll.epfd),
		uintptr(unsafe.Pointer(&l.poll.events[0])), maxEvents, 0, 0, 0)
	l.poll.ready = 0
	if e == 0 {
		l.poll.ready = int(n)
	}
	return l.poll.ready > 0
}

// event handles one readiness event. The mark tells a connection from an earlier one in the same slot.
func (l *Loop) event(ev *syscall.EpollEvent) {
	if ev.Fd < 0 {
		if i := int(-1 - ev.Fd); i < len(l.listeners) {
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
	if c.state.Load()&(closing|paused|deaf) == 0 {
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
		c.hearEnd()
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
	if c.state.Load()&(paused|deaf) == 0 {
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

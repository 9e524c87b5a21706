package worker

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// limit is the deadline of a writer. It is no deadline of the socket: that would hit pings as well, and leave
// a part of a frame behind unnoticed.
type limit struct {
	over func() // ends the stream

	mu    sync.Mutex
	at    time.Time // zero: none
	alarm *time.Timer
	busy  int // operations that are under way
}

// enter begins an operation; false means that its time is up already.
func (l *limit) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up() {
		return false
	}
	l.busy++
	return true
}

func (l *limit) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
}

// up reports whether the time is up. Caller holds mu.
func (l *limit) up() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }

// set moves the deadline.
func (l *limit) set(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at = t; l.alarm != nil {
		l.alarm.Stop()
	}
	if !t.IsZero() {
		l.alarm = time.AfterFunc(time.Until(t), l.ring)
	}
}

// ring runs on a goroutine of the timer alarm, which ends with it.
func (l *limit) ring() {
	l.mu.Lock()
	hit := l.busy > 0 && l.up()
	l.mu.Unlock()
	if hit {
		l.over()
	}
}

func (l *limit) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alarm != nil {
		l.alarm.Stop()
	}
}

// SetWriteDeadline is when Write, ReadFrom, SendMessage and Close fail with an error that wraps
// os.ErrDeadlineExceeded, those that wait now as well; the zero time is never. One that was under way then
// cuts the stream, as a part of it may have been sent, and so does Close: the reader gets
// io.ErrUnexpectedEOF.
func (c *ChannelWriter) SetWriteDeadline(t time.Time) error {
	select {
	case <-c.end.gone:
		return c.end.broken(io.ErrClosedPipe, "it is over")
	default:
	}
	c.end.limit.set(t)
	return nil
}

// late is the error of an operation that began after the deadline.
func (e *end) late() error { return fmt.Errorf("worker: %s: %w", e.ref, os.ErrDeadlineExceeded) }

// expire ends a stream whose deadline hit an operation.
func (e *end) expire() {
	e.over(fmt.Errorf("worker: %s: %w: %w", e.ref, io.ErrClosedPipe, os.ErrDeadlineExceeded), 0, "")
}

// SetReadDeadline is when Read and WriteTo fail with an error that wraps os.ErrDeadlineExceeded, those that
// wait now as well; the zero time is never. Nothing is lost: with a later deadline the stream goes on.
func (r *ChannelReader) SetReadDeadline(t time.Time) error {
	r.limit.Lock()
	defer r.limit.Unlock()
	r.until = t
	return r.arm()
}

// arm gives the next read from the connection its deadline: no longer than the engine may be silent, as it
// answers pings. Caller holds limit.
func (r *ChannelReader) arm() error {
	t := time.Now().Add(dropAfter)
	if !r.until.IsZero() && r.until.Before(t) {
		t = r.until
	}
	if err := r.end.sock.SetReadDeadline(t); err != nil {
		return r.end.broken(io.ErrClosedPipe, err)
	}
	return nil
}

// expired reports whether the deadline that was set has passed.
func (r *ChannelReader) expired() bool {
	r.limit.Lock()
	defer r.limit.Unlock()
	return !r.until.IsZero() && !time.Now().Before(r.until)
}

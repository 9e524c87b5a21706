package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Blocks of a transfer. Their size is that of the frames of the public SDK.
const blockSize = 64 << 10

// ErrCorrupt says that other bytes arrived than were sent.
var ErrCorrupt = errors.New("the bytes that arrived are not those that were sent")

// doPipes sends bytes through pipes, one after the other, as fast as they go.
func doPipes(ctx context.Context, job *Job, plumb Plumb, tell func(Event)) error {
	for _, s := range job.Steps {
		if s.Bytes < 1 {
			return fmt.Errorf("step %s: a pipe needs a number of bytes", s.Name)
		}
	}
	p, err := plumb(ctx, job)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", plain(job.Target), err)
	}
	defer p.Close()
	tell(Event{Kind: KindReady})
	for i, step := range job.Steps {
		// A short transfer first: caches and buffers are what they will be.
		if _, err := pass(ctx, p, min(step.Bytes, 16<<20)); err != nil {
			return fmt.Errorf("step %s: warm up: %w", step.Name, err)
		}
		tell(Event{Kind: KindWindow, Step: i})
		m := startMeter(job.PID)
		n, err := pass(ctx, p, step.Bytes)
		if err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
		res := &Result{Step: step, Bytes: n, Seconds: time.Since(m.began).Seconds()}
		m.stop()
		m.fill(res)
		tell(Event{Kind: KindResult, Step: i, Result: res})
	}
	return nil
}

// pass sends n bytes through a pipe of their own and checks what arrives.
func pass(ctx context.Context, p Plumber, n int64) (arrived int64, err error) {
	pipe, err := p.Pipe(ctx)
	if err != nil {
		return 0, fmt.Errorf("open a pipe: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = pipe.Reader.Close() // both sides notice
		_ = pipe.Writer.Close()
	})
	defer stop()
	sent := make(chan error, 1)
	go func() { sent <- fill(pipe.Writer, n) }() // ends with the pipe
	arrived, err = verify(pipe.Reader)
	if err == nil && arrived != n {
		err = fmt.Errorf("%d of %d bytes arrived", arrived, n)
	}
	_ = pipe.Reader.Close() // a writer that still waits must not wait for ever
	err = errors.Join(<-sent, err)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return arrived, err
}

// block is what a transfer sends over and over: each of its bytes follows from its place.
func block() []byte {
	b := make([]byte, blockSize)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}

func fill(w io.WriteCloser, n int64) error {
	b := block()
	for n > 0 {
		m, err := w.Write(b[:min(n, blockSize)])
		n -= int64(m)
		if err != nil {
			_ = w.Close() // the first error counts
			return fmt.Errorf("write: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("end the stream: %w", err)
	}
	return nil
}

// verify reads to the end. It looks at the edges of each piece only, so as to cost nothing.
func verify(r io.Reader) (n int64, err error) {
	want, b := block(), make([]byte, blockSize)
	for {
		m, err := r.Read(b)
		if m > 0 {
			last := n + int64(m) - 1
			if b[0] != want[n%blockSize] || b[m-1] != want[last%blockSize] {
				return n, ErrCorrupt
			}
			n += int64(m)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("read: %w", err)
		}
	}
}

// Ends of a pipe through a Copier: the first byte of a connection says which it is.
const (
	copyFrom = 'w'
	copyTo   = 'r'
)

// PlumbCopy is a Plumb through a Copier.
func PlumbCopy(_ context.Context, job *Job) (Plumber, error) { return copied(job.Target), nil }

// copied is the address of a Copier.
type copied string

// Pipe implements Plumber.
func (c copied) Pipe(ctx context.Context) (p Pipe, err error) {
	d := net.Dialer{Timeout: dialTime}
	var ends [2]net.Conn
	for i, role := range []byte{copyFrom, copyTo} {
		if ends[i], err = d.DialContext(ctx, "tcp", string(c)); err == nil {
			_, err = ends[i].Write([]byte{role})
		}
		if err != nil {
			for _, end := range ends {
				if end != nil {
					_ = end.Close()
				}
			}
			return p, err
		}
	}
	return Pipe{Writer: ends[0], Reader: ends[1]}, nil
}

// Close implements Plumber; there is nothing to close but the pipes.
func (copied) Close() {}

// Copier joins a connection that writes to one that reads by io.Copy, and does nothing else: what a pipe
// through a server is measured against. It serves until l is closed, a pair at a time.
func Copier(l net.Listener) error {
	var waiting [2]net.Conn
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		role := make([]byte, 1)
		if _, err := io.ReadFull(c, role); err != nil {
			_ = c.Close()
			continue
		}
		at := 0
		if role[0] == copyTo {
			at = 1
		}
		waiting[at] = c
		if waiting[0] == nil || waiting[1] == nil {
			continue
		}
		_, _ = io.Copy(waiting[1], waiting[0]) // its end shows at the reader
		for i, c := range waiting {
			_ = c.Close()
			waiting[i] = nil
		}
	}
}

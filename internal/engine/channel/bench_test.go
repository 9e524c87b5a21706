package channel_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/plinth-run/plinth/internal/engine/channel"
	"github.com/plinth-run/plinth/internal/loop"
	"github.com/plinth-run/plinth/wire/ws"
)

const chunk = 64 << 10

// BenchmarkBytes moves binary frames of 64 KiB from one client to another, and beside it the same bytes by
// a bare io.Copy between two sockets, with and without the kernel's help.
func BenchmarkBytes(b *testing.B) {
	b.Run("channel", func(b *testing.B) { pump(b, loop.Config{ReadBytes: 256 << 10}) })
	b.Run("channel_portable", func(b *testing.B) {
		pump(b, loop.Config{ReadBytes: 256 << 10, Portable: true})
	})
	b.Run("channel_read_64KiB", func(b *testing.B) { pump(b, loop.Config{}) })
	b.Run("io_copy", func(b *testing.B) { relay(b, func(d, s net.Conn) { _, _ = io.Copy(d, s) }) })
	b.Run("io_copy_no_splice", func(b *testing.B) {
		relay(b, func(d, s net.Conn) {
			_, _ = io.CopyBuffer(struct{ io.Writer }{d}, struct{ io.Reader }{s}, make([]byte, chunk))
		})
	})
}

// pump sends b.N frames through a channel and waits for the last.
func pump(b *testing.B, cfg loop.Config) {
	h := open(b, channel.New(channel.Options{}), cfg, nil)
	wr, rr := h.pair(b, nil, 0)
	w, r := h.dial(b, wr), h.dial(b, rr)
	got := make(chan int64, 1)
	go func() { got <- swallow(b, r) }() // ends with the close frame
	payload := bytes.Repeat([]byte{0xa5}, chunk)
	b.SetBytes(chunk)
	b.ResetTimer()
	for range b.N {
		if err := w.send(ws.Binary, payload); err != nil {
			b.Fatal(err)
		}
	}
	w.close(b, ws.CloseNormal, "stream_complete")
	if n := <-got; n != int64(b.N)*chunk {
		b.Fatalf("%d bytes of %d", n, int64(b.N)*chunk)
	}
	s := h.Stats()
	b.ReportMetric(float64(s.Paused), "pauses")
}

// swallow counts the bytes of a reader as a stream: no message need be whole.
func swallow(b *testing.B, r *client) (sum int64) {
	cfg := ws.Config{Role: ws.Client, Grow: func(n int64) bool { return n < 0 }}
	buf := make([]byte, 256<<10)
	n := copy(buf, r.buf)
	for {
		used := 0
		for {
			ev, m, err := r.codec.Next(&cfg, buf[used:n])
			used += m
			if err != nil {
				b.Error(err)
				return sum
			}
			if ev.Kind == ws.KindNone {
				break
			}
			if ev.Kind == ws.KindClose {
				return sum
			}
			sum += int64(len(ev.Payload))
		}
		n = copy(buf, buf[used:n])
		m, err := r.nc.Read(buf[n:])
		if err != nil {
			b.Error(err)
			return sum
		}
		n += m
	}
}

// BenchmarkMessages moves small text messages, many in a read: what each of them costs the hub.
func BenchmarkMessages(b *testing.B) {
	h := open(b, channel.New(channel.Options{}), loop.Config{ReadBytes: 256 << 10}, nil)
	wr, rr := h.pair(b, nil, 0)
	w, r := h.dial(b, wr), h.dial(b, rr)
	got := make(chan int64, 1)
	go func() { got <- swallow(b, r) }() // ends with the close frame
	const many = 500
	var out []byte
	for range many {
		out = ws.AppendMaskedFrame(out, ws.Text, bytes.Repeat([]byte{'a'}, 100), 0x01020304)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N/many + 1 {
		if _, err := w.nc.Write(out); err != nil {
			b.Fatal(err)
		}
	}
	w.close(b, ws.CloseNormal, "stream_complete")
	if n := <-got; n != int64(b.N/many+1)*many*100 {
		b.Fatalf("%d bytes", n)
	}
}

// relay sends b.N chunks through two sockets that move joins.
func relay(b *testing.B, move func(dst, src net.Conn)) {
	w, from := tcp(b)
	to, r := tcp(b)
	go func() { // ends with the writer
		move(to, from)
		to.Close()
	}()
	got := make(chan int64, 1)
	go func() { // ends with the relay
		var sum int64
		buf := make([]byte, 256<<10)
		for {
			n, err := r.Read(buf)
			sum += int64(n)
			if err != nil {
				got <- sum
				return
			}
		}
	}()
	payload := bytes.Repeat([]byte{0xa5}, chunk)
	b.SetBytes(chunk)
	b.ResetTimer()
	for range b.N {
		if _, err := w.Write(payload); err != nil {
			b.Fatal(err)
		}
	}
	w.Close()
	if n := <-got; n != int64(b.N)*chunk {
		b.Fatalf("%d bytes of %d", n, int64(b.N)*chunk)
	}
}

// tcp returns the two ends of a loopback connection.
func tcp(b *testing.B) (dialed, accepted net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	if dialed, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if accepted, err = ln.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		dialed.Close()
		accepted.Close()
	})
	return dialed, accepted
}

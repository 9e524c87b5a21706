package worker_test

import (
	"io"
	"testing"

	"github.com/plinth-run/plinth/worker"
)

// zeroes is an endless source that costs nothing.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkChannel moves bytes from one end of a channel to the other, through an engine in another process.
func BenchmarkChannel(b *testing.B) {
	const size = 1 << 20
	w := start(b, outside(b), worker.Options{}, nil)
	cw, cr := ends(b, w)
	sent := make(chan error, 1)
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { // ends with the stream
		_, err := cw.ReadFrom(io.LimitReader(zeroes{}, int64(b.N)*size))
		if err == nil {
			err = cw.Close()
		}
		sent <- err
	}()
	n, err := cr.WriteTo(io.Discard)
	if err != nil || n != int64(b.N)*size {
		b.Errorf("%d bytes, %v", n, err)
	}
	if err := <-sent; err != nil {
		b.Error(err)
	}
}

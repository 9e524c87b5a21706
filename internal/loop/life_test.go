package loop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/loop"
)

// frames gives f each whole frame of size bytes in b and returns what they used up.
func frames(b []byte, size int, f func(b []byte) (more bool)) int {
	used := 0
	for len(b)-used >= size {
		used += size
		if !f(b[used-size : used]) {
			break
		}
	}
	return used
}

func TestUnusedBytesComeAgainInFrontOfTheNext(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.ReadBytes = 1000 // so that frames are cut often
		g := loop.New(cfg)
		var next uint32
		done := make(chan struct{})
		nc := dial(t, serve(t, g, always(&hooks{data: func(c *loop.Conn, b []byte) int {
			return frames(b, 700, func(b []byte) bool {
				if n := binary.BigEndian.Uint32(b); n != next || b[699] != byte(n) {
					t.Errorf("frame %d came as %d", next, n)
				}
				clear(b) // handlers may write to what they get
				if next++; next == 5000 {
					close(done)
				}
				return true
			})
		}})))
		for n := range uint32(5000) {
			b := bytes.Repeat([]byte{byte(n)}, 700)
			binary.BigEndian.PutUint32(b, n)
			write(t, nc, string(b))
		}
		<-done
	})
}

func TestPausedConnectionKeepsItsBytesAndItsOrder(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		const count = 2000
		g := loop.New(cfg)
		resume := make(chan *loop.Conn, count)
		done := make(chan struct{})
		var next uint32
		var holding atomic.Bool
		nc := dial(t, serve(t, g, always(&hooks{data: func(c *loop.Conn, b []byte) int {
			if holding.Load() {
				t.Error("Data while paused")
			}
			return frames(b, 8, func(b []byte) bool {
				if n := binary.BigEndian.Uint32(b); n != next {
					t.Errorf("frame %d came as %d", next, n)
				}
				if next++; next == count {
					close(done)
				}
				if next%3 == 0 {
					return true
				}
				holding.Store(true)
				c.Pause()
				c.Pause()
				resume <- c
				return false
			})
		}})))
		go func() { // ends with done
			for {
				select {
				case c := <-resume:
					holding.Store(false)
					c.Resume()
				case <-done:
					return
				}
			}
		}()
		var b []byte
		for n := range uint32(count) {
			b = binary.BigEndian.AppendUint64(b, uint64(n)<<32)
		}
		for len(b) > 0 {
			n := min(len(b), 101)
			write(t, nc, string(b[:n]))
			b = b[n:]
		}
		<-done
	})
}

func TestPauseHoldsThePeerBack(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		var got atomic.Int64
		conns := make(chan *loop.Conn, 1)
		nc := dial(t, serve(t, g, func(c *loop.Conn) loop.Handler {
			c.Pause() // before anything is read
			conns <- c
			return &hooks{data: func(_ *loop.Conn, b []byte) int {
				got.Add(int64(len(b)))
				return len(b)
			}}
		}))
		c := <-conns
		all := int64(64 << 20) // more than the kernel takes
		sent := make(chan error, 1)
		go func() {
			_, err := io.CopyN(nc, zeros{}, all)
			sent <- err
		}()
		on(c.Loop(), func() {})
		if n := got.Load(); n != 0 {
			t.Errorf("%d bytes came while paused", n)
		}
		select {
		case err := <-sent:
			t.Errorf("the peer was not held back: %v", err)
		default:
		}
		c.Resume()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		until(func() bool { return got.Load() == all })
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestHandlerThatKeepsTooMuchIsCutOff(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 2)
		g := loop.New(cfg)
		addr := serve(t, g, always(&hooks{
			data: func(_ *loop.Conn, b []byte) int {
				if b[0] == 'm' {
					return len(b) + 1
				}
				return 0
			},
			closed: func(_ *loop.Conn, err error) { closed <- err },
		}))
		_, _ = io.CopyN(dial(t, addr), zeros{}, 4*loop.MaxKept)
		if err := <-closed; !errors.Is(err, loop.ErrKept) {
			t.Errorf("Closed with %v", err)
		}
		write(t, dial(t, addr), "misuse")
		if err := <-closed; !errors.Is(err, loop.ErrMisuse) {
			t.Errorf("Closed with %v", err)
		}
	})
}

func TestCloseTellsItsReasonOnce(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		first := errors.New("first")
		closed := make(chan error, 10)
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
		on(c.Loop(), func() {
			c.Close(first)
			c.Close(errors.New("second"))
			c.Finish()
			c.Pause()
			c.Resume()
			if err := send(c, c.Loop(), []byte("x")); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("End: %v", err)
			}
		})
		if err := <-closed; !errors.Is(err, first) {
			t.Errorf("Closed with %v", err)
		}
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("the peer read %d, %v", n, err)
		}
		c.Close(nil)
		on(c.Loop(), func() {})
		if len(closed) != 0 {
			t.Error("Closed twice")
		}
	})
}

func TestCloseWhileOthersWrite(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops = 3
		g := loop.New(cfg)
		closed := make(chan struct{}, 1)
		run(t, g)
		for range 30 {
			conns := make(chan *loop.Conn, 1)
			addr := listen(t, g, func(c *loop.Conn) loop.Handler {
				conns <- c
				return &hooks{closed: func(*loop.Conn, error) { closed <- struct{}{} }}
			})
			nc := dial(t, addr)
			c := <-conns
			go io.Copy(io.Discard, nc) // ends with nc
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					var err error
					for n := 0; err == nil || errors.Is(err, loop.ErrQueueFull); n++ {
						if i < len(g.Loops()) {
							on(g.Loops()[i], func() { err = send(c, g.Loops()[i], make([]byte, 3000)) })
						} else {
							err = send(c, nil, make([]byte, 3000))
						}
						if n == 20 && i%2 == 1 {
							c.Close(nil)
						}
					}
					if !errors.Is(err, loop.ErrClosed) {
						t.Errorf("End: %v", err)
					}
				})
			}
			all.Wait()
			<-closed
			if c.Queued() != 0 || c.Holds() {
				t.Errorf("%d bytes are left", c.Queued())
			}
			nc.Close()
		}
	})
}

// TestBytesNeverReachTheNextOwnerOfADescriptor has goroutines write to connections long after these are
// closed, while new ones get the same descriptors. Each frame names its connection.
func TestBytesNeverReachTheNextOwnerOfADescriptor(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		conns := make(chan *loop.Conn, 1000)
		addr := serve(t, g, func(c *loop.Conn) loop.Handler {
			conns <- c
			return &hooks{}
		})
		stop := make(chan struct{})
		var writers sync.WaitGroup
		for range 2 {
			writers.Go(func() {
				var mine []*loop.Conn
				for {
					select {
					case <-stop:
						return
					case c := <-conns:
						mine = append(mine, c)
						if len(mine) > 4 {
							mine = mine[1:]
						}
					default:
					}
					for _, c := range mine {
						b := c.Begin()
						for range 8 {
							b = binary.BigEndian.AppendUint64(b, c.ID())
						}
						_ = c.End(nil, b)
					}
					runtime.Gosched()
				}
			})
		}
		for range 100 {
			nc := dial(t, addr)
			b := make([]byte, 8*40)
			if _, err := io.ReadFull(nc, b); err != nil {
				t.Fatal(err)
			}
			for i := 8; i < len(b); i += 8 {
				if !bytes.Equal(b[:8], b[i:i+8]) {
					t.Fatalf("a connection got bytes of %x and of %x", b[:8], b[i:i+8])
				}
			}
			_ = nc.SetLinger(0)
			nc.Close()
		}
		close(stop)
		writers.Wait()
	})
}

func TestFinishSendsAllThatWasQueued(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		const size = 3 << 20
		closed := make(chan error, 1)
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }})
		write(t, nc, "unread bytes of the peer do no harm")
		if err := send(c, nil, bytes.Repeat([]byte("z"), size)); err != nil {
			t.Fatal(err)
		}
		c.Finish()
		c.Finish()
		if err := send(c, nil, []byte("late")); !errors.Is(err, loop.ErrClosed) {
			t.Errorf("End after Finish: %v", err)
		}
		// The peer ends its own side first, as HTTP clients may.
		if err := nc.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := nc.SetReadBuffer(1 << 20); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, nc); n != size || err != nil {
			t.Errorf("the peer read %d bytes, %v", n, err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Closed with %v", err)
		}
	})
}

func TestFinishSurvivesAPeerThatKeepsSending(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		addr := serve(t, g, always(&hooks{
			data: func(c *loop.Conn, b []byte) int {
				if send(c, c.Loop(), []byte("go away")) == nil {
					c.Finish()
				}
				return 0
			},
			closed: func(_ *loop.Conn, err error) { closed <- err },
		}))
		for range 10 {
			nc := dial(t, addr)
			write(t, nc, strings.Repeat("x", 256<<10))
			b, err := io.ReadAll(nc)
			if string(b) != "go away" || err != nil {
				t.Fatalf("read %q, %v", b, err)
			}
			nc.Close()
			if err := <-closed; err != nil {
				t.Fatalf("Closed with %v", err)
			}
		}
	})
}

func TestFinishDoesNotWaitForEver(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		g.SetSpans(50*time.Millisecond, 20*time.Millisecond)
		h := &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }}
		_, c := one(t, g, h)
		if err := send(c, nil, make([]byte, 16<<20)); err != nil { // more than the kernel takes
			t.Fatal(err)
		}
		c.Finish()
		if err := <-closed; !errors.Is(err, loop.ErrUnsent) {
			t.Errorf("with a peer that does not read: Closed with %v", err)
		}
		conns := make(chan *loop.Conn, 1)
		nc := dial(t, listen(t, g, func(c *loop.Conn) loop.Handler {
			conns <- c
			return h
		}))
		(<-conns).Finish()
		if b, err := io.ReadAll(nc); len(b) != 0 || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		if err := <-closed; err != nil { // nc stays open
			t.Errorf("with a peer that does not close: Closed with %v", err)
		}
	})
}

func TestResetIsAnErrorAndPausingDoesNotHideIt(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		conns := make(chan *loop.Conn, 1)
		addr := serve(t, g, func(c *loop.Conn) loop.Handler {
			conns <- c
			return &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }}
		})
		for _, pause := range []bool{false, true} {
			if pause && cfg.Portable {
				break // a net.Conn cannot tell without reading
			}
			nc := dial(t, addr)
			c := <-conns
			if pause {
				c.Pause()
			}
			on(c.Loop(), func() {})
			if err := nc.SetLinger(0); err != nil {
				t.Fatal(err)
			}
			nc.Close()
			if err := <-closed; err == nil || errors.Is(err, io.EOF) {
				t.Errorf("paused %v: Closed with %v", pause, err)
			}
		}
	})
}

func TestLastWordsBeforeABrokenWriteAreHeard(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		for range 20 {
			heard := make(chan string, 1)
			closed := make(chan error, 1)
			g := loop.New(cfg)
			var words strings.Builder
			conns := make(chan *loop.Conn, 1)
			addr := serve(t, g, func(c *loop.Conn) loop.Handler {
				c.Pause()
				conns <- c
				return &hooks{
					data: func(_ *loop.Conn, b []byte) int { return first(words.Write(b)) },
					closed: func(_ *loop.Conn, err error) {
						heard <- words.String()
						closed <- err
					},
				}
			})
			nc := dial(t, addr)
			c := <-conns
			write(t, nc, "last words")
			nc.Close()
			on(c.Loop(), func() {
				c.Resume()
				_ = send(c, c.Loop(), []byte("to nobody"))
			})
			if s := <-heard; s != "last words" {
				t.Errorf("heard %q", s)
			}
			if err := <-closed; err == nil {
				t.Error("Closed without an error")
			}
		}
	})
}

func first(n int, _ error) int { return n }

func TestRunClosesEveryConnectionOnceAndLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, cfg loop.Config) {
		goroutines, fds := runtime.NumGoroutine(), descriptors(t)
		for round := range 15 {
			var accepted, closed atomic.Int64
			g := loop.New(cfg)
			addr := listen(t, g, func(*loop.Conn) loop.Handler {
				accepted.Add(1)
				var once atomic.Bool
				return &hooks{data: echo, closed: func(*loop.Conn, error) {
					if once.Swap(true) {
						t.Error("Closed twice")
					}
					closed.Add(1)
				}}
			})
			ctx, cancel := context.WithCancel(context.Background())
			var clients sync.WaitGroup
			for range 6 {
				clients.Go(func() {
					b := make([]byte, 100)
					for n := 0; ; n++ {
						nc, err := net.Dial("tcp", addr)
						if err != nil {
							return
						}
						for range n % 7 {
							if _, err := nc.Write(b); err != nil {
								break
							}
							if _, err := io.ReadFull(nc, b); err != nil {
								break
							}
						}
						nc.Close()
						if n == round*3 {
							cancel()
						}
					}
				})
			}
			if err := g.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if accepted.Load() != closed.Load() {
				t.Errorf("%d accepted, %d closed", accepted.Load(), closed.Load())
			}
			if s := g.Stats(); s.Open != 0 || s.Accepted != uint64(accepted.Load()) {
				t.Errorf("stats are %+v", s)
			}
			clients.Wait()
			cancel()
		}
		until(func() bool { return runtime.NumGoroutine() <= goroutines })
		until(func() bool { return descriptors(t) <= fds })
	})
}

func TestRunSurvivesOddLives(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		fds := descriptors(t)
		for range 10 {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					g := loop.New(cfg)
					if _, err := g.Listen(context.Background(), "tcp", "127.0.0.1:0", always(&hooks{})); err != nil {
						t.Error(err)
					}
					if err := g.Run(over); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		until(func() bool { return descriptors(t) <= fds })

		g := loop.New(cfg)
		stop := run(t, g)
		on(g.Loops()[0], func() {})
		if err := g.Run(t.Context()); err == nil {
			t.Error("Run twice")
		}
		stop()
		if _, err := g.Listen(context.Background(), "tcp", "127.0.0.1:0", always(&hooks{})); err == nil {
			t.Error("Listen after the end")
		}
		g.Loops()[0].Post(func() { t.Error("posted after the end") })
		g.Loops()[0].Every(time.Nanosecond, func() { t.Error("timer after the end") })
	})
}

func TestConnectionsOfAnEndedGroupAreInert(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		closed := make(chan error, 1)
		g := loop.New(cfg)
		conns := make(chan *loop.Conn, 1)
		addr := listen(t, g, func(c *loop.Conn) loop.Handler {
			conns <- c
			return &hooks{closed: func(_ *loop.Conn, err error) { closed <- err }}
		})
		stop := run(t, g)
		nc := dial(t, addr)
		c := <-conns
		if err := send(c, nil, []byte("goodbye")); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := <-closed; !errors.Is(err, loop.ErrShutdown) {
			t.Errorf("Closed with %v", err)
		}
		expect(t, nc, "goodbye")
		if err := send(c, nil, []byte("x")); !errors.Is(err, loop.ErrClosed) {
			t.Errorf("End: %v", err)
		}
		c.Pause()
		c.Resume()
		c.Finish()
		c.Close(nil)
	})
}

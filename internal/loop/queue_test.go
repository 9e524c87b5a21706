package loop_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plinth-run/plinth/internal/loop"
)

// frame is length, writer, sequence number, filler of that length, checksum.
func frame(dst []byte, writer, seq uint32, size int) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = binary.BigEndian.AppendUint32(dst, writer)
	dst = binary.BigEndian.AppendUint32(dst, seq)
	for i := range size {
		dst = append(dst, byte(i)+byte(seq))
	}
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
}

// readFrame reads a frame and checks it.
func readFrame(r *bufio.Reader) (writer, seq uint32, err error) {
	head := make([]byte, 12)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, 0, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head)+4)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, 0, io.ErrUnexpectedEOF
	}
	sum := crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, body[:len(body)-4])
	if sum != binary.BigEndian.Uint32(body[len(body)-4:]) {
		return 0, 0, errors.New("a frame is damaged")
	}
	return binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:]), nil
}

// tight makes the kernel take little for a peer that does not read. Much less stalls TCP on loopback, where
// one segment is 64 KiB.
func tight(t testing.TB, nc *net.TCPConn) {
	t.Helper()
	if err := nc.SetReadBuffer(96 << 10); err != nil {
		t.Fatal(err)
	}
}

// one serves g and returns one connection from both of its sides.
func one(t testing.TB, g *loop.Group, h loop.Handler) (*net.TCPConn, *loop.Conn) {
	t.Helper()
	conns := make(chan *loop.Conn, 1)
	nc := dial(t, serve(t, g, func(c *loop.Conn) loop.Handler {
		shrink(c)
		conns <- c
		return h
	}))
	tight(t, nc)
	return nc, <-conns
}

func TestFramesOfManyWritersStayWholeAndInOrder(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		const writers, frames = 6, 400
		cfg.Loops, cfg.WriteQueue = 3, 64<<10
		var mu sync.Mutex
		room := sync.NewCond(&mu)
		turn := 0
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{drained: func(*loop.Conn) {
			mu.Lock()
			defer mu.Unlock()
			turn++
			room.Broadcast()
		}})
		put := func(l *loop.Loop, w, seq uint32) error {
			return c.End(l, frame(c.Begin(), w, seq, int(w*seq*37%4096)))
		}
		var all sync.WaitGroup
		for w := range uint32(writers) {
			all.Go(func() {
				var l *loop.Loop // three writers are goroutines, the others are loops
				if w%2 == 1 {
					l = g.Loops()[w/2]
				}
				for seq := range uint32(frames) {
					for {
						mu.Lock()
						seen := turn
						mu.Unlock()
						var err error
						if l == nil {
							err = put(nil, w, seq)
						} else {
							on(l, func() { err = put(l, w, seq) })
						}
						if err == nil {
							break
						}
						if !errors.Is(err, loop.ErrQueueFull) {
							t.Errorf("End: %v", err)
							return
						}
						mu.Lock()
						for turn == seen {
							room.Wait()
						}
						mu.Unlock()
					}
				}
			})
		}
		r := bufio.NewReaderSize(nc, 4<<10)
		var next [writers]uint32
		for range writers * frames {
			w, seq, err := readFrame(r)
			if err != nil || w >= writers || seq != next[w] {
				t.Fatalf("writer %d: frame %d, want %d: %v", w, seq, next[w%writers], err)
			}
			next[w]++
		}
		all.Wait()
		until(func() bool { return !c.Holds() })
		if c.Queued() != 0 {
			t.Errorf("%d bytes are queued", c.Queued())
		}
	})
}

func TestFullQueueRefusesAFrameAndKeepsTheOthers(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.WriteQueue = 100 << 10
		drained := make(chan struct{}, 10)
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{drained: func(*loop.Conn) { drained <- struct{}{} }})
		taken := uint32(0)
		for {
			err := c.End(nil, frame(c.Begin(), 1, taken, 3000))
			if errors.Is(err, loop.ErrQueueFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			taken++
			if n := c.Queued(); n > cfg.WriteQueue {
				t.Fatalf("%d bytes are queued", n)
			}
		}
		if g.Stats().QueueFull != 1 {
			t.Errorf("stats are %+v", g.Stats())
		}
		r := bufio.NewReader(nc)
		for seq := range taken {
			if _, got, err := readFrame(r); err != nil || got != seq {
				t.Fatalf("frame %d came as %d: %v", seq, got, err)
			}
		}
		<-drained
		if err := c.End(nil, frame(c.Begin(), 1, taken, 3000)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := readFrame(r); err != nil || got != taken {
			t.Fatalf("frame %d came as %d: %v", taken, got, err)
		}
		until(func() bool { return !c.Holds() })
	})
}

func TestOneMessageOverTheBoundPasses(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.WriteQueue = 64 << 10
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{})
		if err := c.End(nil, frame(c.Begin(), 1, 0, 10)); err != nil {
			t.Fatal(err)
		}
		if err := c.End(nil, frame(c.Begin(), 1, 1, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := c.End(nil, frame(c.Begin(), 1, 2, 1<<20)); !errors.Is(err, loop.ErrQueueFull) {
			t.Fatalf("a second one: %v", err)
		}
		if err := nc.SetReadBuffer(512 << 10); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(nc)
		for seq := range uint32(2) {
			if _, got, err := readFrame(r); err != nil || got != seq {
				t.Fatalf("frame %d came as %d: %v", seq, got, err)
			}
		}
		until(func() bool { return !c.Holds() })
	})
}

func TestAnAbandonedFrameLeavesNothing(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{})
		if err := c.End(nil, c.Begin()); err != nil || c.Holds() {
			t.Errorf("End with nothing new: %v, holds a buffer: %v", err, c.Holds())
		}
		if err := send(c, nil, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		expect(t, nc, "hello")
		nc.Close()
		until(func() bool { return g.Stats().Closed == 1 })
		if err := send(c, nil, []byte("late")); !errors.Is(err, loop.ErrClosed) || c.Holds() {
			t.Errorf("End after the end: %v, holds a buffer: %v", err, c.Holds())
		}
	})
}

// purse is a budget that can be watched.
type purse struct{ left, asked atomic.Int64 }

func (p *purse) take(n int64) bool {
	p.asked.Add(1)
	if p.left.Add(-n) < 0 {
		p.left.Add(n)
		return false
	}
	return true
}

func (p *purse) give(n int64) { p.left.Add(n) }

func TestWriteQueuesAreTakenFromTheBudgetAndGivenBack(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		const all = 300 << 10
		p := &purse{}
		p.left.Store(all)
		cfg.Take, cfg.Give = p.take, p.give
		g := loop.New(cfg)
		nc, c := one(t, g, &hooks{})
		taken := uint32(0)
		for ; taken < 1000; taken++ {
			if err := c.End(nil, frame(c.Begin(), 1, taken, 1000)); errors.Is(err, loop.ErrQueueFull) {
				break
			}
		}
		if n := c.Queued(); n > all || p.left.Load() > int64(all-n) {
			t.Errorf("%d bytes are queued and %d of %d are left", n, p.left.Load(), all)
		}
		// One for a batch, some while the queue grows, two for each 4 KiB where the budget ends.
		if n := p.asked.Load(); n > int64(g.Stats().Writes)+int64(taken)/2+20 {
			t.Errorf("%d questions for %d frames in %d writes", n, taken, g.Stats().Writes)
		}
		r := bufio.NewReader(nc)
		for seq := range taken {
			if _, got, err := readFrame(r); err != nil || got != seq {
				t.Fatalf("frame %d came as %d: %v", seq, got, err)
			}
		}
		until(func() bool { return p.left.Load() == all })
		if err := send(c, nil, make([]byte, 200<<10)); err != nil {
			t.Fatal(err)
		}
		c.Close(nil)
		until(func() bool { return p.left.Load() == all })
	})
}

func TestASlowReaderNeverBlocksTheOthers(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops = 1
		g := loop.New(cfg)
		conns := make(chan *loop.Conn, 2)
		addr := serve(t, g, func(c *loop.Conn) loop.Handler {
			shrink(c)
			conns <- c
			return &hooks{data: echo}
		})
		slow := dial(t, addr)
		tight(t, slow)
		c := <-conns
		if err := send(c, nil, make([]byte, 16<<20)); err != nil {
			t.Fatal(err)
		}
		quick := dial(t, addr)
		for range 200 {
			write(t, quick, "hello")
			expect(t, quick, "hello")
		}
		if c.Queued() == 0 {
			t.Error("the slow reader read everything; the test shows nothing")
		}
	})
}

func TestAFloodingPeerLeavesTheOthersTheirTurn(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		cfg.Loops = 1
		g := loop.New(cfg)
		addr := serve(t, g, func(*loop.Conn) loop.Handler {
			return &hooks{data: func(c *loop.Conn, b []byte) int {
				if b[0] == 'q' {
					return echo(c, b)
				}
				return len(b)
			}}
		})
		stop := make(chan struct{})
		var flood sync.WaitGroup
		for range 4 {
			nc := dial(t, addr)
			flood.Go(func() {
				b := []byte(strings.Repeat("f", 256<<10))
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = nc.Write(b)
					}
				}
			})
		}
		quiet := dial(t, addr)
		for range 200 {
			write(t, quiet, "quiet")
			expect(t, quiet, "quiet")
		}
		close(stop)
		flood.Wait()
	})
}

func TestTrafficCrossesLoopsInOrder(t *testing.T) {
	all(t, func(t *testing.T, cfg loop.Config) {
		const pairs, frames = 8, 300
		cfg.Loops = 4
		var mu sync.Mutex
		byID := make(map[uint64]*loop.Conn)
		peer := func(c *loop.Conn) *loop.Conn { // pairs of neighbours, so always on another loop
			mu.Lock()
			defer mu.Unlock()
			return byID[(c.ID()-1)^1+1]
		}
		g := loop.New(cfg)
		addr := serve(t, g, func(c *loop.Conn) loop.Handler {
			mu.Lock()
			defer mu.Unlock()
			byID[c.ID()] = c
			return &hooks{data: func(c *loop.Conn, b []byte) int {
				if err := send(peer(c), c.Loop(), b); err != nil {
					t.Errorf("relay: %v", err)
				}
				return len(b)
			}}
		})
		var conns []*net.TCPConn
		for i := range 2 * pairs {
			conns = append(conns, dial(t, addr))
			until(func() bool { return g.Stats().Accepted == uint64(i+1) })
		}
		var all sync.WaitGroup
		for i, nc := range conns {
			all.Go(func() {
				for seq := range uint32(frames) {
					if _, err := nc.Write(frame(nil, uint32(i), seq, int(seq)%500)); err != nil {
						t.Errorf("write: %v", err)
					}
				}
			})
			all.Go(func() {
				r := bufio.NewReader(nc)
				for seq := range uint32(frames) {
					w, got, err := readFrame(r)
					if err != nil || int(w) != i^1 || got != seq {
						t.Errorf("frame %d of %d came as %d of %d: %v", seq, i^1, got, w, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

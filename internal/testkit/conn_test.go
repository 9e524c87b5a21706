package testkit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns two ends of a TCP connection on the loopback.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() { // ends with the accept
		c, _ := l.Accept()
		accepted <- c
	}()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, b = dialed.(*net.TCPConn), (<-accepted).(*net.TCPConn)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestConnWithoutTroubleIsAConn(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a, Trouble{})
	if n, err := c.Write([]byte("hello")); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); string(got) != "hello" || err != nil {
		t.Fatal(string(got), err)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestConnIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := net.Pipe()
		c := Wrap(p, Trouble{WriteDelay: time.Second, ReadDelay: time.Minute, Slice: 2})
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(q)
			got <- b
		}()
		begin := time.Now()
		if n, err := c.Write([]byte("12345")); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("three pieces took %v", took)
		}
		go func() {
			time.AfterFunc(time.Second, func() { c.Close() })
		}()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if b := <-got; string(b) != "12345" {
			t.Errorf("%q", b)
		}
	})
}

func TestConnWritesInSlices(t *testing.T) {
	p, q := net.Pipe()
	defer q.Close()
	c := Wrap(p, Trouble{Slice: 3})
	wrote := make(chan error, 1)
	go func() { // ends with the write
		_, err := c.Write([]byte("12345678"))
		wrote <- err
	}()
	for _, want := range []string{"123", "456", "78"} {
		b := make([]byte, 10)
		if n, err := q.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("%q, want %q: %v", b[:n], want, err)
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func TestConnReadsInSlices(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write([]byte("12345")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := Wrap(b, Trouble{Slice: 2}).Read(buf); n != 2 || err != nil {
		t.Fatal(n, err)
	}
}

func TestConnIsCutAtTheByte(t *testing.T) {
	for cut := range int64(8) {
		a, b := pair(t)
		c := Wrap(a, Trouble{Slice: 3, CutAfter: cut, CutNow: cut == 0})
		n1, err1 := c.Write([]byte("12345"))
		n2, err2 := c.Write([]byte("678"))
		if err := errors.Join(err1, err2); int64(n1+n2) != cut || !errors.Is(err, ErrCut) {
			t.Fatalf("cut at %d: wrote %d and %d: %v", cut, n1, n2, err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "12345678"[:cut] || c.Written() != cut {
			t.Fatalf("cut at %d: %q, %v", cut, got, err)
		}
	}
}

func TestConnIsReset(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a, Trouble{CutAfter: 2, Cut: CutReset})
	if n, err := c.Write([]byte("123")); n != 2 || !errors.Is(err, ErrCut) {
		t.Fatal(n, err)
	}
	if _, err := io.ReadAll(b); err == nil {
		t.Fatal("the other side saw an orderly end")
	}
}

func TestConnEndsHalf(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a, Trouble{CutAfter: 2, Cut: CutHalf})
	if n, err := c.Write([]byte("123")); n != 2 || !errors.Is(err, ErrCut) {
		t.Fatal(n, err)
	}
	if got, err := io.ReadAll(b); err != nil || string(got) != "12" {
		t.Fatal(string(got), err)
	}
	if _, err := b.Write([]byte("still")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(c, buf); err != nil || !bytes.Equal(buf, []byte("still")) {
		t.Fatal(string(buf), err)
	}
}

func TestConnStallsUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := net.Pipe()
		c := Wrap(p, Trouble{CutAfter: 2, Cut: CutStall})
		go io.Copy(io.Discard, q)
		wrote := make(chan error, 1)
		go func() {
			n, err := c.Write([]byte("123"))
			if n != 2 {
				t.Errorf("wrote %d", n)
			}
			wrote <- err
		}()
		synctest.Wait()
		select {
		case err := <-wrote:
			t.Fatalf("it did not stall: %v", err)
		default:
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-wrote; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

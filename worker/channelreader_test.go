package worker_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire/ws"
	"github.com/plinth-run/plinth/worker"
)

var (
	readEnd  = worker.ChannelRef{ChannelID: "c", AccessKey: "k", Direction: "read"}
	writeEnd = worker.ChannelRef{ChannelID: "c", AccessKey: "k", Direction: "write"}
)

// part is a frame; fin says whether it ends its message.
func part(fin byte, op ws.Opcode, payload string) []byte {
	f := ws.AppendFrame(nil, op, []byte(payload))
	f[0] = f[0]&0x7f | fin<<7
	return f
}

// scripted is a reader whose engine sends some bytes and closes the connection.
func scripted(t *testing.T, sent []byte) *worker.ChannelReader {
	t.Helper()
	w := fresh(t, worker.Options{MaxMessage: 100, Dial: mute(t, func(c net.Conn) {
		drained := make(chan struct{})
		go func() { // ends with the connection
			defer close(drained)
			_, _ = io.Copy(io.Discard, c)
		}()
		_, _ = c.Write(sent)
		_ = c.Close()
		<-drained
	})})
	r, err := w.OpenReader(t.Context(), readEnd)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// transcript reads a stream to its end; texts stand in brackets.
func transcript(r *worker.ChannelReader) (string, error) {
	var got strings.Builder
	r.OnMessage = func(text string) { got.WriteString("[" + text + "]") }
	_, err := r.WriteTo(&got)
	return got.String(), err
}

func TestReaderTakesWhateverTheEngineSends(t *testing.T) {
	whole := ws.AppendClose(nil, ws.CloseNormal, "")
	long := strings.Repeat("x", 60)
	for name, c := range map[string]struct {
		frames []byte
		want   string
		reason string // why the stream is not whole; empty: it is
	}{
		"nothing": {whole, "", ""},
		"a text in parts": {slices.Concat(part(0, ws.Text, "a\xc3"), part(1, ws.Continuation, "\xa4b"), whole),
			"[aäb]", ""},
		"bytes in parts": {slices.Concat(part(0, ws.Binary, "a"), part(0, ws.Continuation, ""),
			part(1, ws.Continuation, "b"), whole), "ab", ""},
		"a ping": {slices.Concat(part(1, ws.Ping, "?"), part(1, ws.Pong, ""), part(1, ws.Binary, "a"), whole),
			"a", ""},
		"large bytes": {slices.Concat(part(1, ws.Binary, long+long), whole), long + long, ""},
		"no code":     {part(1, ws.Close, ""), "", "closed with 1005"},
		"restart":     {ws.AppendClose(nil, ws.CloseRestart, "later"), "", "1012: later"},
		"no goodbye":  {part(1, ws.Binary, "ab"), "ab", "closed the connection"},
		"no UTF-8":    {part(1, ws.Text, "\xff"), "", "no UTF-8"},
		"a large text": {slices.Concat(part(1, ws.Text, long+long), whole), "",
			"MaxMessage"},
		"a large text in parts": {slices.Concat(part(0, ws.Text, long), part(1, ws.Continuation, long), whole), "",
			"MaxMessage"},
		"no frames": {[]byte("HTTP/1.1 200 OK"), "", "websocket"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := transcript(scripted(t, c.frames))
				if got != c.want || (err == nil) != (c.reason == "") {
					t.Errorf("got %q, %v", got, err)
				}
				if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), c.reason)) {
					t.Errorf("got %v, want %s", err, c.reason)
				}
			})
		})
	}
}

func TestTextsWithoutAListenerAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t, worker.Options{Dial: mute(t, func(c net.Conn) {
			_, _ = c.Write(slices.Concat(part(1, ws.Text, "a"), part(1, ws.Text, "b"), ws.AppendClose(nil, 1000, "")))
			_, _ = io.Copy(io.Discard, c)
		})})
		r, err := w.OpenReader(t.Context(), readEnd)
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 || w.Stats().Skipped != 2 {
			t.Errorf("got %q, %v, %d skipped", rest, err, w.Stats().Skipped)
		}
	})
}

// lame takes n bytes at a time and says so, or not.
type lame struct {
	n   int
	err error
}

func (l lame) Write([]byte) (int, error) { return l.n, l.err }

func TestWhatADestinationDoesNotTakeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := scripted(t, slices.Concat(part(1, ws.Binary, "abcdef"), ws.AppendClose(nil, 1000, "")))
		full := errors.New("full")
		if n, err := r.WriteTo(lame{2, full}); n != 2 || !errors.Is(err, full) {
			t.Errorf("got %d, %v", n, err)
		}
		if n, err := r.WriteTo(lame{1, nil}); n != 1 || err != io.ErrShortWrite {
			t.Errorf("got %d, %v", n, err)
		}
		if n, err := r.WriteTo(lame{-1, nil}); n != 0 || err != io.ErrShortWrite {
			t.Errorf("got %d, %v", n, err)
		}
		if rest, err := io.ReadAll(r); err != nil || string(rest) != "def" {
			t.Errorf("got %q, %v", rest, err)
		}
	})
}

func TestIdleEndsPingTheEngineAndStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ref := range []worker.ChannelRef{readEnd, writeEnd} {
			pings := make(chan time.Time, 100)
			w := fresh(t, worker.Options{Dial: mute(t, func(c net.Conn) {
				drainFrames(c, func(ev ws.Event) {
					if ev.Kind == ws.KindPing {
						pings <- time.Now()
						_, _ = c.Write(ws.AppendFrame(nil, ws.Pong, ev.Payload))
					}
				})
			})})
			var end io.Closer
			over := make(chan error, 1)
			if ref == readEnd {
				r, err := w.OpenReader(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := r.Read(make([]byte, 1))
					over <- err
				}()
				end = r
			} else {
				c, err := w.OpenWriter(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				end = aborter{c}
			}
			<-time.After(5*time.Minute + time.Second)
			if n := len(pings); n < 10 || n > 16 {
				t.Errorf("%s: %d pings in 5 minutes", ref, n)
			}
			if len(over) > 0 {
				t.Errorf("%s: it ended: %v", ref, <-over)
			}
			_ = end.Close()
			synctest.Wait()
			n := len(pings)
			<-time.After(5 * time.Minute)
			if len(pings) != n {
				t.Errorf("%s: pings after the end", ref)
			}
		}
	})
}

type aborter struct{ c *worker.ChannelWriter }

func (a aborter) Close() error {
	a.c.Abort()
	return nil
}

func TestReaderGivesUpASilentEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t, worker.Options{Dial: mute(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })})
		r, err := w.OpenReader(t.Context(), readEnd)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = r.Read(make([]byte, 1))
		if !errors.Is(err, io.ErrUnexpectedEOF) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestWriterHearsWhatTheEngineDoesWrong(t *testing.T) {
	for name, c := range map[string]struct {
		sent []byte
		want string
	}{
		"no frames":          {[]byte("HTTP/1.1 200 OK"), "websocket"},
		"a goodbye too soon": {ws.AppendClose(nil, ws.CloseNormal, ""), "closed with 1000"},
		"a ping, then gone":  {part(1, ws.Ping, "?"), "closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fresh(t, worker.Options{Dial: mute(t, func(sock net.Conn) {
					go func() { _, _ = io.Copy(io.Discard, sock) }() // ends with the connection
					_, _ = sock.Write(c.sent)
					_ = sock.Close()
				})})
				cw, err := w.OpenWriter(t.Context(), writeEnd)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				_, err = cw.Write([]byte("x"))
				if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v", err)
				}
				if err := cw.Close(); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("closed: %v", err)
				}
			})
		})
	}
}

// FuzzChannelReader: whatever an engine sends, a stream without a goodbye is not whole, and nothing panics.
func FuzzChannelReader(f *testing.F) {
	f.Add(ws.AppendClose(part(1, ws.Text, "a"), ws.CloseNormal, ""))
	f.Add(slices.Concat(part(0, ws.Binary, "a"), part(1, ws.Ping, "p"), part(1, ws.Continuation, "b")))
	f.Add([]byte{0x82, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, sent []byte) {
		text, err := transcript(scripted(t, sent))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
		if err == nil && !strings.Contains(string(sent), "\x03\xe8") {
			t.Errorf("%q is whole, without a goodbye", text)
		}
		if len(text) > 2*len(sent)+2 {
			t.Errorf("%d bytes of %d", len(text), len(sent))
		}
	})
}

package worker_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// fill writes until that fails.
func fill(cw *worker.ChannelWriter) (err error) {
	for err == nil {
		_, err = cw.Write(make([]byte, 1000))
	}
	return err
}

func TestDeadlineCutsAStreamThatNobodyTakes(t *testing.T) {
	for name, op := range map[string]func(cw *worker.ChannelWriter) error{
		"bytes":     fill,
		"a text":    func(cw *worker.ChannelWriter) error { return cw.SendMessage("text") },
		"the close": (*worker.ChannelWriter).Close,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fresh(t, worker.Options{Dial: mute(t, func(net.Conn) {})})
				cw, err := w.OpenWriter(t.Context(), writeEnd)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := cw.SetWriteDeadline(began.Add(time.Hour)); err != nil {
					t.Error(err)
				}
				time.AfterFunc(time.Second, func() { _ = cw.SetWriteDeadline(began.Add(time.Minute)) })
				if err := op(cw); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if err := fill(cw); !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the stream goes on: %v", err)
				}
				if err := cw.SetWriteDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("a deadline of a stream that is over: %v", err)
				}
				if err := cw.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("closed: %v", err)
				}
			})
		})
	}
}

func TestReaderOfAStreamThatADeadlineCutIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		_ = cw.SetWriteDeadline(time.Now().Add(time.Minute)) // pings of both ends are due meanwhile
		if err := fill(cw); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("writer: %v", err)
		}
		if n, err := io.Copy(io.Discard, cr); !errors.Is(err, io.ErrUnexpectedEOF) || n == 0 {
			t.Errorf("reader: %d bytes, %v", n, err)
		}
	})
}

func TestDeadlineThatHitsNothingHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		_ = cw.SetWriteDeadline(time.Now().Add(time.Second))
		fmt.Fprint(cw, "in time")
		<-time.After(5 * time.Minute) // pings are sent meanwhile
		for name, err := range map[string]error{"bytes": fill(cw), "a text": cw.SendMessage("too late")} {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = cw.SetWriteDeadline(time.Now().Add(time.Second))
		fmt.Fprint(cw, ", again")
		if err := cw.Close(); err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if got, err := io.ReadAll(cr); err != nil || string(got) != "in time, again" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestCloseBehindTheDeadlineLeavesNothingOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		_ = cw.SetWriteDeadline(time.Now().Add(-time.Second))
		if err := cw.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if rest, err := io.ReadAll(cr); !errors.Is(err, io.ErrUnexpectedEOF) || len(rest) > 0 {
			t.Errorf("reader: %q, %v", rest, err)
		}
	})
}

func TestReadThatTimedOutLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		began := time.Now()
		_ = cr.SetReadDeadline(began.Add(time.Second))
		_, err := cr.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		fmt.Fprint(cw, "one ")
		if _, err := io.Copy(io.Discard, cr); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the deadline is over: %v", err)
		}
		_ = cr.SetReadDeadline(time.Now().Add(5 * time.Minute)) // longer than an engine may be silent
		var got strings.Builder
		n, err := cr.WriteTo(&got)
		if n != 4 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 5*time.Minute+time.Second {
			t.Errorf("%d bytes, %v after %v", n, err, time.Since(began))
		}
		ended := make(chan error, 1)
		_ = cr.SetReadDeadline(time.Time{})
		go func() {
			_, err := cr.WriteTo(&got)
			ended <- err
		}()
		synctest.Wait()
		_ = cr.SetReadDeadline(time.Now()) // frees who waits now
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("who waited: %v", err)
		}
		_ = cr.SetReadDeadline(time.Time{})
		fmt.Fprint(cw, "two")
		if err := cw.Close(); err != nil {
			t.Error(err)
		}
		if _, err := cr.WriteTo(&got); err != nil || got.String() != "one two" {
			t.Errorf("got %q, %v", got.String(), err)
		}
		_ = cr.Close()
		if err := cr.SetReadDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a deadline of a stream that is over: %v", err)
		}
	})
}

func TestReasonOfAWriterReachesItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		for _, c := range []struct{ reason, want string }{
			{"disk on fire", "disk on fire"}, {"\xff", "?"}, {strings.Repeat("long ", 100), "long long long"},
		} {
			cw, cr := ends(t, w)
			if err := cw.CloseWithError(errors.New(c.reason)); err != nil {
				t.Error(err)
			}
			_, err := io.ReadAll(cr)
			if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("reader: %v", err)
			}
			_, err = cw.Write([]byte("x"))
			if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("writer: %v", err)
			}
		}
		cw, cr := ends(t, w)
		if err := cw.CloseWithError(nil); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(cr); err != nil {
			t.Errorf("without an error: %v", err)
		}
	})
}

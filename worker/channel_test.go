package worker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

// ends makes a channel and opens both ends.
func ends(t testing.TB, w *worker.Worker) (*worker.ChannelWriter, *worker.ChannelReader) {
	t.Helper()
	out, in, err := w.CreateChannel(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	cw, err := w.OpenWriter(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	cr, err := w.OpenReader(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cw.Abort()
		_ = cr.Close()
	})
	return cw, cr
}

func TestBytesAndMessagesOfAChannelKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		go func() {
			fmt.Fprint(cw, "one ")
			_ = cw.SendMessage("first ✓")
			fmt.Fprint(cw, "two ")
			_, _ = cw.Write(nil)
			_ = cw.SendMessage("")
			fmt.Fprint(cw, "three")
			if err := cw.Close(); err != nil {
				t.Error(err)
			}
		}()
		var got strings.Builder
		cr.OnMessage = func(text string) { fmt.Fprintf(&got, "[%s]", text) }
		if n, err := io.Copy(&got, cr); err != nil || n != 13 || got.String() != "one [first ✓]two []three" {
			t.Errorf("got %q, %d, %v", got.String(), n, err)
		}
		for range 2 { // it stays at its end
			if n, err := cr.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v", n, err)
			}
		}
	})
}

func TestEverySizeArrivesWhole(t *testing.T) {
	e := workertest.New(t)
	url, err := e.URL()
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, url, worker.Options{}, nil)
	all := make([]byte, 5<<20+1)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(all)
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 65537, 4 * 65536, 4*65536 + 1, len(all)} {
		cw, cr := ends(t, w)
		sent := make(chan error, 1)
		go func() {
			m, err := io.Copy(cw, bytes.NewReader(all[:n])) // ReadFrom or WriteTo
			if err == nil && m != int64(n) {
				err = fmt.Errorf("sent %d bytes", m)
			}
			sent <- errors.Join(err, cw.Close())
		}()
		h := sha256.New()
		if m, err := io.Copy(h, cr); err != nil || m != int64(n) || [32]byte(h.Sum(nil)) != sha256.Sum256(all[:n]) {
			t.Errorf("%d bytes: got %d, %v, or other bytes", n, m, err)
		}
		if err := <-sent; err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestReadTakesAsLittleAsIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		text := strings.Repeat("0123456789", 20_000)
		go func() {
			if _, err := cw.ReadFrom(iotest.HalfReader(strings.NewReader(text))); err != nil {
				t.Error(err)
			}
			_ = cw.Close()
		}()
		if n, err := cr.Read(nil); n != 0 || err != nil {
			t.Errorf("a read of nothing: %d, %v", n, err)
		}
		if err := iotest.TestReader(cr, []byte(text)); err != nil {
			t.Error(err)
		}
	})
}

func TestStreamThatWasCutIsNeverTakenForTheWhole(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(e *workertest.Engine, cw *worker.ChannelWriter)
		want string
	}{
		"aborted":            {func(_ *workertest.Engine, cw *worker.ChannelWriter) { cw.Abort() }, "1011"},
		"connections broke":  {func(e *workertest.Engine, _ *worker.ChannelWriter) { e.Cut() }, "engine closed"},
		"the owner has left": {func(e *workertest.Engine, _ *worker.ChannelWriter) { e.CutWorker("w") }, "1001"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := workertest.New(t)
				w := e.Worker(t, worker.Options{Name: "w", Logger: silent()}, nil)
				cw, cr := ends(t, w)
				fmt.Fprint(cw, "part")
				part := make([]byte, 4)
				if _, err := io.ReadFull(cr, part); err != nil || string(part) != "part" {
					t.Fatalf("got %q, %v", part, err)
				}
				c.end(e, cw)
				_, err := io.ReadAll(cr)
				if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("reader: %v", err)
				}
				if _, again := cr.Read(part); again != err {
					t.Errorf("reader, again: %v", again)
				}
				synctest.Wait()
				if _, err := cw.Write(part); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("writer: %v", err)
				}
				if err := cw.Close(); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("closed: %v", err)
				}
			})
		})
	}
}

func TestWriterLearnsThatItsReaderHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		if err := cr.Close(); err != nil {
			t.Error(err)
		}
		if _, err := cr.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("read after Close: %v", err)
		}
		synctest.Wait()
		err := cw.SendMessage("is there anybody?")
		if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "the reader went away") {
			t.Errorf("got %v", err)
		}
		if _, err := cw.ReadFrom(strings.NewReader("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

func TestReadThatWaitsEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		_, cr := ends(t, w)
		ended := make(chan error, 1)
		go func() {
			_, err := cr.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		_ = cr.Close()
		if err := <-ended; err != io.ErrClosedPipe {
			t.Errorf("got %v", err)
		}
	})
}

func TestWriterIsHeldBackAndAbortFreesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		cw, cr := ends(t, w)
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := cw.Write(make([]byte, 1000)); err != nil {
					ended <- err
					return
				}
			}
		}()
		synctest.Wait() // it waits: nobody reads
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		cw.Abort()
		if err := <-ended; !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "aborted") {
			t.Errorf("got %v", err)
		}
		if _, err := io.Copy(io.Discard, cr); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reader: %v", err)
		}
	})
}

func TestClosedWriterTakesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{MaxMessage: 1000}, nil)
		cw, cr := ends(t, w)
		if err := cw.SendMessage("\xff"); err == nil {
			t.Error("sent a text that is none")
		}
		if err := cw.SendMessage(strings.Repeat("x", 1001)); !errors.Is(err, worker.ErrTooLarge) {
			t.Errorf("a text over MaxMessage: %v", err)
		}
		want := errors.New("disk on fire")
		if _, err := cw.ReadFrom(iotest.ErrReader(want)); !errors.Is(err, want) {
			t.Errorf("the error of the source: %v", err)
		}
		for range 2 {
			if err := cw.Close(); err != nil {
				t.Error(err)
			}
		}
		cw.Abort()
		if _, err := cw.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("bytes: %v", err)
		}
		if err := cw.SendMessage("x"); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a text: %v", err)
		}
		if rest, err := io.ReadAll(cr); err != nil || len(rest) > 0 {
			t.Errorf("reader: %q, %v", rest, err)
		}
	})
}

func TestEndsThatCannotBeOpenedSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, nil)
		out, in, err := w.CreateChannel(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.OpenReader(t.Context(), out); err == nil || strings.Contains(err.Error(), out.AccessKey) {
			t.Errorf("the wrong direction: %v", err)
		}
		if _, err := w.OpenWriter(t.Context(), worker.ChannelRef{Direction: "write"}); err == nil {
			t.Error("no id: accepted")
		}
		wrong := in
		wrong.AccessKey = "guess"
		var refused *worker.RefusedError
		if _, err := w.OpenReader(t.Context(), wrong); !errors.As(err, &refused) || refused.Status != 404 ||
			strings.Contains(err.Error(), "guess") {
			t.Errorf("a wrong key: %v", err)
		}
		for _, first := range []bool{true, false} {
			r, err := w.OpenReader(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if first {
				continue
			}
			if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) ||
				!strings.Contains(err.Error(), "taken") {
				t.Errorf("an end that is taken: %v", err)
			}
		}
	})
}

func TestChannelsShowTheKeyOfTheWorker(t *testing.T) {
	e := workertest.New(t)
	e.Require("wk_key")
	url, err := e.URL()
	if err != nil {
		t.Fatal(err)
	}
	for address, token := range map[string]string{url: "wk_key",
		strings.Replace(url, "://", "://any:wk_key@", 1) + "/under/here": ""} {
		cw, cr := ends(t, start(t, address, worker.Options{Token: token}, nil))
		go func() {
			fmt.Fprint(cw, "hello")
			_ = cw.Close()
		}()
		if got, err := io.ReadAll(cr); err != nil || string(got) != "hello" {
			t.Errorf("%s: got %q, %v", address, got, err)
		}
	}
	w, err := worker.New(url, worker.Options{Token: "other", Logger: silent()})
	if err != nil {
		t.Fatal(err)
	}
	var refused *worker.RefusedError
	_, err = w.OpenReader(t.Context(), worker.ChannelRef{ChannelID: "c", AccessKey: "k", Direction: "read"})
	if !errors.As(err, &refused) || refused.Status != 401 {
		t.Errorf("a wrong key: %v", err)
	}
}

func TestReferencesAreSentAndKeepTheirKeyOutOfLogs(t *testing.T) {
	ref := worker.ChannelRef{ChannelID: "id", AccessKey: "s3cret", Direction: "read"}
	raw, err := json.Marshal(ref)
	if err != nil || string(raw) != `{"channel_id":"id","access_key":"s3cret","direction":"read"}` {
		t.Errorf("got %s, %v", raw, err)
	}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "ref", ref)
	if fmt.Fprintf(&out, "%v %+v %s", ref, ref, ref); strings.Contains(out.String(), "s3cret") {
		t.Errorf("the key is shown: %s", out.String())
	}
}

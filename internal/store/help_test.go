package store_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	testkit.Main(m)
}

// seed returns the seed of a random test and prints it: PLINTH_SEED repeats a run.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := rand.Uint64()
	if text := os.Getenv("PLINTH_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PLINTH_SEED=%d", s)
	return s
}

// must returns v, or ends the test.
func must[T any](v T, err error) func(t failer) T {
	return func(t failer) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// failer is what a test and a rapid.T have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func ok(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as fails the test if err is not of the type E, and returns it so.
func as[E error](t testing.TB, err error) E {
	t.Helper()
	e, is := errors.AsType[E](err)
	if !is {
		t.Fatalf("got the error %v, want a %T", err, e)
	}
	return e
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got the error %v, want %v", err, want)
	}
}

// record returns a record of its own content: its number, padded to about size bytes, and a checksum, so that
// a record that is read can be told from every other and from damage.
func record(n uint64, size int) []byte {
	b := fmt.Appendf(nil, "record %d ", n)
	for len(b) < size-9 {
		b = append(b, byte('a'+n%26))
	}
	return fmt.Appendf(b, " %08x", crc32.ChecksumIEEE(b))
}

// number returns which record b is; ok is false when it is none or damaged.
func number(b []byte) (n uint64, ok bool) {
	if len(b) < 9 {
		return 0, false
	}
	if _, err := fmt.Sscanf(string(b), "record %d ", &n); err != nil {
		return 0, false
	}
	return n, strings.HasSuffix(string(b), fmt.Sprintf(" %08x", crc32.ChecksumIEEE(b[:len(b)-9])))
}

// running is a log whose Run is going.
type running struct {
	*store.Log
	cancel context.CancelFunc
	done   chan error
}

func start(l *store.Log) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Log: l, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- l.Run(ctx) }() // ends with stop
	return r
}

func (r *running) stop() error {
	r.cancel()
	err := <-r.done
	r.done <- err
	return err
}

// open opens a log and starts it; it is stopped at the end of the test at the latest.
func open(t testing.TB, fs store.FS, dir string, opts store.LogOptions) *running {
	t.Helper()
	r := start(must(store.OpenLog(fs, dir, opts))(t))
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// fill appends the records with the numbers from to to, all in flight at once, and waits for them.
func fill(t testing.TB, l *store.Log, from, to uint64, size int) {
	t.Helper()
	done := make(chan error, to-from+1)
	for n := from; n <= to; n++ {
		ok(t, l.AppendAsync(record(n, size), func(position uint64, err error) {
			if err == nil && position != n {
				err = fmt.Errorf("record %d got position %d", n, position)
			}
			done <- err
		}))
	}
	for n := from; n <= to; n++ {
		ok(t, <-done)
	}
}

// each appends the records one after the other, each by itself on disk.
func each(t testing.TB, l *store.Log, from, to uint64, size int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if got := must(l.Append(t.Context(), record(n, size)))(t); got != n {
			t.Fatalf("record %d got position %d", n, got)
		}
	}
}

// readAll reads the log from a position to its end and checks that every record is the one of its position.
// It returns the last position.
func readAll(t testing.TB, l *store.Log, from uint64) uint64 {
	t.Helper()
	last, err := scan(l, from)
	ok(t, err)
	return last
}

func scan(l *store.Log, from uint64) (last uint64, err error) {
	r, err := l.Reader(from)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	last = from - 1
	for {
		position, b, err := r.Next()
		if err == io.EOF {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		if n, good := number(b); !good || n != position || position != last+1 {
			return last, fmt.Errorf("position %d after %d holds %.40q", position, last, b)
		}
		last = position
	}
}

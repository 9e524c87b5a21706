package store_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
)

// fixture is a data folder as the release that first wrote format 1 left it. It is never written anew: a
// folder of a user cannot be either. PLINTH_WRITE_FIXTURE=1 go test -run TestWriteFixture makes one where
// none is.
const fixture = "testdata/format-1"

func TestWriteFixture(t *testing.T) {
	if os.Getenv("PLINTH_WRITE_FIXTURE") == "" {
		t.Skip("PLINTH_WRITE_FIXTURE is not set")
	}
	if _, err := os.Stat(fixture); err == nil {
		t.Fatalf("%s is there: released folders do not change. Add the next one beside it", fixture)
	}
	d := must(store.Open(fixture, store.Options{Writer: "0.1.0"}))(t)
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	ok(t, room.WriteFile("limits", 3, []byte("every bound of the room\n")))
	r := start(must(room.Log("queue", store.LogOptions{SegmentBytes: 4 << 10}))(t))
	each(t, r.Log, 1, 10, 700)
	fill(t, r.Log, 11, 20, 120)
	ok(t, r.Snapshot(8, snapshotOf(8)))
	ok(t, r.Truncate(8))
	ok(t, r.stop())
	killed := start(must(room.Log("killed", store.LogOptions{}))(t))
	each(t, killed.Log, 1, 3, 90)
	ok(t, killed.stop())
	// An interrupted write, as a loss of power leaves one.
	name := segments(t, store.OS(), killed.Path())[0]
	b := content(t, store.OS(), name)
	put(t, store.OS(), name, append(b, "half a record and not more"...))
	ok(t, d.Close())
	ok(t, os.Remove(filepath.Join(fixture, "LOCK")))
}

func TestFolderOfFormat1Opens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	ok(t, os.CopyFS(path, os.DirFS(fixture)))
	d := openDir(t, path, store.Options{Writer: "99.0.0"})
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	version, b, err := room.ReadFile("limits")
	if err != nil || version != 3 || string(b) != "every bound of the room\n" {
		t.Fatal(version, string(b), err)
	}
	next := uint64(9)
	l := must(room.Log("queue", store.LogOptions{
		SegmentBytes: 4 << 10,
		Snapshot: func(position uint64, r io.Reader) error {
			b, err := io.ReadAll(r)
			if n, good := number(b); err != nil || !good || n != 8 || position != 8 {
				return fmt.Errorf("the snapshot at %d holds %.30q: %v", position, b, err)
			}
			return nil
		},
		Replay: func(position uint64, b []byte) error {
			if n, good := number(b); !good || n != position || n != next {
				return fmt.Errorf("position %d holds %.30q", position, b)
			}
			next++
			return nil
		},
	}))(t)
	if o := l.Opened(); next != 21 || o.First != 8 || o.Last != 20 || o.Torn != nil || o.Segments < 2 {
		t.Fatalf("%+v, replayed up to %d", o, next-1)
	}
	r := start(l)
	each(t, l, 21, 30, 700)
	ok(t, r.stop())
	killed := must(room.Log("killed", store.LogOptions{}))(t)
	if o := killed.Opened(); o.Last != 3 || o.Torn == nil || o.Torn.Bytes != 26 {
		t.Fatalf("%+v %+v", o, o.Torn)
	}
	readAll(t, killed, 1)
	ok(t, killed.Close())
}

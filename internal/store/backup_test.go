package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// folder is a data folder with a room, its small files and a running log.
func folder(t testing.TB, path string) (*store.Dir, *store.Room, *running) {
	t.Helper()
	d := openDir(t, path, store.Options{Writer: "1.2.3"})
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	ok(t, room.WriteFile("limits", 3, []byte("all of them")))
	ok(t, os.WriteFile(filepath.Join(room.Path(), "site.db"), []byte("a database"), 0o600))
	l := must(room.Log("queue", store.LogOptions{SegmentBytes: 4 << 10}))(t)
	r := start(l)
	t.Cleanup(func() { _ = r.stop() })
	each(t, l, 1, 40, 300)
	ok(t, l.Snapshot(20, snapshotOf(20)))
	ok(t, l.Truncate(21))
	return d, room, r
}

func TestBackupRestoresToTheSameContent(t *testing.T) {
	top := t.TempDir()
	d, room, r := folder(t, filepath.Join(top, "data"))
	target := filepath.Join(top, "backup")
	m, err := d.Backup(t.Context(), target, map[string]store.Source{"engine": room, "engine/queue": r.Log})
	ok(t, err)
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	if !slices.Contains(names, "VERSION") || !slices.Contains(names, "engine/limits") ||
		!slices.Contains(names, "engine/queue/LOG") || slices.Contains(names, "engine/site.db") {
		t.Fatalf("files: %v", names)
	}
	each(t, r.Log, 41, 50, 300) // not in the backup
	verified := must(store.Verify(t.Context(), store.OS(), target))(t)
	if !slices.Equal(verified.Files, m.Files) || verified.WrittenBy != "1.2.3" {
		t.Fatalf("%+v", verified)
	}
	restored := filepath.Join(top, "restored")
	ok(t, store.Restore(t.Context(), store.OS(), target, restored))
	again := openDir(t, restored, store.Options{})
	room = must(again.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	version, b, err := room.ReadFile("limits")
	if err != nil || version != 3 || string(b) != "all of them" {
		t.Fatal(version, string(b), err)
	}
	l := must(room.Log("queue", store.LogOptions{}))(t)
	if o := l.Opened(); o.First != 21 || o.Last != 40 || o.Snapshot != 20 || o.Torn != nil {
		t.Fatalf("%+v", o)
	}
	readAll(t, l, 21)
	run := start(l)
	each(t, l, 41, 42, 300)
	ok(t, run.stop())
}

func TestBackupHoldsTheFilesThatTruncationGivesUp(t *testing.T) {
	top := t.TempDir()
	_, _, r := folder(t, filepath.Join(top, "data"))
	inside := false
	ok(t, r.Backup(t.Context(), func(pieces []store.Piece) error {
		inside = true
		each(t, r.Log, 41, 60, 300)
		ok(t, r.Snapshot(58, snapshotOf(58)))
		ok(t, r.Truncate(59))
		for _, p := range pieces {
			f, err := p.Open()
			if err != nil {
				return err
			}
			b, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil || int64(len(b)) != p.Size {
				return fmt.Errorf("%s: %d of %d bytes: %w", p.Name, len(b), p.Size, err)
			}
		}
		return nil
	}))
	// Afterwards they go.
	if n := len(segments(t, store.OS(), r.Path())); !inside || n != 1 {
		t.Fatalf("%d segments are left", n)
	}
}

func TestBackupWhileWritersGoOnIsAlwaysWhole(t *testing.T) {
	top := t.TempDir()
	d, room, r := folder(t, filepath.Join(top, "data"))
	stop := make(chan struct{})
	wrote := make(chan error, 1)
	go func() { // ends with stop
		for n := uint64(41); ; n++ {
			select {
			case <-stop:
				wrote <- nil
				return
			default:
			}
			_, err := r.Append(context.Background(), record(n, int(n%700)))
			if err == nil && n%30 == 0 {
				err = errors.Join(r.Snapshot(n-5, snapshotOf(n-5)), r.Truncate(n-4))
			}
			if err != nil {
				wrote <- err
				return
			}
		}
	}()
	for i := range 10 {
		target := filepath.Join(top, fmt.Sprint("backup-", i))
		before := r.Last()
		must(d.Backup(t.Context(), target, map[string]store.Source{"engine": room, "engine/queue": r.Log}))(t)
		must(store.Verify(t.Context(), store.OS(), target))(t)
		o := must(store.CheckLog(store.OS(), filepath.Join(target, "engine", "queue")))(t)
		if o.Last < before {
			t.Fatalf("the backup ends at %d, durable before it was %d", o.Last, before)
		}
	}
	close(stop)
	ok(t, <-wrote)
}

func TestFlippedByteOfABackupIsNoticed(t *testing.T) {
	mem := storetest.NewMem()
	d := openDir(t, "/data", store.Options{FS: mem})
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	ok(t, room.WriteFile("limits", 3, []byte("all of them")))
	r := start(must(room.Log("queue", store.LogOptions{}))(t))
	each(t, r.Log, 1, 3, 100)
	m := must(d.Backup(t.Context(), "/backup", map[string]store.Source{"engine": room,
		"engine/queue": r.Log}))(t)
	ok(t, r.stop())
	names := []string{"MANIFEST"}
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	for _, name := range names {
		path := "/backup/" + name
		whole := content(t, mem, path)
		check := func(b []byte) {
			t.Helper()
			put(t, mem, path, b)
			_, err := store.Verify(t.Context(), mem, "/backup")
			as[*store.DamageError](t, err)
			as[*store.DamageError](t, store.Restore(t.Context(), mem, "/backup", "/restored"))
		}
		for i := range whole {
			bad := slices.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			check(bad)
		}
		check(whole[:len(whole)-1])
		check(append(slices.Clone(whole), 'x'))
		put(t, mem, path, whole)
		ok(t, mem.Remove(path))
		if _, err := store.Verify(t.Context(), mem, "/backup"); err == nil {
			t.Fatalf("%s is missing and nobody notices", name)
		}
		put(t, mem, path, whole)
	}
	must(store.Verify(t.Context(), mem, "/backup"))(t)
}

func TestBackupAndRestoreWriteIntoEmptyFoldersOnly(t *testing.T) {
	top := t.TempDir()
	d, room, r := folder(t, filepath.Join(top, "data"))
	sources := map[string]store.Source{"engine": room, "engine/queue": r.Log}
	for _, target := range []string{d.Path(), filepath.Join(d.Path(), "backup"), room.Path()} {
		if _, err := d.Backup(t.Context(), target, sources); err == nil {
			t.Errorf("a backup went to %s", target)
		}
	}
	target := filepath.Join(top, "backup")
	must(d.Backup(t.Context(), target, sources))(t)
	if _, err := d.Backup(t.Context(), target, sources); err == nil ||
		!strings.Contains(err.Error(), "not empty") {
		t.Error(err)
	}
	if err := store.Restore(t.Context(), store.OS(), target, d.Path()); err == nil {
		t.Error("a backup was restored over a data folder")
	}
	for _, name := range []string{"../out", "/abs", "a//b", `a\b`, ""} {
		if _, err := d.Backup(t.Context(), filepath.Join(top, "odd"),
			map[string]store.Source{name: room}); err == nil {
			t.Errorf("a source lies at %q", name)
		}
		ok(t, os.RemoveAll(filepath.Join(top, "odd")))
	}
}

func TestBackupEndsWithItsContext(t *testing.T) {
	top := t.TempDir()
	d, room, r := folder(t, filepath.Join(top, "data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	target := filepath.Join(top, "backup")
	_, err := d.Backup(ctx, target, map[string]store.Source{"engine": room, "engine/queue": r.Log})
	is(t, err, context.Canceled)
	_, err = store.Verify(t.Context(), store.OS(), target)
	is(t, err, os.ErrNotExist)
	is(t, r.Backup(ctx, nil), context.Canceled)
	is(t, room.Backup(ctx, nil), context.Canceled)
}

func TestBackupByHandOpens(t *testing.T) {
	top := t.TempDir()
	path := filepath.Join(top, "data")
	d, _, r := folder(t, path)
	ok(t, r.stop())
	ok(t, d.Close())
	ok(t, os.CopyFS(filepath.Join(top, "copy"), os.DirFS(path)))
	d = openDir(t, filepath.Join(top, "copy"), store.Options{})
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	l := must(room.Log("queue", store.LogOptions{}))(t)
	if readAll(t, l, 21) != 40 {
		t.Fatal("records are missing")
	}
	ok(t, l.Close())
}

package store_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

func openDir(t testing.TB, path string, opts store.Options) *store.Dir {
	t.Helper()
	d := must(store.Open(path, opts))(t)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d
}

func TestFolderIsCreatedForTheOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "folder")
	d := openDir(t, path, store.Options{})
	if !d.Opened().Created || d.Path() != path {
		t.Fatalf("%+v at %s", d.Opened(), d.Path())
	}
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	ok(t, room.WriteFile("file", 1, []byte("x")))
	if runtime.GOOS == "windows" {
		return
	}
	ok(t, filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		ok(t, err)
		i, err := e.Info()
		ok(t, err)
		if i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, i.Mode())
		}
		return nil
	}))
}

func TestRelativePathBecomesAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	d := openDir(t, "plinth-data", store.Options{})
	if !filepath.IsAbs(d.Path()) || filepath.Base(d.Path()) != "plinth-data" {
		t.Fatal(d.Path())
	}
}

func TestSecondOpenIsToldWhoHasIt(t *testing.T) {
	path := t.TempDir()
	d := must(store.Open(path, store.Options{}))(t)
	if d.Opened().Created {
		t.Fatal("the folder was there")
	}
	_, err := store.Open(path, store.Options{})
	e := as[*store.LockedError](t, err)
	if e.Dir != path || e.PID != os.Getpid() && runtime.GOOS != "windows" ||
		fault.KindOf(err) != fault.Conflict {
		t.Fatalf("%+v, kind %v", e, fault.KindOf(err))
	}
	for _, want := range []string{path, "in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	ok(t, d.Close())
	ok(t, d.Close())
	openDir(t, path, store.Options{})
}

func TestUnwritablePathIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	paths := []string{file, filepath.Join(file, "below")}
	if runtime.GOOS == "linux" {
		paths = append(paths, "/proc/plinth/data")
	}
	for _, path := range paths {
		_, err := store.Open(path, store.Options{})
		e := as[*store.UnwritableError](t, err)
		if e.Path != path || !strings.Contains(err.Error(), path) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%v", err)
		}
	}
	t.Chdir(filepath.Dir(file))
	_, err := store.Open("file", store.Options{})
	if e := as[*store.UnwritableError](t, err); !filepath.IsAbs(e.Path) {
		t.Errorf("%s is not absolute", e.Path)
	}
}

func TestReadOnlyFolderIsRefusedAndNotReplacedByMemory(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EROFS, syscall.EACCES, syscall.ENOSPC} {
		f := storetest.NewFault(storetest.NewMem(), storetest.Variant{Err: errno, Sticky: true,
			Only: storetest.Kind.Changes}, 1)
		_, err := store.Open("/data", store.Options{FS: f})
		as[*store.UnwritableError](t, err)
		is(t, err, errno)
	}
}

func TestFolderSaysHowLongItLives(t *testing.T) {
	if got := openDir(t, "/data", store.Options{FS: storetest.NewMem()}).Persistence(); got != "unknown" {
		t.Error(got)
	}
	if runtime.GOOS != "linux" {
		return
	}
	if got := openDir(t, mountTmpfs(t, "1m"), store.Options{}).Persistence(); !strings.HasPrefix(got,
		"memory") {
		t.Error(got)
	}
	got := openDir(t, t.TempDir(), store.Options{}).Persistence()
	if !slices.Contains([]string{"disk", "memory", "overlay", "network"}, strings.Fields(got)[0]) {
		t.Error(got)
	}
}

func TestOpenMakesSureOfTwoProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	if d := openDir(t, t.TempDir(), store.Options{}); !d.Opened().Processors || runtime.GOMAXPROCS(0) != 2 {
		t.Fatalf("%+v, GOMAXPROCS %d", d.Opened(), runtime.GOMAXPROCS(0))
	}
	runtime.GOMAXPROCS(3)
	if d := openDir(t, t.TempDir(), store.Options{}); d.Opened().Processors || runtime.GOMAXPROCS(0) != 3 {
		t.Fatalf("%+v, GOMAXPROCS %d", d.Opened(), runtime.GOMAXPROCS(0))
	}
}

func TestRoomsHaveFoldersOfTheirOwn(t *testing.T) {
	d := openDir(t, t.TempDir(), store.Options{})
	engine := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	site := must(d.Room(t.Context(), "site", store.Schema{Number: 1}))(t)
	if engine.Path() != filepath.Join(d.Path(), "engine") || engine.Name() != "engine" {
		t.Fatal(engine.Path())
	}
	ok(t, engine.WriteFile("same", 1, []byte("engine")))
	ok(t, site.WriteFile("same", 2, []byte("site")))
	version, b, err := engine.ReadFile("same")
	if err != nil || version != 1 || string(b) != "engine" {
		t.Fatal(version, string(b), err)
	}
	ok(t, engine.RemoveFile("same"))
	ok(t, engine.RemoveFile("same"))
	_, _, err = engine.ReadFile("same")
	is(t, err, fs.ErrNotExist)
	if again := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t); again != engine {
		t.Error("a room has two folders")
	}
	l := must(site.Log("intake", store.LogOptions{}))(t)
	if l.Path() != filepath.Join(d.Path(), "site", "intake") {
		t.Error(l.Path())
	}
	ok(t, l.Close())
}

func TestNamesCannotLeaveTheFolder(t *testing.T) {
	d := openDir(t, t.TempDir(), store.Options{})
	room := must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, "/x", "A", "VERSION", "x.tmp", "a\x00",
		".hidden",
		strings.Repeat("x", 65)} {
		_, err := d.Room(t.Context(), name, store.Schema{Number: 1})
		_, _, read := room.ReadFile(name)
		_, log := room.Log(name, store.LogOptions{})
		if err == nil || read == nil || log == nil || room.WriteFile(name, 1, nil) == nil ||
			room.RemoveFile(name) == nil {
			t.Errorf("the name %q is taken", name)
		}
	}
}

func TestFolderWithoutVersionIsAdoptedOnlyWhenEmpty(t *testing.T) {
	path := t.TempDir()
	ok(t, os.Mkdir(filepath.Join(path, "lost+found"), 0o700))
	ok(t, os.WriteFile(filepath.Join(path, ".keep"), nil, 0o600))
	ok(t, must(store.Open(path, store.Options{}))(t).Close())
	ok(t, os.Mkdir(filepath.Join(path, "engine"), 0o700))
	ok(t, os.Remove(filepath.Join(path, "VERSION")))
	_, err := store.Open(path, store.Options{})
	if e := as[*store.DamageError](t, err); !strings.Contains(err.Error(), "engine") {
		t.Fatal(e)
	}
}

func TestWriterVersionIsChecked(t *testing.T) {
	for _, writer := range []string{"with space", "line\n", strings.Repeat("9", 65), "é"} {
		if _, err := store.Open("/data", store.Options{FS: storetest.NewMem(), Writer: writer}); err == nil {
			t.Errorf("%q is taken", writer)
		}
	}
}

func TestSmallFileIsTakenUpToItsBound(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	ok(t, store.WriteFile(mem, "/data/empty", 0, nil))
	if v, b, err := store.ReadFile(mem, "/data/empty"); v != 0 || len(b) != 0 || err != nil {
		t.Fatal(v, b, err)
	}
	as[*store.SizeError](t, store.WriteFile(mem, "/data/big", 1, make([]byte, store.MaxFile+1)))
}

func TestFlippedByteOfASmallFileIsNoticed(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	ok(t, store.WriteFile(mem, "/data/file", 7, []byte("the content of a small file\n")))
	whole := content(t, mem, "/data/file")
	if line, _, _ := bytes.Cut(whole, []byte("\n")); !bytes.HasPrefix(line,
		[]byte("plinth-file 1 version 0000000007 bytes ")) {
		t.Fatalf("the first line is %q", line)
	}
	check := func(b []byte) {
		t.Helper()
		put(t, mem, "/data/file", b)
		_, _, err := store.ReadFile(mem, "/data/file")
		as[*store.DamageError](t, err)
	}
	for i := range whole {
		for bit := range 8 {
			bad := slices.Clone(whole)
			bad[i] ^= 1 << bit
			check(bad)
		}
		check(whole[:i])
	}
	check(append(slices.Clone(whole), 0))
}

func TestHalfWrittenFilesAreRemovedAtTheStart(t *testing.T) {
	path := t.TempDir()
	d := must(store.Open(path, store.Options{}))(t)
	must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	ok(t, d.Close())
	for _, name := range []string{"VERSION.tmp", "engine/limits.tmp"} {
		ok(t, os.WriteFile(filepath.Join(path, name), []byte("half"), 0o600))
	}
	d = openDir(t, path, store.Options{})
	must(d.Room(t.Context(), "engine", store.Schema{Number: 1}))(t)
	for _, name := range []string{"VERSION.tmp", "engine/limits.tmp"} {
		if _, err := os.Stat(filepath.Join(path, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClosedFolderGivesNoRooms(t *testing.T) {
	d := must(store.Open(t.TempDir(), store.Options{}))(t)
	ok(t, d.Close())
	_, err := d.Room(t.Context(), "engine", store.Schema{Number: 1})
	is(t, err, store.ErrClosed)
}

func step(from int, run func(ctx context.Context, r *store.Room) error) store.Step {
	return store.Step{From: from, Run: run}
}

func TestOlderRoomIsBroughtUpStepByStep(t *testing.T) {
	path := t.TempDir()
	var ran []int
	schema := func(n int, broken int) store.Schema {
		s := store.Schema{Number: n}
		for from := n - 1; from >= 1; from-- { // in any order
			s.Steps = append(s.Steps, step(from, func(context.Context, *store.Room) error {
				ran = append(ran, from)
				if from == broken {
					return errors.New("broken")
				}
				return nil
			}))
		}
		return s
	}
	use := func(writer string, s store.Schema) error {
		d := must(store.Open(path, store.Options{Writer: writer}))(t)
		_, err := d.Room(t.Context(), "engine", s)
		ok(t, d.Close())
		return err
	}
	ok(t, use("1.0.0", schema(2, 0)))
	if len(ran) != 0 {
		t.Fatalf("steps %v ran in a fresh room", ran)
	}
	if err := use("3.0.0", schema(5, 4)); err == nil || !strings.Contains(err.Error(), "from schema 4 to 5") {
		t.Fatal(err)
	}
	ok(t, use("3.0.1", schema(5, 0)))
	if want := []int{2, 3, 4, 4}; !slices.Equal(ran, want) {
		t.Fatalf("steps %v ran, want %v", ran, want)
	}
	if err := use("9.0.0", store.Schema{Number: 7}); err == nil || !strings.Contains(err.Error(), "no step") {
		t.Fatal(err)
	}
	if err := use("9.0.0", store.Schema{}); err == nil {
		t.Fatal("schema 0 is taken")
	}
	err := use("2.0.0", schema(4, 0))
	e := as[*store.SchemaError](t, err)
	if e.Room != "engine" || e.Schema != 5 || e.Known != 4 || e.WrittenBy != "3.0.1" ||
		fault.KindOf(err) != fault.Conflict {
		t.Fatalf("%+v", e)
	}
	if !strings.Contains(err.Error(), "written by version 3.0.1") {
		t.Error(err)
	}
}

func TestNewerFormatOfTheFolderIsRefused(t *testing.T) {
	path := t.TempDir()
	future := store.EncodeVersion(2, "7.0.0", map[string]int{"engine": 1})
	for _, b := range [][]byte{future, []byte(`{"format": 3, "written_by": "7.0.0", "all": ["is", "new"]}`)} {
		ok(t, os.WriteFile(filepath.Join(path, "VERSION"), b, 0o600))
		_, err := store.Open(path, store.Options{})
		if e := as[*store.SchemaError](t, err); e.Room != "" || e.Schema < 2 || e.Known != 1 ||
			e.WrittenBy != "7.0.0" {
			t.Fatalf("%+v", e)
		}
	}
	// The lock is free again after a refusal.
	ok(t, os.WriteFile(filepath.Join(path, "VERSION"), store.EncodeVersion(1, "1.0.0", nil), 0o600))
	openDir(t, path, store.Options{})
}

func TestFlippedByteOfVersionIsNoticed(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	whole := store.EncodeVersion(1, "1.0.0", map[string]int{"engine": 1, "site": 4})
	check := func(b []byte) {
		t.Helper()
		put(t, mem, "/data/VERSION", b)
		d, err := store.Open("/data", store.Options{FS: mem})
		if err == nil {
			ok(t, d.Close())
			t.Fatalf("accepted: %s", b)
		}
		if _, newer := errors.AsType[*store.SchemaError](err); !newer {
			as[*store.DamageError](t, err)
		}
	}
	for i := range whole {
		for bit := range 8 {
			bad := slices.Clone(whole)
			bad[i] ^= 1 << bit
			check(bad)
		}
		check(whole[:i])
	}
	check(store.EncodeVersion(1, "1.0.0", map[string]int{"../x": 1}))
	check(store.EncodeVersion(0, "1.0.0", nil))
}

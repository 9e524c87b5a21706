package storetest_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
	"github.com/plinth-run/plinth/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fs store.FS, name string) store.File {
	t.Helper()
	f, err := fs.Open(name, os.O_CREATE|os.O_RDWR)
	ok(t, err)
	return f
}

func write(t *testing.T, f store.File, off int64, b []byte) {
	t.Helper()
	n, err := f.WriteAt(b, off)
	ok(t, err)
	if n != len(b) {
		t.Fatalf("wrote %d of %d", n, len(b))
	}
}

func read(t *testing.T, fs store.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name, os.O_RDONLY)
	ok(t, err)
	size, err := f.Size()
	ok(t, err)
	b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	ok(t, err)
	ok(t, f.Close())
	return b
}

func crash(m *storetest.Mem, survive float64, n uint64) *storetest.Mem {
	return m.Crash(rand.New(rand.NewPCG(n, n)), survive)
}

// TestBothFileSystemsAgree does the same to the real file system and to the one in memory.
func TestBothFileSystemsAgree(t *testing.T) {
	type result struct {
		entries []store.Entry
		content []byte
		errs    []error
	}
	run := func(f store.FS, dir string) (r result) {
		note := func(err error) { r.errs = append(r.errs, err) }
		note(f.Mkdir(filepath.Join(dir, "a", "b")))
		note(f.Mkdir(filepath.Join(dir, "a")))
		h, err := f.Open(filepath.Join(dir, "a", "x"), os.O_CREATE|os.O_EXCL|os.O_RDWR)
		note(err)
		_, err = h.WriteAt([]byte("hello"), 700)
		note(err)
		note(h.Truncate(703))
		note(h.Truncate(900))
		_, err = h.WriteAt([]byte("end"), 898)
		note(err)
		note(h.Sync())
		b := make([]byte, 10)
		_, err = h.ReadAt(b, 895)
		note(err)
		_, err = h.ReadAt(b, 2000)
		note(err)
		note(h.Close())
		_, err = f.Open(filepath.Join(dir, "a", "x"), os.O_CREATE|os.O_EXCL|os.O_RDWR)
		note(err)
		_, err = f.Open(filepath.Join(dir, "a", "none"), os.O_RDONLY)
		note(err)
		_, err = f.Open(filepath.Join(dir, "none", "x"), os.O_CREATE|os.O_RDWR)
		note(err)
		_, err = f.List(filepath.Join(dir, "none"))
		note(err)
		note(f.Rename(filepath.Join(dir, "a", "x"), filepath.Join(dir, "a", "y")))
		note(f.Rename(filepath.Join(dir, "a", "x"), filepath.Join(dir, "a", "z")))
		note(f.Remove(filepath.Join(dir, "a", "x")))
		note(f.Remove(filepath.Join(dir, "a")))
		note(f.Mkdir(filepath.Join(dir, "a", "y")))
		note(f.SyncDir(filepath.Join(dir, "a")))
		note(f.SyncDir(filepath.Join(dir, "none")))
		r.content = read(t, f, filepath.Join(dir, "a", "y"))
		r.entries, err = f.List(filepath.Join(dir, "a"))
		note(err)
		return r
	}
	real, mem := run(store.OS(), t.TempDir()), run(storetest.NewMem(), "/")
	if !bytes.Equal(real.content, mem.content) || len(real.content) != 901 {
		t.Errorf("the content is %q and %q", real.content, mem.content)
	}
	if len(real.entries) != 2 || len(mem.entries) != 2 || real.entries[0] != mem.entries[0] ||
		real.entries[1] != mem.entries[1] {
		t.Errorf("the entries are %v and %v", real.entries, mem.entries)
	}
	for i := range real.errs {
		a, b := real.errs[i], mem.errs[i]
		if (a == nil) != (b == nil) || errors.Is(a, fs.ErrNotExist) != errors.Is(b, fs.ErrNotExist) ||
			errors.Is(a, io.EOF) != errors.Is(b, io.EOF) {
			t.Errorf("error %d is %v and %v", i, a, b)
		}
	}
}

func TestSyncedSurvivesAndTheRestMayNot(t *testing.T) {
	m := storetest.NewMem()
	f := create(t, m, "/file")
	write(t, f, 0, bytes.Repeat([]byte("a"), 2000))
	ok(t, f.Sync())
	ok(t, m.SyncDir("/"))
	write(t, f, 600, bytes.Repeat([]byte("b"), 1000))
	write(t, f, 2000, bytes.Repeat([]byte("c"), 5000))
	if b := read(t, crash(m, 0, 1), "/file"); !bytes.Equal(b, bytes.Repeat([]byte("a"), 2000)) {
		t.Fatal("nothing of the unsynced was to survive")
	}
	if b := read(t, crash(m, 1, 1), "/file"); len(b) != 7000 || b[6999] != 'c' {
		t.Fatal("the length was to survive")
	}
	old, torn := 0, 0
	for n := range uint64(200) {
		b := read(t, crash(m, 0.5, n), "/file")
		if len(b) != 2000 && len(b) != 7000 {
			t.Fatalf("%d bytes were never there", len(b))
		}
		if !bytes.Equal(b[:512], bytes.Repeat([]byte("a"), 512)) {
			t.Fatal("a sector that was synced is lost")
		}
		second, third := b[600], b[1024]
		if second == 'a' && third == 'a' {
			old++
		}
		if second != third {
			torn++
		}
		for at := 1024; at < 1536; at++ {
			if b[at] != third {
				t.Fatal("a sector is torn inside")
			}
		}
	}
	if old < 20 || torn < 20 {
		t.Fatalf("%d whole losses and %d tears in 200", old, torn)
	}
	if b := read(t, m, "/file"); len(b) != 7000 {
		t.Fatal("the crash changed the file system that it is of")
	}
}

func TestCutOffBytesMayComeBack(t *testing.T) {
	m := storetest.NewMem()
	f := create(t, m, "/file")
	write(t, f, 0, bytes.Repeat([]byte("a"), 3000))
	ok(t, f.Sync())
	ok(t, m.SyncDir("/"))
	ok(t, f.Truncate(100))
	if b := read(t, crash(m, 0, 1), "/file"); !bytes.Equal(b, bytes.Repeat([]byte("a"), 3000)) {
		t.Fatal("a truncation without a sync was to be lost")
	}
	ok(t, f.Sync())
	if b := read(t, crash(m, 0, 1), "/file"); len(b) != 100 {
		t.Fatal("a truncation with a sync was to stay")
	}
}

func TestEntriesNeedASyncOfTheirFolder(t *testing.T) {
	m := storetest.NewMem()
	ok(t, m.Mkdir("/d"))
	ok(t, m.SyncDir("/"))
	for _, name := range []string{"/d/old", "/d/gone"} {
		ok(t, create(t, m, name).Sync())
	}
	ok(t, m.SyncDir("/d"))
	f := create(t, m, "/d/new")
	write(t, f, 0, []byte("new"))
	ok(t, f.Sync())
	ok(t, m.Rename("/d/new", "/d/old"))
	ok(t, m.Remove("/d/gone"))
	both := [2]bool{}
	for n := range uint64(100) {
		after := crash(m, 0.5, n)
		both[len(read(t, after, "/d/old"))/3] = true // one or the other, and always one
	}
	if !both[0] || !both[1] {
		t.Fatal("the rename always survives, or never")
	}
	list, err := crash(m, 0, 1).List("/d")
	if err != nil || len(list) != 2 || list[0].Name != "gone" {
		t.Fatal(list, err)
	}
	ok(t, m.SyncDir("/d"))
	list, err = crash(m, 0, 1).List("/d")
	if err != nil || len(list) != 1 || list[0].Name != "old" {
		t.Fatal(list, err)
	}
}

func TestFailedSyncDropsWhatItShouldHaveWritten(t *testing.T) {
	m := storetest.NewMem()
	f := storetest.NewFault(m, storetest.Variant{Err: syscall.EIO,
		Only: func(k storetest.Kind) bool { return k == storetest.Sync }}, 1)
	h := create(t, f, "/file")
	ok(t, m.SyncDir("/"))
	write(t, h, 0, bytes.Repeat([]byte("a"), 512))
	if err := h.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	ok(t, h.Sync()) // and says that all is well
	if b := read(t, crash(m, 0, 1), "/file"); bytes.Contains(b, []byte("a")) {
		t.Fatal("the second sync wrote what the first had dropped")
	}
	write(t, h, 0, bytes.Repeat([]byte("a"), 512))
	ok(t, h.Sync())
	if b := read(t, crash(m, 0, 1), "/file"); !bytes.Equal(b, bytes.Repeat([]byte("a"), 512)) {
		t.Fatal("what is written again is written")
	}
}

func TestCloneKeepsWhatIsSeenAndWhatIsNotSynced(t *testing.T) {
	m := storetest.NewMem()
	f := create(t, m, "/file")
	write(t, f, 0, []byte("seen"))
	c := m.Clone()
	write(t, f, 0, []byte("SEEN"))
	if b := read(t, c, "/file"); string(b) != "seen" {
		t.Fatalf("%q", b)
	}
	if _, err := crash(c, 0, 1).Open("/file", os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the entry was never synced")
	}
}

func TestFaultFailsTheNthOperation(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			m := storetest.NewMem()
			f := storetest.NewFault(m, v, 2)
			first := create(t, f, "/file") // operation 1
			_, err := first.WriteAt([]byte("four"), 0)
			if !errors.Is(err, v.Err) {
				t.Fatalf("operation 2: %v", err)
			}
			want := 0
			if v.Stored {
				want = 4
			} else if v.Half {
				want = 2
			}
			if b := read(t, m, "/file"); len(b) != want {
				t.Fatalf("%d bytes are stored, want %d", len(b), want)
			}
			if op, fired := f.Fired(); !fired || op.Kind != storetest.Write || op.Name != "/file" {
				t.Fatal(op, fired)
			}
			_, err = first.WriteAt([]byte("four"), 0)
			if (err != nil) != v.Sticky {
				t.Fatalf("operation 3: %v", err)
			}
			f.Heal()
			write(t, first, 0, []byte("four"))
		})
	}
}

func TestLoopReachesEveryOperation(t *testing.T) {
	seen := map[storetest.Kind]bool{}
	completed := 0
	v := storetest.Variants()[:1]
	runs := storetest.Loop(t, v, func(t *testing.T, m *storetest.Mem, f *storetest.Fault) {
		err := store.WriteFile(f, "/file", 1, []byte("content"))
		if op, fired := f.Fired(); fired {
			seen[op.Kind] = true
		} else if err != nil {
			t.Fatal(err)
		} else {
			completed++
		}
	})
	for _, k := range []storetest.Kind{storetest.Create, storetest.Write, storetest.Sync, storetest.Rename,
		storetest.SyncDir} {
		if !seen[k] {
			t.Errorf("%v has never failed", k)
		}
	}
	if completed != 1 || runs < 6 {
		t.Errorf("%d runs, %d without a fault", runs, completed)
	}
}

func TestSameSeedSameCrash(t *testing.T) {
	m := storetest.NewMem()
	for _, name := range []string{"/a", "/b", "/c"} {
		f := create(t, m, name)
		write(t, f, 0, bytes.Repeat([]byte(name), 3000))
	}
	one, two := crash(m, 0.5, 7), crash(m, 0.5, 7)
	list, err := one.List("/")
	ok(t, err)
	other, err := two.List("/")
	ok(t, err)
	if len(list) != len(other) {
		t.Fatal(list, other)
	}
	for _, e := range list {
		if !bytes.Equal(read(t, one, "/"+e.Name), read(t, two, "/"+e.Name)) {
			t.Fatal(e.Name)
		}
	}
}

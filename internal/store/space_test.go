package store_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// mountTmpfs mounts a file system of the size for the test, or skips it where that is not possible.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("needs root on Linux")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs",
		dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

func TestFullDiskFailsTheAppendAndNothingElse(t *testing.T) {
	disk := mountTmpfs(t, "64k")
	dir := filepath.Join(disk, "log")
	l := open(t, store.OS(), dir, store.LogOptions{SegmentBytes: 16 << 10})
	var last uint64
	for n := uint64(1); ; n++ {
		position, err := l.Append(t.Context(), record(n, 3000))
		if err != nil {
			if e := as[*store.SpaceError](t, err); e.Path == "" || fault.CodeOf(err) != "STORE_FULL" {
				t.Fatalf("%+v", e)
			}
			is(t, err, syscall.ENOSPC)
			break
		}
		last = position
	}
	if last < 5 || last > 21 {
		t.Fatalf("full after %d records", last)
	}
	// It stays full, and whole, however often one tries.
	for range 5 {
		if _, err := l.Append(t.Context(), record(last+1, 9000)); err == nil {
			t.Fatal("there was space after all")
		}
	}
	readAll(t, l.Log, 1)
	if l.Stats().Full != 6 {
		t.Errorf("%d counted", l.Stats().Full)
	}
	// Space comes back: truncation needs a page for LOG, which the owner's ballast gives up here.
	ok(t, os.Remove(segments(t, store.OS(), dir)[0]))
	each(t, l.Log, last+1, last+2, 1000)
	readAll(t, l.Log, 8)
	ok(t, l.Truncate(8))
	each(t, l.Log, last+3, last+4, 3000)
	ok(t, l.stop())
	l = open(t, store.OS(), dir, store.LogOptions{})
	if o := l.Opened(); o.Last != last+4 || o.Torn != nil {
		t.Fatalf("%+v", o)
	}
	readAll(t, l.Log, 8)
}

func TestFullDiskWhileOthersWaitAnswersEach(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	f := storetest.NewFault(mem, storetest.Variant{Err: syscall.ENOSPC, Half: true, Sticky: true,
		Only: storetest.Kind.Grows}, 0)
	l := must(store.OpenLog(f, "/data/log", store.LogOptions{}))(t)
	r := start(l)
	each(t, l, 1, 3, 100)
	f.Arm(1)
	results := make(chan error, 50)
	for range 50 {
		ok(t, l.AppendAsync(record(9, 200), func(_ uint64, err error) { results <- err }))
	}
	for range 50 {
		as[*store.SpaceError](t, <-results)
	}
	f.Heal()
	each(t, l, 4, 6, 100)
	ok(t, r.stop())
	if last, err := keeps(mem, promise{acked: 6, sent: 6, floor: 1}); err != nil || last != 6 {
		t.Fatal(last, err)
	}
}

func TestFailedSyncIsTheEndOfTheLog(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	f := storetest.NewFault(mem, storetest.Variant{Err: syscall.EIO, Only: syncs}, 0)
	l := must(store.OpenLog(f, "/data/log", store.LogOptions{}))(t)
	r := start(l)
	each(t, l, 1, 3, 100)
	before := f.Count()
	f.Arm(1) // fails once: a second sync would succeed, and lie
	_, err := l.Append(t.Context(), record(4, 100))
	if e := as[*store.FailedError](t, err); e.Op != "sync" || fault.CodeOf(err) != "STORE_FAILED" ||
		!errors.Is(err, syscall.EIO) {
		t.Fatalf("%+v", e)
	}
	<-l.Failed()
	as[*store.FailedError](t, <-r.done)
	r.done <- nil
	if f.Count() != 1 || before == 0 {
		t.Fatalf("%d syncs after the failed one", f.Count()-1)
	}
	for _, err := range []error{
		l.AppendAsync([]byte("x"), nil), l.Truncate(2), l.Snapshot(2, snapshotOf(2)), l.Wait(t.Context(), 4),
		func() error { _, err := l.Append(t.Context(), nil); return err }(),
	} {
		as[*store.FailedError](t, err)
	}
	readAll(t, l, 1) // what is durable can still be read
}

func TestFailedSyncOfASnapshotIsTheEndOfTheLog(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	f := storetest.NewFault(mem, storetest.Variant{Err: syscall.EIO, Only: syncs}, 0)
	l := must(store.OpenLog(f, "/data/log", store.LogOptions{}))(t)
	r := start(l)
	each(t, l, 1, 3, 100)
	f.Arm(1)
	as[*store.FailedError](t, l.Snapshot(2, snapshotOf(2)))
	as[*store.FailedError](t, <-r.done) // without anybody stopping it
	r.done <- nil
}

func TestFolderOnAReadOnlyMountIsRefused(t *testing.T) {
	disk := mountTmpfs(t, "1m")
	path := filepath.Join(disk, "data")
	ok(t, must(store.Open(path, store.Options{}))(t).Close())
	if out, err := exec.Command("mount", "-o", "remount,ro", disk).CombinedOutput(); err != nil {
		t.Skipf("remount: %v: %s", err, out)
	}
	_, err := store.Open(path, store.Options{})
	if e := as[*store.UnwritableError](t, err); e.Path != path || !errors.Is(err, syscall.EROFS) {
		t.Fatalf("%+v", e)
	}
}

// TestFolderWithAWritableLockAloneIsRefused lets every file but the lock fail to be made.
func TestFolderWithAWritableLockAloneIsRefused(t *testing.T) {
	mem := storetest.NewMem()
	ok(t, must(store.Open("/data", store.Options{FS: mem}))(t).Close())
	create := func(k storetest.Kind) bool { return k == storetest.Create }
	f := storetest.NewFault(mem, storetest.Variant{Err: syscall.EACCES, Sticky: true, Only: create}, 1)
	_, err := store.Open("/data", store.Options{FS: f})
	as[*store.UnwritableError](t, err)
}

// TestNothingIsWrittenAfterAFailure lets a record wait while the sync of a snapshot fails: the log is dead,
// so the record is answered with that and stays away from the disk.
func TestNothingIsWrittenAfterAFailure(t *testing.T) {
	mem := storetest.NewMem()
	base(t, mem)
	r := start(must(store.OpenLog(mem, "/data/log", store.LogOptions{}))(t))
	each(t, r.Log, 1, 3, 100)
	ok(t, r.stop())
	f := storetest.NewFault(mem, storetest.Variant{Err: syscall.EIO, Only: syncs}, 0)
	l := must(store.OpenLog(f, "/data/log", store.LogOptions{}))(t)
	var answer error
	ok(t, l.AppendAsync(record(4, 100), func(_ uint64, err error) { answer = err }))
	f.Arm(1)
	as[*store.FailedError](t, l.Snapshot(3, snapshotOf(3)))
	as[*store.FailedError](t, l.Run(t.Context()))
	if as[*store.FailedError](t, answer); f.Count() != 1 {
		t.Fatalf("%d syncs after the failed one", f.Count()-1)
	}
	if last, err := keeps(mem, promise{acked: 3, sent: 3, floor: 1}); err != nil || last != 3 {
		t.Fatal(last, err)
	}
}

func syncs(k storetest.Kind) bool { return k == storetest.Sync }

// TestNewSegmentThatCannotBeMade lets the making of the second segment fail: for want of space or descriptors
// the first one goes on; any other failure is the end.
func TestNewSegmentThatCannotBeMade(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EMFILE, syscall.EIO} {
		mem := storetest.NewMem()
		base(t, mem)
		create := func(k storetest.Kind) bool { return k == storetest.Create }
		f := storetest.NewFault(mem, storetest.Variant{Err: errno, Sticky: true, Only: create}, 0)
		l := must(store.OpenLog(f, "/data/log", store.LogOptions{SegmentBytes: 4 << 10}))(t)
		r := start(l)
		each(t, l, 1, 5, 700)
		f.Arm(1)
		if errno == syscall.EIO {
			_, err := l.Append(t.Context(), record(6, 700))
			as[*store.FailedError](t, err)
			as[*store.FailedError](t, r.stop())
			continue
		}
		each(t, l, 6, 9, 700)
		if n := len(segments(t, mem, "/data/log")); n != 1 {
			t.Fatalf("%d segments", n)
		}
		f.Heal()
		each(t, l, 10, 12, 700)
		if n := len(segments(t, mem, "/data/log")); n != 2 {
			t.Fatalf("%d segments with space again", n)
		}
		ok(t, r.stop())
		if last, err := keeps(mem, promise{acked: 12, sent: 12, floor: 1}); err != nil || last != 12 {
			t.Fatal(last, err)
		}
	}
}

package httpfn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
	"github.com/plinth-run/plinth/internal/testkit"
	"github.com/plinth-run/plinth/wire"
)

func entry(id string) Entry {
	return Entry{Namespace: "default", FunctionID: id, Spec: spec("https://example.org/" + id), Description: "about " + id,
		Request: []byte(`{"type":"object"}`), Response: []byte(`true`), Metadata: []byte(`{"team":"<pay>"}`)}
}

// openOn opens a catalog on a file system of a test.
func openOn(fs store.FS, o CatalogOptions) (*Catalog, error) {
	return openCatalog(o, func(lo store.LogOptions) (*store.Log, error) {
		return store.OpenLog(fs, "/data", lo)
	})
}

func reopen(t *testing.T, fs store.FS, o CatalogOptions) *Catalog {
	t.Helper()
	c, err := openOn(fs, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// running runs c and returns what ends it.
func running(t *testing.T, c *Catalog) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }() // ends with stop
	once := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = once() })
	return once
}

func put(t *testing.T, c *Catalog, e Entry) (replaced bool) {
	t.Helper()
	replaced, err := c.Put(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return replaced
}

func ids(c *Catalog) (list []string) {
	c.Each(func(e *Entry) bool {
		list = append(list, e.Namespace+"/"+e.FunctionID)
		return true
	})
	return list
}

func same(a, b *Entry) bool {
	return a.Namespace == b.Namespace && a.FunctionID == b.FunctionID && a.Description == b.Description &&
		bytes.Equal(a.Request, b.Request) && bytes.Equal(a.Response, b.Response) &&
		bytes.Equal(a.Metadata, b.Metadata) && bytes.Equal(a.Spec.Append(nil), b.Spec.Append(nil))
}

func TestRegistrationsSurviveARestart(t *testing.T) {
	for _, age := range []int{1, 3, 1000} {
		o := CatalogOptions{SnapshotAge: age}
		mem := storetest.NewMem()
		c := reopen(t, mem, o)
		stop := running(t, c)
		whole := entry("a::whole")
		whole.Spec = &Spec{URL: "https://e.org/?a=1&b=<2>", Method: "GET", Timeout: 7e9, Headers: map[string]string{"X-A": "1"},
			Auth: &Auth{Type: "api_key", Header: "K", ValueKey: "V"}}
		if put(t, c, whole) || put(t, c, entry("b::gone")) || put(t, c, Entry{FunctionID: "c", Spec: spec("http://e.org")}) {
			t.Error("something was replaced")
		}
		if removed, err := c.Remove(t.Context(), "default", "b::gone"); err != nil || !removed {
			t.Errorf("got %v, %v", removed, err)
		}
		if removed, err := c.Remove(t.Context(), "default", "b::gone"); err != nil || removed {
			t.Errorf("removed twice: %v, %v", removed, err)
		}
		first := entry("d::again")
		first.Description = "first"
		if put(t, c, first); !put(t, c, entry("d::again")) {
			t.Error("nothing was replaced")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		again := reopen(t, mem.Clone(), o)
		want := []string{"/c", "default/a::whole", "default/d::again"}
		if got := ids(again); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(ids(c), want) {
			t.Errorf("snapshots each %d: got %v and %v", age, got, ids(c))
		}
		if e, ok := again.Get("default", "a::whole"); !ok || !same(e, &whole) {
			t.Errorf("got %+v", e)
		}
		if e, _ := again.Get("default", "d::again"); e.Description != "about d::again" {
			t.Errorf("got %+v", e)
		}
		if e, _ := again.Get("", "c"); e.Request != nil || e.Response != nil || e.Metadata != nil {
			t.Errorf("got %+v", e)
		}
		if again.bytes != c.bytes {
			t.Errorf("%d bytes are counted, and %d after the restart", c.bytes, again.bytes)
		}
		if _, ok := again.Get("default", "b::gone"); ok {
			t.Error("what was removed is back")
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSnapshotsKeepTheLogShort(t *testing.T) {
	mem := storetest.NewMem()
	c := reopen(t, mem, CatalogOptions{SnapshotAge: 4})
	stop := running(t, c)
	for i := range 100 {
		put(t, c, entry(fmt.Sprintf("a::%d", i%7)))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, mem, CatalogOptions{})
	defer again.Close()
	if o := again.disk.Opened(); o.Snapshot == 0 || o.First <= 1 {
		t.Errorf("the log begins at %d, its snapshot is %d", o.First, o.Snapshot)
	}
	if len(again.List()) != 7 {
		t.Errorf("got %v", ids(again))
	}
}

// TestAChangeIsSeenWhenItIsOnDisk stops the disk in the middle of a sync.
func TestAChangeIsSeenWhenItIsOnDisk(t *testing.T) {
	mem := storetest.NewMem()
	c := reopen(t, mem, CatalogOptions{})
	running(t, c)
	put(t, c, entry("a::first"))
	syncing, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	mem.Before(func(op storetest.Op) {
		if op.Kind == storetest.Sync {
			once.Do(func() { close(syncing); <-goOn })
		}
	})
	done := make(chan error, 1)
	go func() { // ends when the sync does
		_, err := c.Put(context.Background(), entry("a::second"))
		done <- err
	}()
	<-syncing
	if got := ids(c); len(got) != 1 {
		t.Errorf("before it is on disk: %v", got)
	}
	select {
	case err := <-done:
		t.Errorf("answered before it is on disk: %v", err)
	default:
	}
	close(goOn)
	if err := <-done; err != nil || len(ids(c)) != 2 {
		t.Errorf("got %v, %v", ids(c), err)
	}
}

// TestAckedRegistrationsSurviveEveryFault fails each operation on disk in turn, in all ways, and then cuts
// the power.
func TestAckedRegistrationsSurviveEveryFault(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	storetest.Loop(t, storetest.Variants(), func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		c, err := openOn(f, CatalogOptions{SnapshotAge: 2})
		acked, maybe := map[string]bool{}, map[string]bool{}
		if err == nil {
			stop := running(t, c)
			for i := range 5 {
				id := fmt.Sprintf("a::%d", i%4)
				before := len(c.List())
				if _, err := c.Put(context.Background(), entry(id)); err == nil {
					acked[id] = true
				} else if maybe[id] = true; len(c.List()) != before {
					t.Errorf("memory changed though the disk failed: %v", err)
				}
			}
			_ = stop()
		}
		f.Heal()
		for name, fs := range map[string]store.FS{"kill": mem.Clone(), "power cut": mem.Crash(r, 0.5)} {
			again, err := openOn(fs, CatalogOptions{})
			if err != nil {
				t.Fatalf("after a %s: %v", name, err)
			}
			for id := range acked {
				if _, ok := again.Get("default", id); !ok {
					t.Errorf("after a %s: %s was answered and is gone", name, id)
				}
			}
			for _, e := range again.List() {
				if !acked[e.FunctionID] && !maybe[e.FunctionID] {
					t.Errorf("after a %s: %s came from nowhere", name, e.FunctionID)
				}
			}
			_ = again.Close()
		}
	})
}

func TestAFailedDiskEndsRun(t *testing.T) {
	f := storetest.NewFault(storetest.NewMem(), storetest.Variant{Err: io.ErrClosedPipe, Sticky: true,
		Only: func(k storetest.Kind) bool { return k == storetest.Sync }}, 0)
	c := reopen(t, f, CatalogOptions{})
	stop := running(t, c)
	put(t, c, entry("a::b"))
	f.Arm(1)
	if _, err := c.Put(t.Context(), entry("a::c")); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	<-c.Failed()
	var failed *store.FailedError
	if err := stop(); !errors.As(err, &failed) {
		t.Errorf("Run returned %v", err)
	}
	if len(c.List()) != 1 {
		t.Errorf("got %v", ids(c))
	}
	if _, err := c.Put(t.Context(), entry("a::d")); err == nil {
		t.Error("a change was taken after the failure")
	}
}

func TestAChangeWhoseCallerLeftIsMadeAllTheSame(t *testing.T) {
	c := reopen(t, storetest.NewMem(), CatalogOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Put(ctx, entry("a::b")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// Select may have taken either way above; a second caller waits for its turn, or is the first.
	if _, err := c.Put(ctx, entry("a::b")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	running(t, c)
	put(t, c, entry("a::c"))
	got := ids(c)
	if got[len(got)-1] != "default/a::c" || len(c.turn) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestCatalogIsBounded(t *testing.T) {
	c := reopen(t, storetest.NewMem(), CatalogOptions{MaxEntries: 2, MaxBytes: 2000})
	running(t, c)
	put(t, c, entry("a::1"))
	put(t, c, entry("a::2"))
	_, err := c.Put(t.Context(), entry("a::3"))
	if fault.KindOf(err) != fault.Limit || fault.CodeOf(err) != wire.CodeLimit {
		t.Errorf("got %v", err)
	}
	if !put(t, c, entry("a::2")) {
		t.Error("a full catalog replaces nothing")
	}
	big := entry("a::2")
	big.Metadata = []byte(`"` + strings.Repeat("x", 2000) + `"`)
	if _, err := c.Put(t.Context(), big); fault.KindOf(err) != fault.Limit {
		t.Errorf("got %v", err)
	}
	if _, err := c.Remove(t.Context(), "default", "a::1"); err != nil {
		t.Error(err)
	}
	put(t, c, entry("a::3"))
	if got := ids(c); !reflect.DeepEqual(got, []string{"default/a::2", "default/a::3"}) {
		t.Errorf("got %v", got)
	}
}

func TestBadEntriesAreRefused(t *testing.T) {
	c := reopen(t, storetest.NewMem(), CatalogOptions{})
	running(t, c)
	long := func(n int) []byte { return []byte(`"` + strings.Repeat("<", n) + `"`) }
	for name, change := range map[string]func(*Entry){
		"no id":              func(e *Entry) { e.FunctionID = "" },
		"id too long":        func(e *Entry) { e.FunctionID = strings.Repeat("a", maxID+1) },
		"id broken":          func(e *Entry) { e.FunctionID = "a\xff" },
		"namespace too long": func(e *Entry) { e.Namespace = strings.Repeat("a", maxNamespace+1) },
		"namespace broken":   func(e *Entry) { e.Namespace = "a\xff" },
		"no spec":            func(e *Entry) { e.Spec = nil },
		"empty spec":         func(e *Entry) { e.Spec = &Spec{} },
		"bad header":         func(e *Entry) { e.Spec = spec("https://e.org"); e.Spec.Headers = map[string]string{"a": "\n"} },
		"schema no JSON":     func(e *Entry) { e.Request = []byte(`{`) },
		"response empty":     func(e *Entry) { e.Response = []byte{} },
		"metadata broken":    func(e *Entry) { e.Metadata = []byte("\"\xff\"") },
		"metadata deep":      func(e *Entry) { e.Metadata = []byte(strings.Repeat("[", 600) + strings.Repeat("]", 600)) },
		"schema too long":    func(e *Entry) { e.Request = long(maxSchema) },
		"response too long":  func(e *Entry) { e.Response = long(maxSchema) },
		"metadata too long":  func(e *Entry) { e.Metadata = long(maxMetadata) },
		"too much about it":  func(e *Entry) { e.Description = strings.Repeat("a", maxDescription+1) },
	} {
		e := entry("a::b")
		change(&e)
		if _, err := c.Put(t.Context(), e); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Remove(t.Context(), "", ""); fault.KindOf(err) != fault.Invalid {
		t.Errorf("got %v", err)
	}
	largest := entry("a::" + strings.Repeat("\x01", maxID-3))
	largest.Request, largest.Response = long(maxSchema-2), long(maxSchema-2)
	largest.Metadata = long(maxMetadata - 2)
	largest.Description = strings.Repeat("\x01", maxDescription)
	largest.Spec = spec("https://e.org/" + strings.Repeat("a", maxURL-14))
	largest.Spec.Headers = map[string]string{"a": strings.Repeat(`"`, maxHeader-1)}
	put(t, c, largest)
	if e, ok := c.Get("default", largest.FunctionID); !ok || !same(e, &largest) {
		t.Error("the largest entry is kept as another one")
	}
}

func TestEntriesAreCopies(t *testing.T) {
	c := reopen(t, storetest.NewMem(), CatalogOptions{})
	running(t, c)
	e := entry("a::b")
	put(t, c, e)
	e.Spec.URL, e.Metadata[2], e.Request[2] = "https://evil.example", 'X', 'X'
	kept, _ := c.Get("default", "a::b")
	want := entry("a::b")
	if !same(kept, &want) {
		t.Errorf("got %+v", kept)
	}
}

func TestChangesFromManyGoroutinesAreAllKept(t *testing.T) {
	mem := storetest.NewMem()
	c := reopen(t, mem, CatalogOptions{SnapshotAge: 5})
	stop := running(t, c)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 10 {
				id := fmt.Sprintf("g%d::%d", g, i)
				if _, err := c.Put(context.Background(), entry(id)); err != nil {
					t.Error(err)
				}
				if _, ok := c.Get("default", id); !ok {
					t.Errorf("%s was answered and is not seen", id)
				}
				if i%2 == 0 {
					if removed, err := c.Remove(context.Background(), "default", id); err != nil || !removed {
						t.Errorf("got %v, %v", removed, err)
					}
				}
				c.Each(func(*Entry) bool { return false })
			}
		})
	}
	all.Wait()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, mem, CatalogOptions{})
	defer again.Close()
	if got := ids(again); len(got) != 40 || !reflect.DeepEqual(got, ids(c)) {
		t.Errorf("%d entries are left", len(got))
	}
}

func TestCatalogStartsAndStops(t *testing.T) {
	testkit.StartStop(t, func() (testkit.Runner, error) { return openOn(storetest.NewMem(), CatalogOptions{}) })
}

func TestForeignRecordsAreRefusedAndNotSkipped(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":       ``,
		"no JSON":       `{"v":1,`,
		"newer":         `{"v":2,"put":{}}`,
		"no version":    `{"remove":{"function_id":"a"}}`,
		"neither":       `{"v":1}`,
		"both":          `{"v":1,"put":{"function_id":"a","invocation":{"url":"https://e.org"}},"remove":{"function_id":"a"}}`,
		"a head":        `{"v":1,"entries":0}`,
		"unknown field": `{"v":1,"remove":{"function_id":"a"},"x":1}`,
		"more behind":   `{"v":1,"remove":{"function_id":"a"}} {}`,
		"no function":   `{"v":1,"remove":{}}`,
		"bad URL":       `{"v":1,"put":{"function_id":"a","invocation":{"url":"file:///"}}}`,
		"no invocation": `{"v":1,"put":{"function_id":"a"}}`,
	} {
		mem := storetest.NewMem()
		l, err := store.OpenLog(mem, "/data", store.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }() // ends below
		if _, err := l.Append(ctx, []byte(b)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if c, err := openOn(mem, CatalogOptions{}); err == nil {
			t.Errorf("%s is taken: %v", name, ids(c))
		}
	}
}

func TestBrokenSnapshotsAreRefused(t *testing.T) {
	var b bytes.Buffer
	one, two := entry("a::1"), entry("a::2")
	if err := writeSnapshot(&b, []*Entry{&one, &two}); err != nil {
		t.Fatal(err)
	}
	n := 0
	whole := b.String()
	if err := readSnapshot(strings.NewReader(whole), func(*Entry) { n++ }); err != nil || n != 2 {
		t.Fatalf("got %d entries, %v", n, err)
	}
	lines := strings.SplitAfter(whole, "\n")
	for name, text := range map[string]string{
		"empty":          "",
		"without a head": lines[1] + lines[2],
		"cut":            lines[0] + lines[1],
		"cut in a line":  whole[:len(whole)-10],
		"one too many":   whole + lines[1],
		"two heads":      lines[0] + whole,
		"negative":       `{"v":1,"entries":-1}`,
		"a removal":      `{"v":1,"entries":1}` + "\n" + `{"v":1,"remove":{"function_id":"a"}}`,
		"newer":          `{"v":2,"entries":0}`,
		"endless line":   `{"v":1,"entries":1}` + "\n" + strings.Repeat(" ", maxRecord+10),
	} {
		if err := readSnapshot(strings.NewReader(text), func(*Entry) {}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestCatalogIsInABackup(t *testing.T) {
	folder := t.TempDir()
	dir, err := store.Open(filepath.Join(folder, "data"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	room, err := dir.Room(t.Context(), "engine", store.Schema{Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenCatalog(room, CatalogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop := running(t, c)
	put(t, c, entry("a::b"))
	backup, restored := filepath.Join(folder, "backup"), filepath.Join(folder, "restored")
	sources := map[string]store.Source{"engine": room, "engine/" + CatalogLog: c}
	if _, err := dir.Backup(t.Context(), backup, sources); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stop(), dir.Close(), os.RemoveAll(filepath.Join(folder, "data")),
		store.Restore(t.Context(), store.OS(), backup, restored)); err != nil {
		t.Fatal(err)
	}
	if dir, err = store.Open(restored, store.Options{}); err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if room, err = dir.Room(t.Context(), "engine", store.Schema{Number: 1}); err != nil {
		t.Fatal(err)
	}
	again, err := OpenCatalog(room, CatalogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := ids(again); !reflect.DeepEqual(got, []string{"default/a::b"}) {
		t.Errorf("got %v", got)
	}
}

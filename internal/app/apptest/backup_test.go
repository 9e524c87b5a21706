package apptest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/app/apptest"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/worker"
)

func code(err error) string {
	var e *worker.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func mustRegister(t *testing.T, w *worker.Worker, name string) {
	t.Helper()
	if err := w.Register(name, func(_ context.Context, in []byte) ([]byte, error) {
		return in,
			nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestABackupUnderLoadRestoresTheSameIdentitiesAndFunctions makes a backup while a thousand calls a second
// go on
// and keys are made, and starts a Plinth on what was restored.
func TestABackupUnderLoadRestoresTheSameIdentitiesAndFunctions(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `"from outside"`)
	}))
	t.Cleanup(site.Close)
	open := map[string]string{"engine.http.block_private": "false", "engine.http.require_https": "false"}
	h := apptest.Start(t, open)
	local := h.Claim()
	h.Worker(worker.Options{Name: "host", Token: local}, func(w *worker.Worker) {
		mustRegister(t, w,
			"x::echo")
	})
	caller, _ := h.Worker(worker.Options{Name: "caller", Token: local}, nil)
	key, _ := h.Key("api", "before", 0, "engine:*")
	add := fmt.Sprintf(`{"function_id":"hook::send","invocation":{"url":%q}}`, site.URL)
	if _, err := caller.Call(t.Context(), "engine::http-functions::add", []byte(add)); err != nil {
		t.Fatal(err)
	}

	loaded, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				load.Go(func() {
					if _, err := caller.Call(loaded, "x::echo", []byte("1")); err != nil && loaded.Err() == nil {
						t.Errorf("a call during the backup: %v", err)
					}
				})
			case <-loaded.Done():
				return
			}
		}
	})
	var acked []string // by the time the backup began
	for i := range 20 {
		name := fmt.Sprint("key-", i)
		h.Key("worker", name, 0, "engine:call:x::")
		acked = append(acked, name)
	}
	target := filepath.Join(t.TempDir(), "backup")
	var made struct {
		Files int
		Bytes int64
	}
	if got := h.Ask(local, http.MethodPost, "/api/backups", map[string]string{"target": target},
		&made); got != 201 {
		t.Fatalf("backup: status %d", got)
	}
	stop()
	load.Wait()
	if made.Files == 0 || made.Bytes == 0 {
		t.Errorf("got %+v", made)
	}
	if got := h.Ask(local, http.MethodPost, "/api/backups", map[string]string{"target": target},
		nil); got/100 != 4 {
		t.Errorf("a second backup into the same folder: status %d", got)
	}

	if _, err := store.Verify(t.Context(), store.OS(), target); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "restored")
	if err := store.Restore(t.Context(), store.OS(), target, data); err != nil {
		t.Fatal(err)
	}
	open["data"] = data
	again := apptest.Start(t, open)
	users := func(h *apptest.House) string {
		var out struct{ Users []map[string]any }
		h.Ask(h.LocalToken(), http.MethodGet, "/api/users", nil, &out)
		b, _ := json.Marshal(out)
		return string(b)
	}
	if got, want := users(again), users(h); got != want {
		t.Errorf("users\ngot  %s\nwant %s", got, want)
	}
	var out struct{ Keys []struct{ Name string } }
	again.Ask(again.LocalToken(), http.MethodGet, "/api/keys", nil, &out)
	for _, name := range append(acked, "before") {
		if !slices.ContainsFunc(out.Keys, func(k struct{ Name string }) bool { return k.Name == name }) {
			t.Errorf("key %s was acknowledged before the backup and is not in it", name)
		}
	}
	w, _ := again.Worker(worker.Options{Name: "new", Token: key}, nil)
	if b, err := w.Call(t.Context(), "hook::send", nil); err != nil || string(b) != `"from outside"` {
		t.Errorf("the HTTP function: got %s, %v", b, err)
	}
}

func TestADoorBeyondThisMachineNeedsAnAccount(t *testing.T) {
	h := apptest.Start(t, map[string]string{"bootstrap.name": "ann", "bootstrap.password": apptest.Password,
		"engine.listen": "0.0.0.0:0"})
	if got := knock(t, h.URL, "/"); got != http.StatusUnauthorized && got != http.StatusForbidden {
		t.Errorf("got %d", got)
	}
	if err := apptest.Refused(t, map[string]string{"engine.listen": "0.0.0.0:0"}); err == nil {
		t.Error("a wide door opened without an account")
	}
	if err := apptest.Refused(t, map[string]string{"engine.listeners.public.listen": "0.0.0.0:0"}); err == nil {
		t.Error("a wide listener opened without an account")
	}
}

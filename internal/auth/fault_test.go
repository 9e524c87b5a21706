package auth_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// folder is where the file system in memory has the house.
func folder(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("/house")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// visit opens a house on a file system, lets f use it, and closes it. It returns whether it could be opened.
func visit(t *testing.T, fs store.FS, f func(a *auth.Auth)) bool {
	t.Helper()
	dir, err := store.Open(folder(t), store.Options{FS: fs})
	if err != nil {
		return false
	}
	defer dir.Close()
	a, err := auth.Open(t.Context(), dir, auth.Options{FS: fs, HashMemory: 8})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	f(a)
	cancel()
	<-done
	return true
}

// facts are what a house says of itself: users with their roles, and keys with their state.
func facts(a *auth.Auth) (all []string) {
	for _, u := range a.Users() {
		all = append(all, "user "+u.Name+" "+u.Role)
	}
	for _, k := range a.Keys() {
		all = append(all, "key "+k.Name+" "+k.Status)
	}
	slices.Sort(all)
	return all
}

// TestADiskThatFailsChangesNothingInMemory fails every operation on the disk in turn, in every way. A
// change that was answered with an error is not in memory, and one that was answered without is there after
// a loss of power, and in the trail.
func TestADiskThatFailsChangesNothingInMemory(t *testing.T) {
	runs := storetest.Loop(t, storetest.Variants(), func(t *testing.T, mem *storetest.Mem, f *storetest.Fault) {
		var acknowledged, actions []string
		opened := visit(t, f, func(a *auth.Auth) {
			local, err := a.Authenticate(auth.Credential{Token: a.LocalToken(), Remote: here})
			if err != nil {
				t.Fatal(err)
			}
			viewer := auth.RoleViewer
			for _, step := range []struct {
				action string
				do     func() error
			}{
				{"bootstrap", func() error {
					_, _, err := a.Bootstrap(t.Context(), auth.NewUser{Name: "ann", Password: password})
					return err
				}},
				{"user.create", func() error {
					_, err := a.CreateUser(t.Context(), local, auth.NewUser{Name: "bob", Role: auth.RoleAdmin,
						Password: password})
					return err
				}},
				{"key.create", func() error {
					_, _, err := a.CreateKey(t.Context(), local, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
						Scopes: []string{"engine:*"}})
					return err
				}},
				{"user.change", func() error {
					_, err := a.ChangeUser(t.Context(), local, "bob", auth.UserChange{Role: &viewer})
					return err
				}},
				{"key.revoke", func() error { return a.RevokeKey(t.Context(), local, "k") }},
			} {
				before := facts(a)
				if err := step.do(); err == nil {
					acknowledged, actions = facts(a), append(actions, step.action)
				} else if after := facts(a); !slices.Equal(before, after) {
					t.Errorf("%s failed with %v and changed %v to %v", step.action, err, before, after)
				}
			}
		})
		if !opened {
			return
		}
		after := mem.Crash(rand.New(rand.NewPCG(1, 2)), 0)
		if !visit(t, after, func(a *auth.Auth) { check(t, a, acknowledged, actions) }) {
			t.Error("the house cannot be opened after the loss of power")
		}
	})
	t.Logf("%d runs", runs)
}

// check looks for what was acknowledged. What was not may be there as well: it may have reached the disk.
func check(t *testing.T, a *auth.Auth, acknowledged, actions []string) {
	t.Helper()
	there := facts(a)
	if len(there) < len(acknowledged) {
		t.Errorf("acknowledged %v, found %v", acknowledged, there)
	}
	for _, fact := range acknowledged {
		more := slices.ContainsFunc(there, func(s string) bool { // a later change that nobody was told of
			return fact == "user bob admin" && s == "user bob viewer" || fact == "key k active" && s == "key k revoked"
		})
		if !slices.Contains(there, fact) && !more {
			t.Errorf("acknowledged %q, found %v", fact, there)
		}
	}
	events, _, err := a.Audit().Query(audit.Query{Outcome: audit.OK})
	if err != nil {
		t.Error(err)
	}
	for _, action := range actions {
		if !slices.ContainsFunc(events, func(e audit.Event) bool { return e.Action == action }) {
			t.Errorf("%s is not in the trail", action)
		}
	}
}

func TestABackupHoldsTheIdentities(t *testing.T) {
	h := start(t)
	ann := h.owner()
	secret, _ := h.key(ann, "k", "engine:*")
	local := h.LocalToken()
	h.stop()
	dir, err := store.Open(h.path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := auth.Open(t.Context(), dir, auth.Options{HashMemory: 64})
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "backup")
	m, err := dir.Backup(t.Context(), copied, a.Sources())
	if err := errors.Join(err, a.Close(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	for _, file := range m.Files {
		if filepath.Base(file.Name) == auth.LocalTokenFile {
			t.Error("the local token is in the backup")
		}
	}
	restored := filepath.Join(t.TempDir(), "restored")
	if err := store.Restore(t.Context(), store.OS(), copied, restored); err != nil {
		t.Fatal(err)
	}
	again := open(t, restored)
	if _, err := again.Authenticate(auth.Credential{Token: secret, Remote: here}); err != nil {
		t.Error(err)
	}
	if _, err := again.Authenticate(auth.Credential{Token: local, Remote: here}); err == nil {
		t.Error("the local token of the other house is good")
	}
	if events, _, err := again.Audit().Query(audit.Query{Action: "key.create"}); err != nil || len(events) != 1 {
		t.Errorf("the trail has %v, %v", events, err)
	}
}

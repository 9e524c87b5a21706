package auth_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// key makes a key and returns who comes with it.
func (h *house) key(by *auth.Principal, name string, scopes ...string) (string, *auth.Principal) {
	h.t.Helper()
	_, secret, err := h.CreateKey(h.t.Context(), by, auth.NewKey{Name: name, Kind: auth.KeyAPI, Scopes: scopes})
	if err != nil {
		h.t.Fatal(err)
	}
	p, err := h.Authenticate(auth.Credential{Token: secret, Remote: here})
	if err != nil {
		h.t.Fatal(err)
	}
	return secret, p
}

func (h *house) user(by *auth.Principal, name, role string) auth.User {
	h.t.Helper()
	u, err := h.CreateUser(h.t.Context(), by, auth.NewUser{Name: name, Role: role, Password: password})
	if err != nil {
		h.t.Fatal(err)
	}
	return u
}

// listen collects what the doors are told.
func (h *house) listen() (next func() string) {
	told := make(chan string, 64)
	h.Watch(func(id string) { told <- id })
	return func() string {
		select {
		case id := <-told:
			return id
		default:
			return "nobody"
		}
	}
}

func TestAKeyMakesNoUserWhoMayDoMore(t *testing.T) {
	h := start(t)
	ann := h.owner()
	h.user(ann, "root", auth.RoleAdmin)
	h.user(ann, "vic", auth.RoleViewer)
	_, narrow := h.key(ann, "narrow", "admin:manage")
	_, reader := h.key(ann, "reader", "admin:*", "*:read")
	_, whole := h.key(ann, "whole", "*:*")
	admin := auth.RoleAdmin
	for _, c := range []struct {
		who    string
		by     *auth.Principal
		role   string
		wanted string
	}{
		{"narrow", narrow, auth.RoleViewer, wire.CodeForbidden}, {"narrow", narrow, auth.RoleAdmin, wire.CodeForbidden},
		{"reader", reader, auth.RoleViewer, fine}, {"reader", reader, auth.RoleDeveloper, wire.CodeForbidden},
		{"whole", whole, auth.RoleAdmin, fine}, {"whole", whole, auth.RoleOwner, wire.CodeForbidden},
	} {
		_, err := h.CreateUser(t.Context(), c.by, auth.NewUser{Name: c.who + "-" + c.role, Role: c.role,
			Password: password})
		want(t, c.who+" makes "+c.role, err, c.wanted)
	}
	for what, err := range map[string]error{
		"sets the password of an admin":  h.SetPassword(t.Context(), reader, "root", "", "another password"),
		"removes an admin":               h.DeleteUser(t.Context(), reader, "root"),
		"takes an admin's second factor": h.RemoveTOTP(t.Context(), reader, "root"),
		"raises a viewer": func() error {
			_, err := h.ChangeUser(t.Context(), reader, "vic", auth.UserChange{Role: &admin})
			return err
		}(),
		"sets the password of an owner": h.SetPassword(t.Context(), whole, "ann", "", "another password"),
	} {
		want(t, "a key "+what, err, wire.CodeForbidden)
	}
	want(t, "a key sets the password of a viewer",
		h.SetPassword(t.Context(), reader, "vic", "", "another password"), fine)
}

func TestNobodyMayNothing(t *testing.T) {
	h := start(t)
	ann := h.owner()
	_, err := h.CreateUser(t.Context(), nil, auth.NewUser{Name: "eve", Password: password})
	want(t, "nobody makes a user", err, wire.CodeForbidden)
	_, _, err = h.CreateKey(t.Context(), nil, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
		Scopes: []string{"engine:*"}})
	want(t, "nobody makes a key", err, wire.CodeForbidden)
	want(t, "nobody removes a user", h.DeleteUser(t.Context(), nil, "ann"), wire.CodeForbidden)
	want(t, "nobody sets a password", h.SetPassword(t.Context(), nil, "ann", "", "another password"),
		wire.CodeForbidden)
	want(t, "nobody revokes", h.RevokeKey(t.Context(), nil, "k"), wire.CodeForbidden)
	want(t, "nobody ends a session", h.EndSession(t.Context(), nil, h.Sessions(ann.Name)[0].ID),
		wire.CodeNotFound)
	_, _, err = h.StartTOTP(t.Context(), nil, "ann")
	want(t, "nobody starts one-time codes", err, wire.CodeForbidden)
	var none *auth.Principal
	if none.May("engine", "read", "") || none.All("engine") {
		t.Error("nobody may something")
	}
}

func TestAKeyThatIsNamedLikeAUserIsNotThatUser(t *testing.T) {
	h := start(t)
	ann := h.owner()
	h.user(ann, "vic", auth.RoleViewer)
	vic := h.login("vic")
	_, twin := h.key(ann, "vic", "engine:*")
	id := h.Sessions("vic")[0].ID
	want(t, "its session", h.EndSession(t.Context(), twin, id), wire.CodeNotFound)
	want(t, "its password", h.SetPassword(t.Context(), twin, "vic", password, "another password"),
		wire.CodeForbidden)
	_, _, err := h.StartTOTP(t.Context(), twin, "vic")
	want(t, "its one-time codes", err, wire.CodeForbidden)
	want(t, "another's session", h.EndSession(t.Context(), vic, h.Sessions("ann")[0].ID), wire.CodeNotFound)
	want(t, "one's own session", h.EndSession(t.Context(), vic, id), fine)
}

func TestKeysEndWithTheirOwner(t *testing.T) {
	h := start(t)
	ann := h.owner()
	local, err := h.Authenticate(auth.Credential{Token: h.LocalToken(), Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	// A user who is called like the kind of principal that made a key has nothing to do with it.
	h.user(ann, "local", auth.RoleAdmin)
	theirs, _ := h.key(local, "of-local", "engine:*")
	bob := h.user(ann, "bob", auth.RoleAdmin)
	maker, by := h.key(h.login("bob"), "maker", "*:*")
	made, _ := h.key(by, "made", "engine:*")
	try := func(secret string) string {
		_, err := h.Authenticate(auth.Credential{Token: secret, Remote: here})
		return code(err)
	}
	next := h.listen()
	for _, off := range []bool{true, false} {
		if _, err := h.ChangeUser(t.Context(), ann, "bob", auth.UserChange{Disabled: &off}); err != nil {
			t.Fatal(err)
		}
		wanted := fine
		if off {
			wanted = wire.CodeAuthError
			told := map[string]bool{next(): true, next(): true, next(): true}
			if !told[bob.ID] || len(told) != 3 || told["nobody"] {
				t.Errorf("told %v", told)
			}
		}
		for _, secret := range []string{maker, made} {
			if got := try(secret); got != wanted {
				t.Errorf("a key of an owner who is disabled (%v): %s", off, got)
			}
		}
	}
	for _, name := range []string{"bob", "local"} {
		if err := h.DeleteUser(t.Context(), ann, name); err != nil {
			t.Fatal(err)
		}
	}
	h.user(ann, "bob", auth.RoleAdmin) // a namesake does not get them back
	if try(maker) != wire.CodeAuthError || try(made) != wire.CodeAuthError || try(theirs) != fine {
		t.Errorf("after the removal: %s, %s, %s", try(maker), try(made), try(theirs))
	}
	for _, k := range h.Keys() {
		if revoked := k.Status == "revoked"; revoked != (k.Name != "of-local") {
			t.Errorf("%s is %s", k.Name, k.Status)
		}
	}
}

func TestEveryDoorIsToldOfEverySessionThatEnds(t *testing.T) {
	h := start(t)
	ann := h.owner()
	first, second := h.listen(), h.listen()
	both := func(what, id string) {
		t.Helper()
		if a, b := first(), second(); a != id || b != id {
			t.Errorf("%s: told %s and %s, want %s", what, a, b, id)
		}
	}
	token, s, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	both("a login", "nobody")
	want(t, "logout", h.Logout(t.Context(), token), fine)
	both("a logout", ann.ID)
	want(t, "logout again", h.Logout(t.Context(), token), fine)
	both("a logout of no session", "nobody")
	_, s, err = h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	want(t, "login", err, fine)
	want(t, "end", h.EndSession(t.Context(), ann, s.ID), fine)
	both("an end", ann.ID)
	if _, _, err := h.StartTOTP(t.Context(), ann, "ann"); err != nil {
		t.Fatal(err)
	}
	both("a change that takes nothing away", "nobody")
}

func TestSessionsEndByThemselves(t *testing.T) {
	h := start(t)
	h.owner()
	token, s, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	c := auth.Credential{Token: token, Remote: here}
	for range 4 { // used once in six days it stays, but for no more than its life
		h.later(6 * 24 * time.Hour)
		_, err := h.Authenticate(c)
		want(t, "a session that is used", err, fine)
	}
	h.later(s.Expires.Sub(h.clock()))
	_, err = h.Authenticate(c)
	want(t, "a session at its end", err, wire.CodeAuthError)
	token, _, err = h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	want(t, "login", err, fine)
	h.later(8 * 24 * time.Hour)
	_, err = h.Authenticate(auth.Credential{Token: token, Remote: here})
	want(t, "a session that was idle", err, wire.CodeAuthError)
	if left := h.Sessions("ann"); len(left) != 0 {
		t.Errorf("sessions %v", left)
	}
}

func TestTheOldestOfTooManySessionsGoes(t *testing.T) {
	h := start(t)
	h.owner()
	var first string
	for i := range 51 {
		h.later(time.Second)
		token, _, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = token
		}
	}
	if n := len(h.Sessions("ann")); n != 50 {
		t.Errorf("%d sessions", n)
	}
	_, err := h.Authenticate(auth.Credential{Token: first, Remote: here})
	want(t, "the oldest", err, wire.CodeAuthError)
}

func TestALockOutSaysWhenToComeBack(t *testing.T) {
	h := start(t)
	h.owner()
	for range 6 {
		_, _, _ = h.Login(t.Context(), auth.Login{Name: "ann", Password: "wrong password", Remote: here})
	}
	_, _, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	var e *auth.LaterError
	if !errors.As(err, &e) || e.After <= 0 || fault.KindOf(err) != fault.Limit {
		t.Fatalf("got %v", err)
	}
	h.later(e.After)
	_, _, err = h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	want(t, "after the pause", err, fine)
}

func TestALoginThatIsGivenUpCountsNothing(t *testing.T) {
	h := start(t)
	h.owner()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		_, _, err := h.Login(gone, auth.Login{Name: "ann", Password: "wrong password", Remote: here})
		if err == nil {
			t.Fatal("a wrong password is good")
		}
	}
	h.later(time.Hour) // whoever was heard nevertheless
	h.login("ann")
}

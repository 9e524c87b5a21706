package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/wire"
)

const phrase = "correct horse battery"

var home = netip.MustParseAddr("127.0.0.1")

// begin opens an Auth that runs for one test, or for a benchmark.
func begin(t testing.TB, o Options) (a *Auth, path string, stop func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data")
	a, stop = resume(t, path, o)
	return a, path, stop
}

func resume(t testing.TB, path string, o Options) (*Auth, func()) {
	t.Helper()
	dir, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.HashMemory = 64
	a, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, dir.Close()); err != nil {
			t.Errorf("auth: %v", err)
		}
	})
	t.Cleanup(stop)
	return a, stop
}

// people claims the house and returns credentials: of a session, of a key, and of the folder's owner.
func people(t testing.TB, a *Auth) []Credential {
	t.Helper()
	local := Credential{Token: a.LocalToken(), Remote: home}
	if _, err := a.Claim(t.Context(), local, "", NewUser{Name: "ann", Password: phrase}); err != nil {
		t.Fatal(err)
	}
	session, _, err := a.Login(t.Context(), Login{Name: "ann", Password: phrase, Remote: home})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Authenticate(local)
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := a.CreateKey(t.Context(), p, NewKey{Name: "k", Kind: KeyWorker,
		Scopes: []string{"engine:read", "engine:call:billing::"}})
	if err != nil {
		t.Fatal(err)
	}
	return []Credential{{Token: session, Remote: home}, {Token: key, Remote: home}, local}
}

// TestAuthenticateWaitsForNoChange holds every lock that a change can hold.
func TestAuthenticateWaitsForNoChange(t *testing.T) {
	a, _, _ := begin(t, Options{})
	all := people(t, a)
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calm.mu.Lock()
	defer a.calm.mu.Unlock()
	for _, c := range all {
		if _, err := a.Authenticate(c); err != nil {
			t.Errorf("%.3s: %v", c.Token, err)
		}
	}
	for _, wrong := range []string{"", "x", "pk_00000000_x", all[1].Token + "x", "ps_x", "pl_x"} {
		_, err := a.Authenticate(Credential{Token: wrong, Remote: home})
		if fault.CodeOf(err) != wire.CodeAuthError {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestAuthenticateAllocatesThePrincipalAlone(t *testing.T) {
	a, _, _ := begin(t, Options{})
	for _, c := range people(t, a) {
		var p *Principal
		if n := testing.AllocsPerRun(200, func() { p, _ = a.Authenticate(c) }); n > 1 {
			t.Errorf("%.3s: %v allocations", c.Token, n)
		}
		if n := testing.AllocsPerRun(200, func() { p.May("engine", "call", "billing::charge") }); n > 0 {
			t.Errorf("%.3s: May makes %v allocations", c.Token, n)
		}
	}
}

func TestReadersSeeATableWhileItChanges(t *testing.T) {
	table := newTable[string, int](byText)
	name := func(i int) string { return fmt.Sprint("name-", i) }
	var all sync.WaitGroup
	stop := make(chan struct{})
	always := 7
	table.put("always", &always)
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if v := table.get("always"); v == nil || *v != 7 {
					t.Error("an entry that stays was not seen")
					return
				}
			}
		})
	}
	for i := range 2000 {
		table.put(name(i), &i)
		if i%2 == 0 {
			table.put(name(i), nil)
		}
	}
	close(stop)
	all.Wait()
	for i := range 2000 {
		if v := table.get(name(i)); (v == nil) != (i%2 == 0) || v != nil && *v != i {
			t.Fatalf("%s is %v", name(i), v)
		}
	}
	spread := map[uint8]int{}
	for i := range 5000 {
		spread[byText(name(i))]++
	}
	if len(spread) < 250 {
		t.Errorf("5000 names use %d of 256 parts", len(spread))
	}
}

func TestASnapshotHoldsEverything(t *testing.T) {
	a, path, stop := begin(t, Options{})
	all := people(t, a)
	a.change.Lock()
	a.snapshot(a.disk.Last())
	a.change.Unlock()
	if a.disk.First() != a.disk.Last()+1 {
		t.Errorf("the log still has %d to %d", a.disk.First(), a.disk.Last())
	}
	if err := a.Logout(t.Context(), all[0].Token); err != nil { // a record behind the snapshot
		t.Fatal(err)
	}
	users, keys := fmt.Sprint(a.Users()), fmt.Sprint(a.Keys())
	stop()
	b, _ := resume(t, path, Options{})
	if got := fmt.Sprint(b.Users()); got != users {
		t.Errorf("users\n%s, want\n%s", got, users)
	}
	if got := fmt.Sprint(b.Keys()); got != keys {
		t.Errorf("keys\n%s, want\n%s", got, keys)
	}
	if _, err := b.Authenticate(all[1]); err != nil {
		t.Error(err)
	}
	if _, err := b.Authenticate(all[0]); err == nil {
		t.Error("a session that ended is back")
	}
}

// TestAUserWithVeryManyKeysCanBeRemoved puts the keys into memory alone: thousands of syncs are no part of
// it.
func TestAUserWithVeryManyKeysCanBeRemoved(t *testing.T) {
	a, _, _ := begin(t, Options{})
	people(t, a)
	local, _ := a.Authenticate(Credential{Token: a.LocalToken(), Remote: home})
	bob, err := a.CreateUser(t.Context(), local, NewUser{Name: "bob", Password: phrase})
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	for i := range 5000 {
		id := fmt.Sprintf("%08d", i)
		k := &Key{ID: "k_" + id, Name: id, Kind: KeyAPI, Prefix: prefixAPI + id, Hash: hashOf(id), OwnerID: bob.ID,
			Scopes: []string{"engine:call:" + strings.Repeat("x", 100)}}
		if err := k.compile(); err != nil {
			t.Fatal(err)
		}
		a.state.apply(&record{Key: k})
	}
	a.mu.Unlock()
	if err := a.DeleteUser(t.Context(), local, "bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(Credential{Token: "pk_00000007_00000007", Remote: home}); err == nil {
		t.Error("a key of a user who is gone is good")
	}
}

func TestRevokedKeysMakePlaceForNewOnes(t *testing.T) {
	now := time.Now()
	s := newState()
	for i := range maxKeys {
		id := fmt.Sprintf("%08d", i)
		s.Keys[id] = &Key{ID: id, Created: now.Add(time.Duration(i) * time.Second)}
	}
	if _, err := s.room(now); fault.KindOf(err) != fault.Limit {
		t.Errorf("all are active: %v", err)
	}
	s.Keys["00000500"].Revoked = true
	s.Keys["00000400"].Expires = now.Add(-time.Hour)
	more, err := s.room(now)
	if err != nil || len(more) != 1 || more[0].DropKey != "00000400" {
		t.Errorf("got %+v, %v", more, err)
	}
	s.apply(&more[0])
	if len(s.Keys) != maxKeys-1 {
		t.Errorf("%d keys", len(s.Keys))
	}
}

// TestATokenThatWasReplacedClaimsNothing replaces it while the claim waits for its hash.
func TestATokenThatWasReplacedClaimsNothing(t *testing.T) {
	a, _, _ := begin(t, Options{HashesAtOnce: 1})
	old, err := a.NewClaim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.crew.places <- struct{}{} // the only place is taken
	done := make(chan error, 1)
	go func() {
		_, err := a.Claim(context.Background(), Credential{Remote: home}, old,
			NewUser{Name: "eve", Password: phrase})
		done <- err
	}()
	for a.crew.waiting.Load() == 0 {
		select {
		case err := <-done:
			t.Fatalf("the claim ended before its hash: %v", err)
		case <-t.Context().Done():
			t.Fatal("the claim never came")
		default:
			runtime.Gosched()
		}
	}
	if _, err := a.NewClaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.crew.places
	if err := <-done; fault.CodeOf(err) != wire.CodeForbidden || a.Claimed() {
		t.Errorf("got %v", err)
	}
}

func TestTheFiguresTellWhatWasRefused(t *testing.T) {
	clock := time.Now()
	a, _, _ := begin(t, Options{Now: func() time.Time { return clock }})
	outside := netip.MustParseAddr("192.0.2.1")
	_, _ = a.Authenticate(Credential{Remote: outside})
	all := people(t, a)
	_, _ = a.Authenticate(Credential{Remote: outside})
	_, _ = a.Authenticate(Credential{Token: "pk_00000000_x"})
	local, _ := a.Authenticate(all[2])
	if err := a.RevokeKey(t.Context(), local, "k"); err != nil {
		t.Fatal(err)
	}
	_, err := a.Authenticate(all[1])
	_, wrong := a.Authenticate(Credential{Token: "pk_00000000_x"})
	if err.Error() != wrong.Error() {
		t.Errorf("a client can tell revoked from wrong: %v, %v", err, wrong)
	}
	_, _, _ = a.Login(t.Context(), Login{Name: "ann", Password: "wrong password"})
	var b bytes.Buffer
	a.WritePrometheus(&b)
	for _, row := range []string{"plinth_auth_users 1", "plinth_auth_keys 1", "plinth_auth_sessions 1",
		`plinth_auth_logins_total{outcome="ok"} 1`, `plinth_auth_logins_total{outcome="denied"} 1`,
		`plinth_auth_refused_total{reason="none"} 1`, `plinth_auth_refused_total{reason="unclaimed"} 1`,
		`plinth_auth_refused_total{reason="wrong"} 2`, `plinth_auth_refused_total{reason="revoked"} 1`,
		`plinth_auth_refused_total{reason="expired"} 0`, "plinth_auth_hashes_running 0"} {
		if !strings.Contains(b.String(), row+"\n") {
			t.Errorf("no row %q in\n%s", row, &b)
		}
	}
}

func TestAWeakHashIsReplacedAtLogin(t *testing.T) {
	a, _, _ := begin(t, Options{})
	weak := hashPassword(phrase, 8)
	if _, _, err := a.Bootstrap(t.Context(), NewUser{Name: "ann", Hash: weak}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := a.Login(t.Context(), Login{Name: "ann", Password: phrase}); err != nil {
			t.Fatal(err)
		}
		h, err := parsePHC(a.index.users.get("ann").Hash)
		if err != nil || h.memory != 64 {
			t.Errorf("got %v, %v", h, err)
		}
	}
}

// TestHashIsArgon2id holds hashes against vectors of the reference implementation.
func TestHashIsArgon2id(t *testing.T) {
	for _, text := range []string{
		"$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
		"$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
	} {
		h, err := parsePHC(text)
		if err != nil || h.String() != text {
			t.Fatalf("got %v, %v", h, err)
		}
		if !bytes.Equal(h.of("password"), h.hash) || bytes.Equal(h.of("passwore"), h.hash) {
			t.Errorf("%s is the hash of something else", text)
		}
	}
}

func TestHashesThatCostTooMuchAreRefused(t *testing.T) {
	const tail = "$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for head, good := range map[string]bool{
		"$argon2id$v=19$m=19456,t=2,p=1": true, "$argon2id$v=19$m=262144,t=16,p=16": true,
		"$argon2id$v=19$m=262145,t=2,p=1": false, "$argon2id$v=19$m=4294967295,t=2,p=1": false,
		"$argon2id$v=19$m=64,t=17,p=1": false, "$argon2id$v=19$m=64,t=0,p=1": false, "$argon2id$v=19$m=64,t=1,p=0": false,
		"$argon2id$v=19$m=64,t=1,p=256": false, "$argon2id$v=19$m=15,t=1,p=2": false, "$argon2i$v=19$m=64,t=1,p=1": false,
		"$argon2id$v=16$m=64,t=1,p=1": false, "$argon2id$m=64,t=1,p=1": false, "$argon2id$v=19$t=1,m=64,p=1": false,
	} {
		if _, err := parsePHC(head + tail); (err == nil) != good {
			t.Errorf("%s: %v", head, err)
		}
	}
}

// A state that cannot be right stops the start.
func TestASnapshotThatIsNotWholeIsRefused(t *testing.T) {
	for text, good := range map[string]bool{
		`{"users":{},"keys":{},"sessions":{}}`:                                                true,
		`{"users":{},"keys":{}}`:                                                              true,
		`{"users":null,"keys":{},"sessions":{}}`:                                              false,
		`{"users":{"ann":null},"keys":{},"sessions":{}}`:                                      false,
		`{"users":{"ann":{"name":"bob"}},"keys":{},"sessions":{}}`:                            false,
		`{"users":{},"keys":{"k":{"id":"k","scopes":["engine:*"],"hash":"x"}},"sessions":{}}`: false,
		`{"users":{},"keys":{},"sessions":{"s":{"id":"s","hash":"00"}}}`:                      false,
		`{"users"`: false,
	} {
		s := newState()
		if err := s.read(strings.NewReader(text)); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzAuthenticate shows any token at any door: it is refused, or it is one that was given out. There is no
// disk behind it.
func FuzzAuthenticate(f *testing.F) {
	a := &Auth{o: Options{Now: time.Now}, local: "pl_local", state: newState()}
	a.index = a.state.index
	k := &Key{ID: "k_12345678", Prefix: "wk_12345678", Hash: hashOf("key"), Scopes: []string{"engine:*"}}
	n := &Session{ID: "s_1", User: "ann", Hash: hashOf("ps_session"), Seen: time.Now(),
		Expires: time.Now().Add(time.Hour)}
	if err := errors.Join(k.compile(), n.compile()); err != nil {
		f.Fatal(err)
	}
	for _, r := range []record{{User: &user{User: User{ID: "u_1", Name: "ann", Role: RoleOwner}}}, {Key: k},
		{Session: n}} {
		a.state.apply(&r)
	}
	a.claimed.Store(true)
	given := map[string]bool{"pl_local": true, "wk_12345678_key": true, "ps_session": true}
	for token := range given {
		f.Add(token)
	}
	for _, s := range []string{"", "pk_", "wk_12345678_x", "ps_x", "pl_", "wk__", strings.Repeat("x", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		p, why, _ := a.authenticate(&Credential{Token: token, Remote: home})
		if (p != nil) != given[token] || (why == refusedNot) != given[token] {
			t.Errorf("%q is %v, %v", token, p, why)
		}
		kind, public, secret := split(token)
		if len(kind) > 3 || len(public)+len(secret) > len(token) {
			t.Errorf("%q was split into %q, %q, %q", token, kind, public, secret)
		}
	})
}

// FuzzSnapshot reads any snapshot: one that is taken is written and read again as it was, and the tables of
// the index have what the state has.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(`{"users":{"ann":{"id":"u_1","name":"ann","role":"owner"}},"keys":{},"sessions":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newState()
		if s.read(bytes.NewReader(b)) != nil {
			return
		}
		first, err := json.Marshal(&s)
		if err != nil {
			return // times beyond the year 9999 cannot be written
		}
		again := newState()
		if err := again.read(bytes.NewReader(first)); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := json.Marshal(&again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s became\n%s, %v", first, second, err)
		}
		for name, u := range s.Users {
			if s.index.users.get(name) != u {
				t.Errorf("user %q is not in the table", name)
			}
		}
		for _, n := range s.Sessions {
			if s.index.of[n.User][n.ID] != n {
				t.Errorf("session %q is not in the table of %q", n.ID, n.User)
			}
		}
	})
}

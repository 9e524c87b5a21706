package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"go.uber.org/goleak"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "correct horse battery"

var here = netip.MustParseAddr("127.0.0.1")

// house is an Auth that runs for one test, with a clock of its own.
type house struct {
	*auth.Auth
	t    *testing.T
	path string
	log  *bytes.Buffer
	stop func()

	mu  sync.Mutex
	now time.Time
}

func (h *house) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *house) later(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// open opens the identities of a folder; hashes are cheap.
func open(t *testing.T, path string) *house {
	t.Helper()
	dir, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, path: path, log: new(bytes.Buffer), now: time.Now().UTC().Truncate(time.Second)}
	h.Auth, err = auth.Open(t.Context(), dir, auth.Options{Now: h.clock, HashMemory: 64,
		Log: slog.New(slog.NewTextHandler(h.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("auth: %v", err)
		}
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(h.stop)
	return h
}

func start(t *testing.T) *house { return open(t, filepath.Join(t.TempDir(), "data")) }

// owner claims the house and returns its owner, logged in.
func (h *house) owner() *auth.Principal {
	h.t.Helper()
	if _, err := h.Claim(h.t.Context(), auth.Credential{Token: h.LocalToken(), Remote: here}, "",
		auth.NewUser{Name: "ann", Password: password}); err != nil {
		h.t.Fatal(err)
	}
	return h.login("ann")
}

func (h *house) login(name string) *auth.Principal {
	h.t.Helper()
	token, _, err := h.Login(h.t.Context(), auth.Login{Name: name, Password: password, Remote: here})
	if err != nil {
		h.t.Fatal(err)
	}
	p, err := h.Authenticate(auth.Credential{Token: token, Remote: here})
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func code(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return fmt.Sprint(err)
}

func want(t *testing.T, what string, err error, expected string) {
	t.Helper()
	if got := code(err); got != expected {
		t.Errorf("%s: got %v, want %s", what, err, expected)
	}
}

const fine = "<nil>"

func TestLoopbackIsOpenUntilThereIsAnAccount(t *testing.T) {
	h := start(t)
	outside := netip.MustParseAddr("192.0.2.1")
	page := auth.Credential{Remote: here, Browser: true}
	p, err := h.Authenticate(auth.Credential{Remote: here})
	if err != nil || p.Kind != auth.KindLoopback || !p.May("engine", "call", "x::y") || !p.All("engine") {
		t.Fatalf("got %+v, %v", p, err)
	}
	for _, verb := range []string{"read", "manage"} {
		if p.May("admin", verb, "") {
			t.Errorf("loopback may admin:%s", verb)
		}
	}
	_, err = h.Authenticate(page)
	want(t, "a page", err, auth.CodeUnclaimed)
	_, err = h.Authenticate(auth.Credential{Remote: outside})
	want(t, "another machine", err, auth.CodeUnclaimed)
	_, err = h.Authenticate(auth.Credential{Remote: here, Token: "pk_00000000_x"})
	want(t, "a wrong key", err, wire.CodeAuthError)
	_, err = h.CreateUser(t.Context(), p, auth.NewUser{Name: "eve", Password: password})
	want(t, "an account without a claim", err, wire.CodeForbidden)
	_, _, err = h.CreateKey(t.Context(), p, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
		Scopes: []string{"engine:*"}})
	want(t, "a key without a claim", err, wire.CodeForbidden)

	told := make(chan string, 8)
	h.Watch(func(id string) { told <- id })
	h.owner()
	if id := <-told; id != "" {
		t.Errorf("the doors were told %q", id)
	}
	_, err = h.Authenticate(auth.Credential{Remote: here})
	want(t, "no credential after the claim", err, wire.CodeAuthError)
}

func TestOfFiftyClaimsOneWins(t *testing.T) {
	h := start(t)
	token, err := h.NewClaim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	codes := make(chan string, 50)
	for i := range 50 {
		by := auth.Credential{Remote: here}
		if i%2 == 0 {
			by.Token = h.LocalToken()
		}
		go func() {
			_, err := h.Claim(context.Background(), by, token, auth.NewUser{Name: fmt.Sprint("user-", i),
				Password: password})
			codes <- code(err)
		}()
	}
	count := map[string]int{}
	for range 50 {
		count[<-codes]++
	}
	if count[fine] != 1 || len(h.Users()) != 1 || h.Users()[0].Role != auth.RoleOwner {
		t.Errorf("outcomes %v, users %v", count, h.Users())
	}
	for c := range count {
		if c != fine && c != auth.CodeAlreadyClaimed && c != wire.CodeLimit {
			t.Errorf("outcome %s", c)
		}
	}
	_, err = h.NewClaim(t.Context())
	want(t, "a claim token afterwards", err, auth.CodeAlreadyClaimed)
}

func TestAClaimNeedsItsTokenAndFewAreHeard(t *testing.T) {
	h := start(t)
	token, err := h.NewClaim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer, err := h.NewClaim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := auth.NewUser{Name: "ann", Password: password}
	for i, guess := range []string{"", "pc_wrong", token, "x", "y"} {
		_, err := h.Claim(t.Context(), auth.Credential{Remote: here}, guess, u)
		want(t, fmt.Sprint("guess ", i), err, wire.CodeForbidden)
	}
	_, err = h.Claim(t.Context(), auth.Credential{Remote: here}, newer, u)
	want(t, "the right one after too many", err, wire.CodeLimit)
	h.later(time.Minute)
	_, err = h.Claim(t.Context(), auth.Credential{Remote: here}, newer, u)
	want(t, "the right one a minute later", err, fine)
}

func TestBootstrapActsOnAnEmptyHouseOnly(t *testing.T) {
	h := start(t)
	hash, err := auth.HashPassword(password)
	if err != nil {
		t.Fatal(err)
	}
	u, created, err := h.Bootstrap(t.Context(), auth.NewUser{Name: "Ann", Hash: hash, Email: "ann@example.org"})
	if err != nil || !created || u.Name != "ann" || u.Role != auth.RoleOwner {
		t.Fatalf("got %+v, %v, %v", u, created, err)
	}
	for _, name := range []string{"ann", "bob"} {
		if _, created, err := h.Bootstrap(t.Context(), auth.NewUser{Name: name, Password: password}); created ||
			err != nil {
			t.Errorf("%s: got %v, %v", name, created, err)
		}
	}
	h.login("ANN ")
}

func TestLoginsAreCountedByCanonicalNameAndAddress(t *testing.T) {
	h := start(t)
	h.owner()
	try := func(name, secret, from string) string {
		_, _, err := h.Login(t.Context(), auth.Login{Name: name, Password: secret,
			Remote: netip.MustParseAddr(from)})
		return code(err)
	}
	for i, name := range []string{"ann", "ANN", " ann", "Ann ", "aNN"} {
		if got := try(name, "wrong password", fmt.Sprint("192.0.2.", i)); got != wire.CodeAuthError {
			t.Errorf("%q: got %s", name, got)
		}
	}
	if got := try("ann", password, "192.0.2.99"); got != wire.CodeLimit {
		t.Errorf("the right password after five failures: got %s", got)
	}
	h.later(time.Hour)
	if got := try("ann", password, "192.0.2.99"); got != fine {
		t.Errorf("an hour later: got %s", got)
	}
	for i := range 20 {
		if got := try(fmt.Sprint("nobody-", i), password, "198.51.100.7"); got != wire.CodeAuthError {
			t.Errorf("an unknown name: got %s", got)
		}
	}
	if got := try("ann", password, "198.51.100.7"); got != wire.CodeLimit {
		t.Errorf("an address after twenty failures: got %s", got)
	}
}

func TestRolesAreWhatTheySay(t *testing.T) {
	h := start(t)
	ann := h.owner()
	for _, role := range auth.Roles() {
		name := "a-" + role
		if _, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: name, Role: role,
			Password: password}); err != nil {
			t.Fatal(err)
		}
		p := h.login(name)
		_, err := h.CreateUser(t.Context(), p, auth.NewUser{Name: "by-" + role, Password: password})
		may := role == auth.RoleOwner || role == auth.RoleAdmin
		if (err == nil) != may {
			t.Errorf("%s makes a user: %v", role, err)
		}
		_, err = h.CreateUser(t.Context(), p, auth.NewUser{Name: "owner-by-" + role, Role: auth.RoleOwner,
			Password: password})
		if (err == nil) != (role == auth.RoleOwner) {
			t.Errorf("%s makes an owner: %v", role, err)
		}
		if got := p.May("engine", "register", "x"); got != (role != auth.RoleViewer) {
			t.Errorf("%s registers: %v", role, got)
		}
		if !p.May("engine", "read", "x") || p.May("admin", "read", "") != may {
			t.Errorf("%s reads wrongly", role)
		}
	}
	_, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: "x", Role: "root", Password: password})
	want(t, "an unknown role", err, auth.CodeBadRole)
}

func TestTheLastOwnerStays(t *testing.T) {
	h := start(t)
	ann := h.owner()
	viewer, off := auth.RoleViewer, true
	_, err := h.ChangeUser(t.Context(), ann, "ann", auth.UserChange{Role: &viewer})
	want(t, "lower", err, auth.CodeLastOwner)
	_, err = h.ChangeUser(t.Context(), ann, "ann", auth.UserChange{Disabled: &off})
	want(t, "disable", err, auth.CodeLastOwner)
	want(t, "remove", h.DeleteUser(t.Context(), ann, "ann"), auth.CodeLastOwner)
	if _, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Role: auth.RoleOwner,
		Password: password}); err != nil {
		t.Fatal(err)
	}
	want(t, "remove one of two", h.DeleteUser(t.Context(), ann, "ann"), fine)
}

func TestAKeyDoesWhatItsScopesSay(t *testing.T) {
	h := start(t)
	ann := h.owner()
	k, secret, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "billing", Kind: auth.KeyWorker,
		Scopes: []string{"engine:call:billing::", "engine:register:billing::"}, Expires: h.clock().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(secret, k.Prefix+"_") || !strings.HasPrefix(secret, "wk_") {
		t.Errorf("key %q of %q", secret, k.Prefix)
	}
	p, err := h.Authenticate(auth.Credential{Token: secret, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		room, verb, name string
		want             bool
	}{
		{"engine", "call", "billing::charge", true}, {"engine", "call", "billing", false}, {"engine", "call", "other::x", false},
		{"engine", "register", "billing::x", true}, {"engine", "read", "billing::x", false}, {"sites", "call", "billing::x", false},
	} {
		if got := p.May(c.room, c.verb, c.name); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	for _, wrong := range []string{secret + "x", secret[:len(secret)-1], strings.Replace(secret, "wk_", "pk_",
		1), k.Prefix, "wk_"} {
		_, err := h.Authenticate(auth.Credential{Token: wrong, Remote: here})
		want(t, "a wrong key", err, wire.CodeAuthError)
	}
	h.later(time.Hour)
	_, err = h.Authenticate(auth.Credential{Token: secret, Remote: here})
	want(t, "an expired key", err, wire.CodeAuthError)
	if v, _ := h.Key("k_" + k.Prefix[3:]); v.Status != "expired" {
		t.Errorf("status %s", v.Status)
	}
}

func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	h := start(t)
	ann := h.owner()
	_, secret, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "maker", Kind: auth.KeyAPI,
		Scopes: []string{"admin:manage", "engine:call:billing::"}})
	if err != nil {
		t.Fatal(err)
	}
	maker, err := h.Authenticate(auth.Credential{Token: secret, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ scope, want string }{
		{"engine:call:billing::charge", fine}, {"engine:call:billing::", fine}, {"engine:call", wire.CodeForbidden},
		{"engine:call:bill", wire.CodeForbidden}, {"engine:*:billing::", wire.CodeForbidden}, {"*:*", wire.CodeForbidden},
		{"engine:read:billing::", wire.CodeForbidden}, {"nowhere:read", auth.CodeBadScope}, {"engine:fly", auth.CodeBadScope},
		{"engine", auth.CodeBadScope}, {"engine:call:a*", auth.CodeBadScope},
	} {
		_, _, err := h.CreateKey(t.Context(), maker, auth.NewKey{Name: fmt.Sprint("n", i), Kind: auth.KeyAPI,
			Scopes: []string{c.scope}})
		want(t, c.scope, err, c.want)
	}
	_, err = h.CreateUser(t.Context(), maker, auth.NewUser{Name: "o", Role: auth.RoleOwner, Password: password})
	want(t, "a key makes an owner", err, wire.CodeForbidden)
	_, _, err = h.CreateKey(t.Context(), ann, auth.NewKey{Name: "w", Kind: auth.KeyWorker,
		Scopes: []string{"*:*"}})
	want(t, "a worker key beyond the engine", err, auth.CodeBadScope)
	_, _, err = h.CreateKey(t.Context(), ann, auth.NewKey{Name: "maker", Kind: auth.KeyAPI,
		Scopes: []string{"*:*"}})
	want(t, "a name that is taken", err, auth.CodeExists)
}

func TestWhatIsRevokedIsToldToTheDoors(t *testing.T) {
	h := start(t)
	ann := h.owner()
	k, secret, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
		Scopes: []string{"engine:*"}})
	if err != nil {
		t.Fatal(err)
	}
	bob, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := h.Login(t.Context(), auth.Login{Name: "bob", Password: password, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 8)
	h.Watch(func(id string) { told <- id })
	if err := h.RevokeKey(t.Context(), ann, "k"); err != nil {
		t.Fatal(err)
	}
	_, err = h.Authenticate(auth.Credential{Token: secret, Remote: here})
	want(t, "a revoked key", err, wire.CodeAuthError)
	off := true
	if _, err := h.ChangeUser(t.Context(), ann, "bob", auth.UserChange{Disabled: &off}); err != nil {
		t.Fatal(err)
	}
	_, err = h.Authenticate(auth.Credential{Token: token, Remote: here})
	want(t, "a session of a disabled user", err, wire.CodeAuthError)
	_, _, err = h.Login(t.Context(), auth.Login{Name: "bob", Password: password, Remote: here})
	want(t, "a login of a disabled user", err, wire.CodeAuthError)
	if a, b := <-told, <-told; a != k.ID || b != bob.ID {
		t.Errorf("told %s, %s", a, b)
	}
	if _, _, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "short", Kind: auth.KeyAPI,
		Scopes:  []string{"engine:*"},
		Expires: h.clock().Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	h.later(time.Minute)
	if id := <-told; !strings.HasPrefix(id, "k_") {
		t.Errorf("told %s of a key that expired", id)
	}
}

func TestOneTimeCodesCountOnce(t *testing.T) {
	h := start(t)
	ann := h.owner()
	secret, uri, err := h.StartTOTP(t.Context(), ann, "ann")
	if err != nil || !strings.HasPrefix(uri, "otpauth://totp/Plinth:ann?") {
		t.Fatalf("got %s, %v", uri, err)
	}
	now := func() string {
		c, err := totp.GenerateCode(secret, h.clock())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, err = h.ConfirmTOTP(t.Context(), ann, "ann", "000000")
	want(t, "a wrong code", err, wire.CodeForbidden)
	first := now()
	recovery, err := h.ConfirmTOTP(t.Context(), ann, "ann", first[:3]+" "+first[3:])
	if err != nil || len(recovery) != 10 {
		t.Fatalf("got %v, %v", recovery, err)
	}
	try := func(c string) string {
		_, _, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Code: c, Remote: here})
		return code(err)
	}
	if got := try(""); got != auth.CodeNeedsCode {
		t.Errorf("without a code: %s", got)
	}
	if got := try(first); got != wire.CodeAuthError {
		t.Errorf("a code that was used: %s", got)
	}
	h.later(30 * time.Second)
	second := now()
	if got := try(second); got != fine {
		t.Errorf("a fresh code: %s", got)
	}
	if got := try(" " + second + " "); got != wire.CodeAuthError {
		t.Errorf("the same code with spaces: %s", got)
	}
	if got := try(recovery[3]); got != fine {
		t.Errorf("a recovery code: %s", got)
	}
	if got := try(recovery[3]); got != wire.CodeAuthError {
		t.Errorf("the same recovery code: %s", got)
	}
	h.later(time.Hour)
	if err := h.RemoveTOTP(t.Context(), ann, "ann"); err != nil {
		t.Fatal(err)
	}
	if got := try(""); got != fine {
		t.Errorf("after it was removed: %s", got)
	}
}

func TestAPasswordChangeEndsSessions(t *testing.T) {
	h := start(t)
	ann := h.owner()
	if _, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Password: password}); err != nil {
		t.Fatal(err)
	}
	bob := h.login("bob")
	want(t, "without the old one", h.SetPassword(t.Context(), bob, "bob", "no", "another password"),
		wire.CodeForbidden)
	want(t, "of another", h.SetPassword(t.Context(), bob, "ann", password, "another password"),
		wire.CodeForbidden)
	want(t, "too short", h.SetPassword(t.Context(), bob, "bob", password, "short"), auth.CodeBadPassword)
	want(t, "common", h.SetPassword(t.Context(), bob, "bob", password, "Password1234"), auth.CodeBadPassword)
	want(t, "with the old one", h.SetPassword(t.Context(), bob, "bob", password, "another password"), fine)
	if s := h.Sessions("bob"); len(s) != 0 {
		t.Errorf("sessions %v", s)
	}
	_, _, err := h.Login(t.Context(), auth.Login{Name: "bob", Password: password, Remote: here})
	want(t, "the old password", err, wire.CodeAuthError)
}

func TestEverythingIsThereAfterARestart(t *testing.T) {
	h := start(t)
	ann := h.owner()
	_, secret, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
		Scopes: []string{"engine:*"}})
	if err != nil {
		t.Fatal(err)
	}
	session, _, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Authenticate(auth.Credential{Token: secret, Remote: here}); err != nil {
		t.Fatal(err)
	}
	users, keys, old := h.Users(), h.Keys(), h.LocalToken()
	h.stop()
	again := open(t, h.path)
	if got := fmt.Sprint(again.Users(), again.Keys()); got != fmt.Sprint(users, keys) {
		t.Errorf("got  %s\nwant %v %v", got, users, keys)
	}
	for _, token := range []string{secret, session, again.LocalToken()} {
		if _, err := again.Authenticate(auth.Credential{Token: token, Remote: here}); err != nil {
			t.Errorf("%.3s: %v", token, err)
		}
	}
	_, err = again.Authenticate(auth.Credential{Token: old, Remote: here})
	want(t, "the local token of the last run", err, wire.CodeAuthError)
	info, err := os.Stat(filepath.Join(h.path, "auth", auth.LocalTokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestNoSecretIsWrittenAnywhere(t *testing.T) {
	h := start(t)
	claim, err := h.NewClaim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ann := h.owner()
	_, key, err := h.CreateKey(t.Context(), ann, auth.NewKey{Name: "k", Kind: auth.KeyAPI,
		Scopes: []string{"engine:*"}})
	if err != nil {
		t.Fatal(err)
	}
	session, _, err := h.Login(t.Context(), auth.Login{Name: "ann", Password: password, Remote: here})
	if err != nil {
		t.Fatal(err)
	}
	_, _, _ = h.Login(t.Context(), auth.Login{Name: "ann", Password: "canary-password", Remote: here})
	_, _ = h.Authenticate(auth.Credential{Token: "pk_canary00_canary-token", Remote: here})
	local := h.LocalToken()
	h.stop()
	canaries := []string{password, "canary-password", "canary-token", key[12:], session[3:], claim[3:]}
	all := h.log.String()
	err = filepath.WalkDir(h.path, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == auth.LocalTokenFile {
			return err
		}
		b, err := os.ReadFile(path)
		all += string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(canaries, local[3:]) {
		if strings.Contains(all, c) {
			t.Errorf("found %.8s… on disk or in the log", c)
		}
	}
	if !strings.Contains(all, `"action":"key.create"`) {
		t.Error("the trail was not looked at")
	}
}

func TestTheTrailTellsWhatHappened(t *testing.T) {
	h := start(t)
	ann := h.owner()
	_, _ = h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Password: password})
	_, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Password: password})
	want(t, "twice", err, auth.CodeExists)
	events, _, err := h.Audit().Query(audit.Query{Action: "user"})
	if err != nil || len(events) < 1 || events[0].Action != "user.create" || events[0].Actor.Name != "ann" ||
		events[0].Outcome != audit.OK || events[0].Target != "bob" || events[0].Remote != "127.0.0.1" {
		t.Errorf("got %+v, %v", events, err)
	}
}

func TestAHouseThatCannotWriteChangesNothing(t *testing.T) {
	h := start(t)
	ann := h.owner()
	h.stop() // the log takes nothing any more
	_, err := h.CreateUser(t.Context(), ann, auth.NewUser{Name: "bob", Password: password})
	if err == nil || len(h.Users()) != 1 {
		t.Errorf("got %v, users %v", err, h.Users())
	}
}

func TestLoginsWaitForTheirTurnWithinBounds(t *testing.T) {
	h := start(t)
	h.owner()
	codes := make(chan string, 200)
	for i := range 200 {
		go func() {
			_, _, err := h.Login(context.Background(), auth.Login{Name: fmt.Sprint("n", i), Password: password,
				Remote: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})
			codes <- code(err)
		}()
	}
	for range 200 {
		if c := <-codes; c != wire.CodeAuthError && c != wire.CodeLimit {
			t.Errorf("got %s", c)
		}
	}
	h.login("ann")
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"Bearer x", "Basic YTpi", "basic Og==", "", "Bearer", "Digest x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, ok := auth.Token(header)
		if ok && token == "" && header != "" || !ok && token != "" {
			t.Errorf("%q gives %q, %v", header, token, ok)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	dir, err := store.Open(filepath.Join(b.TempDir(), "data"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	a, err := auth.Open(b.Context(), dir, auth.Options{HashMemory: 64})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() { cancel(); <-done; dir.Close() }()
	by := auth.Credential{Token: a.LocalToken(), Remote: here}
	if _, err := a.Claim(ctx, by, "", auth.NewUser{Name: "ann", Password: password}); err != nil {
		b.Fatal(err)
	}
	local, _ := a.Authenticate(by)
	_, secret, err := a.CreateKey(ctx, local, auth.NewKey{Name: "k", Kind: auth.KeyWorker,
		Scopes: []string{"engine:call:x::"}})
	if err != nil {
		b.Fatal(err)
	}
	c := auth.Credential{Token: secret, Remote: here}
	var p *auth.Principal
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, _ = a.Authenticate(c)
		}
	})
	b.Run("may", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !p.May("engine", "call", "x::y") {
				b.Fatal("no")
			}
		}
	})
}

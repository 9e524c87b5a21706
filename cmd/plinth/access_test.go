package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// person runs verbs one after the other with one folder for contexts.
type person struct {
	t       *testing.T
	environ []string
}

// run gives the exit code and both streams of a verb.
func (w person) run(in string, args ...string) (code int, out, errOut string) {
	w.t.Helper()
	var a, b bytes.Buffer
	p := newProgram(strings.NewReader(in), &a, &b, w.environ)
	code = p.run(w.t.Context(), args)
	return code, a.String(), b.String()
}

// must gives the output of a verb that must succeed.
func (w person) must(in string, args ...string) string {
	w.t.Helper()
	code, out, errOut := w.run(in, args...)
	if code != exitDone {
		w.t.Fatalf("%v left with %d: %s", args, code, errOut)
	}
	return out
}

func TestOneTimeCodesAreSetUpAndThenAskedFor(t *testing.T) {
	const password = "correct horse battery"
	s := serve(t)
	s.do(t, "admin", "claim", "--name", "ann", "--password-file", "-")
	ann := person{t, []string{"HOME=" + t.TempDir(), "PLINTH_DATA=" + t.TempDir()}}
	ann.must("", "context", "add", "here", "--url", s.url, "--admin", s.admin)
	ann.must(password, "login", "ann", "--password-file", "-")

	model := newProgram(nil, nil, nil, nil)
	shape := func(path ...string) result {
		cmd, _, err := newRoot(model).Find(path)
		if err != nil {
			t.Fatal(err)
		}
		return model.results[cmd]
	}
	started := ann.must("", "user", "totp", "start", "ann", "--json")
	judge(t, shape("user", "totp", "start"), "--json", []byte(started))
	var app totpRow
	if err := json.Unmarshal([]byte(started), &app); err != nil {
		t.Fatal(err)
	}
	code := codeOf(t, app.Secret)
	confirmed := ann.must(code[:3]+" "+code[3:], "user", "totp", "confirm", "ann", "--code-file", "-", "--json")
	judge(t, shape("user", "totp", "confirm"), "--json", []byte(confirmed))
	var recovery recoveryRow
	if err := json.Unmarshal([]byte(confirmed), &recovery); err != nil || len(recovery.Codes) == 0 {
		t.Fatalf("recovery codes: %v, %d", err, len(recovery.Codes))
	}
	ann.must("", "logout")

	left, _, told := ann.run(password, "login", "ann", "--password-file", "-")
	if left != exitUsage || !strings.Contains(told, "a code is needed") {
		t.Errorf("without a code: left with %d: %s", left, told)
	}
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	left, _, told = ann.run("000000", "login", "ann", "--password-file", secret, "--code-file", "-")
	if left != exitDenied || !strings.Contains(told, "cannot log in as ann") {
		t.Errorf("with a wrong code: left with %d: %s", left, told)
	}
	ann.must(recovery.Codes[0], "login", "ann", "--password-file", secret, "--code-file", "-")
	if out := ann.must("", "user", "info", "ann", "--json"); !strings.Contains(out, `"totp":true`) {
		t.Errorf("got %s", out)
	}
	ann.must("", "user", "totp", "remove", "ann", "--yes")
	if out := ann.must("", "user", "info", "ann", "--json"); !strings.Contains(out, `"totp":false`) {
		t.Errorf("got %s", out)
	}
}

// codeOf is what an authenticator app shows now (RFC 6238 with six digits, 30 seconds and SHA-1).
func codeOf(t *testing.T, secret string) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	sum := hmac.New(sha1.New, key)
	_ = binary.Write(sum, binary.BigEndian, time.Now().Unix()/30) // a hash takes all
	b := sum.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(b[b[len(b)-1]&15:])&0x7fffffff%1_000_000)
}

func TestLoginDoesNotThrowAwayAKey(t *testing.T) {
	s := serve(t)
	s.do(t, "admin", "claim", "--name", "ann", "--password-file", "-")
	key := s.do(t, "key", "create", "k", "--kind", "api", "--scope", "*:read")
	ann := person{t, []string{"HOME=" + t.TempDir()}}
	ann.must(key, "context", "add", "here", "--url", s.url, "--admin", s.admin, "--token-file", "-")
	code, _, told := ann.run("correct horse battery", "login", "ann", "--password-file", "-")
	if code != exitUsage || !strings.Contains(told, "context here has a key") {
		t.Errorf("left with %d: %s", code, told)
	}
	if out := ann.must("", "admin", "status", "--json"); !strings.Contains(out, `"kind":"key"`) {
		t.Errorf("the key is gone: %s", out)
	}
	if out := ann.must("", "logout", "--json"); !strings.Contains(out, "nothing") {
		t.Errorf("logout did %s", out)
	}
	if out := ann.must("", "admin", "status", "--json"); !strings.Contains(out, `"kind":"key"`) {
		t.Errorf("logout took the key: %s", out)
	}
}

// fakeOffice answers every request with one status and body, and keeps what it was sent.
func fakeOffice(t *testing.T, status int, header http.Header, body string) (address string,
	seen *http.Header) {
	t.Helper()
	seen = new(http.Header)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = r.Header.Clone()
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL, seen
}

func TestAnswersOfTheAdminDoorHaveTheirExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		exit   int
		told   string
	}{
		"bad request":   {400, `{"code":"BAD","detail":"x is wrong"}`, exitUsage, "x is wrong"},
		"invalid":       {422, `{"detail":"validation failed","errors":[{"message":"too short","location":"body.name"}]}`, exitUsage, "body.name: too short"},
		"unauthorized":  {401, `{"code":"AUTH_ERROR","detail":"no"}`, exitDenied, "not valid there"},
		"forbidden":     {403, `{"code":"FORBIDDEN","detail":"this needs admin:read"}`, exitDenied, "plinth admin status"},
		"not found":     {404, `{"code":"NOT_FOUND","detail":"no such"}`, exitNotFound, "no such"},
		"conflict":      {409, `{"code":"EXISTS","detail":"there is one"}`, exitConflict, "there is one"},
		"limit":         {429, `{"code":"LIMIT","detail":"slow down"}`, exitUnavailable, "try again later"},
		"unclaimed":     {503, `{"code":"UNCLAIMED","detail":"no account"}`, exitUnavailable, "plinth admin claim"},
		"busy":          {503, `{"code":"BUSY","detail":"later"}`, exitUnavailable, "try again later"},
		"late":          {504, `{"code":"TIMEOUT","detail":"late"}`, exitTimeout, "late"},
		"internal":      {500, `{"code":"INTERNAL","detail":"it broke"}`, exitFailed, "it broke"},
		"no document":   {500, `<html>`, exitFailed, "is the admin door of a Plinth"},
		"another page":  {200, `<html>`, exitFailed, "is not understood"},
		"odd status":    {599, ``, exitFailed, "status 599"},
		"nothing there": {404, ``, exitNotFound, "Not Found"},
	} {
		address, seen := fakeOffice(t, c.status, nil, c.body)
		w := person{t, []string{"PLINTH_ADMIN=" + address, "PLINTH_TOKEN= pk_x\n"}}
		code, out, told := w.run("", "user", "list")
		if code != c.exit || out != "" || !strings.Contains(told, c.told) {
			t.Errorf("%s: left with %d, want %d: %s%s", name, code, c.exit, out, told)
		}
		if got := seen.Get("Authorization"); got != "Bearer pk_x" {
			t.Errorf("%s: the door was given %q", name, got)
		}
		if strings.Contains(told, "pk_x") {
			t.Errorf("%s: the key is told: %s", name, told)
		}
	}
}

func TestTokenDoesNotFollowARedirect(t *testing.T) {
	elsewhere, seen := fakeOffice(t, 200, nil, `{"users":[]}`)
	address, _ := fakeOffice(t, 307, http.Header{"Location": {elsewhere}}, "")
	w := person{t, []string{"PLINTH_ADMIN=" + address, "PLINTH_TOKEN=pk_x"}}
	code, _, told := w.run("", "user", "list")
	if code != exitFailed || !strings.Contains(told, "is the admin door") {
		t.Errorf("left with %d: %s", code, told)
	}
	if *seen != nil {
		t.Errorf("the other door was asked with %v", *seen)
	}
}

func TestAnswerThatBreaksOffIsUnavailable(t *testing.T) {
	address, _ := fakeOffice(t, 200, http.Header{"Content-Length": {"1000"}}, `{"users":[`)
	w := person{t, []string{"PLINTH_ADMIN=" + address}}
	code, _, told := w.run("", "user", "list")
	if code != exitUnavailable || !strings.Contains(told, "broke off") {
		t.Errorf("left with %d: %s", code, told)
	}
}

func TestLocalTokenStaysOnThisMachine(t *testing.T) {
	data := t.TempDir()
	path := filepath.Join(data, "auth", "local.token")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("pl_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url, admin string
		want       string
	}{
		"as it is":          {"", "", "pl_secret"},
		"another port":      {"ws://127.0.0.1:1", "http://localhost:2", "pl_secret"},
		"IPv6":              {"ws://[::1]:1", "http://[::1]:2", "pl_secret"},
		"engine elsewhere":  {"ws://10.0.0.7:49134", "", ""},
		"door elsewhere":    {"", "https://plinth.example.org", ""},
		"a name like it":    {"ws://localhost.example.org", "", ""},
		"no address at all": {"::", "", ""},
	} {
		p := newProgram(nil, nil, nil, []string{"HOME=" + t.TempDir(), "PLINTH_DATA=" + data})
		p.url, p.admin = c.url, c.admin
		d, err := p.door()
		if err != nil {
			t.Fatal(err)
		}
		if d.token != c.want {
			t.Errorf("%s: got %q, want %q", name, d.token, c.want)
		}
	}
}

func TestDoorFollowsTheConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		url     string
		admin   string
	}{
		"defaults":      {nil, "ws://127.0.0.1:49134", "http://127.0.0.1:8081"},
		"other ports":   {[]string{"PLINTH_ENGINE_LISTEN=127.0.0.1:5000", "PLINTH_ADMIN_LISTEN=127.0.0.1:6000"}, "ws://127.0.0.1:5000", "http://127.0.0.1:6000"},
		"all networks":  {[]string{"PLINTH_ENGINE_LISTEN=0.0.0.0:5000"}, "ws://127.0.0.1:5000", "http://127.0.0.1:8081"},
		"with TLS":      {[]string{"PLINTH_ENGINE_TLS_CERT=c.pem", "PLINTH_ENGINE_TLS_KEY=k.pem"}, "wss://127.0.0.1:49134", "http://127.0.0.1:8081"},
		"port of 0":     {[]string{"PLINTH_ENGINE_LISTEN=127.0.0.1:0"}, "ws://127.0.0.1:49134", "http://127.0.0.1:8081"},
		"a bad setting": {[]string{"PLINTH_MEMORY=lots"}, "ws://127.0.0.1:49134", "http://127.0.0.1:8081"},
		"given":         {[]string{"PLINTH_URL=ws://h:1", "PLINTH_ADMIN=http://h:2/"}, "ws://h:1", "http://h:2"},
	} {
		p := newProgram(nil, nil, nil, append(c.environ, "HOME="+t.TempDir()))
		d, err := p.door()
		if err != nil {
			t.Fatal(err)
		}
		if d.URL != c.url || d.Admin != c.admin {
			t.Errorf("%s: got %s and %s, want %s and %s", name, d.URL, d.Admin, c.url, c.admin)
		}
	}
}

func TestSameHostMindsTheConnectionToo(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ws://h:1", "ws://h:2", true},
		{"ws://h", "ws://H:1", true},
		{"wss://h", "ws://h", false},
		{"ws://h", "ws://h.example.org", false},
		{"ws://h@evil", "ws://h", false},
		{"://", "://", false},
	} {
		if got := sameHost(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: got %t", c.a, c.b, got)
		}
	}
}

func TestSecretIsOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"pk_x": "pk_x", "pk_x\n": "pk_x", "pk_x\r\n": "pk_x", " a b ": " a b ", "": "", "\n": "", "a\nb": "", "a\x00b": "",
		strings.Repeat("x", maxSecret): strings.Repeat("x", maxSecret), strings.Repeat("x", maxSecret+1): "",
	} {
		p := newProgram(strings.NewReader(in), nil, nil, nil)
		got, err := p.readSecret("-")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: got %.20q, %v", in, got, err)
		}
		if _, err := p.readSecret("-"); err == nil {
			t.Errorf("%.20q: the standard input was read twice", in)
		}
	}
}

func TestNamesThatMayHaveBeenMeantAreAskedForOnlyWhenNothingIsFound(t *testing.T) {
	asked := 0
	names := func() ([]string, error) { asked++; return []string{"billing", "mail"}, nil }
	for _, err := range []error{nil, io.EOF, &house.Problem{Kind: fault.Denied}} {
		if got := near(err, "biling", names); got != err || asked > 0 {
			t.Errorf("%v: got %v, asked %d times", err, got, asked)
		}
	}
	one := &house.Problem{Kind: fault.NotFound}
	if near(one, "biling", names); len(one.Near) != 1 || one.Near[0] != "billing" {
		t.Errorf("got %q", one.Near)
	}
	two := &house.Problem{Kind: fault.NotFound}
	got := near(two, "x", func() ([]string, error) { return nil, io.EOF })
	if got != error(two) || two.Near != nil {
		t.Errorf("got %v", got)
	}
}

func TestNamesOfContextsAreTame(t *testing.T) {
	for name, want := range map[string]bool{
		"prod": true, "a": true, "0": true, "eu-west_1.b": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "-a": false, ".a": false, "A": false, "a b": false, "a/b": false,
		"a\nb": false, "ä": false, "a\"]": false,
	} {
		if got := contextName(name); got != want {
			t.Errorf("%q: got %t", name, got)
		}
	}
}

func TestEveryVerbSaysHowToComeIn(t *testing.T) {
	here, words := furnished(t)
	given := samples("")
	given["plinth user create"] = []string{"bob", "--password-file", "PASSWORD"}
	open := map[string]bool{ // these need no credential, or bring one
		"plinth admin claim": true, "plinth login": true, "plinth logout": true, "plinth context show": true,
	}
	nobody := person{t, []string{"HOME=" + t.TempDir(), "PLINTH_URL=" + here.url, "PLINTH_ADMIN=" + here.admin}}
	asked := 0
	verbs(newRoot(newProgram(nil, nil, nil, nil)), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.Flags().Lookup("token-file") == nil || open[path] || strings.HasPrefix(path, "plinth context") {
			return
		}
		line := strings.Fields(path)[1:]
		for _, word := range given[path] {
			if word != "--dry-run" {
				line = append(line, first(words[word], word))
			}
		}
		if cmd.Flags().Lookup("yes") != nil {
			line = append(line, "--yes")
		}
		asked++
		code, out, told := nobody.run("000000", line...)
		if code != exitDenied || out != "" || !strings.Contains(told, "give a key: --token-file") {
			t.Errorf("%v left with %d: %s%s", line, code, out, told)
		}
	})
	if asked < 30 {
		t.Errorf("only %d verbs were asked", asked)
	}
}

func TestAuthOfAnEndpointNamesVariables(t *testing.T) {
	for text, want := range map[string]*httpAuth{
		"bearer:TOKEN":         {Type: "bearer", TokenKey: "TOKEN"},
		"hmac:SECRET":          {Type: "hmac", SecretKey: "SECRET"},
		"api_key:X-Key:SECRET": {Type: "api_key", Header: "X-Key", ValueKey: "SECRET"},
		"":                     nil, "bearer": nil, "bearer:": nil, "bearer:a:b": nil, "hmac:": nil, "basic:X": nil,
		"api_key:X": nil, "api_key::X": nil, "api_key:X:": nil, "api_key:a:b:c": nil,
	} {
		got, err := parseHTTPAuth(text)
		if (err == nil) != (want != nil) || want != nil && *got != *want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
		if err != nil && text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: a secret in the place of a name would be told: %v", text, err)
		}
	}
}

func TestNamesOfAccountsAndKeysComplete(t *testing.T) {
	s := serve(t)
	s.do(t, "admin", "claim", "--name", "ann", "--password-file", "-")
	s.do(t, "key", "create", "billing", "--scope", "engine:read")
	for verb, want := range map[string]string{
		"user info": "ann\towner", "user totp remove": "ann\towner", "key revoke": "billing\tworker, active",
	} {
		out := s.do(t, append(append([]string{"__complete"}, strings.Fields(verb)...), "")...)
		if !strings.Contains(out, want+"\n") {
			t.Errorf("%s: got %q", verb, out)
		}
	}
	nobody := person{t, []string{"HOME=" + t.TempDir(), "PLINTH_ADMIN=" + s.admin}}
	if out := nobody.must("", "__complete", "user", "info", ""); strings.Contains(out, "ann") {
		t.Errorf("got %q", out)
	}
}

func TestCachedNamesBelongToOneEngine(t *testing.T) {
	home := t.TempDir()
	ask := func(url string) string {
		w := person{t, []string{"HOME=" + home, "XDG_CACHE_HOME=" + home, "PLINTH_URL=" + url}}
		return w.must("", "__complete", "call", "")
	}
	if out := ask(serving(t)); !strings.Contains(out, "hello::greet") {
		t.Errorf("got %q", out)
	}
	if out := ask(serve(t).url); strings.Contains(out, "hello::greet") {
		t.Errorf("of another engine: %q", out)
	}
}

func TestTimeThatIsOverBeforeTheGreetingIsATimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	w := person{t, []string{"HOME=" + t.TempDir(), "PLINTH_URL=ws://" + silent.Addr().String()}}
	for range 3 {
		code, _, told := w.run("", "call", "hello::greet", "--timeout", "5ms")
		if code != exitTimeout || !strings.Contains(told, "nothing was called") ||
			!strings.Contains(told, "allow more time with --timeout") {
			t.Errorf("left with %d: %s", code, told)
		}
	}
}

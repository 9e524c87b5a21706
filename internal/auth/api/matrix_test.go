package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Classes of operations, by what they need. They are written down here once more, and not read from the
// operations, so that a change of a right has to be made in two places.
const (
	classOpen   = "open"
	classKnown  = "any credential"
	classRead   = "admin:read"
	classManage = "admin:manage"
	classLocal  = "local token"
)

// expectation is what the matrix knows of an operation: its class, a path on things that are not there, and a
// body that is well formed.
type expectation struct {
	class string
	path  string
	body  func(n int) map[string]any
}

func fixed(m map[string]any) func(int) map[string]any { return func(int) map[string]any { return m } }

// expectations has a line for every operation. TestEveryOperationHasAnExpectation fails without.
func expectations() map[string]expectation {
	bare := func(class, path string) expectation { return expectation{class, path, nil} }
	return map[string]expectation{
		"GET /api/setup": bare(classOpen, "/api/setup"),
		"POST /api/setup/claim": {classOpen, "/api/setup/claim",
			fixed(map[string]any{"token": "pc_wrong", "name": "eve", "password": "short"})},
		"POST /api/setup/claim-token": bare(classLocal, "/api/setup/claim-token"),
		"POST /api/setup/bootstrap":   {classLocal, "/api/setup/bootstrap", fixed(map[string]any{"name": ""})},
		"POST /api/login": {classOpen, "/api/login",
			fixed(map[string]any{"name": "ann", "password": password})},
		"POST /api/logout":               bare(classKnown, "/api/logout"),
		"GET /api/me":                    bare(classKnown, "/api/me"),
		"GET /api/users":                 bare(classRead, "/api/users"),
		"GET /api/users/{name}":          bare(classRead, "/api/users/ghost"),
		"GET /api/users/{name}/sessions": bare(classRead, "/api/users/ghost/sessions"),
		"POST /api/users": {classManage, "/api/users", func(n int) map[string]any {
			return map[string]any{"name": fmt.Sprint("new", n), "password": password, "role": "viewer"}
		}},
		"PATCH /api/users/{name}":             {classManage, "/api/users/ghost", fixed(map[string]any{"disabled": true})},
		"DELETE /api/users/{name}":            bare(classManage, "/api/users/ghost"),
		"PUT /api/users/{name}/password":      {classManage, "/api/users/ghost/password", fixed(map[string]any{"password": password})},
		"POST /api/users/{name}/totp":         bare(classManage, "/api/users/ghost/totp"),
		"POST /api/users/{name}/totp/confirm": {classManage, "/api/users/ghost/totp/confirm", fixed(map[string]any{"code": "000000"})},
		"DELETE /api/users/{name}/totp":       bare(classManage, "/api/users/ghost/totp"),
		"DELETE /api/sessions/{id}":           bare(classKnown, "/api/sessions/ghost"),
		"GET /api/keys":                       bare(classRead, "/api/keys"),
		"GET /api/keys/{id}":                  bare(classRead, "/api/keys/ghost"),
		"DELETE /api/keys/{id}":               bare(classManage, "/api/keys/ghost"),
		"POST /api/keys": {classManage, "/api/keys", func(n int) map[string]any {
			return map[string]any{"name": fmt.Sprint("key", n), "kind": "api", "scopes": []string{"admin:manage"}}
		}},
		"GET /api/audit":    bare(classRead, "/api/audit?limit=1"),
		"POST /api/backups": {classManage, "/api/backups", fixed(map[string]any{"target": "/backup"})},
	}
}

// TestEveryOperationHasAnExpectation reads the description of the API: an operation that is new there needs a
// line in the matrix.
func TestEveryOperationHasAnExpectation(t *testing.T) {
	d := open(t)
	var there []string
	for path, item := range d.api.OpenAPI().Paths {
		for method, op := range map[string]any{"GET": item.Get, "POST": item.Post, "PUT": item.Put,
			"PATCH": item.Patch, "DELETE": item.Delete, "HEAD": item.Head, "OPTIONS": item.Options,
			"TRACE": item.Trace} {
			if fmt.Sprint(op) != "<nil>" {
				there = append(there, method+" "+path)
			}
		}
	}
	slices.Sort(there)
	if want := slices.Sorted(maps.Keys(expectations())); !slices.Equal(there, want) {
		t.Errorf("the API has\n%s\nthe matrix has\n%s", strings.Join(there, "\n"), strings.Join(want, "\n"))
	}
}

// TestWhatNeedsNoCredentialIsThis: whoever adds to this list opens the house.
func TestWhatNeedsNoCredentialIsThis(t *testing.T) {
	want := []string{"GET /api/setup", "POST /api/setup/claim", "POST /api/login"}
	if got := Open(); !slices.Equal(got, want) {
		t.Errorf("open are %v, want %v", got, want)
	}
	for key, e := range expectations() {
		if (e.class == classOpen) != slices.Contains(want, key) {
			t.Errorf("%s: the matrix says %s", key, e.class)
		}
	}
}

// outcome is what the guard and the rights make of a request. What the operation says then, because there is
// no ghost, is "through".
const through = "through"

func outcome(a answer) string {
	switch {
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.code == "UNCLAIMED":
		return fmt.Sprint(a.status, " ", a.code)
	case a.status >= 500 || a.status == http.StatusUnprocessableEntity || a.status == http.StatusNotAcceptable:
		return fmt.Sprint("wrong: ", a.status, " ", a.text)
	}
	return through
}

const (
	refused401 = "401 AUTH_ERROR"
	refused403 = "403 FORBIDDEN"
	refused503 = "503 UNCLAIMED"
)

// visitor is a kind of credential, and what it comes to for each class; what is not given is the last.
type visitor struct {
	name    string
	how     []with
	classes map[string]string
	rest    string
}

// visit asks for every operation as every visitor.
func visit(t *testing.T, d *door, visitors []visitor, open map[string]string, odd map[string]string) {
	t.Helper()
	n := 0
	all := expectations()
	order := slices.Sorted(maps.Keys(all))
	last := func(key string) int { // a session is over with its logout
		if key == "POST /api/logout" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(x, y string) int { return last(x) - last(y) })
	for _, key := range order {
		e := all[key]
		method, _, _ := strings.Cut(key, " ")
		for _, v := range visitors {
			n++
			if !d.auth.Claimed() {
				d.later(time.Hour) // what the last visitor got wrong is forgotten
			}
			var body any
			if e.body != nil {
				body = e.body(n)
			}
			want := v.rest
			if s, ok := v.classes[e.class]; ok {
				want = s
			}
			if s, ok := open[key]; ok && e.class == classOpen {
				want = s
			}
			if s, ok := odd[v.name+" "+key]; ok {
				want = s
			}
			if got := outcome(d.ask(method, e.path, body, v.how...)); got != want {
				t.Errorf("%s as %s: %s, want %s", key, v.name, got, want)
			}
		}
	}
}

func TestMatrixWhileThereIsNoAccount(t *testing.T) {
	d := open(t)
	local := d.auth.LocalToken()
	visit(t, d, []visitor{
		{"loopback", nil, map[string]string{classKnown: through}, refused403},
		{"loopback, version 6", []with{func(r *http.Request) { r.RemoteAddr = "[::1]:9" }},
			map[string]string{classKnown: through}, refused403},
		{"page with an origin", []with{header("Origin", "http://localhost:8081")}, nil, refused503},
		{"page with a fetch site", []with{header("Sec-Fetch-Site", "same-origin")}, nil, refused503},
		{"page with another fetch header", []with{header("Sec-Fetch-Mode", "cors")}, nil, refused503},
		{"another machine", []with{from("192.0.2.1")}, nil, refused503},
		{"wrong token", []with{bearer("pk_12345678_wrong")}, nil, refused401},
		{"wrong local token", []with{bearer("pl_wrong")}, nil, refused401},
		{"wrong cookie", []with{cookie("ps_wrong"), header("Sec-Fetch-Site", "same-origin")}, nil, refused401},
		{"local token", []with{bearer(local)}, nil, through},
		{"local token as password", []with{basic(local)}, nil, through},
		{"local token elsewhere", []with{bearer(local), from("192.0.2.1")}, nil, through},
	}, map[string]string{
		"GET /api/setup": through,
		// The right token would do; the guard has nothing to do with it.
		"POST /api/setup/claim": refused403,
		"POST /api/login":       refused401,
	}, map[string]string{
		// The local token is as good as the claim token: the guard has let it by, and the password is too short.
		"local token POST /api/setup/claim":             through,
		"local token as password POST /api/setup/claim": through,
		"local token elsewhere POST /api/setup/claim":   through,
		// The first account comes from a claim.
		"local token POST /api/users":             refused503,
		"local token as password POST /api/users": refused503,
		"local token elsewhere POST /api/users":   refused503,
		"local token POST /api/keys":              refused503,
		"local token as password POST /api/keys":  refused503,
		"local token elsewhere POST /api/keys":    refused503,
	})
	if d.auth.Claimed() {
		t.Error("somebody made an account")
	}
}

func TestMatrixOnceThereIsAnAccount(t *testing.T) {
	d := claimed(t)
	local := d.auth.LocalToken()
	owner, viewer := d.login("ann"), d.user("vic", "viewer")
	developer, gone, admin := d.user("dev", "developer"), d.user("gus", "admin"), d.user("adi", "admin")
	_, engine := d.key("api", 0, "engine:*")
	_, worker := d.key("worker", 0, "engine:register", "engine:call")
	_, reads := d.key("api", 0, "admin:read")
	_, part := d.key("api", 0, "admin:manage:metrics", "admin:read:metrics")
	_, manages := d.key("api", 0, "admin:manage", "admin:read")
	_, short := d.key("api", time.Hour, "*:*")
	id, revoked := d.key("api", 0, "*:*")
	for what, a := range map[string]answer{
		"revoke":  d.ask("DELETE", "/api/keys/"+id, nil, bearer(local)),
		"disable": d.ask("PATCH", "/api/users/gus", map[string]any{"disabled": true}, bearer(owner)),
	} {
		if a.status >= 300 {
			t.Fatalf("%s: %+v", what, a)
		}
	}
	d.later(2 * time.Hour)
	nobody := map[string]string{}
	seesAll := map[string]string{classKnown: through, classRead: through}
	seesNone := map[string]string{classKnown: through}
	masters := map[string]string{classLocal: refused403}
	page := header("Sec-Fetch-Site", "same-origin")
	visitors := []visitor{
		{"nobody", nil, nobody, refused401},
		{"nobody elsewhere", []with{from("192.0.2.1")}, nobody, refused401},
		{"a page", []with{header("Origin", "http://localhost:8081")}, nobody, refused401},
		{"wrong key", []with{bearer(engine[:len(engine)-1] + "~")}, nobody, refused401},
		{"no token at all", []with{bearer("hello")}, nobody, refused401},
		{"expired key", []with{bearer(short)}, nobody, refused401},
		{"revoked key", []with{bearer(revoked)}, nobody, refused401},
		{"disabled user", []with{bearer(gone)}, nobody, refused401},
		{"engine key", []with{bearer(engine)}, seesNone, refused403},
		{"worker key", []with{basic(worker)}, seesNone, refused403},
		{"key for one part", []with{bearer(part)}, seesNone, refused403},
		{"reading key", []with{bearer(reads)}, seesAll, refused403},
		{"managing key", []with{basic(manages)}, masters, through},
		{"viewer", []with{bearer(viewer)}, seesNone, refused403},
		{"developer", []with{bearer(developer)}, seesNone, refused403},
		{"admin", []with{bearer(admin)}, masters, through},
		{"local token", []with{bearer(local)}, nil, through},
		{"owner", []with{bearer(owner)}, masters, through},
		{"owner on a page", []with{cookie(d.login("ann")), page}, masters, through},
		{"owner on an older page", []with{cookie(d.login("ann")), header("Origin", "http://localhost:8081")}, masters,
			through},
		{"viewer on a page", []with{cookie(d.login("vic")), page}, seesNone, refused403},
		{"somebody's old cookie", []with{cookie(gone), page}, nil, refused401},
		{"a key over a cookie", []with{bearer(engine), cookie(d.login("ann")), page}, seesNone, refused403},
	}
	visit(t, d, visitors, map[string]string{"GET /api/setup": through, "POST /api/setup/claim": through,
		"POST /api/login": through}, map[string]string{
		// A viewer may more than this key: who could make one could log in as it.
		"managing key POST /api/users": refused403,
	})
}

// TestAForeignPageChangesNothingWithACookie: the visitor's browser has the cookie, and another site uses it.
func TestAForeignPageChangesNothingWithACookie(t *testing.T) {
	d := claimed(t)
	token := d.login("ann")
	visitors := map[string][]with{
		"no sign of a page":         {},
		"another site":              {header("Sec-Fetch-Site", "cross-site")},
		"another port":              {header("Sec-Fetch-Site", "same-site")},
		"typed":                     {header("Sec-Fetch-Site", "none")},
		"another origin":            {header("Origin", "http://evil.example")},
		"no origin to speak of":     {header("Origin", "null")},
		"an origin that is no URL":  {header("Origin", "http://%zz")},
		"an origin, other site":     {header("Origin", "http://localhost:8081"), header("Sec-Fetch-Site", "cross-site")},
		"an origin of another port": {header("Origin", "http://localhost:3000")},
	}
	for key, e := range expectations() {
		method, _, _ := strings.Cut(key, " ")
		if method == "GET" {
			continue
		}
		for name, how := range visitors {
			var body any
			if e.body != nil {
				body = e.body(0)
			}
			got := d.ask(method, e.path, body, append(how, cookie(token))...)
			if got.status != 403 || got.code != "FORBIDDEN" {
				t.Errorf("%s by %s: %d %s", key, name, got.status, got.text)
			}
		}
	}
	if got := d.ask("GET", "/api/me", nil, cookie(token)); got.status != 200 {
		t.Errorf("the session does not stand any more: %+v", got)
	}
}

// TestNoReadingChangesAnything: nothing that changes is reached by GET or HEAD, which a page may send
// unasked.
func TestNoReadingChangesAnything(t *testing.T) {
	d := claimed(t)
	for key, e := range expectations() {
		if method, _, _ := strings.Cut(key, " "); method == "GET" {
			continue
		}
		for _, method := range []string{"GET", "HEAD"} {
			before := d.auth.Audit().Stats().Lines
			got := d.ask(method, e.path, nil, bearer(d.auth.LocalToken()))
			if got.status != 405 && got.status != 404 && got.status != 200 {
				t.Errorf("%s %s: %d", method, e.path, got.status)
			}
			if d.auth.Audit().Stats().Lines != before {
				t.Errorf("%s %s: left a line in the trail", method, e.path)
			}
		}
	}
}

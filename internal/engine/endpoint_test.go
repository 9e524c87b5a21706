package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/engine/httpfn"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/wire"
)

// near is a policy that allows what a test listens on.
var near = httpfn.Policy{Allow: []string{"*"}}

// site answers with what it was sent, and its path.
func site(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, `{"error":{"code":"too_short","message":"and stout"}}`)
			return
		}
		fmt.Fprintf(w, `{"path":%q,"function":%q,"body":%s}`, r.URL.Path, r.Header.Get("x-iii-Function-Path"), b)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestAWorkerRegistersAnHTTPFunction(t *testing.T) {
	url := site(t)
	r := start(t, func(c *engine.Config) { c.HTTP = near })
	w, caller := r.worker("w"), r.worker("caller")
	for id, path := range map[string]string{"a::ok": "/ok", "a::fail": "/fail"} {
		if got := registers(w, id, fmt.Sprintf(`,"invocation":{"url":%q}`, url+path)); got != "" {
			t.Fatalf("%s: %s", id, got)
		}
	}
	out := caller.call("a::ok", `{"x":1}`)["result"].(map[string]any)
	if out["path"] != "/ok" || out["function"] != "a::ok" || out["body"].(map[string]any)["x"] != 1.0 {
		t.Errorf("got %v", out)
	}
	if out := caller.call("a::fail", "1"); out.code() != "too_short" || out.message() != "and stout" {
		t.Errorf("got %v", out)
	}
	w.nc.Close()
	for caller.call("a::ok", "").code() != wire.CodeFunctionNotFound {
	}
}

func TestCallsOfAnHTTPFunctionThatIsNotAllowedSaySo(t *testing.T) {
	url := site(t)
	r := start(t, func(c *engine.Config) {
		c.HTTP = httpfn.Policy{Allow: []string{"*"}, BlockPrivate: true, RequireHTTPS: true}
	})
	w := r.worker("w")
	for _, invocation := range []string{fmt.Sprintf(`{"url":%q}`, url), `{"url":"https://127.0.0.1/x"}`,
		`{"url":"https://[::ffff:10.0.0.1]/"}`} {
		if got := registers(w, "a::b", `,"invocation":`+invocation); got != "" {
			t.Errorf("%s: got %q", invocation, got)
		}
		if got := w.call("a::b", "1").code(); got != wire.CodeURLValidationFailed {
			t.Errorf("%s: a call got %q", invocation, got)
		}
	}
	if got := registers(w, "a::c", `,"invocation":{"url":"file:///etc/passwd"}`); got != wire.CodeURLValidationFailed {
		t.Errorf("what can never be called is rejected at once: got %q", got)
	}
	if got := registers(w, "a::b", `,"invocation":{}`); got == "" {
		t.Error("an invocation without a URL was taken")
	}
}

func TestAnHTTPFunctionForGoodOutlivesWorkerAndProcess(t *testing.T) {
	url, path := site(t), t.TempDir()+"/data"
	run := func(try func(r *rig, c *client)) {
		dir, err := store.Open(path, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		room, err := dir.Room(t.Context(), "engine", store.Schema{Number: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, func(c *engine.Config) { c.HTTP, c.Room = near, room })
		try(r, r.worker("w"))
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add := fmt.Sprintf(`{"function_id":"hook::send","invocation":{"url":%q},"description":"sends"}`, url+"/send")
	run(func(r *rig, c *client) {
		out := c.call("engine::http-functions::add", add)
		if res, _ := out["result"].(map[string]any); res["replaced"] != false || res["namespace"] != "default" {
			t.Fatalf("got %v", out)
		}
		if out := c.call("engine::http-functions::add", add)["result"].(map[string]any); out["replaced"] != true {
			t.Errorf("got %v", out)
		}
		if got := registers(c, "hook::send", ""); got != wire.CodeFunctionConflict {
			t.Errorf("a worker took its name: %q", got)
		}
		r.worker("other", "taken::f")
		taken := strings.Replace(add, "hook::send", "taken::f", 1)
		if got := c.call("engine::http-functions::add", taken).code(); got != wire.CodeFunctionConflict {
			t.Errorf("a worker's name: got %q", got)
		}
		for bad, want := range map[string]string{`{}`: wire.CodeInvalidArguments,
			`{"function_id":"engine::x","invocation":{"url":"` + url + `"}}`:                 wire.CodeReservedPrefix,
			`{"function_id":"x::y","namespace":" ","invocation":{"url":"` + url + `"}}`:      wire.CodeInvalidNamespace,
			`{"function_id":"x::y","invocation":{"url":"` + url + `","auth":{"type":"no"}}}`: wire.CodeInvalidArguments,
		} {
			if got := c.call("engine::http-functions::add", bad); got.code() != want {
				t.Errorf("%s: got %q %s, want %q", bad, got.code(), got.message(), want)
			}
		}
	})
	run(func(_ *rig, c *client) {
		out, _ := c.call("hook::send", `7`)["result"].(map[string]any)
		if out["path"] != "/send" || out["body"] != 7.0 {
			t.Errorf("after a restart: got %v", out)
		}
		if got := rows(c.call("engine::http-functions::list", ""), "functions", "function_id"); len(got) != 1 ||
			got[0] != "hook::send" {
			t.Errorf("got %q", got)
		}
		gone := c.call("engine::http-functions::remove", `{"function_id":"hook::send"}`)["result"].(map[string]any)
		if gone["removed"] != true || c.call("hook::send", "").code() != wire.CodeFunctionNotFound {
			t.Errorf("got %v", gone)
		}
	})
	run(func(_ *rig, c *client) {
		if got := rows(c.call("engine::http-functions::list", ""), "functions", "function_id"); len(got) != 0 {
			t.Errorf("it came back: %q", got)
		}
	})
}

package apptest_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/app/apptest"
	"github.com/plinth-run/plinth/worker"
)

const patience = 30 * time.Second

// knock sends an upgrade request and returns the status of the answer.
func knock(t *testing.T, url, path string, header ...string) int {
	t.Helper()
	address := url[strings.Index(url, "://")+3:]
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	host := "localhost"
	var lines string
	for _, h := range header {
		if name, value, _ := strings.Cut(h, ": "); name == "Host" {
			host = value
			continue
		}
		lines += h + "\r\n"
	}
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n", path, host, lines)
	a, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	return a.StatusCode
}

// TestEveryWorkerDoorAsksForEveryKindOfCredential is the matrix of the worker sockets; that of the admin
// door is
// in internal/auth/api.
func TestEveryWorkerDoorAsksForEveryKindOfCredential(t *testing.T) {
	h := apptest.Start(t, map[string]string{
		"engine.listeners.public.listen": "127.0.0.1:0", "engine.listeners.public.auth_function": "gate::check",
		"engine.listeners.narrow.listen": "127.0.0.1:0", "engine.listeners.narrow.expose": "shop::*",
	})
	basic := func(key string) string {
		r, _ := http.NewRequest(http.MethodGet, "http://x", nil)
		r.SetBasicAuth("any", key)
		return "Authorization: " + r.Header.Get("Authorization")
	}
	page, rebound := "Origin: http://localhost:3000", "Host: evil.example.org"
	doors := []struct{ name, url, path string }{
		{"main /", h.URL, "/"}, {"main /otel", h.URL, "/otel"}, {"narrow /", h.Listeners["narrow"], "/"},
		{"narrow /otel", h.Listeners["narrow"], "/otel"},
	}
	check := func(name, credential string, header []string, want int) {
		t.Helper()
		for _, d := range doors {
			if got := knock(t, d.url, d.path, header...); got != want {
				t.Errorf("%s, %s, %s: got %d, want %d", d.name, name, credential, got, want)
			}
		}
	}
	const before, after = "before the first account", "after it"
	check(before, "none", nil, 101)
	check(before, "a page", []string{page}, 403)
	check(before, "a browser without an origin", []string{"Sec-Fetch-Site: none"}, 503)
	check(before, "a foreign host", []string{rebound}, 403)
	check(before, "a wrong key", []string{"Authorization: Bearer wk_00000000_x"}, 401)
	check(before, "the local token", []string{"Authorization: Bearer " + h.LocalToken()}, 101)

	local := h.Claim()
	good, _ := h.Key("worker", "good", 0, "engine:call:shop::")
	api, _ := h.Key("api", "api", 0, "engine:*")
	gone, id := h.Key("worker", "gone", 0, "engine:*")
	if got := h.Ask(local, http.MethodDelete, "/api/keys/"+id, nil, nil); got != http.StatusNoContent {
		t.Fatalf("revoke: %d", got)
	}
	short, _ := h.Key("worker", "short", 1, "engine:*")
	var login struct{ Token string }
	h.Ask("", http.MethodPost, "/api/login", map[string]string{"name": "ann", "password": apptest.Password},
		&login)
	check(after, "none", nil, 401)
	check(after, "a page", []string{page}, 403)
	check(after, "a page with a key", []string{page, "Authorization: Bearer " + good}, 403)
	check(after, "a foreign host with a key", []string{rebound, "Authorization: Bearer " + good}, 403)
	check(after, "a wrong key", []string{"Authorization: Bearer " + good[:len(good)-1] + "!"}, 401)
	check(after, "nonsense", []string{"Authorization: Digest x"}, 401)
	check(after, "a revoked key", []string{"Authorization: Bearer " + gone}, 401)
	check(after, "a worker key", []string{"Authorization: Bearer " + good}, 101)
	check(after, "a worker key in the URL", []string{basic(good)}, 101)
	check(after, "an API key", []string{"Authorization: Bearer " + api}, 101)
	check(after, "a session", []string{"Authorization: Bearer " + login.Token}, 101)
	check(after, "the local token", []string{"Authorization: Bearer " + local}, 101)
	for knock(t, h.URL, "/", "Authorization: Bearer "+short) == 101 {
	}
	check(after, "an expired key", []string{"Authorization: Bearer " + short}, 401)

	for _, path := range []string{"/", "/otel"} { // an auth function decides alone, and there is none
		for _, line := range []string{"Authorization: Bearer " + good, "Authorization: Bearer " + local} {
			if got := knock(t, h.Listeners["public"], path, line); got != 401 {
				t.Errorf("the listener with an auth function, %s: got %d", path, got)
			}
		}
	}

	w, err := worker.New(strings.Replace(h.URL, "ws://", "ws://any:"+api+"@", 1), worker.Options{Name: "maker"})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.Run(t.Context()) }() // ends with the test
	if err := w.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	write, _, err := w.CreateChannel(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	end := fmt.Sprintf("/ws/channels/%s?dir=write&key=", write.ChannelID)
	for _, c := range []struct {
		path string
		line string
		want int
	}{
		{end + "wrong", "X: y", 404}, {end + write.AccessKey, "Authorization: Bearer wrong", 401},
		{end + write.AccessKey, page, 403}, {end + write.AccessKey, rebound, 403},
		{end + write.AccessKey, "Authorization: Bearer " + good, 101},
	} {
		if got := knock(t, h.URL, c.path, c.line); got != c.want {
			t.Errorf("channel, %s: got %d, want %d", c.line, got, c.want)
		}
	}
}

func TestAKeyOfAnotherRoomMayDoNothingHere(t *testing.T) {
	h := apptest.Start(t, nil)
	h.Claim()
	other, _ := h.Key("api", "other", 0, "sites:read")
	host, _ := h.Key("worker", "host", 0, "engine:register:shop::", "engine:call:shop::")
	keyed := func(key string) worker.Options { return worker.Options{Token: key, Name: "w-" + key[3:11]} }
	h.Worker(keyed(host), func(w *worker.Worker) { mustRegister(t, w, "shop::list") })
	stranger, _ := h.Worker(keyed(other), nil)
	if _, err := stranger.Call(t.Context(), "shop::list", nil); code(err) != "FORBIDDEN" {
		t.Errorf("got %v", err)
	}
	caller, _ := h.Worker(worker.Options{Token: host, Name: "caller"}, nil)
	if b, err := caller.Call(t.Context(), "shop::list", []byte("1")); err != nil || string(b) != "1" {
		t.Errorf("got %s, %v", b, err)
	}
}

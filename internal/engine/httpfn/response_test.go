package httpfn

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// canned answers every request with the bytes and closes.
func canned(t *testing.T, answer string) string {
	t.Helper()
	return raw(t, func(c net.Conn) { _, _ = io.WriteString(c, answer) })
}

func TestStatusAndBodyDecideTheOutcome(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, x := range map[string]struct {
		status int
		body   string
		result string // "" means an error
		kind   fault.Kind
		code   string
		text   string
	}{
		"object":              {200, `{"a":1}`, `{"a":1}`, 0, "", ""},
		"number as it came":   {200, `1.00000000000000000001e400`, `1.00000000000000000001e400`, 0, "", ""},
		"null":                {200, `null`, `null`, 0, "", ""},
		"created":             {201, ` "x" ` + "\n", `"x"`, 0, "", ""},
		"no content":          {204, ``, `<none>`, 0, "", ""},
		"empty":               {200, ``, `<none>`, 0, "", ""},
		"blank":               {200, " \r\n\t", `<none>`, 0, "", ""},
		"as deep as a frame":  {200, deep(511), deep(511), 0, "", ""},
		"brackets in texts":   {200, `"` + strings.Repeat(`[\"\\`, 600) + `"`, `"` + strings.Repeat(`[\"\\`, 600) + `"`, 0, "", ""},
		"flat but long":       {200, `[` + strings.Repeat(`[],`, 2000) + `[]]`, `[` + strings.Repeat(`[],`, 2000) + `[]]`, 0, "", ""},
		"too deep":            {200, deep(512), "", fault.Invalid, "invalid_response", "deeper"},
		"far too deep":        {200, strings.Repeat("[", 100000), "", fault.Invalid, "invalid_response", "not JSON"},
		"html":                {200, `<html>`, "", fault.Invalid, "invalid_response", "not JSON"},
		"two values":          {200, `1 2`, "", fault.Invalid, "invalid_response", "not JSON"},
		"broken UTF-8":        {200, "\"\xff\"", "", fault.Invalid, "invalid_response", "UTF-8"},
		"byte order mark":     {200, "\ufeff1", "", fault.Invalid, "invalid_response", "not JSON"},
		"multiple choices":    {300, `{"a":1}`, `{"a":1}`, 0, "", ""},
		"not modified":        {304, ``, `<none>`, 0, "", ""},
		"redirect with html":  {302, `<a>`, `<none>`, 0, "", ""},
		"redirect, too deep":  {302, deep(600), `<none>`, 0, "", ""},
		"bad request":         {400, ``, "", fault.Invalid, "http_error", "HTTP 400"},
		"unauthorized":        {401, `{}`, "", fault.Denied, "http_error", "HTTP 401"},
		"forbidden":           {403, `null`, "", fault.Denied, "http_error", "HTTP 403"},
		"not found":           {404, `<html>`, "", fault.NotFound, "http_error", "HTTP 404"},
		"conflict":            {409, `{"error":"text"}`, "", fault.Conflict, "http_error", "HTTP 409"},
		"too many":            {429, `{"error":null}`, "", fault.Limit, "http_error", "HTTP 429"},
		"server":              {500, `[]`, "", fault.Unavailable, "http_error", "HTTP 500"},
		"gateway timeout":     {504, `{"error":[]}`, "", fault.Timeout, "http_error", "HTTP 504"},
		"unknown status":      {599, ``, "", fault.Unavailable, "http_error", "HTTP 599"},
		"beyond all statuses": {799, ``, "", fault.Unavailable, "http_error", "HTTP 799"},
		"own error":           {422, `{"error":{"code":"no_stock","message":"sold out"}}`, "", fault.Invalid, "no_stock", "sold out"},
		"own error, success":  {200, `{"error":{"code":"x"}}`, `{"error":{"code":"x"}}`, 0, "", ""},
		"own code alone":      {500, `{"error":{"code":"no_stock"}}`, "", fault.Unavailable, "no_stock", "HTTP 500"},
		"own message alone":   {500, `{"error":{"message":"sold out"}}`, "", fault.Unavailable, "http_error", "sold out"},
		"own error of others": {500, `{"error":{"code":7,"message":{}}}`, "", fault.Unavailable, "http_error", "HTTP 500"},
		"code of two lines":   {500, `{"error":{"code":"a\nb","message":"x"}}`, "", fault.Unavailable, "http_error", "x"},
		"code too long":       {500, `{"error":{"code":"` + strings.Repeat("a", 200) + `"}}`, "", fault.Unavailable, "http_error", "HTTP 500"},
		"message of tricks":   {500, `{"error":{"message":"a\u001b[31m\u202eb\nc"}}`, "", fault.Unavailable, "http_error", "a[31mb\nc"},
		"message too long":    {500, `{"error":{"message":"` + strings.Repeat("é", 4000) + `"}}`, "", fault.Unavailable, "http_error", "éé"},
		"error too large":     {500, `{"error":{"code":"x","message":"` + strings.Repeat("a", maxErrorBody) + `"}}`, "", fault.Unavailable, "http_error", "HTTP 500"},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(x.status)
			_, _ = io.WriteString(w, x.body)
		})
		got, err := do(t, client(t, open(), Options{}), spec(url), `1`)
		switch {
		case x.result != "" && (err != nil || got != x.result):
			t.Errorf("%s: got %.80s, %v", name, got, err)
		case x.result != "":
		case err == nil || err.Code != x.code || err.Kind != x.kind || !strings.Contains(err.Message, x.text):
			t.Errorf("%s: got %.80s, %v", name, got, err)
		case len(err.Message) > maxMessage:
			t.Errorf("%s: a message of %d bytes", name, len(err.Message))
		}
	}
}

func TestInformationalAnswersAreNoFailure(t *testing.T) {
	for name, answer := range map[string]string{
		"hints":    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7",
		"continue": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7",
	} {
		if got, err := do(t, client(t, open(), Options{}), spec(canned(t, answer)), `1`); err != nil || got != "7" {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	switched := raw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		hold(c)
	})
	if got, err := do(t, client(t, open(), Options{}), spec(switched), `1`); err != nil || got != "<none>" {
		t.Errorf("switching: got %s, %v", got, err)
	}
}

func TestHostileAnswersFailAndAreBounded(t *testing.T) {
	var cut atomic.Int64
	endless := func(head, more string) string {
		return raw(t, func(c net.Conn) {
			_, _ = io.WriteString(c, head)
			if flood(c, bytes.Repeat([]byte(more), 100), 64<<20) {
				cut.Add(1)
			}
		})
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	floods := map[string]struct{ url, code string }{
		"headers":       {endless(ok, "X-A: b\r\n"), wire.CodeHTTPRequestFailed},
		"one header":    {endless(ok+"X-A: ", "bbbbbbbbbbbbbbbbbbbb"), wire.CodeHTTPRequestFailed},
		"status line":   {endless("HTTP/1.1 200 ", "bbbbbbbbbbbbbbbbbbbb"), wire.CodeHTTPRequestFailed},
		"informational": {endless("", "HTTP/1.1 103 Early Hints\r\nX-A: bbbbbbbbbbbb\r\n\r\n"), wire.CodeHTTPRequestFailed},
		"body":          {endless(ok+"\r\n", "                    "), wire.CodeHTTPResponseFailed},
		"chunks":        {endless(ok+"Transfer-Encoding: chunked\r\n\r\n", "10\r\n0123456789abcdef\r\n"), wire.CodeHTTPResponseFailed},
		"tiny chunks":   {endless(ok+"Transfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("e", 500)+"\r\n1\r\n"), wire.CodeHTTPResponseFailed},
		"chunk size":    {endless(ok+"Transfer-Encoding: chunked\r\n\r\n", "1111111111111111111"), wire.CodeHTTPResponseFailed},
		"trailers":      {endless(ok+"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n", "X-A: bbbbbbbbbbbbbb\r\n"), wire.CodeHTTPResponseFailed},
	}
	others := map[string]struct{ url, code string }{
		"length too large":  {canned(t, ok+"Content-Length: 99999999999\r\n\r\n1"), wire.CodeHTTPResponseFailed},
		"length lies":       {canned(t, ok+"Content-Length: 99\r\n\r\n1"), wire.CodeHTTPResponseFailed},
		"length negative":   {canned(t, ok+"Content-Length: -1\r\n\r\n1"), wire.CodeHTTPRequestFailed},
		"two lengths":       {canned(t, ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\n12"), wire.CodeHTTPRequestFailed},
		"chunk size broken": {canned(t, ok+"Transfer-Encoding: chunked\r\n\r\nxyz\r\n1\r\n0\r\n\r\n"), wire.CodeHTTPResponseFailed},
		"chunk cut short":   {canned(t, ok+"Transfer-Encoding: chunked\r\n\r\n5\r\n1"), wire.CodeHTTPResponseFailed},
		"chunk without end": {canned(t, ok+"Transfer-Encoding: chunked\r\n\r\n1\r\n1"), wire.CodeHTTPResponseFailed},
		"foreign encoding":  {canned(t, ok+"Transfer-Encoding: gzip\r\n\r\n1"), wire.CodeHTTPRequestFailed},
		"header without :":  {canned(t, ok+"X-A\r\n\r\n"), wire.CodeHTTPRequestFailed},
		"status zero":       {canned(t, "HTTP/1.1 000 X\r\n\r\n1"), wire.CodeHTTPResponseFailed},
		"no status":         {canned(t, "HTTP/1.1 abc OK\r\n\r\n"), wire.CodeHTTPRequestFailed},
		"another protocol":  {canned(t, "SSH-2.0-x\r\n"), wire.CodeHTTPRequestFailed},
		"http 2 preface":    {canned(t, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), wire.CodeHTTPRequestFailed},
	}
	p := open()
	p.MaxResponse = 1 << 20
	c := client(t, p, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, group := range []map[string]struct{ url, code string }{floods, others} {
		for name, x := range group {
			got, err := do(t, c, spec(x.url), `1`)
			if err == nil || err.Code != x.code {
				t.Errorf("%s: got %.40s, %v", name, got, err)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
	if st := c.Stats(); st.Held != 0 || st.Running != 0 {
		t.Errorf("counted %+v", st)
	}
	c.Close()
}

func TestATrickleIsCutByTheTimeout(t *testing.T) {
	ended := make(chan bool, 2)
	trickle := func(head string) string {
		return raw(t, func(c net.Conn) {
			_, _ = io.WriteString(c, head)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for range 100_000 {
				<-tick.C
				if _, err := c.Write([]byte(" ")); err != nil {
					ended <- true
					return
				}
			}
			ended <- false
		})
	}
	c := client(t, open(), Options{})
	for _, head := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nX-A:"} {
		s := spec(trickle(head))
		s.Timeout = 30 * time.Millisecond
		_, err := do(t, c, s, `1`)
		wants(t, err, fault.Timeout, wire.CodeInvocationTimeout)
		if !<-ended {
			t.Error("the connection stayed open")
		}
	}
}

func TestCompressedAnswersAreNotTaken(t *testing.T) {
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	zeros := make([]byte, 1<<20)
	for range 10 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	asked := atomic.Int64{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			asked.Add(1)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	_, err := do(t, client(t, open(), Options{}), spec(url), `1`)
	wants(t, err, fault.Invalid, wire.CodeInvalidResponse)
	if asked.Load() != 0 {
		t.Error("compression was asked for")
	}
	odd := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "identity")
		_, _ = io.WriteString(w, "7")
	})
	if got, err := do(t, client(t, open(), Options{}), spec(odd), `1`); err != nil || got != "7" {
		t.Errorf("identity: got %s, %v", got, err)
	}
}

func TestAnAnswerMayBeAsLargeAsTheBound(t *testing.T) {
	const most = 100_000
	p := open()
	p.MaxResponse = most
	for _, chunked := range []bool{false, true} {
		for _, n := range []int{1, 511, 512, 4095, 4096, 4097, most - 1, most, most + 1} {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if chunked {
					w.(http.Flusher).Flush()
				}
				_, _ = io.WriteString(w, "1"+strings.Repeat("0", n-1))
			})
			got, err := do(t, client(t, p, Options{}), spec(url), ``)
			if n <= most && (err != nil || len(got) != n) {
				t.Errorf("%d bytes, chunked %v: got %d, %v", n, chunked, len(got), err)
			} else if n > most {
				wants(t, err, fault.Limit, wire.CodeHTTPResponseFailed)
			}
		}
	}
}

func TestBytesOfAllAnswersTogetherAreBounded(t *testing.T) {
	p := open()
	p.MaxResponse = 1000
	c := client(t, p, Options{})
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Repeat("1", 900))
	})
	c.stats.held.Add(heldResponses*1000 - 100)
	_, err := do(t, c, spec(url), ``)
	wants(t, err, fault.Limit, wire.CodeHostOverloaded)
	c.stats.held.Add(-heldResponses*1000 + 100)
	if _, err := do(t, c, spec(url), ``); err != nil || c.Stats().Held != 0 {
		t.Errorf("got %v, %d bytes are held", err, c.Stats().Held)
	}
}

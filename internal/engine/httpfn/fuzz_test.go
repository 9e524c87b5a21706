package httpfn

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// FuzzSpec: what is taken is read back the same from its own text, can be sent as it is, and has a host
// that is the same for every reader of the URL.
func FuzzSpec(f *testing.F) {
	c := New(Policy{Allow: []string{"*"}, BlockPrivate: true},
		Options{Getenv: env("V", "s3cret"), Now: at(1700000000)})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			if err.Kind != fault.Invalid || err.Code == "" || err.Message == "" {
				t.Fatalf("the error is %+v", err)
			}
			return
		}
		text := s.Append(nil)
		again, err := Parse(text)
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%s is read as %+v, %v", text, again, err)
		}
		if s.Timeout < minTimeout || s.Timeout > maxTimeout || len(s.URL) > maxURL || len(s.Headers) > maxHeaders {
			t.Fatalf("out of bounds: %+v", s)
		}
		tg, err := s.check()
		if err != nil {
			t.Fatal(err)
		}
		u, uerr := url.ParseRequestURI(s.URL)
		if uerr != nil || !strings.EqualFold(u.Hostname(), tg.host) || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q is read as %+v", s.URL, u)
		}
		if a, err := netip.ParseAddr(tg.host); err == nil && a != tg.addr || err != nil && tg.addr.IsValid() {
			t.Fatalf("%q: the address is %v", s.URL, tg.addr)
		}
		if tg.addr.IsValid() && private(tg.addr) && c.Check(t.Context(), s) == nil {
			t.Fatalf("%q is let in", s.URL)
		}
		r, err := c.request(s, tg, &Call{Function: string(b), Payload: []byte(`1`)})
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := r.Write(&out); err != nil {
			t.Fatalf("cannot be sent: %v", err)
		}
		sent, rerr := http.ReadRequest(bufio.NewReader(&out))
		if rerr != nil || sent.Method != s.Method || sent.Host != u.Host || len(sent.Header) > maxHeaders+12 {
			t.Fatalf("sent as %+v, %v", sent, rerr)
		}
	})
}

// FuzzRecord: what is taken from the disk is written back as a record that says the same.
func FuzzRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		ch, err := parseRecord(b)
		_ = readSnapshot(bytes.NewReader(b), func(e *Entry) {
			if e == nil || e.Spec == nil || e.FunctionID == "" {
				t.Fatalf("an entry %+v", e)
			}
		})
		if err != nil {
			return
		}
		switch {
		case ch.put != nil && ch.remove == nil:
			out, again, err := ch.put.encode()
			if err != nil {
				// Numbers of depth and UTF-8 are held against what comes in; what is on disk has passed that.
				if json.Valid(b) && utf8.Valid(b) && !deeper(b, wire.MaxDepth-1) && len(b) < maxRecord/6 {
					t.Fatalf("%s cannot be written: %v", b, err)
				}
				return
			}
			if !same(again, ch.put) && !sameCompact(again, ch.put) {
				t.Fatalf("%s is read as %+v", out, again)
			}
			out2, _, err := again.encode()
			if err != nil || !bytes.Equal(out, out2) {
				t.Fatalf("written as %s and then %s", out, out2)
			}
		case ch.remove != nil && ch.put == nil:
			out, err := encodeRemoval(*ch.remove)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := parseRecord(out); err != nil || !reflect.DeepEqual(again, ch) {
				t.Fatalf("%s is read as %+v, %v", out, again, err)
			}
		default:
			t.Fatalf("a change that says %+v", ch)
		}
	})
}

// sameCompact is same but for spaces in JSON.
func sameCompact(a, b *Entry) bool {
	c := *b
	for _, raw := range []*[]byte{&c.Request, &c.Response, &c.Metadata} {
		var out bytes.Buffer
		if *raw != nil && json.Compact(&out, *raw) == nil {
			*raw = out.Bytes()
		}
	}
	return same(a, &c)
}

// FuzzResponse: whatever an endpoint sends, the outcome is JSON that fits a frame, or an error that can be
// shown, and nothing stays held.
func FuzzResponse(f *testing.F) {
	const most = 2000
	c := New(Policy{MaxResponse: most}, Options{})
	f.Fuzz(func(t *testing.T, b []byte) {
		res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
		if err != nil {
			return
		}
		defer res.Body.Close()
		value, ferr := c.answer(res)
		if n := c.stats.held.Load(); n != 0 {
			t.Fatalf("%d bytes stay held", n)
		}
		if ferr != nil && ferr.Err != nil {
			ferr = c.failed(t.Context(), t.Context(), spec("https://e.org"), ferr.Err, stageResponse)
		}
		switch {
		case ferr != nil:
			if value != nil || !token(ferr.Code) || ferr.Message == "" || len(ferr.Message) > maxMessage ||
				!utf8.ValidString(ferr.Message) || strings.ContainsAny(ferr.Message, "\x00\x1b\r\u202e") {
				t.Fatalf("the error is %q, with %q", ferr, value)
			}
		case res.StatusCode >= 400:
			t.Fatalf("status %d is a success", res.StatusCode)
		case value != nil:
			if !json.Valid(value) || !utf8.Valid(value) || len(value) > most || depth(value) >= wire.MaxDepth {
				t.Fatalf("the result is %q", value)
			}
		}
	})
}

// depth is a second way to tell how deep JSON nests.
func depth(b []byte) (most int) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	for n := 0; ; {
		t, err := d.Token()
		if err != nil {
			return most
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			n++
			most = max(most, n)
		case json.Delim('}'), json.Delim(']'):
			n--
		}
	}
}

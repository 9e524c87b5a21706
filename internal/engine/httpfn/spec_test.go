package httpfn

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

func TestSpecHasTheDefaultsOfTheProtocol(t *testing.T) {
	s, err := Parse([]byte(`{"url":"https://example.org/x?a=b"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Spec{URL: "https://example.org/x?a=b", Method: "POST", Timeout: 30 * time.Second}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v", s)
	}
}

func TestSpecIsReadWhole(t *testing.T) {
	for in, want := range map[string]*Spec{
		`{"url":"https://e.org","method":"GET","timeout_ms":1500,"headers":{"X-A":"1","x-b":"two words"}}`: {
			URL: "https://e.org", Method: "GET", Timeout: 1500 * time.Millisecond,
			Headers: map[string]string{"X-A": "1", "x-b": "two words"}},
		`{"url":"http://[2001:db8::1]:8080/","method":null,"timeout_ms":0.5,"headers":null,"auth":null}`: {
			URL: "http://[2001:db8::1]:8080/", Method: "POST", Timeout: time.Millisecond},
		`{"url":"https://e.org","auth":{"type":"hmac","secret_key":"S","token_key":7}}`: {
			URL: "https://e.org", Method: "POST", Timeout: defaultTimeout, Auth: &Auth{Type: "hmac", SecretKey: "S"}},
		`{"url":"https://e.org","auth":{"type":"bearer","token_key":"_T1"},"later":[]}`: {
			URL: "https://e.org", Method: "POST", Timeout: defaultTimeout, Auth: &Auth{Type: "bearer", TokenKey: "_T1"}},
		` {"url":"https://e.org","auth":{"type":"api_key","header":"X-Key","value_key":"V"}}`: {
			URL: "https://e.org", Method: "POST", Timeout: defaultTimeout,
			Auth: &Auth{Type: "api_key", Header: "X-Key", ValueKey: "V"}},
	} {
		s, err := Parse([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if !reflect.DeepEqual(s, want) {
			t.Errorf("%s: got %+v", in, s)
		}
		again, err := Parse(s.Append(nil))
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s: written as %s and read as %+v, %v", in, s.Append(nil), again, err)
		}
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	header := func(name, value string) string {
		return fmt.Sprintf(`{"url":"https://e.org","headers":{%q:%q}}`, name, value)
	}
	auth := func(s string) string { return `{"url":"https://e.org","headers":{"x-there":"1"},"auth":` + s + `}` }
	many := make([]string, maxHeaders+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"x-%d":""`, i)
	}
	for name, in := range map[string]string{
		"nothing":                 ``,
		"null":                    `null`,
		"a list":                  `[]`,
		"cut short":               `{"url":"https://e.org"`,
		"two values":              `{"url":"https://e.org"}{}`,
		"url no text":             `{"url":7}`,
		"method unknown":          `{"url":"https://e.org","method":"TRACE"}`,
		"method in lower case":    `{"url":"https://e.org","method":"get"}`,
		"timeout zero":            `{"url":"https://e.org","timeout_ms":0}`,
		"timeout negative":        `{"url":"https://e.org","timeout_ms":-1}`,
		"timeout too long":        `{"url":"https://e.org","timeout_ms":900001}`,
		"timeout huge":            `{"url":"https://e.org","timeout_ms":1e300}`,
		"timeout a text":          `{"url":"https://e.org","timeout_ms":"5"}`,
		"headers a list":          `{"url":"https://e.org","headers":["a"]}`,
		"header a number":         `{"url":"https://e.org","headers":{"a":1}}`,
		"header name empty":       header("", "x"),
		"header name with space":  header("a b", "x"),
		"header name with colon":  header("a:", "x"),
		"header name foreign":     header("é", "x"),
		"header name long":        header(strings.Repeat("a", maxName+1), "x"),
		"value with line break":   header("a", "x\r\nb: c"),
		"value with nul":          header("a", "x\x00"),
		"value foreign":           header("a", "é"),
		"value begins with space": header("a", " x"),
		"value ends with tab":     header("a", "x\t"),
		"host":                    header("Host", "x"),
		"length":                  header("content-length", "1"),
		"chunked":                 header("Transfer-Encoding", "chunked"),
		"connection":              header("connection", "close"),
		"upgrade":                 header("Upgrade", "h2c"),
		"expect":                  header("Expect", "100-continue"),
		"compression":             header("Accept-Encoding", "gzip"),
		"forged signature":        header("X-III-signature", "sha256=00"),
		"forged trace":            header("Traceparent", "00"),
		"twice":                   `{"url":"https://e.org","headers":{"X-A":"1","x-a":"2"}}`,
		"too many headers":        `{"url":"https://e.org","headers":{` + strings.Join(many, ",") + `}}`,
		"headers too large":       header("a", strings.Repeat("x", maxHeader)),
		"raw too large":           header("a", "x") + strings.Repeat(" ", maxRaw),
		"auth a text":             auth(`"bearer"`),
		"auth without type":       auth(`{}`),
		"auth type a number":      auth(`{"type":1}`),
		"auth unknown":            auth(`{"type":"basic"}`),
		"auth without variable":   auth(`{"type":"hmac"}`),
		"variable a number":       auth(`{"type":"hmac","secret_key":1}`),
		"variable of another":     auth(`{"type":"hmac","token_key":"T"}`),
		"variable with a dash":    auth(`{"type":"bearer","token_key":"A-B"}`),
		"variable with a digit":   auth(`{"type":"bearer","token_key":"1A"}`),
		"api key without header":  auth(`{"type":"api_key","value_key":"V"}`),
		"api key as host":         auth(`{"type":"api_key","header":"Host","value_key":"V"}`),
		"api key over a header":   auth(`{"type":"api_key","header":"X-There","value_key":"V"}`),
		"bearer over a header":    `{"url":"https://e.org","headers":{"authorization":"x"},"auth":{"type":"bearer","token_key":"V"}}`,
	} {
		if s, err := Parse([]byte(in)); err == nil {
			t.Errorf("%s: taken as %+v", name, s)
		} else if err.Kind != fault.Invalid || err.Code != wire.CodeInvalidArguments {
			t.Errorf("%s: the error is %v of kind %v", name, err, err.Kind)
		}
	}
}

func TestURLsThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	for _, url := range []string{
		"", "example.org", "/path", "//example.org", "https:", "https://", "https:///x", "https:example.org",
		"ftp://example.org", "file:///etc/passwd", "gopher://example.org", "javascript:alert(1)",
		"https://user@example.org", "https://user:password@example.org", "https://@example.org",
		"https://example.org#x", "https://example.org/#", "https://example.org/a b", "https://example.org/\t",
		"https://example.org/é", "https://exämple.org", "https://example.org\\@10.0.0.1", "https:\\\\example.org",
		"https://example.org:", "https://example.org:0", "https://example.org:65536", "https://example.org:080",
		"https://example.org:x", "https://ex%61mple.org", "https://example.org%2f@10.0.0.1", "https://a..b",
		"https://.example.org", "https://example.org.", "https://-a.org", "https://a-.org", "https://a b",
		"https://[::1", "https://::1", "https://[fe80::1%25eth0]", "https://[::1%25lo]/", "https://[127.0.0.1]",
		"https://[example.org]", "https://127.1", "https://127.0.0.01", "https://0177.0.0.1", "https://0x7f.0.0.1",
		"https://0x7f000001", "https://2130706433", "https://017700000001", "https://0x", "https://10.0x1",
		"https://1.2.3.4.5", "https://256.1.1.1", "https://1.2.3", "https://a.7", "https://0xA.0xB",
		"https://" + strings.Repeat("a", 64) + ".org", "https://" + strings.Repeat("a.", 127) + "org",
		"https://example.org/" + strings.Repeat("a", maxURL),
	} {
		in, _ := json.Marshal(map[string]string{"url": url})
		s, err := Parse(in)
		if err == nil {
			t.Errorf("%q is taken: %+v", url, s)
		} else if err.Kind != fault.Invalid || err.Code != wire.CodeURLValidationFailed {
			t.Errorf("%q: the error is %v of kind %v", url, err, err.Kind)
		}
	}
}

func TestURLsOfTheWorldAreTaken(t *testing.T) {
	for _, url := range []string{
		"https://example.org", "HTTPS://EXAMPLE.org:8443/a/b;c?d=e&f=%20", "http://a_b.example", "https://1e100.net",
		"https://xn--exmple-cua.org", "https://3com.com", "https://127.0.0.1", "https://[::1]:1", "https://0xyz.org",
		"https://localhost", "https://example.org/a@b:c", "https://0xab.example", "https://1.2.3.4.example",
	} {
		in, _ := json.Marshal(map[string]string{"url": url})
		if _, err := Parse(in); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestASecretAtAWrongPlaceIsNotRepeated(t *testing.T) {
	for _, in := range []string{
		`{"url":"https://u:hunter-2@e.org"}`, `{"url":"https://e.org/?key=hunter-2\n"}`, `{"url":"https://hunter-2-.org"}`,
		`{"url":"https://e.org","auth":{"type":"bearer","token_key":"hunter-2"}}`,
		`{"url":"https://e.org","auth":{"type":"hunter-2"}}`,
		`{"url":"https://e.org","headers":{"a":"hunter-2\n"}}`,
	} {
		if _, err := Parse([]byte(in)); err == nil || strings.Contains(err.Error(), "hunter-2") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestSpecMarshalsLikeAppend(t *testing.T) {
	s, err := Parse([]byte(`{"url":"https://e.org/?a=1&b=2","headers":{"b":"\"","a":"<"},
		"auth":{"type":"api_key","header":"H","value_key":"V"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"url":"https://e.org/?a=1&b=2","method":"POST","timeout_ms":30000,"headers":{"a":"<","b":"\""},` +
		`"auth":{"type":"api_key","header":"H","value_key":"V"}}`
	if got := string(s.Append([]byte("x"))); got != "x"+want {
		t.Errorf("got %s", got)
	}
	b, merr := json.Marshal(map[string]any{"invocation": s})
	var back struct{ Invocation json.RawMessage }
	if merr != nil || json.Unmarshal(b, &back) != nil {
		t.Fatal(merr)
	}
	if again, err := Parse(back.Invocation); err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("got %s, %v", b, err)
	}
}

package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plinth-run/plinth/wire"
)

// member returns the text of a member of an object, as encoding/json reads it.
func member(raw []byte, key string) (text string, ok bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return "", false
	}
	v := referenceText(m[key])
	return string(v), v != nil
}

// checkError holds ParseError of valid JSON to encoding/json.
func checkError(t *testing.T, raw []byte, got *wire.Error) {
	t.Helper()
	var value any
	if err := json.Unmarshal(raw, &value); err != nil || value == nil {
		if err == nil && got != nil && string(raw) == "null" {
			t.Fatalf("ParseError(%q) is %v", raw, got)
		}
		return
	}
	code, hasCode := member(raw, "code")
	message, hasMessage := member(raw, "message")
	stack, _ := member(raw, "stacktrace")
	switch {
	case got == nil:
		t.Fatalf("ParseError(%q) is nil", raw)
	case hasCode && hasMessage:
		if want := (wire.Error{Code: code, Message: message, Stacktrace: stack}); *got != want {
			t.Fatalf("ParseError(%q) is %+v, want %+v", raw, *got, want)
		}
	case got.Code != wire.CodeUnknown:
		t.Fatalf("ParseError(%q) has code %q", raw, got.Code)
	case hasMessage && got.Message != message:
		t.Fatalf("ParseError(%q) has message %q", raw, got.Message)
	}
}

// checkAction holds ParseAction of valid JSON to encoding/json.
func checkAction(t *testing.T, raw []byte, got wire.Action, queue []byte) {
	t.Helper()
	kind, _ := member(raw, "type")
	name, named := member(raw, "queue")
	want := wire.ActionUnknown
	switch {
	case string(raw) == "null":
		want = wire.ActionCall
	case kind == "void":
		want = wire.ActionVoid
	case kind == "enqueue":
		want = wire.ActionEnqueue
	}
	if string(raw) != "null" && strings.TrimSpace(string(raw)) == "null" {
		return // white space around: no raw value of a frame has any
	}
	if got != want {
		t.Fatalf("ParseAction(%q) is %v, want %v", raw, got, want)
	}
	if got == wire.ActionEnqueue && (string(queue) != name || (queue != nil) != named) {
		t.Fatalf("ParseAction(%q) has queue %q, want %q", raw, queue, name)
	}
}

func TestErrorsOfOtherShapesAreUnknown(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want *wire.Error
	}{
		{"", nil},
		{"null", nil},
		{`{"code":"X","message":"y"}`, &wire.Error{Code: "X", Message: "y"}},
		{`{"message":"y\n","stacktrace":"s","code":"\u0058"}`, &wire.Error{Code: "X", Message: "y\n", Stacktrace: "s"}},
		{`{"code":"","message":""}`, &wire.Error{}},
		{`{"code":"a","code":"b","message":"y"}`, &wire.Error{Code: "b", Message: "y"}},
		{`{"code":"X","message":"y","stacktrace":5,"other":{}}`, &wire.Error{Code: "X", Message: "y"}},
		{`{ "code" : "X" , "message" : "y" }`, &wire.Error{Code: "X", Message: "y"}},
		{`{"code":"X"}`, &wire.Error{Code: "UNKNOWN", Message: `{"code":"X"}`}},
		{`{"code":5,"message":"y","stacktrace":"s"}`, &wire.Error{Code: "UNKNOWN", Message: "y", Stacktrace: "s"}},
		{`{}`, &wire.Error{Code: "UNKNOWN", Message: "{}"}},
		{`"boom\t"`, &wire.Error{Code: "UNKNOWN", Message: "boom\t"}},
		{`5`, &wire.Error{Code: "UNKNOWN", Message: "5"}},
		{`false`, &wire.Error{Code: "UNKNOWN", Message: "false"}},
		{`[1]`, &wire.Error{Code: "UNKNOWN", Message: "[1]"}},
		// Not JSON: nobody should hand it in, and it must do no harm.
		{`{"code":"X","message":"y"`, &wire.Error{Code: "UNKNOWN", Message: `{"code":"X","message":"y"`}},
		{`"a" b`, &wire.Error{Code: "UNKNOWN", Message: `"a" b`}},
		{`"`, &wire.Error{Code: "UNKNOWN", Message: `"`}},
		{`{"code":"X",}`, &wire.Error{Code: "UNKNOWN", Message: `{"code":"X",}`}},
		{"{\"a\xff\":\xff", &wire.Error{Code: "UNKNOWN", Message: "{\"a\ufffd\":\ufffd"}},
	} {
		got := wire.ParseError([]byte(c.raw))
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("ParseError(%q) is %+v, want %+v", c.raw, got, c.want)
		}
	}
}

func TestExcerptOfALargeErrorIsShortText(t *testing.T) {
	for _, s := range []string{"[", "é", "\x80"} {
		e := wire.ParseError([]byte("[" + strings.Repeat(s, 5000)))
		if len(e.Message) > 1000 || !utf8.ValidString(e.Message) || !strings.HasSuffix(e.Message, "…") {
			t.Errorf("message of %d bytes: %q", len(e.Message), e.Message)
		}
	}
}

func TestExcerptIsCutBetweenRunes(t *testing.T) {
	a := "[" + strings.Repeat("a", 300)
	for _, c := range []struct{ in, want string }{
		{a[:256], a[:256]},
		{a[:257], a[:256] + "…"},
		{a[:255] + "éz", a[:255] + "…"},
		{a[:254] + "éz", a[:254] + "é…"},
		{a[:254] + "€z", a[:254] + "…"},
		{a[:253] + "\U0001f600z", a[:253] + "…"},
		{a[:252] + "\U0001f600z", a[:252] + "\U0001f600…"},
		{a[:250] + strings.Repeat("\x80", 20), a[:250] + "\ufffd\ufffd…"},
	} {
		if got := wire.ParseError([]byte(c.in)).Message; got != c.want {
			t.Errorf("%d bytes %q: %q, want %q", len(c.in), c.in[250:], got[250:], c.want[250:])
		}
	}
}

func TestErrorGoesOverTheWireAndBack(t *testing.T) {
	for _, e := range []*wire.Error{
		nil, {}, {Code: "invocation_failed", Message: "kaboom"}, {Code: "X", Message: "a\"b\\\n\x00é", Stacktrace: "at\n\tb"},
	} {
		raw := wire.AppendError(nil, e)
		if !json.Valid(raw) {
			t.Fatalf("no JSON: %q", raw)
		}
		got := wire.ParseError(raw)
		if (got == nil) != (e == nil) || e != nil && *got != *e {
			t.Errorf("%+v became %+v", e, got)
		}
	}
}

func TestErrorsAreFoundByCode(t *testing.T) {
	err := fmt.Errorf("call: %w", &wire.Error{Code: wire.CodeFunctionNotFound, Message: "no such function"})
	if !errors.Is(err, &wire.Error{Code: wire.CodeFunctionNotFound}) {
		t.Error("the code was not found")
	}
	if errors.Is(err, &wire.Error{Code: wire.CodeTimeout}) || errors.Is(err, io.EOF) {
		t.Error("another error was found")
	}
	if err.Error() != "call: function_not_found: no such function" {
		t.Errorf("text %q", err)
	}
	if s := (&wire.Error{Code: "X"}).Error(); s != "X" {
		t.Errorf("text without a message %q", s)
	}
}

func TestActions(t *testing.T) {
	for _, c := range []struct {
		raw   string
		want  wire.Action
		queue string
	}{
		{"", wire.ActionCall, ""},
		{"null", wire.ActionCall, ""},
		{`{"type":"void"}`, wire.ActionVoid, ""},
		{`{ "type" : "void" , "x" : 1 }`, wire.ActionVoid, ""},
		{`{"type":"enqueue","queue":"jobs"}`, wire.ActionEnqueue, "jobs"},
		{`{"queue":"j\u006fbs\n","type":"enqueue"}`, wire.ActionEnqueue, "jobs\n"},
		{`{"type":"enqueue"}`, wire.ActionEnqueue, ""},
		{`{"type":"enqueue","queue":7}`, wire.ActionEnqueue, ""},
		{`{"t\u0079pe":"void"}`, wire.ActionVoid, ""},
		{`{"type":"void","type":"enqueue","queue":"q"}`, wire.ActionEnqueue, "q"},
		{`{}`, wire.ActionUnknown, ""},
		{`{"type":"later"}`, wire.ActionUnknown, ""},
		{`{"type":null}`, wire.ActionUnknown, ""},
		{`"void"`, wire.ActionUnknown, ""},
		{`[]`, wire.ActionUnknown, ""},
		{`{"type":"void"`, wire.ActionUnknown, ""},
		{`{"type":"void"}x`, wire.ActionUnknown, ""},
		{`{"type" "void"}`, wire.ActionUnknown, ""},
		{`{"type":"void","queue"}`, wire.ActionUnknown, ""},
		{`{"type":"void" "queue":1}`, wire.ActionUnknown, ""},
		{`{"type":`, wire.ActionUnknown, ""},
		{`{type:"void"}`, wire.ActionUnknown, ""},
		{`{"typ`, wire.ActionUnknown, ""},
		{`{`, wire.ActionUnknown, ""},
		{`{ `, wire.ActionUnknown, ""},
		{` `, wire.ActionUnknown, ""},
		{`{} `, wire.ActionUnknown, ""},
		{` {"type":"void"} `, wire.ActionVoid, ""},
		{`{"type":"void" } `, wire.ActionVoid, ""},
	} {
		a, queue := wire.ParseAction([]byte(c.raw))
		if a != c.want || string(queue) != c.queue {
			t.Errorf("ParseAction(%s) is %v %q, want %v %q", c.raw, a, queue, c.want, c.queue)
		}
	}
	for a, want := range []string{"call", "void", "enqueue", "unknown"} {
		if wire.Action(a).String() != want {
			t.Errorf("action %d is %q", a, wire.Action(a))
		}
	}
}

func TestOrdinaryActionsTakeNoMemory(t *testing.T) {
	void, enqueue := []byte(`{"type":"void"}`), []byte(`{"type":"enqueue","queue":"jobs"}`)
	if n := testing.AllocsPerRun(100, func() {
		wire.ParseAction(nil)
		wire.ParseAction(void)
		wire.ParseAction(enqueue)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

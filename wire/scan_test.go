package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

// bodies are messages on which Scan and encoding/json have to agree: valid, broken, strange.
func bodies() []string {
	list := []string{
		"", " ", "\n\t\r ", "{}", " {} ", "{ }", "\ufeff{}", "{}x", "{} {}", "{},", "[]", "null", "1", `"x"`, "{", "}",
		`{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a" 1}`, `{a:1}`, `{'a':1}`,
		`{"a":1 "b":2}`, `{"a":1,"b"}`, `{1:1}`, `{"a":1]`, `{"a":[1}`, `{"a":[}]`, `{"a":{]}`, `{"a":[,]}`,
		`{"a":[1,]}`, `{"a":[1 2]}`, `{"a":{"b":1,}}`, `{"a":{"b" 1}}`, `{"a":{"b":}}`, `{"a":{1:2}}`,
		`{"a":"b":"c"}`, `{"a":1}}`, `{"a":[]]}`, `{"a":/**/1}`, "{\"a\":1}\x00", "{\"a\"\x0b:1}", "{\"a\":\u00a01}",
		` { "type" : "ping" , "id" : "a" } `, "\n{\r\n\t\"type\"\n:\t\"ping\"\r}\n", `{"type":"ping"}`,
		`{"data": [ 1 , { "a" : [ ] , "b" : { } } ] , "result" : { } }`,
		`{"":1,"type":"pong"}`, `{"type":"Ping"}`, `{"type":""}`, `{"type":"ping\u0000"}`, `{"Type":"ping"}`,
		`{"type":null}`, `{"type":1}`, `{"type":{}}`, `{"type":"ping","type":1}`, `{"type":1,"type":"ping"}`,
	}
	for _, v := range []string{
		"0", "-0", "1", "-1", "10", "01", "-01", "-", "+1", ".5", "1.", "1.0", "-1.5", "1e5", "1E+5", "1e-5", "1e", "1e+",
		"1.e5", "0e0", "0.0e-0", "00", "1.2.3", "1e5.5", "0x10", "1_000", "Infinity", "NaN", "1" + strings.Repeat("0", 400),
		"-1." + strings.Repeat("9", 400) + "e" + strings.Repeat("9", 40), "true", "false", "null", "True", "tru", "truee",
		"nul", "nulll", "t", "f", "n", "undefined", `""`, `"a"`, `'a'`, `"\""`, `"\\"`, `"\/"`, `"\b\f\n\r\t"`, `"\a"`,
		`"\x41"`, `"\u0041"`, `"\u00e9"`, `"\u12"`, `"\uG123"`, `"\u1g23"`, `"\u12G4"`, `"\u123g"`, `"\U0041"`, `"\u"`, `"\`, `"\"`, `"\ud83d\ude00"`,
		`"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\ud83dx"`, `"\ud83d\ud83d\ude00"`, `"\ude00\ud83d"`, `"\ud83d\n"`,
		`"\uD83D\uDE00"`, `"\u0000"`, "\"\x00\"", "\"\x1f\"", "\"\n\"", "\"\x7f\"", "\"\xff\"", "\"a\xc3\"", "\"\xed\xa0\x80\"",
		"\"\xc0\xaf\"", "\"é\u2028\ufffd\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\\u0041\"", `"12345678"`, `"1234567"`,
		`"123456789"`, `"1234567\"9"`, `"12345678\"`, "[]", "[[]]", "[1,2]", "{}", `{"a":{}}`, `[{"a":[1,"b",null]}]`,
		"[", "{", "[1", `{"a"`, `{"a":1`, `["a]`, "[tru]", "[01]", "[\"\x01\"]", `[{}`, `[[[[[]]]]]`, `[[[[[}]]]]`,
	} {
		for _, key := range []string{"id", "data", "namespace", "trigger_namespace", "unknown", "type"} {
			list = append(list, fmt.Sprintf(`{"%s":%s}`, key, v), fmt.Sprintf(`{"%s": %s ,"id":"x"}`, key, v),
				fmt.Sprintf(`{"id":"y","%s":%s,"data":"z"}`, key, v))
		}
	}
	return list
}

func TestScanAgreesWithEncodingJSON(t *testing.T) {
	var f wire.Frame
	taken := 0
	for _, s := range bodies() {
		if agree(t, &f, []byte(s)) {
			taken++
		}
	}
	if taken < 200 {
		t.Errorf("only %d messages were taken: the list tests nothing", taken)
	}
}

func TestScanOfEveryPrefixAgrees(t *testing.T) {
	s := ` {"type":"registertrigger","id":"a\u00e9\ud83d\ude00","config":{"a":[1,-2.5e+3,true,null,"x\n"],"b":{}},` +
		"\"namespace\":\"n\xff\",\"metadata\":[[],{\"k\":false}]} \n"
	var f wire.Frame
	for n := range len(s) + 1 {
		agree(t, &f, []byte(s[:n]))
	}
}

func TestScanOfDamagedMessagesAgrees(t *testing.T) {
	s := []byte(`{"type":"invokefunction","invocation_id":"7d6f","function_id":"a::b","data":{"k":[1,{"x":"y"}],"n":-1.5e3}}`)
	var f wire.Frame
	for i := range s {
		for _, c := range []byte{0, ' ', '"', '\\', '{', '}', '[', ']', ',', ':', '0', '-', 'e', 't', 0x80, 0xff} {
			old := s[i]
			s[i] = c
			agree(t, &f, s)
			s[i] = old
		}
	}
}

func TestLastOfRepeatedFieldsCounts(t *testing.T) {
	var f wire.Frame
	for _, s := range []string{
		`{"id":"a","id":"b"}`, `{"id":"a","id":null}`, `{"id":null,"id":"b"}`, `{"id":"a","id":{"id":"c"}}`,
		`{"data":1,"data":2}`, `{"data":1,"data":null}`, `{"id":"a","\u0069d":"b"}`, `{"\u0069\u0064":"a","id":"b"}`,
		`{"type":"ping","t\u0079pe":"pong"}`, `{"namespace":"a","namespace":null}`, `{"namespace":null,"namespace":"a"}`,
		`{"namespace":1,"n\u0061mespace":"a","namespace":{}}`, `{"trigger_namespace":[],"trigger_namespace":"x"}`,
		`{"id":"\u0061","id":"\u0062","function_id":"\u0063"}`,
	} {
		agree(t, &f, []byte(s))
	}
	if err := f.Scan([]byte(`{"id":"a","\u0069d":"b"}`)); err != nil || string(f.ID) != "b" {
		t.Errorf("id is %q, %v", f.ID, err)
	}
}

func TestKeysWithEscapesAreTheKeysTheyMean(t *testing.T) {
	var f wire.Frame
	for _, keys := range []map[string]string{textKeys, rawKeys} {
		for field, key := range keys {
			var escaped strings.Builder
			for _, c := range key {
				fmt.Fprintf(&escaped, `\u%04x`, c)
			}
			s := fmt.Sprintf(`{"%s":"v\tw"}`, escaped.String())
			if err := f.Scan([]byte(s)); err != nil || get(&f, field) == nil {
				t.Errorf("%s: %s is absent, %v", s, field, err)
			}
			agree(t, &f, []byte(s))
			agree(t, &f, []byte(fmt.Sprintf(`{"%sx":"v"}`, escaped.String())))
			agree(t, &f, []byte(fmt.Sprintf(`{"%s\u0000":"v"}`, key)))
			agree(t, &f, []byte(fmt.Sprintf("{\"%s\xff\":\"v\"}", key)))
		}
	}
	agree(t, &f, []byte(`{"`+strings.Repeat(`\u0069`, 1000)+`d":"v"}`))
}

func TestDepthIsBoundedAtTheLimit(t *testing.T) {
	var f wire.Frame
	for _, c := range []struct{ open, middle, close string }{
		{"[", "", "]"}, {`{"a":`, "1", "}"}, {`[{"a":`, "[]", "}]"}, {`{"a":[`, "{}", "]}"},
	} {
		step := strings.Count(c.open, "[") + strings.Count(c.open, "{")
		inner := strings.Count(c.middle, "[") + strings.Count(c.middle, "{")
		for _, depth := range []int{1, 62, 63, 64, 65, 66, 127, 128, 129, 510, 511, 512, 513, 514, 1000, 5000} {
			n := (depth - 1 - inner) / step
			if n < 0 {
				continue
			}
			s := `{"data":` + strings.Repeat(c.open, n) + c.middle + strings.Repeat(c.close, n) + `,"id":"x"}`
			if c.middle == "" && n == 0 {
				continue
			}
			want := 1 + n*step + inner
			taken := agree(t, &f, []byte(s))
			if taken != (want <= wire.MaxDepth) {
				t.Errorf("depth %d of %s: taken %v", want, c.open, taken)
			}
			err := f.Scan([]byte(s))
			if !taken && !errors.Is(err, &wire.Error{Code: wire.CodeLimit}) {
				t.Errorf("depth %d of %s: error %v", want, c.open, err)
			}
		}
	}
}

// TestKindsOfContainersAreRememberedAtAnyDepth closes one container wrongly at each depth.
func TestKindsOfContainersAreRememberedAtAnyDepth(t *testing.T) {
	const n = 300
	var f wire.Frame
	open, closing := make([]byte, 0, 6*n), make([]byte, n)
	for i := range n {
		if i%3 == 0 || i%7 == 0 {
			open, closing[n-1-i] = append(open, `{"k":`...), '}'
		} else {
			open, closing[n-1-i] = append(open, '['), ']'
		}
	}
	whole := func() []byte { return fmt.Appendf(nil, `{"data":%s1%s}`, open, closing) }
	if !agree(t, &f, whole()) {
		t.Fatal("the sound message was refused")
	}
	for i := range closing {
		old := closing[i]
		closing[i] = '}' + ']' - old
		if agree(t, &f, whole()) {
			t.Errorf("wrong bracket at %d was taken", i)
		}
		closing[i] = old
	}
}

func TestEndlessOpeningIsRefusedEarly(t *testing.T) {
	var f wire.Frame
	for _, s := range []string{"[", `{"a":`, `[{"a":`} {
		err := f.Scan([]byte(`{"data":` + strings.Repeat(s, 1<<20)))
		if !errors.Is(err, &wire.Error{Code: wire.CodeLimit}) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	var f wire.Frame
	for s, want := range map[string]string{
		"":                     "empty message at byte 0",
		" ":                    "empty message at byte 1",
		"[]":                   "message is no object at byte 0",
		`{"a":1`:               "message ends too early at byte 6",
		`{"a" 1}`:              "unexpected byte at byte 5",
		`{"a":"b`:              "bad string at byte 7",
		"{\"a\":\"b\n\"}":      "bad string at byte 7",
		`{"a":"\q"}`:           "bad string at byte 7",
		`{"a":-x}`:             "bad number at byte 6",
		`{"a":1.}`:             "bad number at byte 7",
		`{"a":nil}`:            "bad literal at byte 5",
		`{"a":1} x`:            "bytes after the end of the object at byte 8",
		`{"a":[}`:              "unexpected byte at byte 6",
		`{"a":[1}`:             "unexpected byte at byte 7",
		`{"a":-`:               "message ends too early at byte 6",
		`{"a":[{"b":1,"c":]}]`: "unexpected byte at byte 17",
	} {
		err := f.Scan([]byte(s))
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.CodeMalformedFrame || e.Message != want {
			t.Errorf("Scan(%q): %v, want %q", s, err, want)
		}
	}
}

func TestIDsBeforeAFaultAreKept(t *testing.T) {
	var f wire.Frame
	err := f.Scan([]byte(`{"type":"invokefunction","invocation_id":"i-1","function_id":"a::b","data":[` +
		strings.Repeat("[", 600)))
	if err == nil || f.Type != wire.TypeInvokeFunction || string(f.InvocationID) != "i-1" ||
		string(f.FunctionID) != "a::b" || f.Data != nil {
		t.Errorf("%v: %v %q %q", err, f.Type, f.InvocationID, f.FunctionID)
	}
}

func TestNothingOfTheLastFrameIsLeft(t *testing.T) {
	var f wire.Frame
	all := `{"type":"error","namespace":null,"trigger_namespace":1`
	for _, key := range textKeys {
		all += `,"` + key + `":"\u0061"`
	}
	for _, key := range rawKeys {
		all += `,"` + key + `":[]`
	}
	all += `,"namespace":null,"trigger_namespace":1}`
	for _, next := range []string{"{}", "", `{"type":`} {
		if err := f.Scan([]byte(all)); err != nil || !f.BadNamespace || !f.BadTriggerNamespace {
			t.Fatal(err, f.BadNamespace, f.BadTriggerNamespace)
		}
		_ = f.Scan([]byte(next))
		if diff := differences(&wire.Frame{}, &f); diff != "" {
			t.Errorf("after %q: %s", next, diff)
		}
	}
}

func TestTextsWithEscapesDoNotDisturbOneAnother(t *testing.T) {
	var f wire.Frame
	for range 3 {
		s := `{`
		for field, key := range textKeys {
			s += fmt.Sprintf(`"%s":"\u0041 %s \n%s",`, key, field, strings.Repeat("x", 100))
		}
		if err := f.Scan([]byte(s + `"z":0}`)); err != nil {
			t.Fatal(err)
		}
		for field := range textKeys {
			if want := "A " + field + " \n" + strings.Repeat("x", 100); string(get(&f, field)) != want {
				t.Fatalf("%s is %q", field, get(&f, field))
			}
		}
	}
}

func TestFrameKeepsNoLargeMemory(t *testing.T) {
	var f wire.Frame
	small, large := []byte(`{"id":"\n"}`), []byte(`{"id":"\n`+text(1<<20)+`"}`)
	for _, c := range []struct {
		b    []byte
		most int
	}{{small, 16 << 10}, {large, 4 << 20}, {small, 16 << 10}} {
		if err := f.Scan(c.b); err != nil || f.Held() == 0 || f.Held() > c.most {
			t.Errorf("%d bytes held after a message of %d, %v", f.Held(), len(c.b), err)
		}
	}
}

func TestFieldsLieInTheMessage(t *testing.T) {
	b := []byte(`{"id":"abc","data":[1]}`)
	var f wire.Frame
	if err := f.Scan(b); err != nil {
		t.Fatal(err)
	}
	if &f.ID[0] != &b[7] || &f.Data[0] != &b[19] {
		t.Error("a plain field was copied")
	}
}

func TestScanTakesNoMemory(t *testing.T) {
	for _, m := range append(messages, struct{ name, frame string }{
		"escapes", `{"type":"registerfunction","\u0069d":"a\u00e9","description":"line\nline","metadata":{"a":"\n"}}`,
	}) {
		var f wire.Frame
		b := []byte(m.frame)
		if n := testing.AllocsPerRun(100, func() {
			if err := f.Scan(b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", m.name, n)
		}
	}
}

func TestBlankMessages(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, " \r\n\t": true, "{}": false, " x": false, "\v": false, "\u00a0": false,
	} {
		if wire.Blank([]byte(s)) != want {
			t.Errorf("Blank(%q) is %v", s, !want)
		}
	}
}

func TestNullIsNotFailed(t *testing.T) {
	for s, want := range map[string]bool{
		`{}`: false, `{"error":null}`: false, `{"error":{}}`: true, `{"error":false}`: true, `{"error":""}`: true,
	} {
		if f := scanned(t, s); f.Failed() != want {
			t.Errorf("%s: Failed is %v", s, !want)
		}
	}
}

func TestReferenceItselfKnowsFrames(t *testing.T) {
	f, ok := reference([]byte(`{"type":"ping","id":"\u0061","data":{"x":[[1]]},"namespace":null}`))
	if !ok || f.Type != wire.TypePing || string(f.ID) != "a" || string(f.Data) != `{"x":[[1]]}` ||
		!f.BadNamespace {
		t.Errorf("%v %+v", ok, f)
	}
	deep := []byte(`{"a":"[[[\"[","b":[{}]}`)
	if n := nesting(deep); n != 3 || !json.Valid(deep) {
		t.Errorf("nesting %d, want 3", n)
	}
}

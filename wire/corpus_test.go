package wire_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the corpus under testdata/fuzz")

// frames are messages worth a look; the names say why.
func frames() map[string]string {
	m := map[string]string{
		"empty":                  "",
		"blank":                  " \r\n\t",
		"object":                 "{}",
		"array":                  `[{"type":"ping"}]`,
		"byte-order-mark":        "\ufeff{}",
		"two-objects":            `{"type":"ping"}{"type":"pong"}`,
		"white-space":            " {\t\"type\" :\r\n\"ping\" , \"id\" : null } ",
		"cut-in-a-key":           `{"type":"invokefunction","invoc`,
		"cut-in-a-text":          `{"type":"invokefunction","invocation_id":"7d6f`,
		"cut-in-an-escape":       `{"id":"a\u00`,
		"cut-in-a-value":         `{"type":"invokefunction","invocation_id":"i","data":{"a":[1,{"b":`,
		"cut-in-a-literal":       `{"data":tru`,
		"comma-at-the-end":       `{"id":"a",}`,
		"no-comma":               `{"id":"a" "data":1}`,
		"comments":               `{"id":"a"/*x*/}`,
		"single-quotes":          `{'id':'a'}`,
		"depth-512":              `{"data":` + strings.Repeat("[", 511) + strings.Repeat("]", 511) + `,"id":"x"}`,
		"depth-513":              `{"data":` + strings.Repeat("[", 512) + strings.Repeat("]", 512) + `,"id":"x"}`,
		"depth-64-of-objects":    `{"data":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64) + "}",
		"depth-65-mixed-wrong":   `{"data":` + strings.Repeat(`[{"a":`, 33) + "1" + strings.Repeat("]}", 33) + "}",
		"endless-opening":        `{"data":` + strings.Repeat("[", 2000),
		"number-of-500-digits":   `{"data":` + strings.Repeat("9", 500) + "}",
		"number-huge-exponent":   `{"data":-1.5e+99999999999999999999}`,
		"number-leading-zero":    `{"data":-01}`,
		"number-plus":            `{"data":+1}`,
		"number-no-fraction":     `{"data":1.}`,
		"number-minus-zero":      `{"data":[-0,-0.0e-0]}`,
		"nan":                    `{"data":NaN}`,
		"repeated-id":            `{"id":"a","id":"b"}`,
		"repeated-id-null":       `{"id":"a","id":null}`,
		"repeated-type":          `{"type":"ping","type":"invokefunction","invocation_id":"i"}`,
		"repeated-escaped-key":   `{"id":"a","\u0069\u0064":"b","data":1,"d\u0061ta":2}`,
		"repeated-namespace":     `{"namespace":"a","namespace":null,"trigger_namespace":1,"trigger_namespace":"b"}`,
		"no-utf8-in-text":        "{\"id\":\"a\xff\xc3\",\"type\":\"ping\"}",
		"no-utf8-in-data":        "{\"data\":{\"k\xff\":\"\xed\xa0\x80\"}}",
		"no-utf8-in-key":         "{\"id\xff\":\"a\"}",
		"surrogates":             `{"id":"\ud83d\ude00\ud83d\u0041\ude00","name":"\ud83d"}`,
		"escapes-in-key-and-id":  `{"t\u0079pe":"invoke\u0066unction","invocation_\u0069d":"a\"\\\/\b\f\n\r\t\u0000"}`,
		"bad-escape":             `{"id":"\x41"}`,
		"bad-hex":                `{"id":"\u00g1"}`,
		"control-character":      "{\"id\":\"a\nb\"}",
		"zero-byte":              "{\"id\":\"a\"\x00}",
		"delete-character":       "{\"id\":\"\x7f\"}",
		"unknown-type":           `{"type":"observeresult","id":"obs-1","status":"active"}`,
		"type-in-capitals":       `{"type":"PING"}`,
		"type-is-a-number":       `{"type":1,"id":"x"}`,
		"unknown-fields":         `{"type":"ping","__proto__":{"type":"pong"},"":0,"message_type":"x"}`,
		"wrong-kinds":            `{"id":1,"function_id":[],"invocation_id":{},"namespace":true,"data":"x"}`,
		"nulls":                  `{"type":"invokefunction","invocation_id":null,"data":null,"action":null,"namespace":null}`,
		"ids-behind-the-payload": `{"data":{"id":"inner","s":"` + text(700) + `"},"type":"invokefunction","invocation_id":"i"}`,
		"id-of-512-bytes":        `{"id":"` + strings.Repeat("a", 512) + `"}`,
		"id-of-513-bytes":        `{"id":"` + strings.Repeat("a", 513) + `"}`,
		"id-of-512-escapes":      `{"id":"` + strings.Repeat(`\u0061`, 512) + `"}`,
		"key-of-1000-escapes":    `{"` + strings.Repeat(`\u0061`, 1000) + `":1,"id":"x"}`,
		"quotes-in-payload":      `{"data":"{\"id\":\"inner\"}","id":"outer"}`,
		"backslashes":            `{"data":"\\\\\\","id":"x\\"}`,
	}
	for _, f := range messages {
		m["sound-"+strings.ToLower(strings.ReplaceAll(f.name, "_", "-"))] = f.frame
	}
	return m
}

// errorValues are values of the fields error and action.
func errorValues() map[string]string {
	return map[string]string{
		"error":         `{"code":"invocation_failed","message":"kaboom","stacktrace":"Error: kaboom\n    at f"}`,
		"no-code":       `{"message":"y"}`,
		"code-number":   `{"code":5,"message":"y"}`,
		"text":          `"boom"`,
		"odd-text":      "\"\\ud83d\xff\"",
		"null":          "null",
		"number":        "-1e5",
		"repeated":      `{"code":"a","code":"b","message":"","message":"m"}`,
		"cut":           `{"code":"X","message":"`,
		"escaped-keys":  `{"c\u006fde":"X","m\u0065ssage":"y"}`,
		"void":          `{"type":"void"}`,
		"enqueue":       `{"type":"enqueue","queue":"jobs"}`,
		"enqueue-none":  `{"type":"enqueue"}`,
		"odd-queue":     `{"queue":"j\u006fbs\n","type":"enqueue"}`,
		"behind-object": `{"type":"void"}x`,
	}
}

// appends are the arguments of FuzzAppend besides the type: which fields, two texts, a raw value.
func appends() map[string][]any {
	all := ^uint64(0)
	return map[string][]any{
		"nothing":    {uint64(0), "", "", []byte("null")},
		"everything": {all, "a::b", "7d6f6a2c-0b5e-4c58-9a6e-1f2d3c4b5a69", []byte(`{"a":[1,"x",null]}`)},
		"odd-texts":  {all, "a\"\\\n\x00\x7f", "\xff\xc3é\U0001f600\u2028", []byte(`"\ud83d"`)},
		"odd-raw":    {all, "", "x", []byte(" [ 1 , {} ] \n")},
		"raw-bytes":  {all, "12345678", "1234567", []byte("\"\xff\"")},
		"bad-spaces": {all << 33, "", "", []byte("0")},
	}
}

// seed writes one value of a corpus file.
func seed(v any) string {
	switch v := v.(type) {
	case []byte:
		return fmt.Sprintf("[]byte(%q)\n", v)
	case string:
		return fmt.Sprintf("string(%q)\n", v)
	case uint8:
		return fmt.Sprintf("byte('\\x%02x')\n", v)
	default:
		return fmt.Sprintf("%T(%v)\n", v, v)
	}
}

func corpus() map[string]string {
	files := map[string]string{}
	for name, s := range frames() {
		files["FuzzScan/"+name] = seed([]byte(s))
		files["FuzzDrain/"+name] = seed([]byte(s)) + seed(uint64(len(name)))
	}
	for name, s := range errorValues() {
		files["FuzzError/"+name] = seed([]byte(s))
	}
	for name, args := range appends() {
		for kind := range uint8(16) {
			if name != "everything" && kind%5 != 1 {
				continue
			}
			body := seed(kind)
			for _, v := range args {
				body += seed(v)
			}
			files[fmt.Sprintf("FuzzAppend/%s-%02d", name, kind)] = body
		}
	}
	return files
}

// TestCorpusIsCommitted holds the files of the corpus to the lists above; -update writes them.
func TestCorpusIsCommitted(t *testing.T) {
	for name, body := range corpus() {
		path := filepath.Join("testdata", "fuzz", filepath.FromSlash(name))
		want := "go test fuzz v1\n" + body
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the list says: run go test -update", path)
		}
	}
}

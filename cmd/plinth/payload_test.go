package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
)

func TestPairsMakeAnObject(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "",
		"name=Ann":                 `{"name":"Ann"}`,
		"a=1 b=-1.5e3 c=00":        `{"a":1,"b":-1.5e3,"c":"00"}`,
		"a=true b=null c=yes":      `{"a":true,"b":null,"c":"yes"}`,
		`a=[1] b={"x":1} c="1"`:    `{"a":[1],"b":{"x":1},"c":"1"}`,
		`a=[1 b={x c="`:            `{"a":"[1","b":"{x","c":"\""}`,
		"a=x=y b==":                `{"a":"x=y","b":"="}`,
		"a.b.c=1 a.b.d=2 a.e=3":    `{"a":{"b":{"c":1,"d":2},"e":3}}`,
		`a\.b=1 c\\.d=2 e\f=3`:     `{"a.b":1,"c\\":{"d":2},"e\\f":3}`,
		"a:=1 b:=[]":               `{"a":1,"b":[]}`,
		"a=<&> b=9007199254740993": `{"a":"<&>","b":9007199254740993}`,
		"ä=ö":                      `{"ä":"ö"}`,
		"a=@file b=-":              `{"a":"@file","b":"-"}`,
	} {
		got, err := payloadOf(strings.Fields(args))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", args, got, err)
		}
	}
}

func TestPairsThatMakeNoSenseAreUsage(t *testing.T) {
	for args, why := range map[string]string{
		"word":          "is no key=value",
		"=1":            "empty name",
		"a.=1":          "empty name",
		".a=1":          "empty name",
		":=1":           "empty name",
		"a:=x":          "not valid JSON",
		"a:=":           "not valid JSON",
		"a=1 a=2":       "given twice",
		"a=1 a.b=2":     "given twice",
		"a.b=1 a=2":     "given twice",
		"a.b=1 a.b.c=2": "given twice",
	} {
		_, err := payloadOf(strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), why) || fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got %v", args, err)
		}
	}
}

func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"a=1", "a.b:=[1]\na.c=x", `a\.b="`, "=", ":=", "a..b=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		got, err := payloadOf(strings.Split(lines, "\n"))
		if (got == nil) == (err == nil) {
			t.Fatalf("got %s and %v", got, err)
		}
		var object map[string]any
		if err == nil && json.Unmarshal(got, &object) != nil {
			t.Fatalf("%q made %s", lines, got)
		}
	})
}

func TestFlagsThatHoldJSONReadFilesAndInput(t *testing.T) {
	p := newProgram(strings.NewReader(" {\"a\":1}\n"), nil, nil, nil)
	if got, err := p.readJSON("data", "-"); err != nil || string(got) != `{"a":1}` {
		t.Errorf("got %s, %v", got, err)
	}
	for _, text := range []string{"", "{", "@", "@missing", "@.", "nope"} {
		if got, err := p.readJSON("data", text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
	endless := newProgram(zeros{}, nil, nil, nil)
	_, err := endless.readJSON("data", "-")
	if err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("got %v", err)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

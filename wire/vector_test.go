package wire_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

// vector is one case of testdata/vectors; the files say what its members mean.
type vector struct {
	Name    string
	Message string
	Base64  []byte
	Parts   [][2]any

	Accept    bool
	Code      string
	Type      string
	Text, Raw map[string]string
	Bad       []string
	Limit     string
	Over      bool
}

func (v *vector) bytes() []byte {
	switch {
	case v.Base64 != nil:
		return v.Base64
	case v.Parts == nil:
		return []byte(v.Message)
	}
	var b []byte
	for _, p := range v.Parts {
		b = append(b, strings.Repeat(p[0].(string), int(p[1].(float64)))...)
	}
	return b
}

// frame returns the frame that the vector says the message is.
func (v *vector) frame() *wire.Frame {
	f := &wire.Frame{Type: wire.ParseType([]byte(v.Type))}
	for field, key := range textKeys {
		if s, ok := v.Text[key]; ok {
			set(f, field, []byte(s))
		}
	}
	for field, key := range rawKeys {
		if s, ok := v.Raw[key]; ok {
			set(f, field, []byte(s))
		}
	}
	for _, name := range v.Bad {
		f.BadNamespace = f.BadNamespace || name == "namespace"
		f.BadTriggerNamespace = f.BadTriggerNamespace || name == "trigger_namespace"
	}
	return f
}

// load reads one file of vectors strictly: a member that nobody reads tests nothing.
func load(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestVectors(t *testing.T) {
	for _, name := range []string{"captured", "texts", "kinds", "refused", "limits"} {
		t.Run(name, func(t *testing.T) {
			var file struct {
				About   []string
				Vectors []vector
			}
			load(t, filepath.Join("testdata", "vectors", name+".json"), &file)
			if len(file.Vectors) < 10 || len(file.About) < 2 {
				t.Fatalf("%d vectors", len(file.Vectors))
			}
			for _, v := range file.Vectors {
				t.Run(v.Name, func(t *testing.T) { v.check(t) })
			}
		})
	}
}

func (v *vector) check(t *testing.T) {
	b := v.bytes()
	var f wire.Frame
	if taken := agree(t, &f, b); taken != v.Accept {
		t.Fatalf("taken: %v", taken)
	}
	if !v.Accept {
		if err := f.Scan(b); !errors.Is(err, &wire.Error{Code: v.Code}) {
			t.Fatalf("error %v, want code %s", err, v.Code)
		}
		return
	}
	want := v.frame()
	if v.Raw == nil { // too long to be told: any will do
		want.Metadata = f.Metadata
	}
	if diff := differences(want, &f); diff != "" {
		t.Fatal(diff)
	}
	if f.Type != wire.TypeUnknown {
		out := f.Append(nil)
		var again wire.Frame
		if !agree(t, &again, out) {
			t.Fatalf("what Append writes is refused: %s", out)
		}
		if diff := differences(kept(want), &again); diff != "" {
			t.Fatalf("after a trip over the wire: %s", diff)
		}
	}
	if v.Limit != "" && v.Limit != "max_depth" {
		v.checkLimit(t, &f)
	}
}

// checkLimit finds that one field is as long as the table of limits says, or one byte longer.
func (v *vector) checkLimit(t *testing.T, f *wire.Frame) {
	b := wire.DefaultBounds()
	want, ok := b.Get(v.Limit)
	if !ok {
		t.Fatalf("no limit is named %s", v.Limit)
	}
	if v.Over {
		want++
	}
	for _, keys := range []map[string]string{textKeys, rawKeys} {
		for field := range keys {
			if int64(len(get(f, field))) == want {
				return
			}
		}
	}
	t.Errorf("no field of %d bytes", want)
}

func TestVectorsOfValues(t *testing.T) {
	var file struct {
		About  []string
		Errors []struct {
			Name, Raw string
			Error     *struct {
				Code, Stacktrace string
				Message          *string
			}
		}
		Actions []struct {
			Name, Raw, Action string
			Queue             *string
		}
	}
	load(t, filepath.Join("testdata", "vectors", "values.json"), &file)
	if len(file.Errors) < 10 || len(file.Actions) < 10 {
		t.Fatalf("%d errors, %d actions", len(file.Errors), len(file.Actions))
	}
	for _, v := range file.Errors {
		got := wire.ParseError([]byte(v.Raw))
		switch {
		case (got == nil) != (v.Error == nil):
			t.Errorf("%s: %v", v.Name, got)
		case got == nil:
		case got.Code != v.Error.Code || got.Stacktrace != v.Error.Stacktrace ||
			v.Error.Message != nil && got.Message != *v.Error.Message:
			t.Errorf("%s: %+v, want %+v", v.Name, *got, *v.Error)
		}
	}
	for _, v := range file.Actions {
		a, queue := wire.ParseAction([]byte(v.Raw))
		if a.String() != v.Action || (queue != nil) != (v.Queue != nil) ||
			v.Queue != nil && string(queue) != *v.Queue {
			t.Errorf("%s: %v %q", v.Name, a, queue)
		}
	}
}

// TestCapturedFramesComeBackEqual sends every captured frame through Scan and Append and compares it as
// a JSON value. Only fields that the protocol does not know may be lost.
func TestCapturedFramesComeBackEqual(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "frames.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unknown := map[string]bool{"message_type": true, "observer_id": true, "depth": true}
	kinds := map[wire.Type]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line struct{ Frame json.RawMessage }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		var f wire.Frame
		if !agree(t, &f, line.Frame) {
			t.Fatalf("refused: %s", line.Frame)
		}
		kinds[f.Type]++
		if f.Type == wire.TypeUnknown {
			continue
		}
		var want, got map[string]any
		if json.Unmarshal(line.Frame, &want) != nil || json.Unmarshal(f.Append(nil), &got) != nil {
			t.Fatalf("no JSON: %s", f.Append(nil))
		}
		for key := range unknown {
			delete(want, key)
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s became %s", line.Frame, f.Append(nil))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for kind := range typeKeys {
		switch kind {
		case wire.TypePing, wire.TypePong, wire.TypeUnregisterFunction, wire.TypeRegisterService:
			// the recorded SDK sends none of these
		default:
			if kinds[kind] == 0 {
				t.Errorf("no %v among the captured frames", kind)
			}
		}
	}
}

package house

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample is a table with a setting of every type.
func sample(t testing.TB) *Table {
	t.Helper()
	table, err := NewTable(Settings([]string{"engine", "flows"}), []Setting{
		{Key: "engine.listen", Type: Text, Default: "127.0.0.1:49134", Check: Address,
			Help: "socket of the workers"},
		{Key: "engine.limits.max_frames", Type: Int, Default: "100", Min: 1, Max: 1000, Help: "frames"},
		{Key: "engine.strict", Type: Bool, Default: "false", Help: "strict"},
		{Key: "admin.token", Type: Text, Secret: true, Help: "token"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableRefusesNamesThatCollide(t *testing.T) {
	for name, rows := range map[string][]Setting{
		"same key":                             {{Key: "a"}, {Key: "a"}},
		"no key":                               {{Key: ""}},
		"same variable":                        {{Key: "a.b_c"}, {Key: "a_b.c"}},
		"the file form first":                  {{Key: "a_file"}, {Key: "a"}},
		"the file form last":                   {{Key: "a"}, {Key: "a.file"}},
		"a default that its own check refuses": {{Key: "a", Default: "x", Check: Address}},
		"a default that is no size":            {{Key: "a", Type: Size, Default: "much"}},
	} {
		if _, err := NewTable(rows); err == nil {
			t.Errorf("%s: the table was made", name)
		}
	}
}

func TestSettingNamesFollowFromItsKey(t *testing.T) {
	s := Setting{Key: "engine.limits.max_message_bytes"}
	if s.Env() != "PLINTH_ENGINE_LIMITS_MAX_MESSAGE_BYTES" || s.Flag() != "engine-limits-max-message-bytes" {
		t.Errorf("got %s and %s", s.Env(), s.Flag())
	}
	s.Secret = true
	if s.Flag() != "" {
		t.Errorf("a secret has the flag %q", s.Flag())
	}
}

func TestSizesAreRead(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1B": 1, "64KiB": 64 << 10, "64 KiB": 64 << 10, "256MiB": 256 << 20,
		"1.5GiB": 3 << 29,
		"2TiB":   2 << 40, "10kB": 10_000, "10KB": 10_000, "3MB": 3_000_000, "1GB": 1e9, "1TB": 1e12, "0.5KiB": 512,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for text, why := range map[string]string{
		"":                     "must be a size",
		"-1":                   "must be a size",
		"1e3":                  "must be a size",
		"0x10":                 "must be a size",
		"NaN":                  "must be a size",
		"Inf":                  "must be a size",
		"MiB":                  "must be a size",
		"256 miles":            "must be a size",
		"256M":                 "must name its unit: 256MiB (1024) or 256MB (1000)",
		"1.5g":                 "must name its unit: 1.5GiB (1024) or 1.5GB (1000)",
		"9999999TiB":           "is too large",
		"99999999999999999999": "is too large",
	} {
		if _, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want %q", text, err, why)
		}
	}
}

func TestSizesAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1 KiB", 1500 << 20: "1.5 GiB",
		256 << 20: "256 MiB"} {
		if got := RoundSize(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, seed := range []string{"256MiB", "1.5GiB", "0", "12kB", "1e9", "256M", "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q gives %d", text, n)
		}
		if again, err := ParseSize(FormatSize(n)); err != nil || again != n {
			t.Fatalf("%q is %d, written %q, read %d, %v", text, n, FormatSize(n), again, err)
		}
	})
}

func TestDurationsAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]struct {
		d       time.Duration
		written string
	}{
		"5s": {5 * time.Second, "5s"}, "90s": {90 * time.Second, "1m30s"}, "15m": {15 * time.Minute, "15m"},
		"2h": {2 * time.Hour, "2h"}, "7d": {168 * time.Hour, "168h"}, "250ms": {250 * time.Millisecond, "250ms"},
		"0s": {0, "0s"}, "1h10m": {70 * time.Minute, "1h10m"},
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want.d || FormatDuration(got) != want.written {
			t.Errorf("%q: got %v (%s), %v", text, got, FormatDuration(got), err)
		}
	}
	for text, why := range map[string]string{
		"5": "must name its unit: 5s", "-5s": "must be a duration", "": "must be a duration",
		"soon":        "must be a duration",
		"9999999999d": "must be a duration",
	} {
		if _, err := ParseDuration(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want %q", text, err, why)
		}
	}
}

func TestNearestFindsSlips(t *testing.T) {
	names := []string{"hello::greet", "hello::great", "users::get", "engine.listen", "memory", "log.level"}
	for word, want := range map[string][]string{
		"hello::gret":   {"hello::great", "hello::greet"},
		"helo::greet":   {"hello::greet", "hello::great"},
		"engine.lisetn": {"engine.listen"},
		"memroy":        {"memory"},
		"level":         {"log.level"},
		"greet":         {"hello::greet"},
		"MEMORY":        {"memory"},
		"xyz":           {},
		"":              {},
	} {
		if diff := cmp.Diff(want, Nearest(word, names)); diff != "" {
			t.Errorf("%q: %s", word, diff)
		}
	}
}

func TestProblemsAreFoundInsideAnything(t *testing.T) {
	a, b := &Problem{What: "a", Why: "x"}, &Problem{What: "b"}
	all := Problems(errors.Join(a, errors.Join(b), errors.New("c")))
	if len(all) != 2 || all[0] != a || all[1] != b {
		t.Errorf("got %v", all)
	}
	if a.Error() != "a: x" || b.Error() != "b" {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestSchemaDescribesEverySetting(t *testing.T) {
	table := sample(t)
	b, err := json.Marshal(table.Schema())
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Properties           map[string]json.RawMessage
		AdditionalProperties *bool
		Type                 any
	}
	for _, s := range table.Settings() {
		at := json.RawMessage(b)
		for _, part := range splitKey(s.Key) {
			var n node
			if err := json.Unmarshal(at, &n); err != nil {
				t.Fatal(err)
			}
			if n.AdditionalProperties == nil || *n.AdditionalProperties {
				t.Errorf("%s: unknown keys pass beside %s", s.Key, part)
			}
			if at = n.Properties[part]; at == nil {
				t.Fatalf("%s: %s is not in the schema", s.Key, part)
			}
		}
	}
}

func TestAnItemOfAListMayBeAJSONObject(t *testing.T) {
	s := Setting{Key: "x", Type: List, Check: func(item string) error {
		if item == "bad" {
			return errors.New("that one")
		}
		return nil
	}}
	for text, want := range map[string][]string{
		`a, b`:                          {"a", "b"},
		`{"a":1,"b":"},{"},c`:           {`{"a":1,"b":"},{"}`, "c"},
		`{"a":"\",","b":{"c":1,"d":2}}`: {`{"a":"\",","b":{"c":1,"d":2}}`},
		`match("x"),{"a":`:              {`match("x")`, `{"a":`},
		`}a,b`:                          {"}a", "b"},
		``:                              {},
	} {
		got, err := s.parse(text)
		if err != nil || !slices.Equal(got.([]string), want) {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
	if _, err := s.parse("a,bad"); err == nil || !strings.Contains(err.Error(), "that one") {
		t.Errorf("a bad item: got %v", err)
	}
}

package house

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plinth-run/plinth/internal/fault"
)

// write puts a file into a fresh folder and gives the folder.
func write(t testing.TB, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func load(t *testing.T, src Sources) *Config {
	t.Helper()
	if src.Dir == "" {
		src.Dir = t.TempDir()
	}
	c, err := Load(sample(t), src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaultsStandAlone(t *testing.T) {
	c := load(t, Sources{})
	if c.File() != "" || c.Text(KeyFolder) != "./plinth-data" ||
		c.Int(KeyMemory) != 0 || len(c.List(KeyOnly)) != 0 {
		t.Errorf("got %v", c.Rows())
	}
	for _, r := range c.Rows() {
		if r.Origin != (Origin{Source: "default"}) {
			t.Errorf("%s: origin %v", r.Key, r.Origin)
		}
	}
}

func TestStrongerSourceWinsAndIsNamed(t *testing.T) {
	dir := write(t, FileName, `
memory = "64MiB"
only = ["engine"]

[engine]
listen = "127.0.0.1:1"
limits.max_frames = 0x10
[log]
level = "warn"
format = "json"
`)
	c := load(t, Sources{
		Dir:     dir,
		Environ: []string{"PLINTH_LOG_LEVEL=error", "PLINTH_LOG_FORMAT=text", "PLINTH_MEMORY=", "HOME=/x"},
		Flags:   map[string]string{"log.level": "debug", "engine.strict": "true"},
	})
	file := filepath.Join(dir, FileName)
	want := map[string]struct{ value, origin string }{
		"memory":                   {"64MiB", file + ":2"},
		"only":                     {"engine", file + ":3"},
		"engine.listen":            {"127.0.0.1:1", file + ":6"},
		"engine.limits.max_frames": {"16", file + ":7"},
		"log.level":                {"debug", "--log-level"},
		"log.format":               {"text", "PLINTH_LOG_FORMAT"},
		"engine.strict":            {"true", "--engine-strict"},
		"drain.grace":              {"10s", "default"},
	}
	for _, r := range c.Rows() {
		if w, ok := want[r.Key]; ok && (r.Value != w.value || r.Origin.String() != w.origin) {
			t.Errorf("%s: got %q from %s, want %q from %s", r.Key, r.Value, r.Origin, w.value, w.origin)
		}
	}
	if c.File() != file || c.Int(KeyMemory) != 64<<20 || !c.Bool("engine.strict") ||
		c.Int("engine.limits.max_frames") != 16 {
		t.Errorf("typed values do not fit: %v", c.Rows())
	}
	if got := c.List(KeyOnly); len(got) != 1 || got[0] != "engine" {
		t.Errorf("only: %v", got)
	}
}

// Each case is one fault and what the person is told.
func TestFaultsOfTheFileAreToldWithTheirLine(t *testing.T) {
	for _, c := range []struct{ name, file, what, why, do string }{
		{"unknown key", "memroy = \"1GiB\"", ":1: unknown key memroy", "no such setting", "did you mean memory?"},
		{"unknown key in a table", "\n[engine]\nlisen = \"x\"", ":3: unknown key engine.lisen", "",
			"did you mean engine.listen?"},
		{"unknown table", "[engin]\nlisten = \"x\"", ":1: unknown key engin", "", ""},
		{"unknown inline", "engine = { lisen = \"x\" }", ":1: unknown key engine.lisen", "",
			"did you mean engine.listen?"},
		{"a table as a value", "memory = { x = 1 }", ":1: memory", "must be a size in quotes", ""},
		{"a list of tables", "[[engine]]\nlisten = \"127.0.0.1:1\"", ":1: engine", "list of tables", ""},
		{"number for text", "data = 5", ":1: data", "must be text in quotes", ""},
		{"text for bool", "[engine]\nstrict = \"yes\"", ":2: engine.strict", "without quotes", ""},
		{"float for a number", "engine.limits.max_frames = 1.5", ":1: engine.limits.max_frames", "whole number",
			""},
		{"out of bounds", "engine.limits.max_frames = 1001", `max_frames = "1001"`, "between 1 and 1000", ""},
		{"bare unit", "memory = \"256M\"", "memory", "256MiB (1024)", ""},
		{"too little", "memory = \"1MiB\"", "memory", "between 16MiB and", ""},
		{"no word", "log.level = \"infos\"", "log.level", "did you mean info?", ""},
		{"no room", "only = [\"engine\", \"flow\"]", "only", "did you mean flows?", ""},
		{"comma in an item", "only = [\"engine,flows\"]", "only", "comma", ""},
		{"no address", "engine.listen = \"49134\"", "engine.listen", "an address and a port", ""},
		{"twice", "memory = \"1GiB\"\nmemory = \"2GiB\"", ":2:", "memory", ""},
		{"no TOML", "memory = \n", ":1:", "", "correct that line"},
	} {
		_, err := Load(sample(t), Sources{Dir: write(t, FileName, c.file)})
		all := Problems(err)
		if len(all) == 0 {
			t.Errorf("%s: no problem: %v", c.name, err)
			continue
		}
		p := all[0]
		if !strings.Contains(p.What, c.what) || !strings.Contains(p.Why, c.why) || !strings.Contains(p.Do,
			c.do) || p.Do == "" {
			t.Errorf("%s: got\n %s\n %s\n %s", c.name, p.What, p.Why, p.Do)
		}
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: kind %v", c.name, fault.KindOf(err))
		}
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	_, err := Load(sample(t), Sources{
		Dir:     write(t, FileName, "a = 1\nmemory = \"x\"\n"),
		Environ: []string{"PLINTH_MEMROY=1GiB", "PLINTH_LOG_LEVEL=loud"},
		Flags:   map[string]string{"drain.grace": "1"},
	})
	var told []string
	for _, p := range Problems(err) {
		told = append(told, filepath.Base(p.What))
	}
	want := []string{
		"plinth.toml:1: unknown key a", `plinth.toml:2: memory = "x"`, `PLINTH_LOG_LEVEL: log.level = "loud"`,
		"PLINTH_MEMROY: unknown variable", `--drain-grace: drain.grace = "1"`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentOfOthersIsNoError(t *testing.T) {
	c := load(t, Sources{
		Environ: []string{
			"PLINTH_PORT=tcp://10.0.0.1:8081", "PLINTH_SERVICE_HOST=10.0.0.1", "PLINTH_SERVICE_PORT=8081",
			"PLINTH_SERVICE_PORT_ADMIN=8081", "PLINTH_PORT_8081_TCP=tcp://10.0.0.1:8081",
			"PLINTH_PORT_8081_TCP_ADDR=10.0.0.1", "PLINTH_PROGRESS=plain",
		},
		Known: []string{"PLINTH_PROGRESS"},
	})
	if c == nil {
		t.Fatal("no configuration")
	}
}

func TestValueMayComeFromAFile(t *testing.T) {
	secret := filepath.Join(write(t, "token", "s3cret\n"), "token")
	c := load(t, Sources{Environ: []string{"PLINTH_ADMIN_TOKEN_FILE=" + secret}})
	if c.Text("admin.token") != "s3cret" {
		t.Errorf("got %q", c.Text("admin.token"))
	}
	for _, r := range c.Rows() {
		if r.Key == "admin.token" && (r.Value != "(hidden)" || r.Flag != "" ||
			r.Origin.Where != "PLINTH_ADMIN_TOKEN_FILE") {
			t.Errorf("got %+v", r)
		}
		if strings.Contains(r.Value, "s3cret") {
			t.Errorf("%s shows the secret", r.Key)
		}
	}
	large := filepath.Join(write(t, "large", strings.Repeat("x", maxValue+1)), "large")
	for name, environ := range map[string][]string{
		"both":    {"PLINTH_ADMIN_TOKEN_FILE=" + secret, "PLINTH_ADMIN_TOKEN=x"},
		"missing": {"PLINTH_ADMIN_TOKEN_FILE=" + secret + "x"},
		"large":   {"PLINTH_ADMIN_TOKEN_FILE=" + large},
		"folder":  {"PLINTH_ADMIN_TOKEN_FILE=" + filepath.Dir(secret)},
		"stray":   {"PLINTH_NOTHING_FILE=" + secret},
	} {
		if _, err := Load(sample(t), Sources{Dir: t.TempDir(), Environ: environ}); len(Problems(err)) != 1 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNamedFileMustExist(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "other.toml")
	for name, src := range map[string]Sources{
		"flag":        {File: missing},
		"environment": {Environ: []string{"PLINTH_CONFIG=" + missing}},
		"a folder":    {File: t.TempDir()},
	} {
		_, err := Load(sample(t), src)
		if all := Problems(err); len(all) != 1 || all[0].Code != CodeBadFile {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := load(t, Sources{Environ: []string{"PLINTH_CONFIG=" + filepath.Join(write(t, "x", "memory = \"1GiB\""),
		"x")}})
	if c.Int(KeyMemory) != 1<<30 {
		t.Errorf("got %d", c.Int(KeyMemory))
	}
}

func TestAskingForNoSettingGivesNothing(t *testing.T) {
	c := load(t, Sources{})
	if c.Text("nothing") != "" || c.Text(KeyGrace) != "" || c.List(KeyGrace) != nil ||
		c.Duration(KeyGrace) == 0 {
		t.Errorf("got %q, %q, %v", c.Text("nothing"), c.Text(KeyGrace), c.Duration(KeyGrace))
	}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"memory = \"64MiB\"\n[engine]\nlisten = \"127.0.0.1:1\"\n", "a.b = {c = [1, \"x\", {d = 1}]}", "[[a]]\n[a.b]\n",
		"only = [\"engine\", # c\n \"flows\"]", "x = 1979-05-27T07:32:00Z", "\"\" = 1", "[",
	} {
		f.Add(seed)
	}
	table := sample(f)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(dir, "fuzz.toml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(table, Sources{File: name})
		if (c == nil) == (err == nil) {
			t.Fatalf("got %v and %v", c, err)
		}
		if err != nil && len(Problems(err)) == 0 {
			t.Fatalf("no problem in %v", err)
		}
		for _, p := range Problems(err) {
			if p.What == "" || p.Do == "" || !errors.Is(err, fault.New(fault.Invalid, p.Code, "")) {
				t.Fatalf("half a problem: %+v", p)
			}
		}
	})
}

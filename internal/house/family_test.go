package house

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// doors is a table with a family between two plain settings.
func doors(t testing.TB) *Table {
	t.Helper()
	table, err := NewTable([]Setting{
		{Key: "engine.listen", Type: Text, Default: "127.0.0.1:1", Check: Address, Help: "the first"},
		{Key: "engine.listeners.*.listen", Type: Text, Check: Address, Help: "address"},
		{Key: "engine.listeners.*.rooms", Type: List, Words: []string{"engine", "flows"}, Help: "rooms"},
		{Key: "engine.listeners.*.limits.max_frames", Type: Int, Default: "5", Max: 9, Help: "frames"},
		{Key: "engine.listeners.*.token", Type: Text, Secret: true, Help: "token"},
		{Key: "engine.loops", Type: Int, Default: "0", Max: 8, Help: "loops"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestAFamilyIsReadFromFileAndEnvironment(t *testing.T) {
	dir := write(t, FileName, `
[engine]
loops = 2
[engine.listeners.public]
listen = "0.0.0.0:7"
rooms = ["engine"]
limits.max_frames = 7
[engine.listeners]
lan-1 = { listen = "10.0.0.1:7" }
`)
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(doors(t), Sources{Dir: dir, Environ: []string{
		"PLINTH_ENGINE_LISTENERS_PUBLIC_LIMITS_MAX_FRAMES=8",
		"PLINTH_ENGINE_LISTENERS_LAN_1_TOKEN_FILE=" + secret,
		"PLINTH_ENGINE_LISTENERS_ENV_LISTEN=127.0.0.1:9",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Names("engine.listeners"); !slices.Equal(got, []string{"env", "lan-1", "public"}) {
		t.Fatalf("names %v", got)
	}
	const in = "engine.listeners."
	if c.Text(in+"public.listen") != "0.0.0.0:7" || c.Int(in+"public.limits.max_frames") != 8 ||
		!slices.Equal(c.List(in+"public.rooms"), []string{"engine"}) ||
		c.Text(in+"lan-1.token") != "hush" || c.Int(in+"lan-1.limits.max_frames") != 5 ||
		c.List(in+"env.rooms") == nil || c.Text(in+"env.listen") != "127.0.0.1:9" ||
		c.Text(in+"other.listen") != "" || c.Int("engine.loops") != 2 {
		t.Errorf("got %+v", c.members)
	}
	if c.Names("engine") != nil || c.Names("flows.listeners") != nil {
		t.Error("names where no family is")
	}
}

func TestAFamilyIsShownNameByName(t *testing.T) {
	dir := write(t, FileName, "[engine.listeners.b]\nlisten = \"127.0.0.1:2\"\ntoken = \"x\"\n"+
		"[engine.listeners.a]\nlisten = \"127.0.0.1:3\"\n")
	c, err := Load(doors(t), Sources{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Rows() {
		got = append(got, fmt.Sprintf("%s=%s %s%s %s", r.Key, r.Value, r.Env, r.Flag, r.Origin.Source))
	}
	const key, env = "engine.listeners.", "PLINTH_ENGINE_LISTENERS_"
	want := []string{
		"engine.listen=127.0.0.1:1 PLINTH_ENGINE_LISTEN--engine-listen default",
		key + "a.listen=127.0.0.1:3 " + env + "A_LISTEN file",
		key + "a.rooms= " + env + "A_ROOMS default",
		key + "a.limits.max_frames=5 " + env + "A_LIMITS_MAX_FRAMES default",
		key + "a.token= " + env + "A_TOKEN default",
		key + "b.listen=127.0.0.1:2 " + env + "B_LISTEN file",
		key + "b.rooms= " + env + "B_ROOMS default",
		key + "b.limits.max_frames=5 " + env + "B_LIMITS_MAX_FRAMES default",
		key + "b.token=(hidden) " + env + "B_TOKEN file",
		"engine.loops=0 PLINTH_ENGINE_LOOPS--engine-loops default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMistakesInAFamilyAreTold(t *testing.T) {
	many := &strings.Builder{}
	for n := range maxNames + 1 {
		fmt.Fprintf(many, "[engine.listeners.n%d]\nlisten = \"127.0.0.1:0\"\n", n)
	}
	for name, c := range map[string]struct {
		file string
		env  []string
		want []string // parts of the texts of the one problem
	}{
		"unknown member": {"[engine.listeners.pub]\nlisten = \"127.0.0.1:0\"\nroms = []", nil,
			[]string{"unknown key engine.listeners.pub.roms", "did you mean engine.listeners.pub.rooms?"}},
		"unknown family": {"[engine.listener.pub]\nlisten = \"127.0.0.1:0\"", nil,
			[]string{"unknown key engine.listener.pub"}},
		"unknown variable": {"", []string{"PLINTH_ENGINE_LISTENERS_PUB_LISEN=x"},
			[]string{"unknown variable", "did you mean PLINTH_ENGINE_LISTENERS_PUB_LISTEN?"}},
		"bad value": {"[engine.listeners.pub]\nlisten = \"pub\"", nil,
			[]string{`:2: engine.listeners.pub.listen = "pub"`, "an address and a port"}},
		"wrong type": {"[engine.listeners.pub]\nlisten = 1", nil,
			[]string{"engine.listeners.pub.listen", "must be text in quotes"}},
		"bad value in a variable": {"", []string{"PLINTH_ENGINE_LISTENERS_PUB_LIMITS_MAX_FRAMES=99"},
			[]string{"PLINTH_ENGINE_LISTENERS_PUB_LIMITS_MAX_FRAMES", "must be between 0 and 9"}},
		"bad name": {"[engine.listeners.Pub_1]", nil, []string{"engine.listeners.Pub_1", "a-z, 0-9 and -"}},
		"a long name": {"[engine.listeners." + strings.Repeat("x", 33) + "]", nil,
			[]string{"a name has 1 to 32"}},
		"the pattern itself": {"[engine.listeners.\"*\"]", nil, []string{"a name has 1 to 32"}},
		"not given": {"[engine.listeners.pub]\nrooms = []", nil,
			[]string{":2: engine.listeners.pub.listen is not given", "PLINTH_ENGINE_LISTENERS_PUB_LISTEN"}},
		"an empty table":       {"[engine.listeners.pub]", nil, []string{":1: engine.listeners.pub.listen is not given"}},
		"a list of tables":     {"[[engine.listeners.pub]]\n", nil, []string{"list of tables"}},
		"a value for a name":   {"engine.listeners.pub = 3", nil, []string{"unknown key engine.listeners.pub"}},
		"a value for a family": {"engine.listeners = 3", nil, []string{"unknown key engine.listeners"}},
		"both variables": {"[engine.listeners.p]\nlisten = \"127.0.0.1:0\"", []string{
			"PLINTH_ENGINE_LISTENERS_P_TOKEN=x", "PLINTH_ENGINE_LISTENERS_P_TOKEN_FILE=y"}, []string{"only one"}},
		"many names": {many.String(), nil, []string{"has more than 64 names"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(doors(t), Sources{Dir: write(t, FileName, c.file), Environ: c.env})
			all := Problems(err)
			if len(all) == 0 {
				t.Fatal("loaded")
			}
			text := all[0].What + "\n" + all[0].Why + "\n" + all[0].Do
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("got %q, want %q in it", text, want)
				}
			}
			if len(all) != 1 && name != "unknown family" && name != "many names" {
				t.Errorf("%d problems: %v", len(all), err)
			}
		})
	}
}

func TestFamiliesThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	for name, rows := range map[string][]Setting{
		"at the start":             {{Key: "*.a"}},
		"at the end":               {{Key: "a.*"}},
		"two names":                {{Key: "a.*.b.*.c"}},
		"part of an element":       {{Key: "a.x*.b"}},
		"same key":                 {{Key: "a.*.b"}, {Key: "a.*.b"}},
		"same variable":            {{Key: "a.*.b_c"}, {Key: "a.*.b.c"}},
		"end of another":           {{Key: "a.*.tls_key"}, {Key: "a.*.key"}},
		"end of another, first":    {{Key: "a.*.key"}, {Key: "a.*.tls_key"}},
		"its file form":            {{Key: "a.*.b"}, {Key: "a.*.b_file"}},
		"a plain one before":       {{Key: "a.x.b"}, {Key: "a.*.b"}},
		"a plain one behind":       {{Key: "a.*.b"}, {Key: "a.x.b"}},
		"a default that is no int": {{Key: "a.*.b", Type: Int, Default: "x"}},
	} {
		if _, err := NewTable(rows); err == nil {
			t.Errorf("%s: the table was made", name)
		}
	}
	sound := []Setting{{Key: "a.*.tls_cert"}, {Key: "a.*.tls_key"}, {Key: "b.*.key"}, {Key: "a.b"}}
	if _, err := NewTable(sound); err != nil {
		t.Error(err)
	}
}

func TestFindKnowsTheSettingsOfNames(t *testing.T) {
	table := doors(t)
	s, ok := table.Find("engine.listeners.my-net.limits.max_frames")
	if !ok || s.Env() != "PLINTH_ENGINE_LISTENERS_MY_NET_LIMITS_MAX_FRAMES" || s.Flag() != "" || s.Type != Int {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, key := range []string{"engine.listeners.*.listen", "engine.listeners..listen",
		"engine.listeners.a.b.listen", "engine.listeners.a", "engine.listeners.A.listen"} {
		if s, ok := table.Find(key); ok {
			t.Errorf("%s is found as %+v", key, s)
		}
	}
	if got := table.Keys(); !slices.Equal(got, []string{"engine.listen", "engine.loops"}) {
		t.Errorf("keys %v", got)
	}
	if row := table.Settings()[1]; row.Env() != "PLINTH_ENGINE_LISTENERS_<NAME>_LISTEN" || row.Flag() != "" {
		t.Errorf("%s, %q", row.Env(), row.Flag())
	}
}

func TestSchemaTakesAnyNameOfAFamily(t *testing.T) {
	b, err := json.Marshal(doors(t).Schema())
	if err != nil {
		t.Fatal(err)
	}
	var root struct {
		Properties map[string]struct {
			Properties map[string]struct {
				Pattern map[string]struct {
					Additional *bool                      `json:"additionalProperties"`
					Properties map[string]json.RawMessage `json:"properties"`
				} `json:"patternProperties"`
				Additional *bool `json:"additionalProperties"`
			} `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(b, &root); err != nil {
		t.Fatal(err)
	}
	family := root.Properties["engine"].Properties["listeners"]
	one := family.Pattern["^[a-z0-9-]{1,32}$"]
	if family.Additional == nil || *family.Additional || one.Additional == nil || *one.Additional ||
		len(one.Properties) != 4 || !strings.Contains(string(one.Properties["limits"]), "max_frames") {
		t.Errorf("%s", b)
	}
}

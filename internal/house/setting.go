package house

import (
	"fmt"
	"slices"
	"strings"
)

// A Type says how the text of a setting is read.
type Type uint8

// The types of settings, and the Go type that Config gives for each.
const (
	Text     Type = iota // string
	Bool                 // bool
	Int                  // int64
	Size                 // int64, bytes
	Duration             // time.Duration
	List                 // []string
)

var typeNames = [...]string{"text", "true or false", "number", "size", "duration", "list"}

// String names the type for messages and for the reference.
func (t Type) String() string { return typeNames[t] }

// A Setting is one line of the one table. The key is its name in the file ("engine.listen"); the
// environment variable (PLINTH_ENGINE_LISTEN, and PLINTH_ENGINE_LISTEN_FILE for a file that holds the
// value) and the flag (--engine-listen) follow from it.
//
// A key with the element * is a setting of a family: "engine.listeners.*.listen" stands for one setting for
// each name that is given in its place, of 1 to 32 characters a-z, 0-9 and -. It has no flag, and in the
// variable (PLINTH_ENGINE_LISTENERS_PUBLIC_LISTEN) an underscore of the name is read as a dash. When its
// default is empty and its own check refuses that, it has to be given for each name.
type Setting struct {
	Key     string
	Type    Type
	Default string // in the form a person writes
	Help    string // one sentence, without a period

	Words    []string // Text and List: what is allowed; Size and Duration: words that stand for 0
	Min, Max int64    // Int, Size, Duration (ns): bounds; both 0 means none
	Check    func(value string) error
	Secret   bool // no flag, and its value is never printed
	Rare     bool // the flag works but is not in the short help

	member bool // of a family, for one name
}

// Env is the environment variable of the setting.
func (s *Setting) Env() string {
	return envPrefix + envName(s.Key)
}

// envName is a key, or parts of one, as it stands in a variable.
func envName(key string) string {
	name := make([]byte, 0, len(key)+len("<NAME>"))
	for _, c := range []byte(key) {
		switch {
		case c == '.' || c == '-':
			name = append(name, '_')
		case c == anyName[0]:
			name = append(name, "<NAME>"...)
		case c >= 'a' && c <= 'z':
			name = append(name, c-'a'+'A')
		default:
			name = append(name, c)
		}
	}
	return string(name)
}

// Flag is the name of the flag without dashes, or "" for a secret and in a family.
func (s *Setting) Flag() string {
	if s.Secret || s.member || s.family() {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(s.Key, ".", "-"), "_", "-")
}

const (
	envPrefix = "PLINTH_"
	envFile   = "_FILE"
)

// A Table is every setting of a program.
type Table struct {
	rows  []Setting
	byKey map[string]int
	byEnv map[string]int // PLINTH_X, without the _FILE forms

	families []int // the rows whose key has a *
}

// NewTable joins the settings of all areas, in the order given. It fails when two settings would share
// a key, a variable or a flag, and when a default does not pass its own check.
func NewTable(areas ...[]Setting) (*Table, error) {
	t := &Table{byKey: map[string]int{}, byEnv: map[string]int{}}
	for _, s := range slices.Concat(areas...) {
		if _, taken := t.byKey[s.Key]; taken || s.Key == "" {
			return nil, fmt.Errorf("setting %q is declared twice or has no name", s.Key)
		}
		if strings.Contains(s.Key, anyName) {
			if err := t.checkFamily(&s); err != nil {
				return nil, err
			}
		} else if other, _, taken := t.variable(s.Env()); taken {
			return nil, fmt.Errorf("settings %s and %s share the variable %s", other.Key, s.Key, s.Env())
		}
		for _, name := range []string{s.Env(), s.Env() + envFile, strings.TrimSuffix(s.Env(), envFile)} {
			if i, taken := t.byEnv[name]; taken {
				return nil, fmt.Errorf("settings %s and %s share the variable %s", t.rows[i].Key, s.Key, name)
			}
		}
		if _, err := s.parse(s.Default); err != nil && !(s.family() && s.Default == "") {
			return nil, fmt.Errorf("default of setting %s: %w", s.Key, err)
		}
		t.byKey[s.Key] = len(t.rows)
		if s.family() {
			t.families = append(t.families, len(t.rows))
		} else {
			t.byEnv[s.Env()] = len(t.rows)
		}
		t.rows = append(t.rows, s)
	}
	return t, nil
}

// Settings lists the table in order. The caller may not change it.
func (t *Table) Settings() []Setting { return t.rows }

// Find gives the setting of a key. The key of a setting in a family has the name in it.
func (t *Table) Find(key string) (*Setting, bool) {
	i, ok := t.byKey[key]
	if !ok || t.rows[i].family() {
		return t.member(key)
	}
	return &t.rows[i], true
}

// Keys lists all keys in order, without those of families.
func (t *Table) Keys() []string {
	keys := make([]string, 0, len(t.rows))
	for i := range t.rows {
		if !t.rows[i].family() {
			keys = append(keys, t.rows[i].Key)
		}
	}
	return keys
}

// splitKey gives the parts of a key.
func splitKey(key string) []string { return strings.Split(key, ".") }

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
}

// Env is the environment variable of the setting.
func (s *Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.Key))
}

// Flag is the name of the flag without dashes, or "" for a secret.
func (s *Setting) Flag() string {
	if s.Secret {
		return ""
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key)
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
}

// NewTable joins the settings of all areas, in the order given. It fails when two settings would share
// a key, a variable or a flag, and when a default does not pass its own check.
func NewTable(areas ...[]Setting) (*Table, error) {
	t := &Table{byKey: map[string]int{}, byEnv: map[string]int{}}
	for _, s := range slices.Concat(areas...) {
		if _, taken := t.byKey[s.Key]; taken || s.Key == "" {
			return nil, fmt.Errorf("setting %q is declared twice or has no name", s.Key)
		}
		for _, name := range []string{s.Env(), s.Env() + envFile, strings.TrimSuffix(s.Env(), envFile)} {
			if i, taken := t.byEnv[name]; taken {
				return nil, fmt.Errorf("settings %s and %s share the variable %s", t.rows[i].Key, s.Key, name)
			}
		}
		if _, err := s.parse(s.Default); err != nil {
			return nil, fmt.Errorf("default of setting %s: %w", s.Key, err)
		}
		t.byKey[s.Key], t.byEnv[s.Env()] = len(t.rows), len(t.rows)
		t.rows = append(t.rows, s)
	}
	return t, nil
}

// Settings lists the table in order. The caller may not change it.
func (t *Table) Settings() []Setting { return t.rows }

// Find gives the setting of a key.
func (t *Table) Find(key string) (*Setting, bool) {
	i, ok := t.byKey[key]
	if !ok {
		return nil, false
	}
	return &t.rows[i], true
}

// Keys lists all keys in order.
func (t *Table) Keys() []string {
	keys := make([]string, len(t.rows))
	for i := range t.rows {
		keys[i] = t.rows[i].Key
	}
	return keys
}

// splitKey gives the parts of a key.
func splitKey(key string) []string { return strings.Split(key, ".") }

package house

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
)

const (
	anyName  = "*" // the element of a key that stands for a name of one's choice
	maxName  = 32  // bytes of such a name
	maxNames = 64  // names of one family
	nameForm = "a-z, 0-9 and -"
)

// errName tells what a name of a family looks like.
var errName = fmt.Errorf("a name has 1 to %d of %s", maxName, nameForm)

// family says whether the setting is one of a family: its key has the element * for a name.
func (s *Setting) family() bool { return strings.Contains(s.Key, anyName) }

// around cuts the key of a family into what stands before and behind the name.
func (s *Setting) around() (before, behind string) {
	before, behind, _ = strings.Cut(s.Key, "."+anyName+".")
	return before, behind
}

// of is the setting of a family for one name.
func (s *Setting) of(name string) *Setting {
	one := *s
	before, behind := s.around()
	one.Key, one.member = before+"."+name+"."+behind, true
	return &one
}

func validName(name string) bool {
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

// checkFamily looks at the key of a family as NewTable takes it in. A name stands between two parts, and no
// variable may be read in two ways.
func (t *Table) checkFamily(s *Setting) error {
	before, behind := s.around()
	if before == "" || behind == "" || strings.Contains(before+behind, anyName) || s.Flag() != "" {
		return fmt.Errorf("setting %q: a family has one * between two parts of its key", s.Key)
	}
	for i := range t.rows {
		o := &t.rows[i]
		if !o.family() {
			if name, ok := s.nameIn(o.Env()); ok {
				return fmt.Errorf("settings %s and %s share the variable of the name %q", o.Key, s.Key, name)
			}
			continue
		}
		if where, other := o.around(); where == before {
			for _, x := range envForms(behind) {
				for _, y := range envForms(other) {
					if strings.HasSuffix("_"+x, "_"+y) || strings.HasSuffix("_"+y, "_"+x) {
						return fmt.Errorf("settings %s and %s can share a variable", o.Key, s.Key)
					}
				}
			}
		}
	}
	return nil
}

func envForms(part string) [2]string {
	name := envName(part)
	return [2]string{name, name + envFile}
}

// nameIn reads the name out of a variable of the family. An underscore becomes a dash.
func (s *Setting) nameIn(variable string) (string, bool) {
	before, behind := s.around()
	rest, ok := strings.CutPrefix(variable, envPrefix+envName(before)+"_")
	rest, is := strings.CutSuffix(rest, "_"+envName(behind))
	if !ok || !is {
		return "", false
	}
	name := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
	return name, validName(name) && rest == strings.ToUpper(rest)
}

// member finds the setting of a family that a concrete key means.
func (t *Table) member(key string) (*Setting, bool) {
	for _, i := range t.families {
		s := &t.rows[i]
		before, behind := s.around()
		rest, ok := strings.CutPrefix(key, before+".")
		name, is := strings.CutSuffix(rest, "."+behind)
		if ok && is && validName(name) {
			return s.of(name), true
		}
	}
	return nil, false
}

// variable finds the setting of a family that a variable means, and whether it names a file.
func (t *Table) variable(variable string) (s *Setting, inFile, ok bool) {
	for _, i := range t.families {
		if name, ok := t.rows[i].nameIn(variable); ok {
			return t.rows[i].of(name), false, true
		}
		if direct, cut := strings.CutSuffix(variable, envFile); cut {
			if name, ok := t.rows[i].nameIn(direct); ok {
				return t.rows[i].of(name), true, true
			}
		}
	}
	return nil, false, false
}

// named gives the family and the name of a key that begins like a family's: the head of a table.
func (t *Table) named(key string) (family, name string, ok bool) {
	for _, i := range t.families {
		before, _ := t.rows[i].around()
		if rest, is := strings.CutPrefix(key, before+"."); is {
			name, _, _ = strings.Cut(rest, ".")
			return before, name, true
		}
	}
	return "", "", false
}

// candidates are the keys that may have been meant by an unknown one: the plain ones, and those of families
// for the name that stands in its place.
func (t *Table) candidates(key string) []string {
	keys, parts := t.Keys(), splitKey(key)
	for _, i := range t.families {
		at := slices.Index(splitKey(t.rows[i].Key), anyName)
		if at >= 0 && at < len(parts) && validName(parts[at]) {
			keys = append(keys, t.rows[i].of(parts[at]).Key)
		}
	}
	return keys
}

// variables are what candidates are, for an unknown variable.
func (t *Table) variables(variable string) []string {
	names := slices.Collect(maps.Keys(t.byEnv))
	for _, i := range t.families {
		s := &t.rows[i]
		before, behind := s.around()
		head := envPrefix + envName(before) + "_"
		rest, ok := strings.CutPrefix(variable, head)
		for at, c := range rest {
			if ok && c == '_' && at <= maxName {
				names = append(names, head+rest[:at]+"_"+envName(behind))
			}
		}
	}
	return names
}

// Names lists the names that were given in a family, in order: for "engine.listeners" those of
// [engine.listeners.public] and PLINTH_ENGINE_LISTENERS_PUBLIC_LISTEN. Every setting of the family has a
// value for each of them.
func (c *Config) Names(family string) []string {
	return slices.Sorted(maps.Keys(c.names[family]))
}

// called notes that a name was given.
func (l *loader) called(family, name string, from Origin) {
	if l.names[family] == nil {
		l.names[family] = map[string]Origin{}
	}
	if _, known := l.names[family][name]; !known && len(l.names[family]) >= maxNames {
		l.refuse(from, family, fmt.Errorf("has more than %d names", maxNames))
		return
	}
	l.names[family][name] = from
}

// members gives every setting of every family a value for each name. A setting whose default does not pass
// has to be given.
func (l *loader) members(c *Config) {
	if len(l.problems) > 0 {
		return // a value that was refused would be told again as one that is not given
	}
	for i := range l.table.rows {
		row := &l.table.rows[i]
		if !row.family() {
			continue
		}
		family, _ := row.around()
		for _, name := range slices.Sorted(maps.Keys(l.names[family])) {
			s := row.of(name)
			given, ok := l.values[s.Key]
			if !ok {
				given = found{s.Default, Origin{Source: "default"}}
			}
			parsed, err := s.parse(given.text)
			if err != nil {
				l.problems = append(l.problems, &Problem{Kind: fault.Invalid, Code: CodeBadSetting,
					What: l.names[family][name].String() + ": " + s.Key + " is not given",
					Why:  err.Error(), Do: "give it in the file or as " + s.Env(), Err: err})
				continue
			}
			c.members[s.Key] = value{parsed, given.text, given.origin}
		}
	}
}

// familyRows are the rows of the family that begins with the row at index i, name by name.
func (c *Config) familyRows(i int) (rows []Row) {
	family, _ := c.table.rows[i].around()
	for j := range i {
		if before, _ := c.table.rows[j].around(); c.table.rows[j].family() && before == family {
			return nil // shown already
		}
	}
	for _, name := range c.Names(family) {
		for j := range c.table.rows {
			row := &c.table.rows[j]
			if before, _ := row.around(); row.family() && before == family {
				s := row.of(name)
				rows = append(rows, s.row(c.members[s.Key]))
			}
		}
	}
	return rows
}

// badName refuses a key of the file whose name is none.
func (l *loader) badName(e entry, from Origin) bool {
	_, name, ok := l.table.named(e.key)
	if !ok || validName(name) {
		return false
	}
	l.refuse(from, e.key, errName)
	return true
}

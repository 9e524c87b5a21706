package house

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
)

// FileName is the configuration file that is looked for in the working folder.
const FileName = "plinth.toml"

// Sources says where values come from, weakest first: the table's defaults, the file, the environment,
// the flags.
type Sources struct {
	File    string            // a file that must exist; "" takes PLINTH_CONFIG, else plinth.toml if it is there
	Dir     string            // where plinth.toml is looked for; "" is the working folder
	Environ []string          // "NAME=value" lines, as os.Environ gives them
	Flags   map[string]string // key -> text, for the flags that were given
	Known   []string          // PLINTH_ variables that are no settings (PLINTH_PROGRESS) and no errors
}

// An Origin is where an effective value came from.
type Origin struct {
	Source string `json:"source"`          // "default", "file", "environment" or "flag"
	Where  string `json:"where,omitempty"` // "plinth.toml:3", "PLINTH_MEMORY", "--memory"
}

// String is the origin in one word or two.
func (o Origin) String() string {
	if o.Where == "" {
		return o.Source
	}
	return o.Where
}

// found is a value that a source gives to a setting.
type found struct {
	text   string
	origin Origin
}

// loader collects the values and the problems of one Load.
type loader struct {
	table    *Table
	values   map[string]found
	names    map[string]map[string]Origin // of families
	problems []error
}

// Load reads all sources and checks every value given, also the ones that a stronger source overrides.
// Its error holds one *Problem for each fault, so that all can be put right in one go.
func Load(t *Table, src Sources) (*Config, error) {
	l := loader{table: t, values: map[string]found{}, names: map[string]map[string]Origin{}}
	env := l.environ(src)
	file, err := l.file(src, env)
	if err != nil {
		return nil, err
	}
	l.environment(env, src.Known)
	for _, key := range slices.Sorted(maps.Keys(src.Flags)) {
		s, ok := t.Find(key)
		if !ok {
			return nil, fmt.Errorf("flag for an undeclared setting %q", key)
		}
		l.take(s, src.Flags[key], Origin{"flag", "--" + s.Flag()})
	}
	c := &Config{table: t, file: file, values: make([]value, len(t.rows)), names: l.names,
		members: map[string]value{}}
	if l.members(c); len(l.problems) > 0 {
		return nil, errors.Join(l.problems...)
	}
	for i := range t.rows {
		s := &t.rows[i]
		if s.family() {
			continue
		}
		given, ok := l.values[s.Key]
		if !ok {
			given = found{s.Default, Origin{Source: "default"}}
		}
		parsed, err := s.parse(given.text)
		if err != nil {
			return nil, fmt.Errorf("setting %s: %w", s.Key, err)
		}
		c.values[i] = value{parsed, given.text, given.origin}
	}
	return c, nil
}

// take checks a value and keeps it over any from a weaker source.
func (l *loader) take(s *Setting, text string, from Origin) {
	if _, err := s.parse(text); err != nil {
		shown := fmt.Sprintf(" = %q", text)
		if s.Secret {
			shown = ""
		}
		l.refuse(from, s.Key+shown, err)
		return
	}
	if s.member {
		if family, name, ok := l.table.named(s.Key); ok {
			l.called(family, name, from)
		}
	}
	l.values[s.Key] = found{text, from}
}

// refuse notes a value that does not fit. A check may give a whole Problem; else one is made here.
func (l *loader) refuse(from Origin, what string, err error) {
	where := from.String()
	if what != "" {
		where += ": " + what
	}
	if p := (*Problem)(nil); errors.As(err, &p) {
		told := *p
		told.What = where
		l.problems = append(l.problems, &told)
		return
	}
	l.problems = append(l.problems, &Problem{
		Kind: fault.Invalid, Code: CodeBadSetting, What: where, Why: err.Error(),
		Do: "correct the value; plinth config schema lists all settings", Err: err,
	})
}

// unknown notes a name that no setting has.
func (l *loader) unknown(from Origin, what, name string, names []string) {
	p := &Problem{Kind: fault.Invalid, Code: CodeUnknownSetting, What: from.String() + ": " + what,
		Why: "there is no such setting", Do: "plinth config lists all settings", Near: Nearest(name, names)}
	if near := didYouMean(p.Near); near != "" {
		p.Do = near
	}
	l.problems = append(l.problems, p)
}

// file finds and reads the configuration file, and gives its path or "" when there is none.
func (l *loader) file(src Sources, env map[string]string) (string, error) {
	name, from := src.File, "--config"
	if name == "" {
		name, from = env[envPrefix+"CONFIG"], envPrefix+"CONFIG"
	}
	must := name != ""
	if !must {
		name = filepath.Join(src.Dir, FileName)
	}
	b, err := readLimited(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return "", nil
	}
	if err != nil {
		return "", &Problem{Kind: fault.Invalid, Code: CodeBadFile,
			What: "cannot read the configuration file " + name,
			Why:  reason(err), Do: "correct " + from + ", or leave it out to run on defaults", Err: err}
	}
	entries, err := readFile(name, b)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		from := Origin{"file", fmt.Sprintf("%s:%d", name, e.line)}
		s, ok := l.table.Find(e.key)
		switch {
		case ok:
			if bad := s.fits(e); bad != "" {
				l.refuse(from, s.Key, errors.New(bad))
				continue
			}
			l.take(s, e.plain(), from)
		case l.badName(e, from):
		case e.bad != "" && l.table.area(e.key):
			l.refuse(from, e.key, errors.New(e.bad))
		case e.kind == 0 && l.table.area(e.key):
			// The head of a table, such as [engine]; its keys follow. With a name, it gives that.
			if family, name, ok := l.table.named(e.key); ok {
				l.called(family, name, from)
			}
		default:
			l.unknown(from, "unknown key "+e.key, e.key, l.table.candidates(e.key))
		}
	}
	return name, nil
}

// area says whether some setting's key begins with the given parts.
func (t *Table) area(prefix string) bool {
	given := splitKey(prefix)
	return slices.ContainsFunc(t.rows, func(s Setting) bool {
		parts := splitKey(s.Key)
		if len(parts) <= len(given) {
			return false
		}
		for i, p := range given {
			if p != parts[i] && !(parts[i] == anyName && validName(p)) {
				return false
			}
		}
		return true
	})
}

// environ keeps the PLINTH_ variables that hold something: an empty one counts as not set.
func (l *loader) environ(src Sources) map[string]string {
	env := map[string]string{}
	for _, line := range src.Environ {
		name, text, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, envPrefix) && text != "" {
			env[name] = text
		}
	}
	return env
}

func (l *loader) environment(env map[string]string, known []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		text, from := env[name], Origin{"environment", name}
		i, ok := l.table.byEnv[name]
		direct, inFile := strings.CutSuffix(name, envFile)
		j, okFile := l.table.byEnv[direct]
		switch {
		case ok:
			l.take(&l.table.rows[i], text, from)
		case inFile && okFile:
			l.secretFile(&l.table.rows[j], direct, text, from, env)
		case name == envPrefix+"CONFIG" || slices.Contains(known, name) || serviceLink(name):
		default:
			if s, inFile, ok := l.table.variable(name); ok && inFile {
				l.secretFile(s, direct, text, from, env)
				continue
			} else if ok {
				l.take(s, text, from)
				continue
			}
			names := append(slices.Clone(known), l.table.variables(name)...)
			l.unknown(from, "unknown variable", name, names)
		}
	}
}

// secretFile takes the value from the file that a _FILE variable names, less one final line end.
func (l *loader) secretFile(s *Setting, direct, path string, from Origin, env map[string]string) {
	if _, both := env[direct]; both {
		l.refuse(from, "", fmt.Errorf("%s is set too; only one of the two may be", direct))
		return
	}
	b, err := readLimited(path, maxValue)
	if err != nil {
		l.refuse(from, "cannot read "+path, errors.New(reason(err)))
		return
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	l.take(s, text, from)
}

// serviceLink knows the variables that Kubernetes sets in each container for a Service called "plinth":
// they are not ours, and nobody typed them.
func serviceLink(name string) bool {
	rest := strings.TrimPrefix(name, envPrefix)
	return rest == "PORT" || rest == "SERVICE_HOST" || strings.HasPrefix(rest, "SERVICE_PORT") ||
		strings.HasPrefix(rest, "PORT_") && (strings.Contains(rest, "_TCP") || strings.Contains(rest, "_UDP"))
}

func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: a failed close loses nothing
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("it is larger than %s", RoundSize(limit))
	}
	return b, nil
}

// reason is an error of the file system without its operation and path.
func reason(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// namedDoor is a context: a Plinth that is spoken to by name.
type namedDoor struct {
	Name  string `toml:"-" json:"name"`
	URL   string `toml:"url" json:"url"`
	Admin string `toml:"admin" json:"admin"`
	Token string `toml:"token,omitempty" json:"-"`
}

// contextFile is contexts.toml.
type contextFile struct {
	Current  string                `toml:"current,omitempty"`
	Contexts map[string]*namedDoor `toml:"contexts"`
}

// contextRow is a context as it is shown.
type contextRow struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	Admin    string `json:"admin"`
	HasToken bool   `json:"has_token"`
	Current  bool   `json:"current"`
}

const maxContextFile = 1 << 20

// contextPath is where contexts are kept: what os.UserConfigDir gives for the environment of this run.
func (p *program) contextPath() (string, error) {
	home, dir := p.getenv("HOME"), ""
	switch runtime.GOOS {
	case "windows":
		dir = first(p.getenv("AppData"), p.getenv("APPDATA"))
	case "darwin":
		if home != "" {
			dir = filepath.Join(home, "Library", "Application Support")
		}
	default:
		if dir = p.getenv("XDG_CONFIG_HOME"); !filepath.IsAbs(dir) && home != "" {
			dir = filepath.Join(home, ".config")
		}
	}
	if !filepath.IsAbs(dir) {
		return "", &house.Problem{Kind: fault.Invalid, Code: codeUsage, What: "there is no folder for contexts",
			Do: "set HOME or XDG_CONFIG_HOME (AppData on Windows)"}
	}
	return filepath.Join(dir, "plinth", "contexts.toml"), nil
}

// contexts reads the file; a missing one is empty.
func (p *program) contexts() (*contextFile, error) {
	f := &contextFile{Contexts: map[string]*namedDoor{}}
	path, err := p.contextPath()
	if err != nil {
		return f, nil // nowhere to keep them: there are none
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil && len(b) > maxContextFile {
		err = errors.New("it is larger than 1 MiB")
	}
	if err == nil {
		d := toml.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode(f)
	}
	if err != nil {
		return nil, &house.Problem{Kind: fault.Invalid, Code: "bad_context_file", What: "cannot read " + path,
			Why: err.Error(), Do: "correct it, or remove it and add the contexts again", Err: err}
	}
	if f.Contexts == nil {
		f.Contexts = map[string]*namedDoor{}
	}
	for name, c := range f.Contexts {
		if c == nil {
			delete(f.Contexts, name)
			continue
		}
		c.Name = name
	}
	return f, nil
}

// keepContexts writes the file, readable by its owner alone, whole or not at all.
func (p *program) keepContexts(f *contextFile) error {
	path, err := p.contextPath()
	if err != nil {
		return err
	}
	b, err := toml.Marshal(f)
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".contexts-*")
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// contextInUse is the context that a verb works with; nil when there is none.
func (p *program) contextInUse() (*namedDoor, error) {
	name := first(p.context, p.getenv("PLINTH_CONTEXT"))
	f, err := p.contexts()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = f.Current
	}
	if name == "" || name == "none" {
		return nil, nil
	}
	if c := f.Contexts[name]; c != nil {
		return c, nil
	}
	return nil, noContext(f, name)
}

func noContext(f *contextFile, name string) error {
	return &house.Problem{Kind: fault.NotFound, Code: "no_context", What: "there is no context " + name,
		Do: "plinth context list shows them", Near: house.Nearest(name, f.names())}
}

func (f *contextFile) names() []string {
	var all []string
	for name := range f.Contexts {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (f *contextFile) row(c *namedDoor) contextRow {
	return contextRow{c.Name, c.URL, c.Admin, c.Token != "", c.Name == f.Current}
}

// contextName reports whether a text may name a context: 1 to 64 of a-z, 0-9, dot, dash and underscore, the
// first a letter or a digit.
func contextName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return text != "" && len(text) <= 64 && strings.IndexByte(letters, text[0]) >= 0 &&
		strings.Trim(text, letters+"._-") == ""
}

// newContext makes `plinth context` with its verbs; alone it lists.
func newContext(p *program) *cobra.Command {
	list := p.newContextList()
	cmd := &cobra.Command{
		Use: "context", Short: "Name the Plinths that you speak to", GroupID: groupLook,
		Long: "A context is a name for a Plinth: its socket, its admin door, and a key. Flags are stronger than the environment,\n" +
			"the environment is stronger than the context in use. The name none stands for no context.\n\n" +
			"Contexts are kept in contexts.toml in the configuration folder of your user, readable by you alone.",
		Example: "  plinth context\n  plinth context add prod --url wss://plinth.example.org:49134 --token-file key.txt\n" +
			"  plinth context use prod",
		Aliases: []string{"contexts"},
	}
	cmd.AddCommand(list, p.newContextAdd(), p.newContextUse(), p.newContextShow(), p.newContextRemove())
	alone(cmd, list)
	return cmd
}

func (p *program) newContextList() *cobra.Command {
	return p.prints(&cobra.Command{
		Use: "list", Short: "List the contexts", Example: "  plinth context list --json",
		Args: args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			f, err := p.contexts()
			if err != nil {
				return err
			}
			rows := []contextRow{}
			for _, name := range f.names() {
				rows = append(rows, f.row(f.Contexts[name]))
			}
			if p.wantJSON() {
				return printRows(p, rows)
			}
			if len(rows) == 0 {
				p.note("no contexts yet: plinth context add NAME --url ws://HOST:49134 --token-file FILE")
				return nil
			}
			t := p.table("", "context", "url", "admin", "key")
			for _, r := range rows {
				mark, key := "", "-"
				if r.Current {
					mark = "*"
				}
				if r.HasToken {
					key = "yes"
				}
				t.Row(mark, r.Name, r.URL, r.Admin, key)
			}
			_, err = t.WriteTo(p.out)
			return wrote(err)
		},
	}, formList, contextRow{})
}

// check looks at what was given for a context, and fills in the admin door.
func (c *namedDoor) check() error {
	if !contextName(c.Name) || c.Name == "none" {
		return usage(fmt.Sprintf("%q is no name for a context", c.Name), "use a-z, 0-9, dot, dash and underscore")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "ws" && u.Scheme != "wss" {
		return usage("--url is missing or no ws:// or wss:// address", "such as --url ws://127.0.0.1:49134")
	}
	if c.Admin == "" {
		scheme := "http"
		if u.Scheme == "wss" {
			scheme = "https"
		}
		c.Admin = scheme + "://" + net.JoinHostPort(u.Hostname(), "8081")
	}
	a, err := url.Parse(c.Admin)
	if err != nil || a.Hostname() == "" || a.Scheme != "http" && a.Scheme != "https" {
		return usage("--admin is no http:// or https:// address", "such as --admin "+defaultAdmin)
	}
	if u.User != nil || a.User != nil {
		return usage("the address holds a key", "leave it out there, and give it with --token-file")
	}
	return nil
}

func (p *program) newContextAdd() *cobra.Command {
	var c namedDoor
	var file string
	var use bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a context, or change one",
		Example: "  plinth context add prod --url wss://plinth.example.org:49134 --token-file key.txt\n" +
			"  plinth context add prod --url ws://10.0.0.7:49134 --token-file - < key.txt",
		Args: args(1, 1, "a name"),
		RunE: func(_ *cobra.Command, given []string) error {
			c.Name = given[0]
			if err := c.check(); err != nil {
				return err
			}
			f, err := p.contexts()
			if err != nil {
				return err
			}
			old := f.Contexts[c.Name]
			switch {
			case file != "":
				if c.Token, err = p.readSecret(file); err != nil {
					return usage("cannot read the key: "+err.Error(), "name a file that holds a key and nothing else, or -")
				}
			case old == nil || old.Token == "":
			case sameHost(c.URL, old.URL) && sameHost(c.Admin, old.Admin):
				c.Token = old.Token
			default:
				p.note("the key is not kept: the context leads to another address now")
			}
			f.Contexts[c.Name] = &c
			if use || f.Current == "" {
				f.Current = c.Name
			}
			if err := p.keepContexts(f); err != nil {
				return err
			}
			p.note("context %s is kept; in use: %s", c.Name, f.Current)
			if p.wantJSON() {
				return p.printJSON(f.row(&c))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&c.URL, "url", "", "socket of the engine, ws:// or wss://")
	cmd.Flags().StringVar(&c.Admin, "admin", "", "admin door; default is port 8081 of the same host")
	cmd.Flags().StringVar(&file, "token-file", "", "file that holds a key, - for the standard input")
	cmd.Flags().BoolVar(&use, "use", false, "use it from now on")
	return p.prints(cmd, formObject, contextRow{})
}

func (p *program) newContextUse() *cobra.Command {
	return p.prints(&cobra.Command{
		Use: "use NAME", Short: "Use a context from now on; none uses no context",
		Example: "  plinth context use prod",
		Args:    args(1, 1, "the name of a context"), ValidArgsFunction: p.completeContexts,
		RunE: func(_ *cobra.Command, given []string) error {
			f, err := p.contexts()
			if err != nil {
				return err
			}
			f.Current = given[0]
			row := contextRow{Name: "none"}
			if given[0] == "none" {
				f.Current = ""
			} else if c := f.Contexts[given[0]]; c != nil {
				row = f.row(c)
			} else {
				return noContext(f, given[0])
			}
			if err := p.keepContexts(f); err != nil {
				return err
			}
			p.note("in use: %s", row.Name)
			if p.wantJSON() {
				return p.printJSON(row)
			}
			return nil
		},
	}, formObject, contextRow{})
}

// doorRow is what `plinth context show` prints: where a verb would go, and how it would prove itself.
type doorRow struct {
	Context string `json:"context"` // "" when there is none
	URL     string `json:"url"`
	Admin   string `json:"admin"`
	Token   string `json:"token_from"` // "" when there is no credential
}

func (p *program) newContextShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show where verbs go now, and with which credential", Example: "  plinth context show --json",
		Args: args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			d, err := p.door()
			if err != nil {
				return err
			}
			row := doorRow{URL: d.URL, Admin: d.Admin, Token: d.from}
			if c, err := p.contextInUse(); err == nil && c != nil {
				row.Context = c.Name
			}
			if p.wantJSON() {
				return p.printJSON(row)
			}
			t := p.table("what", "value")
			t.Row("context", first(row.Context, "none"))
			t.Row("engine", row.URL)
			t.Row("admin", row.Admin)
			t.Row("credential", first(row.Token, "none"))
			_, err = t.WriteTo(p.out)
			return wrote(err)
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, doorRow{})
}

func (p *program) newContextRemove() *cobra.Command {
	return p.prints(&cobra.Command{
		Use: "remove NAME", Short: "Forget a context and its key", Example: "  plinth context remove prod",
		Args: args(1, 1, "the name of a context"), ValidArgsFunction: p.completeContexts,
		RunE: func(_ *cobra.Command, given []string) error {
			f, err := p.contexts()
			if err != nil {
				return err
			}
			c := f.Contexts[given[0]]
			if c == nil {
				return noContext(f, given[0])
			}
			row := f.row(c)
			delete(f.Contexts, c.Name)
			if f.Current == c.Name {
				f.Current = ""
			}
			if err := p.keepContexts(f); err != nil {
				return err
			}
			p.note("context %s is forgotten", c.Name)
			if p.wantJSON() {
				return p.printJSON(row)
			}
			return nil
		},
	}, formObject, contextRow{})
}

// completeContexts gives the names of contexts to a shell.
func (p *program) completeContexts(_ *cobra.Command, _ []string, begun string) ([]string,
	cobra.ShellCompDirective) {
	f, err := p.contexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(f.names(), func(n string) bool { return !strings.HasPrefix(n, begun) }),
		cobra.ShellCompDirectiveNoFileComp
}

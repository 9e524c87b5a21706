package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plinth-run/plinth/cmd/plinth/screen"
	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/house"
)

// TestReferenceIsFresh compares docs/reference with what the program is; -update writes it anew.
func TestReferenceIsFresh(t *testing.T) {
	table, err := app.Settings()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cli.md":    commandReference(t, table),
		"config.md": settingReference(table),
	} {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale: go test ./cmd/plinth -run TestReferenceIsFresh -update", name)
		}
	}
}

const generated = "<!-- Written by go test ./cmd/plinth -run TestReferenceIsFresh -update; edits here are lost. -->\n\n"

func commandReference(t *testing.T, table *house.Table) string {
	t.Helper()
	p := newProgram(nil, nil, nil, nil)
	root := newRoot(p)
	var b strings.Builder
	b.WriteString("# Commands\n\n" + generated + commonText)
	b.WriteString("\n## Flags of every verb\n\n")
	flagTable(&b, root.PersistentFlags(), nil)
	b.WriteString("\n## Flags of a running Plinth\n\n" + doorText)
	flagTable(&b, doorSet(), nil)
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n")
	for _, row := range exitCodes() {
		fmt.Fprintf(&b, "| %d | %s |\n", row.Code, row.Meaning)
	}
	b.WriteString("\n## Errors\n\n" + errorText + shapeBlock(problem{}, formObject))
	b.WriteString("\n## Progress\n\n" + progressText + shapeBlock(screen.Event{}, formObject))
	verbs(root, func(cmd *cobra.Command) {
		if cmd.HasParent() && !cmd.Hidden {
			verbReference(&b, p, cmd, table)
		}
	})
	return b.String()
}

const commonText = `Results go to the standard output, everything else to the standard error: notes, errors, progress, the log.
Without a terminal nothing is coloured, moves or asks. With ` + "`--json`" + ` a verb prints one JSON value; lists are
arrays and never null, and ` + "`--json=lines`" + ` prints a list one row a line. Members are only ever added to these shapes.

Colour is decided for each stream, strongest first: ` + "`--color`, `NO_COLOR`, `FORCE_COLOR` and `CLICOLOR_FORCE`, `CLICOLOR=0`" + `,
then whether the stream is a terminal, ` + "`TERM` is not `dumb` and `CI`" + ` is not set.

| variable | meaning |
| --- | --- |
| ` + "`PLINTH_URL`" + ` | socket of the engine that the client verbs speak to; ` + "`--url`" + ` wins |
| ` + "`PLINTH_ADMIN`" + ` | admin door that the client verbs speak to; ` + "`--admin`" + ` wins |
| ` + "`PLINTH_TOKEN`, `PLINTH_TOKEN_FILE`" + ` | key, session token or local token, or a file that holds it; ` + "`--token-file`" + ` wins |
| ` + "`III_TOKEN`" + ` | the same, weaker, as workers of the SDK take it |
| ` + "`PLINTH_CONTEXT`" + ` | name of a context (` + "`plinth context`" + `); ` + "`--context`" + ` wins |
| ` + "`PLINTH_DATA`" + ` | data folder of a server on this machine, whose local token is a credential; ` + "`--data`" + ` wins |
| ` + "`PLINTH_PROGRESS`" + ` | what ` + "`--progress`" + ` takes, when the flag is not given |
| ` + "`PLINTH_CONFIG`" + ` | configuration file of serve, config and doctor; ` + "`--config`" + ` wins |
| ` + "`PLINTH_...`" + ` | settings: see [config.md](config.md) |

Secrets are never flags, because every user of a machine can read the command lines on it. Payloads may come from a file
(` + "`--data @file`" + `) or the standard input (` + "`--data -`" + `); keys, passwords and codes from a ` + "`--...-file`" + `, where ` + "`-`" + ` is the standard input, or, in a
terminal, from a prompt without an echo.

A credential is looked for in this order: ` + "`--token-file`" + `; the context that ` + "`--context`" + ` names; ` + "`PLINTH_TOKEN`" + `,
` + "`PLINTH_TOKEN_FILE`" + `, ` + "`III_TOKEN`" + `; the context in use; the local token in the data folder. The key of a context goes to
the host of that context alone, and the local token never leaves the machine. A refused credential is exit code 4.

What cannot be undone asks first in a terminal, and elsewhere needs ` + "`--yes`" + `; ` + "`--dry-run`" + ` tells what would be done.
`

const doorText = `The verbs that speak to a running Plinth take these flags as well; ` + "`call`" + ` has no ` + "`--data`" + ` of this meaning.

`

// doorSet are the flags that the verbs have in common that speak to a running Plinth.
func doorSet() *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	newProgram(nil, nil, nil, nil).doorFlags(set)
	return set
}

const errorText = `A verb that fails says on the standard error what failed, why, what to do, a stable code, and, for a failed call,
its trace id. With ` + "`--json`" + ` that is one JSON object on one line:

`

const progressText = `In a terminal progress is a bar, drawn at most ten times a second. Elsewhere, or with ` + "`--progress plain`" + `, it is a line
every five seconds and at the end of each step, ` + "`[2/5] ...`" + `. With ` + "`--progress json`" + ` it is one object a line:

`

func verbReference(b *strings.Builder, p *program, cmd *cobra.Command, table *house.Table) {
	fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "%s\n\n```\n%s\n```\n", text, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(cmd.Example[2:], "\n  ", "\n"))
	}
	own := cmd.NonInheritedFlags()
	isSetting := func(f *pflag.Flag) bool {
		_, ok := f.Value.(*settingFlag)
		return ok
	}
	b.WriteString("\n")
	door := doorSet()
	common := func(f *pflag.Flag) bool {
		same := door.Lookup(f.Name)
		return isSetting(f) || same != nil && same.Usage == f.Usage
	}
	if own.HasFlags() && flagTable(b, own, common) {
		b.WriteString("\n")
	}
	if f := own.Lookup("token-file"); f != nil && common(f) {
		b.WriteString("Takes the [flags of a running Plinth](#flags-of-a-running-plinth) too.\n\n")
	}
	if f := own.Lookup("memory"); f != nil && isSetting(f) {
		fmt.Fprintf(b, "Every setting is a flag too: see [config.md](config.md).\n\n")
	}
	what, ok := p.results[cmd]
	if !ok {
		if cmd.HasSubCommands() {
			fmt.Fprintf(b, "Alone it does what `%s list` does.\n", cmd.CommandPath())
		}
		return
	}
	switch {
	case what.form == formText:
		b.WriteString("Prints text; `--json` changes nothing.\n")
	case what.form == formValue:
		b.WriteString("Prints the JSON value that the function returned, with or without `--json`.\n")
	case what.shape == nil:
		b.WriteString("Prints a JSON object.\n")
	default:
		b.WriteString("With `--json`:\n\n" + shapeBlock(what.shape, what.form))
	}
}

// flagTable lists flags, and says whether there were any.
func flagTable(b *strings.Builder, flags *pflag.FlagSet, leaveOut func(*pflag.Flag) bool) bool {
	rows := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden || leaveOut != nil && leaveOut(f) {
			return
		}
		if rows++; rows == 1 {
			b.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
		}
		value := f.DefValue
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	return rows > 0
}

// shapeBlock shows the JSON of a Go type.
func shapeBlock(v any, f form) string {
	text := shape(reflect.TypeOf(v), "", map[reflect.Type]bool{})
	if f == formList {
		text = "[" + text + ", ...]"
	}
	return "```\n" + text + "\n```\n"
}

// shape writes a type as JSON with the kind of each member in place of its value.
func shape(t reflect.Type, indent string, above map[reflect.Type]bool) string {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return "any"
	case t.PkgPath() == "time" && t.Name() == "Duration":
		return "nanoseconds"
	case t.PkgPath() == "time" && t.Name() == "Time":
		return "time"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shape(t.Elem(), indent, above)
	case reflect.Slice:
		return "[" + shape(t.Elem(), indent, above) + ", ...]"
	case reflect.Map:
		return "{text: " + shape(t.Elem(), indent, above) + ", ...}"
	case reflect.Struct:
		if above[t] {
			return "{the same}"
		}
		above[t] = true
		defer delete(above, t)
		lines := members(t, indent+"  ", above)
		return "{\n" + strings.Join(lines, ",\n") + "\n" + indent + "}"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Interface:
		return "any"
	}
	return "number"
}

func members(t reflect.Type, indent string, above map[reflect.Type]bool) (lines []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			lines = append(lines, members(f.Type, indent, above)...)
		case name != "-" && f.IsExported():
			optional := ""
			if strings.Contains(options, "omitempty") {
				optional = "?"
			}
			lines = append(lines, fmt.Sprintf("%s%q%s: %s", indent, name, optional, shape(f.Type, indent, above)))
		}
	}
	return lines
}

func settingReference(table *house.Table) string {
	var b strings.Builder
	b.WriteString("# Settings\n\n" + generated + settingText)
	b.WriteString("\n| setting | type | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, s := range table.Settings() {
		kind, value := s.Type.String(), ""
		if len(s.Words) > 0 && (s.Type == house.Text || s.Type == house.List) {
			kind = strings.Join(s.Words, ", ")
		}
		if s.Default != "" {
			value = "`" + s.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Key, kind, value, strings.ReplaceAll(s.Help, "|", `\|`))
	}
	return b.String()
}

const settingText = `Every setting has one name. In ` + "`plinth.toml`" + ` the parts before the last dot are tables; as a variable it is
` + "`PLINTH_`" + ` and the name in capitals with underscores; as a flag of ` + "`plinth serve`" + ` it is the name with dashes:

| file | variable | variable that names a file with the value | flag |
| --- | --- | --- | --- |
| ` + "`[engine]` `listen = \"127.0.0.1:49134\"`" + ` | ` + "`PLINTH_ENGINE_LISTEN`" + ` | ` + "`PLINTH_ENGINE_LISTEN_FILE`" + ` | ` + "`--engine-listen`" + ` |

Weakest first, the sources are: the defaults below, the file, the environment, the flags. The file is ` + "`./plinth.toml`" + ` if it is
there, or the one that ` + "`--config` or `PLINTH_CONFIG`" + ` names. A key or a ` + "`PLINTH_`" + ` variable that is no setting is an error, with
the nearest name that is one; only the variables that Kubernetes makes for a Service called plinth are passed over. An empty
variable counts as not set. ` + "`plinth config`" + ` prints every effective value and where it came from, ` + "`plinth config validate`" + `
checks, and ` + "`plinth config schema`" + ` prints a JSON Schema for editors.

Sizes are written ` + "`256MiB`, `1.5GiB` (1024), `200MB`" + ` (1000) or as a number of bytes; durations ` + "`5s`, `250ms`, `1m30s`, `7d`" + `.
Until there is an account (` + "`plinth admin claim`" + `) every address must be a loopback address.
`

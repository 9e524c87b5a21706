package screen

import (
	"bytes"
	"strings"
	"testing"
)

// facts makes the facts of a stream from NAME=value words.
func facts(terminal bool, environ ...string) Facts {
	return Facts{Terminal: terminal, Getenv: func(name string) string {
		for _, line := range environ {
			if value, ok := strings.CutPrefix(line, name+"="); ok {
				return value
			}
		}
		return ""
	}}
}

func TestColourFollowsFlagThenEnvironmentThenTerminal(t *testing.T) {
	for _, c := range []struct {
		flag     string
		terminal bool
		environ  []string
		want     bool
	}{
		{"", true, nil, true},
		{"", false, nil, false},
		{Auto, true, nil, true},
		{Always, false, []string{"NO_COLOR=1", "TERM=dumb"}, true},
		{Never, true, []string{"FORCE_COLOR=1"}, false},
		{"", true, []string{"NO_COLOR=1"}, false},
		{"", true, []string{"NO_COLOR="}, true},
		{"", true, []string{"NO_COLOR=0"}, false},
		{"", false, []string{"FORCE_COLOR=1"}, true},
		{"", false, []string{"CLICOLOR_FORCE=1"}, true},
		{"", false, []string{"CLICOLOR_FORCE=0"}, false},
		{"", true, []string{"FORCE_COLOR=0"}, false},
		{"", true, []string{"CLICOLOR=0"}, false},
		{"", true, []string{"NO_COLOR=1", "FORCE_COLOR=1"}, false},
		{"", true, []string{"TERM=dumb"}, false},
		{"", true, []string{"TERM=dumb", "FORCE_COLOR=1"}, true},
		{"", true, []string{"CI=true"}, false},
		{"", true, []string{"CI=false"}, true},
	} {
		if got := Colour(c.flag, facts(c.terminal, c.environ...)); got != c.want {
			t.Errorf("flag %q, terminal %v, %v: got %v", c.flag, c.terminal, c.environ, got)
		}
	}
}

func TestProgressFollowsFlagThenEnvironmentThenTerminal(t *testing.T) {
	for _, c := range []struct {
		flag     string
		terminal bool
		environ  []string
		want     string
	}{
		{"", true, nil, Bars},
		{"", false, nil, Plain},
		{"", true, []string{"CI=1"}, Plain},
		{"", true, []string{"TERM=dumb"}, Plain},
		{"", true, []string{"PLINTH_PROGRESS=json"}, JSON},
		{Quiet, true, []string{"PLINTH_PROGRESS=json"}, Quiet},
		{Auto, true, []string{"PLINTH_PROGRESS=json"}, Bars},
		{Plain, true, nil, Plain},
	} {
		if got, err := ProgressMode(c.flag, facts(c.terminal, c.environ...)); err != nil || got != c.want {
			t.Errorf("flag %q, terminal %v, %v: got %q, %v", c.flag, c.terminal, c.environ, got, err)
		}
	}
	if _, err := ProgressMode("", facts(true, "PLINTH_PROGRESS=loud")); err == nil ||
		!strings.Contains(err.Error(), "PLINTH_PROGRESS") {
		t.Errorf("got %v", err)
	}
}

func TestPaintIsPlainUnlessOn(t *testing.T) {
	off, on := Paint{}, Paint{On: true}
	if got := off.Strong("a") + off.Good("b") + off.Warn("c") + off.Bad("d"); got != "abcd" {
		t.Errorf("got %q", got)
	}
	if got := on.Bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("got %q", got)
	}
	if got := on.Bad(""); got != "" {
		t.Errorf("nothing became %q", got)
	}
}

func draw(t *testing.T, table *Table) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := table.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTableLinesUp(t *testing.T) {
	table := &Table{Head: []string{"name", "what"}}
	if got := draw(t, table); got != "" {
		t.Errorf("an empty table is %q", got)
	}
	table.Row("a", "first")
	table.Row("zwölf", "")
	table.Row("", "last")
	want := "NAME   WHAT\n" +
		"a      first\n" +
		"zwölf\n" +
		"       last\n"
	if got := draw(t, table); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestColourDoesNotMoveColumns(t *testing.T) {
	table := &Table{Head: []string{"a", "b"}, Paint: Paint{On: true}}
	table.Row("ok", "x")
	table.Mark(0, Paint{On: true}.Good)
	table.Mark(7, Paint{On: true}.Good) // no such column
	want := "\x1b[1mA\x1b[0m   \x1b[1mB\x1b[0m\n\x1b[32mok\x1b[0m  x\n"
	if got := draw(t, table); got != want {
		t.Errorf("got %q", got)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	table := &Table{Width: 20}
	table.Row("name", "a long description of it")
	table.Row("other", "short")
	for line := range strings.Lines(draw(t, table)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 20 {
			t.Errorf("%q has %d columns", line, n)
		}
	}
	if got := draw(t, table); !strings.Contains(got, "name   a long des...") {
		t.Errorf("got\n%s", got)
	}
}

func TestNamesCannotMoveTheCursor(t *testing.T) {
	table := &Table{}
	table.Row("a\x1b[2Jb\r\nc\u202ed", "x\tz")
	if got := draw(t, table); got != "a [2Jb  c d  x z\n" {
		t.Errorf("got %q", got)
	}
}

package house

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/plinth-run/plinth/internal/fault"
)

// maxFile bounds the configuration file, and a file that a _FILE variable names.
const (
	maxFile  = 1 << 20
	maxValue = 64 << 10
)

// entry is one key of a configuration file. A key without a value (an empty table) has no nodes.
type entry struct {
	key  string
	line int
	kind unstable.Kind // of the value; Invalid for an empty table
	text string        // of a scalar; of a list of scalars, joined by commas
	bad  string        // why the value cannot be any setting, or ""
}

// readFile lists the keys of a TOML file in their order. The decoder first says whether the file is
// TOML at all (duplicate keys too); the parser beneath it then says where each key stands, which
// the decoder does not tell.
func readFile(name string, b []byte) ([]entry, error) {
	var whole map[string]any
	if err := toml.Unmarshal(b, &whole); err != nil {
		where := name
		if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
			line, column := d.Position()
			where = fmt.Sprintf("%s:%d:%d", name, line, column)
		}
		return nil, &Problem{
			Kind: fault.Invalid, Code: CodeBadFile, What: where + " is not valid TOML",
			Why: strings.TrimPrefix(err.Error(), "toml: "),
			Do:  "correct that line; plinth config validate checks the file",
		}
	}
	r := fileReader{}
	r.parser.Reset(b)
	var table []string
	for r.parser.NextExpression() {
		node := r.parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyParts(node.Key())
			e := entry{key: strings.Join(table, "."), line: r.line(node)}
			if node.Kind == unstable.ArrayTable {
				e.bad = "is a list of tables, and no setting is one"
			}
			r.found = append(r.found, e)
		case unstable.KeyValue:
			r.add(table, node)
		}
	}
	if err := r.parser.Error(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return r.found, nil
}

// fileReader collects the entries of one file.
type fileReader struct {
	parser unstable.Parser
	found  []entry
}

// line is the line of the first part of a node's key.
func (r *fileReader) line(node *unstable.Node) int {
	keys := node.Key()
	if !keys.Next() {
		return 0
	}
	return r.parser.Shape(keys.Node().Raw).Start.Line
}

func keyParts(keys unstable.Iterator) []string {
	var parts []string
	for keys.Next() {
		parts = append(parts, string(keys.Node().Data))
	}
	return parts
}

// add takes in one key = value. An inline table is a table like any other.
func (r *fileReader) add(table []string, node *unstable.Node) {
	parts := append(slices.Clone(table), keyParts(node.Key())...)
	e := entry{key: strings.Join(parts, "."), line: r.line(node)}
	value := node.Value()
	e.kind = value.Kind
	switch value.Kind {
	case unstable.InlineTable:
		e.kind = unstable.Invalid
		r.found = append(r.found, e)
		children := value.Children()
		for children.Next() {
			r.add(parts, children.Node())
		}
		return
	case unstable.Array:
		var items []string
		children := value.Children()
		for children.Next() {
			switch item := children.Node(); item.Kind {
			case unstable.String:
				if len(splitItems(string(item.Data))) > 1 {
					e.bad = "has a comma inside an item"
				}
				items = append(items, string(item.Data))
			case unstable.Integer, unstable.Float, unstable.Bool:
				items = append(items, string(item.Data))
			case unstable.Comment:
			default:
				e.bad = "must be a list of texts"
			}
		}
		e.text = strings.Join(items, ",")
	default:
		e.text = string(value.Data)
	}
	r.found = append(r.found, e)
}

// fits says why a value of this kind cannot be the setting's, or "".
func (s *Setting) fits(e entry) string {
	if e.bad != "" {
		return e.bad
	}
	ok := false
	switch s.Type {
	case Text, Duration:
		ok = e.kind == unstable.String
	case Bool:
		ok = e.kind == unstable.Bool
	case Int:
		ok = e.kind == unstable.Integer
	case Size:
		ok = e.kind == unstable.String || e.kind == unstable.Integer
	case List:
		ok = e.kind == unstable.String || e.kind == unstable.Array
	}
	if ok {
		return ""
	}
	want := map[Type]string{
		Text: `text in quotes`, Bool: "true or false without quotes", Int: "a whole number",
		Duration: `a duration in quotes, such as "5s"`, Size: `a size in quotes, such as "256MiB"`,
		List: `a list such as ["a", "b"]`,
	}
	return "must be " + want[s.Type]
}

// plain gives an integer of TOML (0x10, 1_000) the form that the other sources use.
func (e entry) plain() string {
	if e.kind != unstable.Integer {
		return e.text
	}
	var n struct{ V int64 }
	if err := toml.Unmarshal([]byte("V = "+e.text), &n); err != nil {
		return e.text
	}
	return fmt.Sprint(n.V)
}

package wire_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

func TestTypesHaveTheirNames(t *testing.T) {
	seen := map[string]bool{}
	for kind := wire.TypeInvokeFunction; kind <= wire.TypeError; kind++ {
		name := kind.String()
		if wire.ParseType([]byte(name)) != kind || seen[name] {
			t.Errorf("type %d is %q, which is %v", kind, name, wire.ParseType([]byte(name)))
		}
		seen[name] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d types", len(seen))
	}
	for _, name := range []string{"unknown", "", "Ping", "ping ", "observe", "pinG"} {
		if kind := wire.ParseType([]byte(name)); kind != wire.TypeUnknown {
			t.Errorf("%q is %v", name, kind)
		}
	}
	if wire.TypeUnknown.String() != "unknown" || wire.Type(99).String() != "unknown" {
		t.Error("unknown types have another name")
	}
}

// TestCodesAreWrittenOnce reads the constants: each code has one name, and none is empty.
func TestCodesAreWrittenOnce(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || code == "" || names[code] != "" {
			t.Errorf("%s is %q, as is %q", spec.Names[0].Name, code, names[code])
		}
		names[code] = spec.Names[0].Name
		return true
	})
	if len(names) < 70 {
		t.Errorf("only %d codes", len(names))
	}
}

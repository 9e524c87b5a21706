package plinth_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// source is one Go file of the module, for any system and behind any build tag.
type source struct {
	path string // from the root, with slashes
	dir  string // "." for the root
	test bool
	text string
	fset *token.FileSet
	ast  *ast.File
}

// tree is the module: its Go files and the paths of all texts. Modules of their own (tools,
// bench/peers) are in texts only.
type tree struct {
	files []*source
	texts []string
	err   error
}

// plant reads the tree once for all tests. It holds no state beyond that first read.
var plant = sync.OnceValue(grow)

func load(t *testing.T) *tree {
	t.Helper()
	tr := plant()
	if tr.err != nil {
		t.Fatal(tr.err)
	}
	return tr
}

func grow() *tree {
	tr := &tree{}
	var foreign []string
	tr.err = filepath.WalkDir(".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		if e.IsDir() {
			switch e.Name() {
			case ".git", "node_modules", "plinth-data", "bin":
				return fs.SkipDir
			}
			if _, err := os.Stat(path.Join(p, "go.mod")); err == nil && p != "." {
				foreign = append(foreign, p)
			}
			return nil
		}
		if !e.Type().IsRegular() {
			return nil
		}
		if isText(p) {
			tr.texts = append(tr.texts, p)
		}
		in := func(dir string) bool { return within(p, dir) }
		if path.Ext(p) != ".go" || strings.Contains(p, "testdata/") || slices.ContainsFunc(foreign, in) {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parse(p, string(b))
		if err == nil && !ast.IsGenerated(f.ast) {
			tr.files = append(tr.files, f)
		}
		return err
	})
	return tr
}

// isText tells the files whose words are read. Recorded cases and fuzz corpora are not.
func isText(p string) bool {
	if strings.Contains(p, "testdata/fuzz/") {
		return false
	}
	switch path.Ext(p) {
	case ".go", ".mod", ".sum", ".mjs", ".js", ".ts", ".sh", ".md", ".txt", ".txtar", ".json", ".toml", ".yml":
		return true
	}
	switch path.Base(p) {
	case "Makefile", "run", ".npmrc", ".gitignore":
		return true
	}
	return false
}

func parse(p, text string) (*source, error) {
	f := &source{path: p, dir: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), text: text}
	f.fset = token.NewFileSet()
	var err error
	f.ast, err = parser.ParseFile(f.fset, p, text, parser.ParseComments)
	return f, err
}

func (tr *tree) dirs() []string {
	dirs := map[string]bool{}
	for _, f := range tr.files {
		dirs[f.dir] = true
	}
	return slices.Sorted(maps.Keys(dirs))
}

func (tr *tree) in(dir string) (fs []*source) {
	for _, f := range tr.files {
		if f.dir == dir {
			fs = append(fs, f)
		}
	}
	return fs
}

func (f *source) imports() (imps []string) {
	for _, s := range f.ast.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			imps = append(imps, p)
		}
	}
	return imps
}

// named returns the name under which the file knows an imported package, or "".
func (f *source) named(imp string) string {
	for _, s := range f.ast.Imports {
		if p, _ := strconv.Unquote(s.Path.Value); p == imp {
			if s.Name != nil {
				return s.Name.Name
			}
			return path.Base(imp)
		}
	}
	return ""
}

// line returns the line of a position.
func (f *source) line(p token.Pos) int { return f.fset.Position(p).Line }

// lines returns the number of lines from one position to another, both counted.
func (f *source) lines(n ast.Node) int { return f.line(n.End()) - f.line(n.Pos()) + 1 }

// selected tells whether e is pkg.name for the package imported as imp, and returns the name.
func (f *source) selected(e ast.Expr, imp string) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok || x.Name == "" || x.Name != f.named(imp) || x.Obj != nil {
		return ""
	}
	return s.Sel.Name
}

// within tells in which top-level declaration a position stands: the name of a function or method
// ("(*T).M" is written "T.M"), or "".
func (f *source) function(p token.Pos) string {
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && fn.Pos() <= p && p < fn.End() {
			return funcName(fn)
		}
	}
	return ""
}

func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

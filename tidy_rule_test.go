package plinth_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFile     = 900  // lines
	maxFunction = 120  // lines
	maxPackage  = 6000 // lines, without tests
	maxColumn   = 110  // characters; a tab is one
	maxMethods  = 3    // of an interface
)

// A rule looks at one file and says what is wrong in it.
type rule struct {
	name  string
	check func(f *source, say func(p token.Pos, format string, args ...any))
}

// rules are the house rules that one file alone can break. Each has a broken and a sound example in
// TestRulesCatchWhatTheyName.
var rules = []rule{
	{"file length", fileLength},
	{"function length", functionLength},
	{"line length", lineLength},
	{"interface size", interfaceSize},
	{"init", noInit},
	{"sleep", noSleep},
	{"context in struct", noContextField},
	{"print", noPrint},
	{"global logger", noGlobalLog},
	{"to do", noLooseEnds},
	{"panic", noPanic},
	{"exit", noExit},
	{"skip", noSilentSkip},
	{"imports", noBadImport},
	{"names", noVagueName},
	{"receiver", shortReceiver},
	{"public docs", publicDocs},
}

// Exceptions, each with its reason. A key is a file, or a file and a declaration. An exception that is
// no longer needed fails TestExceptionsAreStillNeeded.
var exceptions = map[string]map[string]string{
	"interface size": {},
	"context in struct": {
		"internal/fn/call.go:Call":           "of a synchronous caller, for the time of that call",
		"internal/store/backup.go:limited":   "ends one copy with its context, and lives as long",
		"internal/fn/fn.go:life":             "the context of Run, for handlers that have no other",
		"internal/fn/handler.go:scope":       "is the context of one handler run",
		"worker/invocation.go:scope":         "is the context of one handler run",
		"worker/workertest/engine.go:Engine": "ends with the engine; users make it in tests without a Run",
	},
	"panic": {
		"internal/store/version.go:version.json": "numbers and strings always encode",
	},
	"skip": {
		"internal/bench/proc/child_test.go:TestTheKernelStopsAProgramOverItsCapAndWeSaySo": "cgroups need rights that CI may not have",
		"internal/bench/session_test.go:TestAServerOverItsCapIsLabelled":                   "cgroups need rights that CI may not have",
		"internal/bench/session_test.go:TestWithoutAControlGroupTheProgramCapsItself":      "where cgroups can be had",
		"internal/store/fixture_test.go:TestWriteFixture":                                  "makes the folder of a release, on request only",
		"internal/store/space_test.go:mountTmpfs":                                          "full disks need the right to mount",
		"internal/store/space_test.go:TestFolderOnAReadOnlyMountIsRefused":                 "needs the right to mount",
		"internal/testkit/testkit_test.go:TestBroken":                                      "run by TestChecksCanFail as its child",
		"test/npm/engine_test.go:need":                                                     "machines without Node; make test refuses the skip",
	},
	"imports": {
		"internal/loop/export_test.go":         "the size of a connection",
		"internal/loop/epoll_linux.go":         "system calls that take pointers",
		"internal/bench/load/syscall_linux.go": "system calls that take pointers",
	},
	"sleep": {},
	"exit":  {},
	"names": {
		"internal/fn/handler.go:Info":             "the word of engine::functions::info",
		"internal/engine/listing.go:functionInfo": "the word of engine::functions::info",
		"internal/engine/listing.go:workerInfo":   "the word of engine::workers::info",
	},
	"package variable": {},
}

func TestCodeKeepsTheHouseRules(t *testing.T) {
	for _, f := range load(t).files {
		for _, r := range rules {
			for _, bad := range r.findings(f) {
				if !excused(r.name, f, bad.pos) {
					t.Errorf("%s:%d: %s [%s]", f.path, f.line(bad.pos), bad.text, r.name)
				}
			}
		}
	}
}

type finding struct {
	pos  token.Pos
	text string
}

func (r rule) findings(f *source) (all []finding) {
	r.check(f, func(p token.Pos, format string, args ...any) {
		all = append(all, finding{p, fmt.Sprintf(format, args...)})
	})
	return all
}

func excused(name string, f *source, p token.Pos) bool {
	list := exceptions[name]
	return list[f.path] != "" || list[f.path+":"+f.declared(p)] != ""
}

// declared returns the name of the top-level declaration around p: a function, or a type or variable.
func (f *source) declared(p token.Pos) string {
	for _, d := range f.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || p < g.Pos() || p >= g.End() {
			continue
		}
		for _, s := range g.Specs {
			if p < s.Pos() || p >= s.End() {
				continue
			}
			switch s := s.(type) {
			case *ast.TypeSpec:
				return s.Name.Name
			case *ast.ValueSpec:
				return s.Names[0].Name
			}
		}
	}
	return f.function(p)
}

func TestExceptionsAreStillNeeded(t *testing.T) {
	files := map[string]*source{}
	for _, f := range load(t).files {
		files[f.path] = f
	}
	for name, list := range exceptions {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
		for key, why := range list {
			p, decl, _ := strings.Cut(key, ":")
			f := files[p]
			switch {
			case why == "":
				t.Errorf("exceptions[%q]: %s has no reason", name, key)
			case f == nil:
				t.Errorf("exceptions[%q]: there is no %s", name, p)
			case i >= 0 && !slices.ContainsFunc(rules[i].findings(f), func(b finding) bool {
				return decl == "" || f.declared(b.pos) == decl
			}):
				t.Errorf("exceptions[%q]: %s breaks no rule any more", name, key)
			}
		}
	}
}

func fileLength(f *source, say func(token.Pos, string, ...any)) {
	if n := strings.Count(f.text, "\n"); n > maxFile {
		say(f.ast.Package, "the file has %d lines, at most %d", n, maxFile)
	}
}

// functionLength leaves out the largest literal of a test: a table of cases is data.
func functionLength(f *source, say func(token.Pos, string, ...any)) {
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n, table := f.lines(fn), 0
		if f.test {
			ast.Inspect(fn, func(x ast.Node) bool {
				if l, ok := x.(*ast.CompositeLit); ok {
					table = max(table, f.lines(l)-1)
				}
				return true
			})
		}
		if n-table > maxFunction {
			say(fn.Pos(), "%s has %d lines, at most %d", funcName(fn), n-table, maxFunction)
		}
	}
}

// lineLength lets long texts stand: a line with a string of 40 or more characters, a comment that holds
// an address or a directive, and the rows of a table in a test.
func lineLength(f *source, say func(token.Pos, string, ...any)) {
	free := map[int]bool{}
	ast.Inspect(f.ast, func(x ast.Node) bool {
		text, _ := x.(*ast.BasicLit)
		_, table := x.(*ast.CompositeLit)
		if text != nil && text.Kind == token.STRING && len(text.Value) >= 40 || table && f.test && f.lines(x) > 2 {
			for i := f.line(x.Pos()); i <= f.line(x.End()); i++ {
				free[i] = true
			}
		}
		return true
	})
	file := f.fset.File(f.ast.Pos())
	for i, s := range strings.Split(f.text, "\n") {
		w := utf8.RuneCountInString(s)
		if w <= maxColumn || free[i+1] || strings.Contains(s, "://") || strings.HasPrefix(s, "//go:") {
			continue
		}
		say(file.LineStart(i+1), "the line has %d columns, at most %d", w, maxColumn)
	}
}

func interfaceSize(f *source, say func(token.Pos, string, ...any)) {
	ast.Inspect(f.ast, func(x ast.Node) bool {
		if it, ok := x.(*ast.InterfaceType); ok {
			n := 0
			for _, m := range it.Methods.List {
				if _, ok := m.Type.(*ast.FuncType); ok {
					n += len(m.Names)
				}
			}
			if n > maxMethods {
				say(it.Pos(), "the interface has %d methods, at most %d", n, maxMethods)
			}
		}
		return true
	})
}

func noInit(f *source, say func(token.Pos, string, ...any)) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			say(fn.Pos(), "no init: wire it where it is used")
		}
	}
}

// noSleep bans sleeping in tests and in testkit, but for code inside a synctest bubble, where
// time.Sleep moves a clock that is not real.
func noSleep(f *source, say func(token.Pos, string, ...any)) {
	if !f.test && !within(f.dir, testOnly) {
		return
	}
	var bubbles []ast.Node
	ast.Inspect(f.ast, func(x ast.Node) bool {
		if c, ok := x.(*ast.CallExpr); ok && f.selected(c.Fun, "testing/synctest") != "" {
			bubbles = append(bubbles, c)
		}
		return true
	})
	ast.Inspect(f.ast, func(x ast.Node) bool {
		c, ok := x.(*ast.CallExpr)
		if !ok || f.selected(c.Fun, "time") != "Sleep" {
			return true
		}
		in := func(b ast.Node) bool { return b.Pos() <= c.Pos() && c.End() <= b.End() }
		if !slices.ContainsFunc(bubbles, in) {
			say(c.Pos(), "no sleep in tests: wait for a signal, or use a synctest bubble")
		}
		return true
	})
}

func noContextField(f *source, say func(token.Pos, string, ...any)) {
	ast.Inspect(f.ast, func(x ast.Node) bool {
		if s, ok := x.(*ast.StructType); ok && !f.test {
			for _, m := range s.Fields.List {
				if f.selected(m.Type, "context") == "Context" {
					say(m.Pos(), "no context in a struct: hand it to the method that blocks")
				}
			}
		}
		return true
	})
}

// outdoors tells the places that talk to a person or own the process.
func outdoors(f *source) bool { return within(f.dir, "cmd") || within(f.dir, "examples") }

func noPrint(f *source, say func(token.Pos, string, ...any)) {
	ast.Inspect(f.ast, func(x ast.Node) bool {
		c, ok := x.(*ast.CallExpr)
		if !ok || outdoors(f) {
			return true
		}
		if n := f.selected(c.Fun, "fmt"); strings.HasPrefix(n, "Print") {
			// In a test file, examples print, and so do the programs that a test starts as its child.
			fn := f.function(c.Pos())
			if !f.test || strings.HasPrefix(fn, "Test") && fn != "TestMain" || strings.HasPrefix(fn, "Benchmark") {
				say(c.Pos(), "no fmt.%s here: return it, or write to a writer that was handed in", n)
			}
		}
		if id, ok := c.Fun.(*ast.Ident); ok && id.Obj == nil && (id.Name == "print" || id.Name == "println") {
			say(c.Pos(), "no %s", id.Name)
		}
		return true
	})
}

func noGlobalLog(f *source, say func(token.Pos, string, ...any)) {
	if outdoors(f) {
		return
	}
	global := []string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "With",
		"DebugContext", "InfoContext", "WarnContext", "ErrorContext", "SetLogLoggerLevel"}
	ast.Inspect(f.ast, func(x ast.Node) bool {
		e, ok := x.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if n := f.selected(e, "log/slog"); slices.Contains(global, n) {
			say(e.Pos(), "no slog.%s: use the *slog.Logger that was handed in", n)
		}
		if n := f.selected(e, "log"); n != "" {
			say(e.Pos(), "no log.%s: use the *slog.Logger that was handed in", n)
		}
		return true
	})
}

var (
	looseEnd = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	numbered = regexp.MustCompile(`\b(TODO|FIXME)\(#\d+\)`)
)

func noLooseEnds(f *source, say func(token.Pos, string, ...any)) {
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			if looseEnd.MatchString(numbered.ReplaceAllString(c.Text, "")) {
				say(c.Pos(), "a loose end names its issue: TODO(#12): ...")
			}
		}
	}
}

func noPanic(f *source, say func(token.Pos, string, ...any)) {
	ast.Inspect(f.ast, func(x ast.Node) bool {
		if c, ok := x.(*ast.CallExpr); ok && !f.test && !within(f.dir, testOnly) {
			if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "panic" && id.Obj == nil {
				say(c.Pos(), "no panic: return an error")
			}
		}
		return true
	})
}

func noExit(f *source, say func(token.Pos, string, ...any)) {
	ast.Inspect(f.ast, func(x ast.Node) bool {
		if c, ok := x.(*ast.CallExpr); ok && f.selected(c.Fun, "os") == "Exit" && !outdoors(f) {
			if f.function(c.Pos()) != "TestMain" {
				say(c.Pos(), "only cmd may end the process")
			}
		}
		return true
	})
}

// noSilentSkip lets a test skip only from a function that exceptions name, and with its reason.
// Skips under testing.Short, for another system, and for the race detector (raceEnabled) need no
// exception: CI does not run short, runs on Linux, and benchmarks run without the detector.
func noSilentSkip(f *source, say func(token.Pos, string, ...any)) {
	known := func(cond ast.Expr) (yes bool) {
		ast.Inspect(cond, func(x ast.Node) bool {
			switch x := x.(type) {
			case *ast.SelectorExpr:
				yes = yes || f.selected(x, "testing") == "Short" || f.selected(x, "runtime") == "GOOS"
			case *ast.Ident:
				yes = yes || x.Name == "raceEnabled"
			}
			return true
		})
		return yes
	}
	ast.Inspect(f.ast, func(x ast.Node) bool {
		if i, ok := x.(*ast.IfStmt); ok && known(i.Cond) {
			return false
		}
		c, ok := x.(*ast.CallExpr)
		if !ok || !f.test {
			return true
		}
		if s, ok := c.Fun.(*ast.SelectorExpr); ok {
			switch s.Sel.Name {
			case "Skip", "Skipf", "SkipNow":
				if x, ok := s.X.(*ast.Ident); ok && (x.Name == "t" || x.Name == "b" || x.Name == "f" || x.Name == "tb") {
					say(c.Pos(), "a skipped test proves nothing: name the function in exceptions, with the reason")
				}
			}
		}
		return true
	})
}

func noBadImport(f *source, say func(token.Pos, string, ...any)) {
	why := map[string]string{
		"unsafe":                   "name the file in exceptions, with the reason",
		"C":                        "no cgo",
		"math/rand":                "use math/rand/v2, or crypto/rand where guessing hurts",
		"io/ioutil":                "use io and os",
		"database/sql":             "nowhere hot; store has its own small interface",
		"net/http/pprof":           "it registers itself with a global; mount runtime/pprof by hand",
		"expvar":                   "it registers itself with a global; use telemetry",
		"golang.org/x/exp":         "no promises there",
		"go.opentelemetry.io/otel": "not in the hot path; telemetry speaks OTLP itself",
	}
	for _, s := range f.ast.Imports {
		p := strings.Trim(s.Path.Value, `"`)
		if w := why[p]; w != "" {
			say(s.Pos(), "must not import %s: %s", p, w)
		}
		if s.Name != nil && s.Name.Name == "." {
			say(s.Pos(), "no dot imports")
		}
	}
}

// noVagueName bans the words that say nothing, as names of packages and at the end of types.
func noVagueName(f *source, say func(token.Pos, string, ...any)) {
	vague := strings.Fields("manager service helper helpers util utils common base impl data info")
	if n := strings.TrimSuffix(f.ast.Name.Name, "_test"); slices.Contains(vague, n) {
		say(f.ast.Name.Pos(), "package %s: name it after the thing it is", n)
	}
	if n := strings.TrimSuffix(path.Base(f.path), ".go"); slices.Contains(vague, n) {
		say(f.ast.Name.Pos(), "file %s: name it after the thing it holds", path.Base(f.path))
	}
	for _, d := range f.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			n := s.(*ast.TypeSpec).Name
			for _, v := range vague {
				suffix := strings.ToUpper(v[:1]) + v[1:]
				if strings.EqualFold(n.Name, v) || strings.HasSuffix(n.Name, suffix) && !f.test {
					say(n.Pos(), "type %s: %q says nothing", n.Name, v)
				}
			}
		}
	}
}

func shortReceiver(f *source, say func(token.Pos, string, ...any)) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && len(fn.Recv.List[0].Names) > 0 {
			if n := fn.Recv.List[0].Names[0]; utf8.RuneCountInString(n.Name) > 2 {
				say(n.Pos(), "receiver %s of %s: one letter", n.Name, funcName(fn))
			}
		}
	}
}

// publicDocs asks for a comment on each exported name of the packages that users import.
func publicDocs(f *source, say func(token.Pos, string, ...any)) {
	if f.test || !within(f.dir, "wire") && !within(f.dir, "worker") {
		return
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			recv, _, method := strings.Cut(funcName(d), ".")
			if d.Name.IsExported() && (!method || ast.IsExported(recv)) && d.Doc == nil {
				say(d.Pos(), "%s is public and has no comment", funcName(d))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
						say(s.Pos(), "%s is public and has no comment", s.Name.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						say(s.Pos(), "%s is public and has no comment", s.Names[0].Name)
					}
				}
			}
		}
	}
}

func TestPackagesStayBelowTheirSize(t *testing.T) {
	size := map[string]int{}
	for _, f := range load(t).files {
		if !f.test {
			size[f.dir] += strings.Count(f.text, "\n")
		}
	}
	for dir, n := range size {
		if n > maxPackage {
			t.Errorf("%s has %d lines, at most %d: split it", dir, n, maxPackage)
		}
	}
}

// TestPackageVariablesDoNotChange looks for assignments to package variables from functions. It reads
// names, not types: a local name that shadows a variable of another file is taken for it when the local
// one has no declaration in the same file.
func TestPackageVariablesDoNotChange(t *testing.T) {
	tr := load(t)
	for _, dir := range tr.dirs() {
		vars := map[string]bool{}
		for _, f := range tr.in(dir) {
			for _, d := range f.ast.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
					for _, s := range g.Specs {
						for _, n := range s.(*ast.ValueSpec).Names {
							vars[n.Name] = n.Name != "_"
						}
					}
				}
			}
		}
		for _, f := range tr.in(dir) {
			for _, bad := range writes(f, vars) {
				if !excused("package variable", f, bad.pos) {
					t.Errorf("%s:%d: %s", f.path, f.line(bad.pos), bad.text)
				}
			}
		}
	}
}

func writes(f *source, vars map[string]bool) (bad []finding) {
	look := func(e ast.Expr) {
		root := e
		for {
			switch x := root.(type) {
			case *ast.SelectorExpr:
				root = x.X
				continue
			case *ast.IndexExpr:
				root = x.X
				continue
			case *ast.StarExpr:
				root = x.X
				continue
			case *ast.ParenExpr:
				root = x.X
				continue
			}
			break
		}
		id, ok := root.(*ast.Ident)
		if !ok || !vars[id.Name] {
			return
		}
		if id.Obj != nil {
			if s, ok := id.Obj.Decl.(*ast.ValueSpec); !ok || f.function(s.Pos()) != "" {
				return
			}
		}
		bad = append(bad, finding{e.Pos(), "package variable " + id.Name + " changes: put it into a type"})
	}
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || f.test {
			continue
		}
		ast.Inspect(fn, func(x ast.Node) bool {
			switch s := x.(type) {
			case *ast.AssignStmt:
				if s.Tok != token.DEFINE {
					for _, e := range s.Lhs {
						look(e)
					}
				}
			case *ast.IncDecStmt:
				look(s.X)
			}
			return true
		})
	}
	return bad
}

func TestFuzzTargetsHaveACommittedCorpus(t *testing.T) {
	for _, f := range load(t).files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !f.test || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			dir := path.Join(f.dir, "testdata", "fuzz", fn.Name.Name)
			if seeds, _ := os.ReadDir(dir); len(seeds) == 0 {
				t.Errorf("%s: %s has no corpus in %s", f.path, fn.Name.Name, dir)
			}
		}
	}
}

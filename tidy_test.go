package plinth_test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/plinth-run/plinth"

// floors is the house plan, lowest floor first. A package imports packages of lower floors only, and
// two rooms of one floor do not see each other. Sub-packages of one room may. A new room is one word
// in this table and one line in docs/decisions.
var floors = []struct {
	name  string
	rooms []string
}{
	{"foundation", []string{"wire", "internal/fault", "internal/telemetry", "internal/budget", "web"}},
	{"ground floor", []string{"internal/store", "internal/loop"}},
	{"services", []string{"worker", "internal/fn", "internal/front", "internal/auth", "internal/otlp"}},
	{"rooms", []string{"internal/engine", "internal/flow", "internal/site", "internal/secret"}},
	{"porch", []string{"internal/house", "internal/console", "internal/bench"}},
	{"house", []string{"internal/app"}},
	{"doors", []string{"cmd/plinth", "cmd/plinth-secrets", "cmd/plinth-flows"}},
	{"garden", []string{"examples", "test"}},
}

// narrow lists the packages that may see less than their floor allows.
var narrow = map[string]struct {
	may []string
	why string
}{
	"worker":         {[]string{"wire"}, "users compile it into their programs"},
	"internal/bench": {[]string{"wire", "worker", "internal/store"}, "it drives the program through public doors"},
	"internal/house": {[]string{
		"wire", "internal/fault", "internal/telemetry", "internal/budget", "internal/store", "internal/loop",
		"internal/fn", "internal/front", "internal/auth", "internal/otlp",
	}, "the porch knows no room"},
	"internal/console": {[]string{"web", "internal/fault", "internal/telemetry", "internal/budget"}, "app hands it its handlers"},
	"examples":         {[]string{"wire", "worker"}, "a user can import no more"},
	"test":             {[]string{"wire", "worker"}, "it drives the program through public doors"},
}

// testOnly may be imported by tests of any floor, and by nothing else.
const testOnly = "internal/testkit"

// foundationOf is what testkit itself may import.
const foundation = 0

// harness are packages that serve tests of their own floor and above only.
var harness = []string{"internal/app/apptest", "worker/workertest"}

// thirdParty says which trees of packages may import a module. "tests" stands for test files and
// testkit anywhere. docs/dependencies.md says why each of them is here.
var thirdParty = map[string][]string{
	"github.com/HdrHistogram/hdrhistogram-go": {"internal/bench"},
	"github.com/VictoriaMetrics/metrics":      {"internal/telemetry"},
	"github.com/danielgtaylor/huma/v2":        {"internal/house", "internal/auth/api", "internal/app"},
	"github.com/gofrs/flock":                  {"internal/store"},
	"github.com/google/go-cmp":                {"tests"},
	"github.com/google/jsonschema-go":         {"worker"},
	"github.com/pelletier/go-toml/v2":         {"internal/house", "cmd"},
	"github.com/rogpeppe/go-internal":         {"tests"},
	"github.com/spf13/cobra":                  {"cmd"},
	"github.com/spf13/pflag":                  {"cmd"},
	"github.com/pquerna/otp":                  {"internal/auth"},
	"go.uber.org/goleak":                      {"tests"},
	"golang.org/x/crypto":                     {"internal/auth"},
	"golang.org/x/sys": {
		"internal/loop", "internal/store", "internal/budget", "internal/auth", "internal/house", "internal/bench", "internal/app",
		"cmd",
	},
	"golang.org/x/term":  {"cmd"},
	"pgregory.net/rapid": {"tests"},
}

// maxModules is the budget of direct modules.
const maxModules = 45

// room returns the floor and the room that a package belongs to, or -1.
func room(pkg string) (int, string) {
	for i, f := range floors {
		for _, r := range f.rooms {
			if within(pkg, r) {
				return i, r
			}
		}
	}
	return -1, ""
}

func within(pkg, tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") }

func TestPackagesImportLowerFloorsOnly(t *testing.T) {
	for _, f := range load(t).files {
		for _, imp := range f.imports() {
			if own, ok := strings.CutPrefix(imp, module+"/"); ok {
				if bad := judge(f.dir, own, f.test); bad != "" {
					t.Errorf("%s: imports %s: %s", f.path, own, bad)
				}
			}
		}
	}
}

// judge returns why package from must not import package to, or "".
func judge(from, to string, test bool) string {
	if within(to, testOnly) {
		switch {
		case test, within(from, testOnly):
			return ""
		}
		return "only tests may import " + testOnly
	}
	for _, h := range harness {
		if to == h && !test && from != h {
			return "only tests may import " + h
		}
	}
	toFloor, toRoom := room(to)
	if toFloor < 0 {
		return "it has no floor in the house plan (see floors in tidy_test.go)"
	}
	if within(from, testOnly) {
		if toFloor == foundation {
			return ""
		}
		return testOnly + " imports the foundation alone"
	}
	if from == "." {
		return ""
	}
	floor, own := room(from)
	if floor < 0 {
		return from + " has no floor in the house plan (see floors in tidy_test.go)"
	}
	if own == toRoom {
		return ""
	}
	if n, ok := narrow[own]; ok && !slices.Contains(n.may, toRoom) {
		return own + " may import " + strings.Join(n.may, ", ") + " alone: " + n.why
	}
	switch {
	case toFloor > floor:
		return own + " (" + floors[floor].name + ") stands below " + toRoom + " (" + floors[toFloor].name + ")"
	case toFloor == floor:
		return own + " and " + toRoom + " stand on one floor, and must not see each other"
	}
	return ""
}

func TestHousePlanIsJudgedAsWritten(t *testing.T) {
	for _, c := range []struct {
		from, to string
		test, ok bool
	}{
		{"internal/engine", "internal/fn", false, true},
		{"internal/engine/queue", "internal/engine", false, true},
		{"internal/engine", "internal/flow", false, false},
		{"internal/fn", "internal/engine", false, false},
		{"internal/fn", "internal/engine", true, false},
		{"internal/fault", "wire", true, false},
		{"wire/ws", "wire", false, true},
		{"worker", "wire/ws", false, true},
		{"worker", "internal/fault", false, false},
		{"worker", "internal/testkit", true, true},
		{"internal/bench", "worker", false, true},
		{"internal/bench", "internal/fn", true, false},
		{"internal/house", "internal/engine", false, false},
		{"internal/house", "internal/telemetry", false, true},
		{"internal/store", "internal/testkit", true, true},
		{"internal/store", "internal/testkit", false, false},
		{"internal/testkit", "wire", false, true},
		{"internal/testkit", "internal/store", false, false},
		{"cmd/plinth", "internal/app", false, true},
		{"cmd/plinth", "internal/app/apptest", false, false},
		{"cmd/plinth", "internal/app/apptest", true, true},
		{"internal/cellar", "wire", false, false},
		{"internal/app", "internal/cellar", false, false},
		{"examples/hello-go", "worker", false, true},
		{"examples/hello-go", "internal/fn", false, false},
	} {
		if bad := judge(c.from, c.to, c.test); (bad == "") != c.ok {
			t.Errorf("judge(%s, %s, test %v) = %q, want allowed %v", c.from, c.to, c.test, bad, c.ok)
		}
	}
}

func TestEveryPackageHasAFloor(t *testing.T) {
	for _, dir := range load(t).dirs() {
		if floor, _ := room(dir); floor < 0 && dir != "." && !within(dir, testOnly) {
			t.Errorf("%s has no floor in the house plan (see floors in tidy_test.go)", dir)
		}
	}
}

func TestThirdPartyModulesStayInTheirRooms(t *testing.T) {
	for _, f := range load(t).files {
		for _, imp := range f.imports() {
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") || within(imp, module) {
				continue
			}
			mod := moduleOf(imp)
			if mod == "" {
				t.Errorf("%s: imports %s, which thirdParty in tidy_test.go does not know", f.path, imp)
				continue
			}
			may := func(tree string) bool {
				return tree == "tests" && (f.test || within(f.dir, testOnly)) || within(f.dir, tree)
			}
			if !slices.ContainsFunc(thirdParty[mod], may) {
				t.Errorf("%s: imports %s, which only %s may", f.path, imp, strings.Join(thirdParty[mod], ", "))
			}
		}
	}
}

func moduleOf(imp string) string {
	for mod := range thirdParty {
		if within(imp, mod) {
			return mod
		}
	}
	return ""
}

func TestEachModuleHasItsLineInDependencies(t *testing.T) {
	doc := read(t, "docs/dependencies.md")
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	var listed []string
	for _, m := range row.FindAllStringSubmatch(doc, -1) {
		listed = append(listed, m[1])
	}
	required, direct := requirements(read(t, "go.mod"))
	for _, mod := range direct {
		if !slices.Contains(listed, mod) {
			t.Errorf("go.mod requires %s; docs/dependencies.md has no line on why", mod)
		}
	}
	for mod := range thirdParty {
		if !slices.Contains(listed, mod) {
			t.Errorf("tidy_test.go allows %s; docs/dependencies.md has no line on why", mod)
		}
	}
	for _, mod := range listed {
		if _, ok := thirdParty[mod]; !ok {
			t.Errorf("docs/dependencies.md lists %s, which thirdParty in tidy_test.go does not know", mod)
		}
		if !slices.Contains(required, mod) {
			t.Errorf("docs/dependencies.md lists %s, which go.mod does not require", mod)
		}
	}
	if len(direct) > maxModules {
		t.Errorf("go.mod has %d direct modules, the budget is %d", len(direct), maxModules)
	}
}

// requirements reads the module paths that a go.mod requires, and those of them that are direct.
func requirements(gomod string) (all, direct []string) {
	line := regexp.MustCompile(`(?m)^(?:require )?\s*([\w./-]+\.[\w./-]+) v\S+( // indirect)?$`)
	for _, m := range line.FindAllStringSubmatch(gomod, -1) {
		all = append(all, m[1])
		if m[2] == "" {
			direct = append(direct, m[1])
		}
	}
	return all, direct
}

// TestWorkerBringsOneModuleAtMost holds the promise to users of the Go SDK, the whole way down.
func TestWorkerBringsOneModuleAtMost(t *testing.T) {
	format := "{{if not .Standard}}{{.ImportPath}} {{.Module.Path}}{{end}}"
	out, err := exec.Command("go", "list", "-deps", "-f", format, "./worker").Output()
	if err != nil {
		t.Fatal(err)
	}
	foreign := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		imp, mod, _ := strings.Cut(strings.TrimSpace(line), " ")
		own, ok := strings.CutPrefix(imp, module+"/")
		switch {
		case !ok:
			foreign[mod] = true
		case !within(own, "wire") && !within(own, "worker"):
			t.Errorf("worker depends on %s", own)
		}
	}
	if len(foreign) > 1 {
		t.Errorf("worker depends on the modules %v, one at most is promised", foreign)
	}
}

func TestPackagesAreDocumentedOnce(t *testing.T) {
	tr := load(t)
	for _, dir := range tr.dirs() {
		var docs []string
		name, code := "", false
		for _, f := range tr.in(dir) {
			if f.test {
				continue
			}
			code, name = true, f.ast.Name.Name
			if f.ast.Doc == nil {
				continue
			}
			docs = append(docs, f.path)
			want := "Package " + name + " "
			if name == "main" {
				want = "Command " + path.Base(dir) + " "
			}
			if !strings.HasPrefix(f.ast.Doc.Text(), want) {
				t.Errorf("%s: the package comment must begin with %q", f.path, want)
			}
		}
		if code && len(docs) != 1 {
			t.Errorf("%s: has %d package comments, want exactly one %v", dir, len(docs), docs)
		}
	}
}

// TestTextsBelongToNoMachine keeps download addresses out of lock files, so that a mirror serves as well,
// and folders of one person's machine out of every text.
func TestTextsBelongToNoMachine(t *testing.T) {
	banned := regexp.MustCompile(`"resolved"` + `: "http|/(home|Users|root)/` + `[a-z]+/`)
	for _, p := range load(t).texts {
		text := read(t, p)
		for i, line := range strings.Split(text, "\n") {
			if m := banned.FindString(line); m != "" {
				t.Errorf("%s:%d: must not name %s", p, i+1, m)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

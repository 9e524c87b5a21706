package plinth_test

import (
	"strings"
	"testing"
)

// TestRulesCatchWhatTheyName proves that each rule can fail: a file that breaks it is found out, and
// one that comes close is not.
func TestRulesCatchWhatTheyName(t *testing.T) {
	long := strings.Repeat("x", 120)
	for _, c := range []struct {
		rule, path string
		bad, good  string
	}{
		{"file length", "wire/a.go", "package wire\n" + strings.Repeat("\n", 900), "package wire\n" + strings.Repeat("\n", 890)},
		{
			"function length", "wire/a_test.go",
			"package wire\nfunc f() {" + strings.Repeat("\n", 120) + "}",
			"package wire\nfunc f() { _ = []int{" + strings.Repeat("\n", 120) + "} }",
		},
		{"line length", "wire/a.go", "package wire\nvar x = 1 // " + long, "package wire\nvar x = \"" + long + "\""},
		{"interface size", "wire/a.go", "package wire\ntype I interface{ A(); B(); C(); D() }", "package wire\ntype I interface{ A(); B(); C() }"},
		{"init", "wire/a.go", "package wire\nfunc init() {}", "package wire\nfunc (t T) init() {}\ntype T int"},
		{
			"sleep", "wire/a_test.go",
			"package wire\nimport \"time\"\nfunc f() { time.Sleep(1) }",
			"package wire\nimport (\"time\"; \"testing/synctest\")\nfunc f() { synctest.Test(nil, func() { time.Sleep(1) }) }",
		},
		{
			"sleep", "internal/testkit/a.go",
			"package testkit\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }",
			"package testkit\nfunc f(time T) { time.Sleep(1) }\ntype T struct{}",
		},
		{
			"context in struct", "wire/a.go",
			"package wire\nimport \"context\"\ntype T struct{ ctx context.Context }",
			"package wire\nimport \"context\"\ntype T struct{ f func(context.Context) }",
		},
		{
			"print", "wire/a.go",
			"package wire\nimport \"fmt\"\nfunc f() { fmt.Println() }",
			"package wire\nimport \"fmt\"\nfunc f() { _ = fmt.Sprint() }",
		},
		{
			"print", "worker/a_test.go",
			"package worker\nimport \"fmt\"\nfunc TestA() { fmt.Println() }",
			"package worker\nimport \"fmt\"\nfunc ExampleA() { fmt.Println() }",
		},
		{
			"global logger", "wire/a.go",
			"package wire\nimport \"log/slog\"\nfunc f() { slog.Info(\"\") }",
			"package wire\nimport \"log/slog\"\nfunc f(l *slog.Logger) { l.Info(\"\") }",
		},
		{
			"global logger", "wire/a.go",
			"package wire\nimport \"log\"\nfunc f() { log.Fatal() }",
			"package wire\nfunc f(log L) { log.Fatal() }\ntype L struct{}",
		},
		{"to do", "wire/a.go", "package wire\n// TODO: later\n", "package wire\n// TODO(#12): later\n"},
		{"panic", "wire/a.go", "package wire\nfunc f() { panic(1) }", "package wire\nfunc f(panic func(int)) { panic(1) }"},
		{"exit", "wire/a.go", "package wire\nimport \"os\"\nfunc f() { os.Exit(1) }", "package wire\nimport \"os\"\nfunc f() { os.Getpid() }"},
		{
			"skip", "wire/a_test.go",
			"package wire\nfunc TestA(t T) { t.Skip(\"no\") }",
			"package wire\nimport \"testing\"\nfunc TestA(t T) { if testing.Short() { t.Skip(\"long\") } }",
		},
		{"imports", "wire/a.go", "package wire\nimport \"math/rand\"", "package wire\nimport \"math/rand/v2\""},
		{"names", "wire/a.go", "package util", "package wire"},
		{"names", "wire/a.go", "package wire\ntype QueueManager struct{}", "package wire\ntype Database struct{}"},
		{"receiver", "wire/a.go", "package wire\nfunc (self T) m() {}", "package wire\nfunc (t T) m() {}"},
		{"public docs", "wire/a.go", "package wire\nfunc F() {}", "package wire\n// F does.\nfunc F() {}\nfunc (t t) M() {}"},
	} {
		r := ruleNamed(t, c.rule)
		for text, want := range map[string]bool{c.bad: true, c.good: false} {
			f, err := parse(c.path, text)
			if err != nil {
				t.Fatalf("%s: %v", c.rule, err)
			}
			if got := r.findings(f); len(got) > 0 != want {
				t.Errorf("rule %q found %v in %.80q", c.rule, got, text)
			}
		}
	}
}

func ruleNamed(t *testing.T, name string) rule {
	t.Helper()
	for _, r := range rules {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no rule %q", name)
	return rule{}
}

func TestWritesToPackageVariablesAreSeen(t *testing.T) {
	vars := map[string]bool{"x": true, "m": true}
	for text, want := range map[string]int{
		"var x int\nfunc f() { x = 1 }":                1,
		"var x int\nfunc f() { x++ }":                  1,
		"var m = map[int]int{}\nfunc f() { m[1] = 2 }": 1,
		"func f() { m[1].a.b = 2 }":                    1,
		"var x int\nfunc f() { x := 1; x = 2 }":        0,
		"var x int\nfunc f(x int) { x = 2 }":           0,
		"var x int\nfunc f() { var x int; x = 2 }":     0,
		"var x int\nfunc f() int { return x }":         0,
	} {
		f, err := parse("wire/a.go", "package wire\n"+text)
		if err != nil {
			t.Fatal(err)
		}
		if got := writes(f, vars); len(got) != want {
			t.Errorf("%q: found %v, want %d", text, got, want)
		}
	}
}

func TestRequirementsAreRead(t *testing.T) {
	all, direct := requirements("module a.b/c\n\ngo 1.26.0\n\nrequire (\n\tx.org/a v1.2.3\n\tx.org/b/v2 v2.0.0 // indirect\n)\n\nrequire y.org/c v0.1.0\n")
	if len(all) != 3 || len(direct) != 2 || direct[1] != "y.org/c" {
		t.Errorf("all %v, direct %v", all, direct)
	}
}

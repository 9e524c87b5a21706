package plinth_test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

// limitRow is how docs/reference/protocol.md shows a limit.
func limitRow(l wire.Limit) string {
	code := "none"
	if l.Code != "" {
		code = "`" + l.Code + "`"
	}
	return fmt.Sprintf("| `%s` | %d | %d | %d | %s | %s | %s |", l.Name, l.Default, l.Min, l.Max, l.Unit, l.Help, code)
}

func TestEveryLimitIsDocumentedAsItIs(t *testing.T) {
	doc := strings.Split(read(t, "docs/reference/protocol.md"), "\n")
	known := map[string]bool{}
	for _, l := range wire.Limits() {
		known[l.Name] = true
		if row := limitRow(l); !slices.Contains(doc, row) {
			t.Errorf("docs/reference/protocol.md lacks the line\n%s", row)
		}
	}
	at := slices.IndexFunc(doc, func(s string) bool { return strings.HasPrefix(s, "| limit |") })
	for _, line := range doc[at+2:] {
		if name := strings.Trim(strings.Split(line+"||", "|")[1], " `"); name != "" && !known[name] {
			t.Errorf("docs/reference/protocol.md lists %s, which is no limit", name)
		}
	}
}

func TestEveryErrorCodeIsDocumented(t *testing.T) {
	doc := read(t, "docs/reference/errors.md")
	codes := map[string]bool{}
	for _, f := range load(t).in("wire") {
		if f.path != "wire/codes.go" {
			continue
		}
		ast.Inspect(f.ast, func(x ast.Node) bool {
			if l, ok := x.(*ast.BasicLit); ok {
				if s, err := strconv.Unquote(l.Value); err == nil {
					codes[s] = true
				}
			}
			return true
		})
	}
	if len(codes) < 50 {
		t.Fatalf("found only %d codes in wire/codes.go", len(codes))
	}
	for c := range codes {
		if !strings.Contains(doc, "`"+c+"`") {
			t.Errorf("docs/reference/errors.md does not explain %s", c)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(doc, -1) {
		if !codes[m[1]] {
			t.Errorf("docs/reference/errors.md explains %s, which is no code of package wire", m[1])
		}
	}
}

// TestLinksOfThePagesLeadSomewhere follows the links between our own pages. It asks no other machine.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, p := range load(t).texts {
		if path.Ext(p) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(read(t, p), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			file := p
			if to != "" {
				file = path.Join(path.Dir(p), to)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", p, m[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: %s has no heading #%s", p, file, anchor)
			}
		}
	}
}

// TestEveryPageIsInTheIndex looks for pages that nobody would find.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, p := range load(t).texts {
		if page, ok := strings.CutPrefix(p, "docs/"); ok && path.Ext(p) == ".md" && page != "README.md" {
			if !strings.Contains(index, "("+page+")") {
				t.Errorf("docs/README.md does not link to %s", page)
			}
		}
	}
}

// anchors are the names that headings get on a page.
func anchors(doc string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(doc, -1) {
		s := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(s, " ", "-"))
	}
	return names
}

// TestPagesQuoteTheExamples compares the programs that pages show with the ones that tests run.
func TestPagesQuoteTheExamples(t *testing.T) {
	for p, examples := range map[string][]string{
		"README.md":                      {"examples/hello-node/hello.mjs"},
		"docs/tutorials/first-worker.md": {"examples/hello-node/hello.mjs", "examples/hello-go/main.go"},
	} {
		doc := read(t, p)
		for _, e := range examples {
			code := read(t, e)
			if path.Ext(e) == ".go" { // the page leaves out the package comment
				code = code[strings.Index(code, "package "):]
			}
			if !strings.Contains(doc, "\n"+code+"```") {
				t.Errorf("%s does not show %s as it is", p, e)
			}
		}
	}
}

package rbac

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxPattern bounds one id or pattern, in bytes: as much as the longest id that the engine can be set to
// take.
const maxPattern = 4 << 10

// glob is a compiled pattern: a star stands for any run of bytes, also none, and the rest for itself. It is
// anchored at both ends.
type glob struct {
	head, tail []byte   // what stands before the first star, and behind the last
	middle     [][]byte // between the stars, in order, none empty
	star       bool     // without one, head is the whole pattern
}

func compile(pattern string) glob {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	g := glob{head: []byte(parts[0]), star: last > 0}
	if g.star {
		g.tail = []byte(parts[last])
	}
	for i := 1; i < last; i++ {
		if parts[i] != "" {
			g.middle = append(g.middle, []byte(parts[i]))
		}
	}
	return g
}

// match holds a text against the pattern. The leftmost place of a part leaves the most room for the parts
// behind it, so nothing is ever tried twice and the time is in proportion to the text.
func (g *glob) match(text []byte) bool {
	if !g.star {
		return bytes.Equal(text, g.head)
	}
	rest, ok := bytes.CutPrefix(text, g.head)
	return ok && g.matchRest(rest)
}

// matchRest is match for what stands behind the head.
func (g *glob) matchRest(rest []byte) bool {
	rest, ok := bytes.CutSuffix(rest, g.tail)
	for i := 0; ok && i < len(g.middle); i++ {
		at := bytes.Index(rest, g.middle[i])
		if ok = at >= 0; ok {
			rest = rest[at+len(g.middle[i]):]
		}
	}
	return ok
}

// unwrap takes the pattern out of match("…"); any other text is a pattern, or an id, itself. A text that
// begins like the former and is not is refused: as an id it would name no function.
func unwrap(text string) (string, error) {
	inner, wrapped := strings.CutPrefix(text, "match(")
	if wrapped {
		ok := len(inner) >= 3 && inner[0] == '"' && strings.HasSuffix(inner, `")`)
		if !ok || strings.Contains(inner[1:len(inner)-2], `"`) {
			return "", fmt.Errorf("%q is not of the form match(\"service::*\")", clip(text))
		}
		text = inner[1 : len(inner)-2]
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", errors.New("an id or pattern is blank")
	case len(text) > maxPattern:
		return "", fmt.Errorf("an id or pattern is longer than %d bytes", maxPattern)
	}
	return text, nil
}

// names is a set of ids and patterns, made for many of them: an id costs one look-up, and a pattern is
// looked at only when the id begins as it does.
type names struct {
	exact  map[string]struct{}
	starts map[string][]glob // patterns by their head
	sizes  []int             // lengths of the keys of starts, ascending
}

func newNames(texts []string) (*names, error) {
	n := &names{exact: map[string]struct{}{}, starts: map[string][]glob{}}
	for _, text := range texts {
		text, err := unwrap(text)
		if err != nil {
			return nil, err
		}
		g := compile(text)
		if !g.star {
			n.exact[text] = struct{}{}
			continue
		}
		head := string(g.head)
		if n.starts[head] == nil {
			n.sizes = append(n.sizes, len(head))
		}
		n.starts[head] = append(n.starts[head], g)
	}
	slices.Sort(n.sizes)
	n.sizes = slices.Compact(n.sizes)
	return n, nil
}

// has reports whether an id is in the set. A nil set is empty.
func (n *names) has(id string) bool {
	if n == nil {
		return false
	}
	if _, ok := n.exact[id]; ok {
		return true
	}
	var room [512]byte // so that ids of an ordinary length are not copied to the heap
	text := append(room[:0], id...)
	for _, size := range n.sizes {
		if size > len(text) {
			break
		}
		same := n.starts[string(text[:size])]
		for i := range same {
			if same[i].matchRest(text[size:]) {
				return true
			}
		}
	}
	return false
}

// clip shortens a text for a message.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

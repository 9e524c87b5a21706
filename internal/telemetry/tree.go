package telemetry

import (
	"cmp"
	"slices"
)

// Node is a span of a trace with the spans that were started within it.
type Node struct {
	Span     *View
	Children []*Node
}

// Bounds of one tree. What is nested deeper goes on as a root of its own, since not every reader of
// JSON takes more.
const (
	maxTree  = 10_000
	maxDepth = 500
)

// Tree returns the spans of one trace as trees, earliest first at every level. A span whose parent is
// not there is a root, and so is one of each circle of parents; of several spans with one id, as a
// running one and its end, the last recorded stands. Of a trace with more than 10,000 spans the oldest
// are left out, and rest counts them.
func (r Reader) Tree(trace [16]byte) (roots []*Node, rest int) {
	nodes := map[[8]byte]*Node{}
	var all []*Node
	r.Each(Filter{TraceID: trace}, func(v *View) bool {
		switch {
		case nodes[v.SpanID] != nil:
		case len(all) == maxTree:
			rest++
		default:
			n := &Node{Span: v}
			nodes[v.SpanID] = n
			all = append(all, n)
		}
		return true
	})
	slices.SortStableFunc(all, earlier)
	for _, n := range all {
		if parent := nodes[n.Span.Parent]; parent != nil && n.Span.Parent != [8]byte{} {
			parent.Children = append(parent.Children, n)
		} else {
			roots = append(roots, n)
		}
	}
	seen := make(map[*Node]bool, len(all))
	for _, n := range slices.Clone(roots) {
		roots = n.cut(seen, roots)
	}
	for _, n := range all { // what no root leads to stands in a circle, or below one
		if !seen[n] {
			parent := nodes[n.Span.Parent]
			parent.Children = slices.DeleteFunc(parent.Children, func(c *Node) bool { return c == n })
			roots = n.cut(seen, append(roots, n))
		}
	}
	slices.SortStableFunc(roots, earlier)
	return roots, rest
}

func earlier(a, b *Node) int { return cmp.Compare(a.Span.Start, b.Span.Start) }

// cut marks what n leads to, and makes roots of what lies too deep.
func (n *Node) cut(seen map[*Node]bool, roots []*Node) []*Node {
	type step struct {
		node  *Node
		depth int
	}
	for stack := []step{{n, 1}}; len(stack) > 0; {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		seen[s.node] = true
		if s.depth == maxDepth {
			roots = append(roots, s.node.Children...)
			for _, c := range s.node.Children {
				stack = append(stack, step{c, 1})
			}
			s.node.Children = nil
		}
		for _, c := range s.node.Children {
			stack = append(stack, step{c, s.depth + 1})
		}
	}
	return roots
}

// AppendJSON appends the span with its children, in the shape of engine::traces::tree.
func (n *Node) AppendJSON(dst []byte) []byte {
	dst = append(n.Span.appendOpen(dst), `,"children":[`...)
	for i, c := range n.Children {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.AppendJSON(dst)
	}
	return append(dst, "]}"...)
}

package house

import (
	"slices"
	"strings"
)

// nearestWord bounds the names that Nearest compares, so that one lookup stays short.
const nearestWord = 128

// Nearest returns at most three of the names that a person may have meant by word, the nearest first.
// Compared are edits (one swap of neighbours is one edit), a name that begins with the word, and a last
// part after "::" or "." that is the word. Names and words over 128 bytes are not compared.
func Nearest(word string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	low := strings.ToLower(word)
	for _, name := range names {
		if word == "" || len(word) > nearestWord || len(name) > nearestWord || name == word {
			continue
		}
		if far := distance(low, strings.ToLower(name)); far <= reach(low) {
			found = append(found, candidate{name, far})
		} else if len(low) >= 3 && strings.HasPrefix(strings.ToLower(name), low) || lastPart(name, low) {
			found = append(found, candidate{name, reach(low) + 1})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.name, b.name)
	})
	near := make([]string, 0, 3)
	for _, c := range found {
		if len(near) == 3 || c.far > found[0].far+1 { // what is much farther than the best is noise
			break
		}
		if !slices.Contains(near, c.name) {
			near = append(near, c.name)
		}
	}
	return near
}

// reach is how many edits still look like a slip: one in a short word, about a third in a long one.
func reach(word string) int { return max(1, min(4, len(word)/3)) }

// lastPart says whether the part of name after its last separator is word.
func lastPart(name, word string) bool {
	i := strings.LastIndexAny(name, ".:")
	return i >= 0 && len(word) >= 3 && strings.EqualFold(name[i+1:], word)
}

// distance counts insertions, deletions, replacements and swaps of neighbours between a and b.
func distance(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(now[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

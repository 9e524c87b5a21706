package proc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseCPUs reads a list of processors as the kernel writes it: "0-3,6". Duplicates count once.
func ParseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		if part == "" {
			continue
		}
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil, fmt.Errorf("processor list %q: %q is no number", list, from)
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(to); err != nil {
				return nil, fmt.Errorf("processor list %q: %q is no number", list, to)
			}
		}
		if first < 0 || last < first || last >= maxCPUs {
			return nil, fmt.Errorf("processor list %q: %q is no range of processors", list, part)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// maxCPUs is what the kernel's affinity masks hold in x/sys.
const maxCPUs = 1024

// FormatCPUs writes a sorted list of processors as ParseCPUs reads it.
func FormatCPUs(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Split divides processors, sorted so that threads of one core are neighbours, between a server of n
// processors (0: half of them) and the load. Where there are too few for both, the load shares the
// last ones of the server, and shared says so.
func Split(cpus []int, n int) (server, load []int, shared bool) {
	if len(cpus) == 0 {
		return nil, nil, true
	}
	if n <= 0 {
		n = max(1, len(cpus)/2)
	}
	n = min(n, len(cpus))
	if rest := cpus[n:]; len(rest) > 0 {
		return cpus[:n:n], rest, false
	}
	return cpus, cpus[len(cpus)-1:], true
}

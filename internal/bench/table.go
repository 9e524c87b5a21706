package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/bench/stat"
)

// Table is one part of a report for people.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
	Notes []string
}

// Tables returns the report as tables, one for each scenario and profile, and the environment last.
func (r *Report) Tables() []Table {
	var tables []Table
	var keys []string
	groups := map[string][]*CaseReport{}
	for i := range r.Cases {
		c := &r.Cases[i]
		key := c.Scenario + " " + c.Profile
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], c)
	}
	for _, key := range keys {
		t := r.table(groups[key])
		if len(t.Rows) > 0 || len(t.Notes) > 0 {
			tables = append(tables, t)
		}
		for _, c := range groups[key] {
			if len(c.Overload) > 0 {
				tables = append(tables, overloadTable(c))
			}
		}
	}
	if len(r.Asked) > 0 {
		tables = append(tables, r.askedTable())
	}
	return append(tables, r.environmentTable())
}

// table compares the cases of one scenario and profile.
func (r *Report) table(cases []*CaseReport) Table {
	first := cases[0]
	several := len(cases) > 1
	t := Table{Title: r.title(first), Head: []string{stepHead(first)}}
	if several {
		t.Head = append(t.Head, "program")
	}
	names := shown(first)
	t.Head = append(t.Head, names...)
	if several {
		t.Head = append(t.Head, "against the first")
	}
	for _, name := range steps(cases) {
		for _, c := range cases {
			s := c.Step(name)
			if s == nil || len(s.Trials) == 0 {
				continue
			}
			t.Rows = append(t.Rows, row(name, several, names, c, s, first.Step(name)))
		}
	}
	for _, c := range cases {
		t.Notes = append(t.Notes, caseNotes(c, several)...)
	}
	return t
}

// steps returns the names of all steps, those of the same load together.
func steps(cases []*CaseReport) []string {
	var all []StepReport
	for _, c := range cases {
		for i := range c.Steps {
			same := func(s StepReport) bool { return s.Name == c.Steps[i].Name }
			if !slices.ContainsFunc(all, same) {
				all = append(all, c.Steps[i])
			}
		}
	}
	slices.SortStableFunc(all, func(a, b StepReport) int {
		return cmp.Or(cmp.Compare(a.InFlight, b.InFlight), cmp.Compare(a.Workers, b.Workers))
	})
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

func (r *Report) title(c *CaseReport) string {
	var b strings.Builder
	b.WriteString(c.Scenario)
	if c.Profile != "" {
		fmt.Fprintf(&b, " in %s", c.Profile)
	}
	if c.Job.Callers > 0 {
		fmt.Fprintf(&b, ", %d bytes, %d+%d connections", c.Job.Payload, c.Job.Callers, c.Job.Hosts)
	}
	if c.Job.Plain {
		b.WriteString(", one frame a write")
	}
	if c.ServerCPUs != "" {
		fmt.Fprintf(&b, ", server on processor %s, load on %s", c.ServerCPUs, c.LoadCPUs)
	}
	fmt.Fprintf(&b, ", rounds: %d", r.Rounds)
	return b.String()
}

func stepHead(c *CaseReport) string {
	switch {
	case c.Scenario == "memory":
		return "idle workers"
	case c.Scenario == EngineChannels:
		return "bytes"
	case len(c.Steps) > 0 && c.Steps[0].InFlight > 0:
		return "in flight"
	}
	return "offered"
}

// shown returns the figures that fit a line.
func shown(c *CaseReport) []string {
	switch c.Scenario {
	case "memory":
		return []string{RSSEnd, RSSPeak, Threads, Descriptors}
	case EngineChannels:
		return []string{Throughput, Cores, Generator, RSSPeak}
	case EngineReplicas:
		return []string{Calls, P50, P99, Deviation, CPU}
	}
	return []string{Calls, P50, P99, Max, CPU, RSSPeak}
}

func row(name string, several bool, figures []string, c *CaseReport, s, first *StepReport) []string {
	cells := []string{name}
	if several {
		cells = append(cells, c.Name)
	}
	for _, f := range figures {
		cells = append(cells, cell(s, f))
	}
	if !several {
		return cells
	}
	if s == first || first == nil {
		return append(cells, "")
	}
	ratios := Paired(s, first, compared(c.Scenario))
	if len(ratios) == 0 {
		return append(cells, "")
	}
	return append(cells, fmt.Sprintf("%.2f %s", stat.Median(ratios), spread(len(ratios), stat.Spread(ratios))))
}

// compared returns the figure that cases of a scenario are compared by.
func compared(scenario string) string {
	switch scenario {
	case "memory":
		return RSSEnd
	case EngineChannels:
		return Throughput
	case EngineLogins:
		return P99
	}
	return CPU
}

// cell writes a figure as its median and its spread.
func cell(s *StepReport, name string) string {
	f, ok := s.Figure(name)
	if !ok {
		return "-"
	}
	return strings.TrimSpace(Format(f.Median, f.Unit) + " " + spread(len(f.Values), f.Spread))
}

// spread writes a range over a median; one round has none.
func spread(rounds int, v float64) string {
	if rounds < 2 {
		return ""
	}
	return fmt.Sprintf("(%.0f%%)", v*100)
}

// Format writes a number in a unit to three digits.
func Format(v float64, unit string) string {
	switch unit {
	case "µs":
		d := time.Duration(v * float64(time.Microsecond))
		switch {
		case d >= time.Second:
			return digits3(d.Seconds()) + " s"
		case d >= time.Millisecond:
			return digits3(float64(d)/float64(time.Millisecond)) + " ms"
		}
		return digits3(v) + " µs"
	case "1/s":
		return thousands(v)
	case "":
		return digits3(v)
	}
	return digits3(v) + " " + unit
}

// digits3 writes three digits, more before the point.
func digits3(v float64) string {
	places := 0
	switch {
	case v == 0:
		return "0"
	case v < 10:
		places = 2
	case v < 100:
		places = 1
	}
	s := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// thousands writes a whole number with separators.
func thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// caseNotes writes what a reader of the table must know about one case.
func caseNotes(c *CaseReport, several bool) []string {
	var notes []string
	add := func(format string, args ...any) {
		n := fmt.Sprintf(format, args...)
		if several {
			n = c.Name + ": " + n
		}
		notes = append(notes, n)
	}
	for _, n := range c.Notes {
		add("%s", n)
	}
	var full, unsteady []string
	for i := range c.Steps {
		s := &c.Steps[i]
		if s.Saturated {
			full = append(full, s.Name)
		}
		if s.Noisy {
			unsteady = append(unsteady, s.Name)
		}
		if len(s.Errors) > 0 || s.Lost > 0 || s.Stray > 0 {
			add("%s: failed calls by code: %s; lost %d, stray %d", s.Name, codes(s.Errors), s.Lost, s.Stray)
		}
	}
	if len(full) > 0 {
		add("generator saturated at %s: calls/s and latency there are the load's limit", strings.Join(full, ", "))
	}
	if len(unsteady) > 0 {
		add("rounds differ by more than a tenth at %s", strings.Join(unsteady, ", "))
	}
	if m := c.Memory; m != nil {
		add("%s", m.sentence(c.MemoryCap))
	}
	for _, f := range c.Failures {
		add("round %d ended at step %s: %s", f.Round+1, f.Step, f.Error)
	}
	return notes
}

// codes writes counts by code, in the order of the codes.
func codes(errors map[string]int64) string {
	if len(errors) == 0 {
		return "none"
	}
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(errors)) {
		name := code
		if name == "" {
			name = "(none)"
		}
		parts = append(parts, fmt.Sprintf("%s %s", name, thousands(float64(errors[code]))))
	}
	return strings.Join(parts, ", ")
}

func (m *Memory) sentence(limit int64) string {
	s := fmt.Sprintf("%s at rest, %s a worker (line through all rounds: %s)",
		Format(m.Rest/(1<<20), "MiB"), Format(m.Each/(1<<10), "KiB"), Format(m.Slope/(1<<10), "KiB"))
	if m.Fit > 0 {
		s += fmt.Sprintf("; %s idle workers fit %d MiB", thousands(float64(m.Fit)), limit>>20)
	}
	if m.Stop != "" {
		s += fmt.Sprintf("; the kernel stopped it at %s", m.Stop)
	}
	return s
}

func overloadTable(c *CaseReport) Table {
	t := Table{
		Title: "overload of " + c.Name + ", each round",
		Head: []string{
			"offered/s", "served/s", "p99 before", "p99 of accepted", "bound", "refused", "untyped", "lost",
			"RSS peak", "back to normal",
		},
	}
	for _, o := range c.Overload {
		back := "not seen"
		if o.Recovery >= 0 {
			back = "after " + o.Recovery.Round(time.Millisecond).String()
		}
		us := func(d time.Duration) string { return Format(float64(d)/float64(time.Microsecond), "µs") }
		t.Rows = append(t.Rows, []string{
			thousands(o.Offered), thousands(o.Served), us(o.Normal), us(o.P99), us(o.Bound),
			thousands(float64(o.Refused)), thousands(float64(o.Untyped)), thousands(float64(o.Lost)),
			Format(float64(o.RSSPeak)/(1<<20), "MiB"), back,
		})
	}
	return t
}

func (r *Report) environmentTable() Table {
	e := &r.Environment
	t := Table{Title: "where this was measured", Head: []string{"what", "value"}}
	add := func(what, value string) {
		if value != "" {
			t.Rows = append(t.Rows, []string{what, value})
		}
	}
	add("processor", e.CPU)
	add("processors", e.CPUs)
	if e.Hypervisor {
		add("machine", "virtual")
	}
	if e.Memory > 0 {
		add("memory", Format(float64(e.Memory)/(1<<20), "MiB"))
	}
	add("system", strings.TrimSpace(e.OS+" "+e.Kernel))
	add("governor", e.Governor)
	add("load average before", e.Load)
	add("go", e.Go)
	add("plinth", strings.TrimSpace(e.Version+" "+e.Commit))
	add("date", e.Date.UTC().Format(time.RFC3339))
	add("command", strings.Join(r.Command, " "))
	t.Notes = []string{"a cell is the median of the rounds and, in brackets, their range over it"}
	if r.Partial {
		t.Notes = append(t.Notes, "PARTIAL: "+r.Reason)
	}
	return t
}

// WriteText writes the table in columns.
func (t *Table) WriteText(w io.Writer) error {
	rows := append([][]string{t.Head}, t.Rows...)
	width := make([]int, len(t.Head))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	b.WriteString(t.Title + "\n")
	for _, r := range rows {
		var line strings.Builder
		for i, c := range r {
			line.WriteString("  " + c + strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	for _, n := range t.Notes {
		b.WriteString("  - " + n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the table for a page.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("**" + t.Title + "**\n\n")
	escape := strings.NewReplacer("|", `\|`, "\n", " ")
	line := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + escape.Replace(c) + " ")
		}
		b.WriteString("|\n")
	}
	line(t.Head)
	line(slices.Repeat([]string{"---"}, len(t.Head)))
	for _, r := range t.Rows {
		line(r)
	}
	if len(t.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, n := range t.Notes {
		b.WriteString("- " + n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteText writes all tables with a line between them.
func (r *Report) WriteText(w io.Writer) error {
	for i, t := range r.Tables() {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		if err := t.WriteText(w); err != nil {
			return err
		}
	}
	return nil
}

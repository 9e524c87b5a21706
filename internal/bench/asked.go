package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plinth-run/plinth/internal/bench/stat"
)

// Asked is what a scenario is to show, and what it did.
type Asked struct {
	Scenario string    `json:"scenario"`
	Profile  string    `json:"profile,omitempty"`
	What     string    `json:"what"`
	Value    float64   `json:"value"`  // the median of the rounds, or the worst where What says so
	Values   []float64 `json:"values"` // of the rounds
	Bound    float64   `json:"bound"`
	Least    bool      `json:"least,omitempty"` // Bound is the least that is asked for; else the most
	Met      bool      `json:"met"`
}

// ask is a requirement of a scenario: a figure of one case, or its ratio to the same of another.
type ask struct {
	scenario, what string
	of, over       string // names of cases; over "": the figure itself
	figure         string
	bound          float64
	least, worst   bool
}

// asks returns the table of all requirements.
func asks() []ask {
	return []ask{
		{scenario: EngineReplicas, what: "worst deviation of a host from its even share, in %",
			of: fmt.Sprint(replicaHosts, " hosts"), figure: Deviation, bound: 5, worst: true},
		{scenario: EngineKeys, what: "engine CPU per call with keys and rules over that without accounts",
			of: caseKeys, over: caseOpen, figure: CPU, bound: 1.10},
		{scenario: EngineChannels, what: "bytes a second through a channel over those through a bare io.Copy",
			of: caseChannel, over: caseCopy, figure: Throughput, bound: 0.5, least: true},
		{scenario: EngineLogins, what: "p99 of a call with 1,000 logins a minute over that without",
			of: caseLogins, over: caseQuiet, figure: P99, bound: 1.20},
	}
}

// judgeAsked holds a report against what its scenarios ask for; a case without a whole round is left out.
func judgeAsked(r *Report) (all []Asked) {
	for _, a := range asks() {
		for i := range r.Cases {
			c := &r.Cases[i]
			if c.Scenario != a.scenario || !named(c, a.of) || len(c.Steps) == 0 {
				continue
			}
			values := a.values(r, c)
			if len(values) == 0 {
				continue
			}
			v := stat.Median(values)
			if a.worst {
				v = slices.Max(values)
			}
			all = append(all, Asked{Scenario: a.scenario, Profile: c.Profile, What: a.what, Value: v, Values: values,
				Bound: a.bound, Least: a.least, Met: v <= a.bound && !a.least || v >= a.bound && a.least})
		}
	}
	return all
}

// named tells whether a case has a name, with or without that of a program before it.
func named(c *CaseReport, name string) bool {
	return c.Name == name || strings.HasSuffix(c.Name, ", "+name)
}

func (a *ask) values(r *Report, c *CaseReport) []float64 {
	if a.over == "" {
		f, _ := c.Steps[0].Figure(a.figure)
		return f.Values
	}
	for i := range r.Cases {
		d := &r.Cases[i]
		same := d.Scenario == c.Scenario && d.Profile == c.Profile &&
			strings.TrimSuffix(d.Name, a.over) == strings.TrimSuffix(c.Name, a.of)
		if same && named(d, a.over) && len(d.Steps) > 0 {
			return Paired(&c.Steps[0], &d.Steps[0], a.figure)
		}
	}
	return nil
}

// askedTable shows what was asked for and what came out.
func (r *Report) askedTable() Table {
	t := Table{Title: "what is asked for", Head: []string{"scenario", "what", "asked", "measured", "verdict"}}
	for i := range r.Asked {
		a := &r.Asked[i]
		bound, verdict := "at most ", "ok"
		if a.Least {
			bound = "at least "
		}
		if !a.Met {
			verdict = "NOT MET"
		}
		t.Rows = append(t.Rows, []string{strings.TrimSpace(a.Scenario + " " + a.Profile), a.What,
			bound + Format(a.Bound, ""), strings.TrimSpace(Format(a.Value, "") + " " + spread(len(a.Values),
				stat.Spread(a.Values))), verdict})
	}
	return t
}

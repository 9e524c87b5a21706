package bench

import "github.com/plinth-run/plinth/internal/bench/stat"

// judgeMemory reads all rounds of the scenario memory; nil if no round held two sizes.
func judgeMemory(c *CaseReport) *Memory {
	var workers, bytes []float64
	for i := range c.Steps {
		for j := range c.Steps[i].Trials {
			r := &c.Steps[i].Trials[j]
			if r.RSSEnd > 0 {
				workers = append(workers, float64(r.Sessions))
				bytes = append(bytes, float64(r.RSSEnd))
			}
		}
	}
	first, last := ends(c.Steps)
	if first == nil {
		return nil
	}
	low, _ := first.Figure(RSSEnd)
	high, _ := last.Figure(RSSEnd)
	m := &Memory{Most: last.Workers}
	m.Slope, m.Rest = stat.Slope(workers, bytes)
	if first.Workers == 0 {
		m.Rest = low.Median * (1 << 20)
	}
	if n := last.Workers - first.Workers; n > 0 {
		m.Each = (high.Median - low.Median) * (1 << 20) / float64(n)
	}
	for _, f := range c.Failures {
		if f.Killed {
			m.Stop = f.Step
		}
	}
	if c.MemoryCap > 0 && m.Slope > 0 {
		m.Fit = max(0, int((float64(c.MemoryCap)-m.Rest)/m.Slope))
	}
	return m
}

// ends returns the first and the last step with a figure of memory.
func ends(steps []StepReport) (first, last *StepReport) {
	for i := range steps {
		if _, ok := steps[i].Figure(RSSEnd); !ok {
			continue
		}
		if first == nil {
			first = &steps[i]
		}
		last = &steps[i]
	}
	return first, last
}

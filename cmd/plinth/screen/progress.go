package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	redraw    = 100 * time.Millisecond // a bar at most ten times a second
	plainLine = 5 * time.Second        // a plain line every five seconds

	minBar, maxBar = 10, 30 // columns
)

// Progress tells how far a long piece of work is: steps in order, each with a count. What it shows goes
// to one writer, by its mode.
type Progress struct {
	w     io.Writer
	mode  string
	width int // columns of the terminal

	step  step
	shown time.Time // when the last line was written, or the bar drawn
}

// step is the piece under way.
type step struct {
	number, of  int
	name, unit  string
	done, total int64
	begun       time.Time
}

// An Event is one line of --progress json, on stderr.
type Event struct {
	Step    int     `json:"step"` // from 1
	Steps   int     `json:"steps"`
	Name    string  `json:"name"`
	Done    int64   `json:"done"`
	Total   int64   `json:"total"` // 0 when unknown
	Unit    string  `json:"unit"`
	Seconds float64 `json:"seconds"` // since the step began
	State   string  `json:"state"`   // "begin", "running", "end"
}

// NewProgress makes a progress of a mode that ProgressMode gave, on a writer of so many columns (0: 80).
// Close it.
func NewProgress(w io.Writer, mode string, width int) *Progress {
	if width <= 0 {
		width = 80
	}
	return &Progress{w: w, mode: mode, width: width}
}

// Step ends the step under way and begins the next one: "[2/5] name".
func (p *Progress) Step(number, of int, name string, total int64, unit string) {
	p.end()
	p.step = step{number: number, of: of, name: Clean(name), unit: unit, total: total, begun: time.Now()}
	p.shown = p.step.begun
	switch p.mode {
	case Bars:
		p.draw("")
	case Plain:
		p.print(p.step.title())
	}
	p.event("begin")
}

// Update tells how much of the step is done.
func (p *Progress) Update(done int64) {
	p.step.done = done
	switch p.mode {
	case Bars:
		if time.Since(p.shown) >= redraw {
			p.shown = time.Now()
			p.draw("")
		}
	case Plain, JSON:
		if time.Since(p.shown) >= plainLine {
			p.shown = time.Now()
			p.plain("")
			p.event("running")
		}
	}
}

// Close ends the last step and leaves the terminal as it should be.
func (p *Progress) Close() { p.end() }

func (p *Progress) end() {
	if p.step.number == 0 {
		return
	}
	if p.mode == Bars {
		p.draw("\n")
	}
	p.plain(", done")
	p.event("end")
	p.step = step{}
}

// draw writes the line under way anew: "[2/5] calls [====>    ] 40%, 400/1000 calls, 80/s, 5s gone, 7s left".
// The bar has the columns that the words leave, or is left out.
func (p *Progress) draw(end string) {
	s, told := &p.step, p.told(end != "")
	line := s.title() + ": " + told
	room := min(maxBar, p.width-utf8.RuneCountInString(s.title()+told)-len(" [] ")-1)
	if s.total > 0 && room >= minBar {
		full := int(int64(room) * min(s.done, s.total) / s.total)
		bar := strings.Repeat("=", full)
		if full > 0 && full < room {
			bar = bar[1:] + ">"
		}
		line = fmt.Sprintf("%s [%-*s] %s", s.title(), room, bar, told)
	}
	_, _ = fmt.Fprint(p.w, "\r"+cut(line, p.width-1)+"\x1b[K"+end) // as print
}

// plain prints a line such as "[2/5] calls: 40%, 400/1000 calls, 80/s, 5s gone, 7s left".
func (p *Progress) plain(tail string) {
	if p.mode == Plain {
		p.print(p.step.title() + ": " + p.told(tail != "") + tail)
	}
}

// told is how far the step is, in words.
func (p *Progress) told(over bool) string {
	s := &p.step
	text := fmt.Sprintf("%d %s", s.done, s.unit)
	if s.total > 0 {
		text = fmt.Sprintf("%d%%, %d/%d %s", s.done*100/s.total, s.done, s.total, s.unit)
	}
	gone := time.Since(s.begun)
	text += p.rate() + ", " + gone.Round(time.Second).String() + " gone"
	if !over && s.done > 0 && s.total > s.done {
		left := time.Duration(float64(gone) / float64(s.done) * float64(s.total-s.done))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}

// rate is ", 80/s" or empty.
func (p *Progress) rate() string {
	gone := time.Since(p.step.begun).Seconds()
	if gone < 0.1 || p.step.done == 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f/s", float64(p.step.done)/gone)
}

func (s *step) title() string { return fmt.Sprintf("[%d/%d] %s", s.number, s.of, s.name) }

func (p *Progress) event(state string) {
	if p.mode != JSON {
		return
	}
	s := &p.step
	line, err := json.Marshal(Event{s.number, s.of, s.name, s.done, s.total, s.unit,
		time.Since(s.begun).Round(time.Millisecond).Seconds(), state})
	if err == nil {
		p.print(string(line))
	}
}

// print writes a line. A stderr that is gone is no reason to stop the work.
func (p *Progress) print(line string) { _, _ = fmt.Fprintln(p.w, line) }

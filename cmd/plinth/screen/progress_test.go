package screen

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work does two steps in a minute of fake time.
func work(p *Progress) {
	p.Step(1, 2, "warm up", 0, "calls")
	for i := range int64(30) {
		<-time.After(250 * time.Millisecond) // every caller is inside a bubble
		p.Update(i * 10)
	}
	p.Step(2, 2, "64 in\x1b flight", 1000, "calls")
	for i := range int64(40) {
		<-time.After(250 * time.Millisecond) // every caller is inside a bubble
		p.Update((i + 1) * 25)
	}
	p.Close()
}

func TestPlainProgressIsALineEveryFiveSecondsAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		work(NewProgress(&out, Plain, 100))
		want := `[1/2] warm up
[1/2] warm up: 190 calls, 38/s, 5s gone
[1/2] warm up: 290 calls, 39/s, 8s gone, done
[2/2] 64 in  flight
[2/2] 64 in  flight: 50%, 500/1000 calls, 100/s, 5s gone, 5s left
[2/2] 64 in  flight: 100%, 1000/1000 calls, 100/s, 10s gone
[2/2] 64 in  flight: 100%, 1000/1000 calls, 100/s, 10s gone, done
`
		if out.String() != want {
			t.Errorf("got\n%s", out.String())
		}
	})
}

func TestProgressAsJSONIsAnEventALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		work(NewProgress(&out, JSON, 100))
		var states []string
		for line := range strings.Lines(out.String()) {
			var e Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.Steps != 2 || e.Name == "" || e.Unit != "calls" {
				t.Errorf("got %+v", e)
			}
			states = append(states, e.State)
		}
		if got := strings.Join(states, " "); got != "begin running end begin running running end" {
			t.Errorf("got %s", got)
		}
	})
}

func TestQuietProgressSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		work(NewProgress(&out, Quiet, 100))
		if out.Len() != 0 {
			t.Errorf("got %q", out.String())
		}
	})
}

// frames counts the writes of a bar.
type frames struct {
	mu   sync.Mutex
	text bytes.Buffer
	n    int
}

func (f *frames) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	return f.text.Write(b)
}

func TestBarsAreDrawnAtMostTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out frames
		work(NewProgress(&out, Bars, 100)) // 17.5 s of fake time
		if out.n > 185 || out.n < 10 {
			t.Errorf("drawn %d times", out.n)
		}
		text := out.text.String()
		for _, want := range []string{"[1/2] warm up", "[2/2] 64 in  flight", "1000/1000 calls", "/s", "[====="} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %q", want, text[max(0, len(text)-400):])
			}
		}
	})
}

func TestBarFillsTheLineAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, width := range []int{20, 60, 80, 200} {
			var out bytes.Buffer
			work(NewProgress(&out, Bars, width))
			for frame := range strings.SplitSeq(out.String(), "\r") {
				line, rest, drawn := strings.Cut(frame, "\x1b[K")
				if n := len([]rune(line)); n >= width || drawn && rest != "" && rest != "\n" {
					t.Errorf("of %d columns, %d are drawn: %q", width, n, frame)
				}
			}
			if got := strings.Count(out.String(), "\n"); got != 2 {
				t.Errorf("%d steps have %d lines", 2, got)
			}
		}
	})
}

func TestBarGrowsWithTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, Bars, 80)
		p.Step(1, 1, "copy", 4, "files")
		for done := range int64(6) { // one more than there are, as a source may grow
			<-time.After(time.Second)
			p.Update(done)
		}
		p.Close()
		for _, want := range []string{
			"\r[1/1] copy [                              ] 0%, 0/4 files, 0s gone\x1b[K",
			"\r[1/1] copy [======>                     ] 25%, 1/4 files, 0/s, 2s gone, 6s left\x1b[K",
			"] 100%, 4/4 files, 1/s, 5s gone\x1b[K",
			"] 125%, 5/4 files, 1/s, 6s gone\x1b[K\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%q", want, out.String())
			}
		}
	})
}

func TestProgressWithoutStepsCloses(t *testing.T) {
	for _, mode := range []string{Bars, Plain, JSON, Quiet} {
		var out bytes.Buffer
		NewProgress(&out, mode, 100).Close()
		if strings.Contains(out.String(), "done") {
			t.Errorf("%s: got %q", mode, out.String())
		}
	}
}

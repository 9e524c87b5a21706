package house

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A Banner is what `plinth serve` says once its doors are open. Its JSON form is one line; keys are
// only ever added.
type Banner struct {
	Version string   `json:"version"` // "v0.1.0"
	Commit  string   `json:"commit"`
	Go      string   `json:"go"`
	PID     int      `json:"pid"`
	Admin   string   `json:"admin"`   // "http://127.0.0.1:8081", or "" when there is no such door
	Workers string   `json:"workers"` // "ws://127.0.0.1:49134", or ""
	Folder  Folder   `json:"data"`
	Config  string   `json:"config"` // path of the file in use, or ""
	Log     LogInUse `json:"log"`
	Memory  Promise  `json:"memory"`
	Next    string   `json:"next"` // a command to try
}

// LogInUse says where the log goes and what is in it.
type LogInUse struct {
	To     string `json:"to"`
	Format string `json:"format"`
	Level  string `json:"level"`
}

// A Promise is the memory budget.
type Promise struct {
	Bytes int64  `json:"bytes"`
	From  string `json:"from"` // "--memory", or what was detected
}

// WriteJSON writes the banner as one line.
func (b *Banner) WriteJSON(w io.Writer) error {
	line, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write banner: %w", err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// WriteText writes the banner for a person. strong marks what the eye should find first; it may be nil.
func (b *Banner) WriteText(w io.Writer, strong func(string) string) error {
	if strong == nil {
		strong = func(s string) string { return s }
	}
	config := b.Config
	if config == "" {
		config = "no " + FileName + " here: defaults, environment and flags"
	}
	about := []string{b.Go}
	if b.Commit != "" {
		about = []string{b.Commit, b.Go}
	}
	lines := [][2]string{
		{"api", with(b.Admin, "/livez /readyz /metrics")},
		{"workers", with(b.Workers, "for iii-sdk and plinth SDKs")},
		{"data", with(b.Folder.Path, b.Folder.Note)},
		{"config", config},
		{"log", with(b.Log.To, b.Log.Format+", "+b.Log.Level)},
		{"memory", with(RoundSize(b.Memory.Bytes), b.Memory.From)},
		{"next", strong(b.Next)},
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s\n\n", strong("Plinth "+b.Version), "("+strings.Join(about, ", ")+")")
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(&s, "  %-9s%s\n", l[0], l[1])
		}
	}
	s.WriteByte('\n')
	_, err := io.WriteString(w, s.String())
	return err
}

// with adds a note in brackets to what is there.
func with(text, note string) string {
	if text == "" || note == "" {
		return text
	}
	return text + "  (" + note + ")"
}

package house

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update writes it anew. Got:\n%s", name, got)
	}
}

func banner() *Banner {
	return &Banner{
		Version: "v0.1.0", Commit: "0123abc", Go: "go1.26.0", PID: 4711,
		Admin: "http://127.0.0.1:8081", Workers: "ws://127.0.0.1:49134",
		Folder: Folder{Path: "/srv/plinth-data", Persists: true, Note: "kept between starts"},
		Config: "plinth.toml", Log: LogInUse{"stderr", "text", "info"},
		Memory: Promise{3 << 29, "three quarters of the cgroup"},
		Next:   "plinth call hello::greet name=Ann",
	}
}

func TestBannerTellsAPersonWhereEverythingIs(t *testing.T) {
	var full, bare bytes.Buffer
	if err := banner().WriteText(&full, nil); err != nil {
		t.Fatal(err)
	}
	golden(t, "banner.txt", full.Bytes())
	b := banner()
	b.Commit, b.Config, b.Admin, b.Next = "", "", "", ""
	if err := b.WriteText(&bare, strings.ToUpper); err != nil {
		t.Fatal(err)
	}
	golden(t, "banner-bare.txt", bare.Bytes())
}

func TestBannerIsOneLineOfJSON(t *testing.T) {
	var out bytes.Buffer
	if err := banner().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "banner.json", out.Bytes())
	var back Banner
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != *banner() {
		t.Errorf("got %+v, %v", back, err)
	}
	if bytes.Count(out.Bytes(), []byte("\n")) != 1 {
		t.Error("more than one line")
	}
}

func TestLoggerFollowsItsSettings(t *testing.T) {
	for _, c := range []struct {
		format, level string
		want          string
	}{{"text", "warn", "level=WARN"}, {"json", "info", `"level":"INFO"`}} {
		var out bytes.Buffer
		l := slog.New(NewLogger(&out, load(t, Sources{Flags: map[string]string{"log.format": c.format,
			"log.level": c.level}})))
		l.Info("one")
		l.Warn("two")
		first, _, _ := strings.Cut(out.String(), "\n")
		if !strings.Contains(first, c.want) {
			t.Errorf("%s %s: got %q", c.format, c.level, out.String())
		}
	}
}

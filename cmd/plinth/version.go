package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// release is the version of a build that does not come from a tagged module.
const release = "v0.1.0-dev"

// build is what this executable was made from, as `plinth version --json` prints it.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // "" when the build did not record it
	Time    string `json:"time"`   // of the commit, RFC 3339, or ""
	Dirty   bool   `json:"dirty"`  // the tree had changes that were not committed
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// readBuild reads what the Go linker left in the executable.
func readBuild(read func() (*debug.BuildInfo, bool)) build {
	b := build{Version: release, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	about, ok := read()
	if !ok {
		return b
	}
	if v := about.Main.Version; strings.HasPrefix(v, "v") {
		b.Version = v
	}
	for _, s := range about.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		}
	}
	return b
}

// short is the beginning of the commit, with a mark when the tree was dirty.
func (b build) short() string {
	commit := b.Commit[:min(len(b.Commit), 12)]
	if commit != "" && b.Dirty {
		commit += "+"
	}
	return commit
}

func newVersion(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", GroupID: groupLook,
		Example: "  plinth version --json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild(debug.ReadBuildInfo)
			if p.wantJSON() {
				return p.printJSON(b)
			}
			about := []string{b.Go, b.OS + "/" + b.Arch}
			if commit := b.short(); commit != "" {
				about = append([]string{commit}, about...)
			}
			return p.print(fmt.Sprintf("plinth %s (%s)\n", b.Version, strings.Join(about, ", ")))
		},
	}
	return p.prints(cmd, formObject, build{})
}

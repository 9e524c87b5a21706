package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionTellsWhatTheLinkerLeft(t *testing.T) {
	tagged := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-11-30T00:00:00Z"},
		{Key: "vcs.modified", Value: "true"}, {Key: "GOOS", Value: "linux"},
	}}
	b := readBuild(func() (*debug.BuildInfo, bool) { return tagged, true })
	if b.Version != "v1.2.3" || b.Commit != "0123456789abcdef0123" || b.Time == "" || !b.Dirty ||
		b.short() != "0123456789ab+" {
		t.Errorf("got %+v, short %s", b, b.short())
	}
	for name, read := range map[string]func() (*debug.BuildInfo, bool){
		"none":  func() (*debug.BuildInfo, bool) { return nil, false },
		"devel": func() (*debug.BuildInfo, bool) { return &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, true },
	} {
		b := readBuild(read)
		if b.Version != release || b.Commit != "" || b.Dirty || b.short() != "" || !strings.HasPrefix(b.Go, "go") {
			t.Errorf("%s: got %+v", name, b)
		}
	}
}

package load

import (
	"strings"
	"testing"

	"github.com/plinth-run/plinth/worker/workertest"
)

func TestBytesGoThroughAChannelOfTheSDK(t *testing.T) {
	e := workertest.New(t)
	e.Require("wk_secret")
	address, err := e.URL()
	if err != nil {
		t.Fatal(err)
	}
	job := &Job{Dialect: "channel", Target: strings.Replace(address, "ws://", "ws://any:wk_secret@", 1)}
	job.Steps = []Step{{Name: "a", Bytes: 1}, {Name: "b", Bytes: 3<<20 + 7}}
	results, _, err := do(t.Context(), job, Protocols{Pipes: map[string]Plumb{"channel": PlumbChannel}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if want := job.Steps[i].Bytes; r.Bytes != want {
			t.Errorf("step %s: %d bytes, want %d", r.Step.Name, r.Bytes, want)
		}
	}
}

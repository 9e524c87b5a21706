package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/bench/load/loadtest"
)

func TestAJobComesInAndResultsGoOutAsLinesOfJSON(t *testing.T) {
	job := Job{Dialect: "frames", Target: relay(t, &loadtest.Relay{}), Callers: 1, Hosts: 1, Payload: 64}
	job.Steps = []Step{quick("only", 4)}
	b, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	defer feed.Close()
	go feed.Write(append(b, '\n', Seen))
	var out bytes.Buffer
	if err := Serve(t.Context(), in, &out, sockets); err != nil {
		t.Fatal(err)
	}
	var last Event
	for s := bufio.NewScanner(&out); s.Scan(); {
		var ev Event
		if err := json.Unmarshal(s.Bytes(), &ev); err != nil {
			t.Fatalf("%s: %v", s.Bytes(), err)
		}
		if ev.Kind == KindResult && (ev.Result.Step.Name != "only" || ev.Result.Calls == 0 || ev.Result.Own <= 0) {
			t.Errorf("result %+v", ev.Result)
		}
		last = ev
	}
	if last.Kind != KindDone {
		t.Fatalf("the last event is %+v", last)
	}
}

func TestTheLoadEndsWithTheProcessThatStartedIt(t *testing.T) {
	job := Job{Dialect: "frames", Target: relay(t, &loadtest.Relay{}), Callers: 1, Hosts: 1, Payload: 64}
	job.Steps = []Step{{Name: "long", InFlight: 1, Measure: time.Hour}}
	b, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	out, w := io.Pipe()
	ended := make(chan error)
	go func() {
		err := Serve(t.Context(), in, w, sockets)
		w.Close()
		ended <- err
	}()
	if _, err := feed.Write(b); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, string(KindWindow)) {
			break
		}
	}
	feed.Close()
	rest, _ := io.ReadAll(lines)
	if err := <-ended; err == nil || !strings.Contains(string(rest), string(KindFailed)) {
		t.Fatalf("it ended with %v after %s", err, rest)
	}
}

func TestAJobThatIsNoJSONIsRefused(t *testing.T) {
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader("{"), &out, sockets); err == nil {
		t.Fatal("no error")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("nobody listens") }

func TestALoadNobodyListensToEnds(t *testing.T) {
	job := Job{Dialect: "frames", Target: relay(t, &loadtest.Relay{}), Callers: 1, Hosts: 1, Payload: 64}
	job.Steps = []Step{{Name: "long", InFlight: 1, Measure: time.Hour}}
	b, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	defer feed.Close()
	go feed.Write(b)
	err = Serve(t.Context(), in, brokenWriter{}, sockets)
	if err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Fatalf("got %v", err)
	}
}

package nats

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/plinth-run/plinth/internal/bench/load"
)

// start runs a NATS server until the test ends.
func start(t *testing.T) (target string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server takes no connections")
	}
	return s.Addr().String()
}

func TestEveryRequestIsAnsweredBothWays(t *testing.T) {
	target := start(t)
	p := load.Protocols{
		Loop:    map[string]load.Dial{"raw": DialRaw},
		Library: map[string]load.Connect{"client": Connect},
	}
	for _, job := range []load.Job{
		{Dialect: "raw", Callers: 2, Hosts: 2, Payload: 64},
		{Dialect: "raw", Callers: 1, Hosts: 3, Payload: 100_000, Plain: true},
		{Dialect: "client", Callers: 2, Hosts: 2, Payload: 64},
	} {
		job.Target = target
		job.Steps = []load.Step{
			{Name: "1", InFlight: 1, Measure: 50 * time.Millisecond},
			{Name: "20", InFlight: 20, Measure: 100 * time.Millisecond},
		}
		err := load.Do(t.Context(), &job, p, func(ev load.Event) {
			if r := ev.Result; r != nil && (r.Lost != 0 || r.Stray != 0 || len(r.Errors) != 0) {
				t.Errorf("%s, %d bytes, %s in flight: lost %d, stray %d, errors %v",
					job.Dialect, job.Payload, r.Step.Name, r.Lost, r.Stray, r.Errors)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestARequestThatNobodyServesFailsWithACode(t *testing.T) {
	job := &load.Job{Target: start(t), Callers: 1, Hosts: 1}
	s, err := Connect(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.(*session).subjects[0] = "nobody.there"
	if code := s.Call(t.Context(), 0, 0, []byte("x")); code != "no_responders" {
		t.Errorf("the code is %q", code)
	}
}

func TestNobodyThereIsAnError(t *testing.T) {
	if _, err := DialRaw(t.Context(), "127.0.0.1:1", load.Caller, 0); err == nil {
		t.Error("raw: no error")
	}
	if _, err := Connect(t.Context(), &load.Job{Target: "127.0.0.1:1", Hosts: 1}); err == nil {
		t.Error("client: no error")
	}
}

// fake is the server's end of an opening.
func fake(t *testing.T, says string) (greeting string, err error) {
	t.Helper()
	here, there := net.Pipe()
	got := make(chan string)
	go func() {
		b := make([]byte, 4096)
		n, _ := there.Read(b)
		_, _ = there.Write([]byte(says))
		there.Close()
		got <- string(b[:n])
	}()
	s := &speaker{inbox: "_INBOX.x."}
	err = s.open(here, load.Host, 3)
	here.Close()
	return <-got, err
}

func TestAConnectionOpensOnceTheServerHasAnswered(t *testing.T) {
	greeting, err := fake(t, "INFO {\"a\":1}\r\nPONG\r\n")
	if err != nil || !strings.Contains(greeting, "SUB bench.echo3 1\r\nPING\r\n") {
		t.Errorf("%v after %q", err, greeting)
	}
	for _, says := range []string{"", "INFO {}\r\n-ERR 'no'\r\n", strings.Repeat("x", 2*maxLine)} {
		if _, err := fake(t, says); err == nil {
			t.Errorf("%.20q opens a connection", says)
		}
	}
}

// feed gives bytes to a speaker that has one call open, in steps of n.
func feed(b []byte, n int) (used int, err error) {
	s := &speaker{inbox: "_INBOX.x."}
	c := load.Detached(s)
	for at := 0; at < len(b); {
		end := min(at+n, len(b))
		used, err := s.Feed(c, bytes.Clone(b[at:end]))
		if err != nil {
			return at, err
		}
		if used == 0 {
			if end == len(b) {
				return at, nil
			}
			n += 16
			continue
		}
		at += used
	}
	return len(b), nil
}

func TestLinesThatMakeNoSenseAreErrors(t *testing.T) {
	for _, line := range []string{
		"MSG a\r\n", "MSG a 1 b c 5\r\n", "MSG a 1 x\r\n", "MSG a 1 -5\r\n", "MSG a 1 9999999999\r\n",
		"HMSG a 1 9 5\r\n", "HMSG a 1 5\r\n", "-ERR 'slow'\r\n", strings.Repeat("x", 2*maxLine),
	} {
		if _, err := feed([]byte(line), 1<<20); err == nil {
			t.Errorf("%.20q is taken", line)
		}
	}
	for _, line := range []string{
		"+OK\r\n", "PONG\r\n", "INFO {}\r\n", "MSG a 1 2\r\nhi\r\n", "HMSG a 1 1 3\r\n\nhi\r\n",
	} {
		if used, err := feed([]byte(line), 1<<20); err != nil || used != len(line) {
			t.Errorf("%q: %d, %v", line, used, err)
		}
	}
}

func FuzzFeed(f *testing.F) {
	f.Add([]byte("MSG a 1 2\r\nhi\r\n+OK\r\n"), 3)
	f.Add([]byte("HMSG _INBOX.x.AAAAAAAAAAA 1 q 3 5\r\nabchi\r\nPING\r\nMSG a 1 r 1\r\nx\r\n"), 100)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		used, _ := feed(b, max(1, min(n, 1<<10)))
		if used > len(b) {
			t.Fatalf("%d bytes of %d were read", used, len(b))
		}
	})
}

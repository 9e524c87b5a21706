package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/internal/fault"
)

func TestQueryFilters(t *testing.T) {
	tr := open(t, Options{FS: memory(t), MaxBytes: 500})
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for n, e := range []Event{
		{Actor: Actor{Kind: "user", ID: "u1", Name: "ada"}, Action: "user.create", Outcome: OK},
		{Actor: Actor{Kind: "user", ID: "u2", Name: "bob"}, Action: "user", Outcome: Denied},
		{Actor: Actor{Kind: "key", ID: "k1", Name: "ada"}, Action: "userland.x", Outcome: Failed},
		{Actor: Actor{Kind: "none"}, Action: "login", Outcome: Denied, Reason: "wrong"},
	} {
		e.Time, e.Target = start.Add(time.Duration(n)*time.Minute), fmt.Sprint(n)
		ok(t, tr.Write(t.Context(), e))
	}
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"everything":          {Query{}, "0123"},
		"actor by name":       {Query{Actor: "ada"}, "02"},
		"actor by id":         {Query{Actor: "u2"}, "1"},
		"no such actor":       {Query{Actor: "a"}, ""},
		"action":              {Query{Action: "login"}, "3"},
		"action and beneath":  {Query{Action: "user"}, "01"},
		"part of an action":   {Query{Action: "log"}, ""},
		"outcome":             {Query{Outcome: Denied}, "13"},
		"two things":          {Query{Outcome: Denied, Action: "user"}, "1"},
		"after is inclusive":  {Query{After: start.Add(2 * time.Minute)}, "23"},
		"before is exclusive": {Query{Before: start.Add(2 * time.Minute)}, "01"},
		"between":             {Query{After: start.Add(time.Minute), Before: start.Add(2 * time.Minute)}, "1"},
	} {
		for limit := range 4 {
			c.q.Limit = limit
			if got := strings.Join(all(t, tr, c.q), ""); got != c.want {
				t.Errorf("%s, limit %d: %s, want %s", name, limit, got, c.want)
			}
		}
	}
}

func TestPagesStayWholeWhileLinesComeAndFilesGo(t *testing.T) {
	tr := open(t, Options{FS: memory(t), MaxBytes: 700, Keep: 3})
	for n := range 20 {
		ok(t, tr.Write(t.Context(), event(n)))
	}
	var got []string
	q := Query{Limit: 2}
	for n := 20; ; n++ {
		events, next, err := tr.Query(q)
		ok(t, err)
		for _, e := range events {
			got = append(got, e.Target)
		}
		if next == "" {
			break
		}
		q.Cursor = next
		ok(t, tr.Write(t.Context(), event(n))) // changes names, and removes the oldest files now and then
	}
	slices.Reverse(got)
	wantTargets(t, got, 20-len(got), 20)
	if len(got) < 4 {
		t.Errorf("only %d lines were read", len(got))
	}
}

func TestACursorWhoseFileIsGoneEndsThePages(t *testing.T) {
	tr := open(t, Options{FS: memory(t), MaxBytes: 1, Keep: 1})
	ok(t, tr.Write(t.Context(), event(0)))
	_, next, err := tr.Query(Query{Limit: 1})
	ok(t, err)
	for n := range 4 {
		ok(t, tr.Write(t.Context(), event(n)))
	}
	events, next, err := tr.Query(Query{Cursor: next})
	if err != nil || len(events) != 0 || next != "" {
		t.Errorf("%v, %q, %v", events, next, err)
	}
}

func TestAQueryReadsABoundedPart(t *testing.T) {
	tr := open(t, Options{FS: memory(t), MaxBytes: 64 << 20})
	fill := strings.Repeat("\x01", 512)
	line, err := encode(Event{Time: time.Unix(1, 0), Action: "a", Outcome: OK, Reason: fill, Target: fill,
		Door: fill, Remote: fill, Trace: fill})
	ok(t, err)
	var lines []byte
	for range maxBytes/len(line) - 1 {
		lines = append(lines, line...)
	}
	for range 3 {
		ok(t, tr.put(t.Context(), lines, 1))
	}
	events, next, err := tr.Query(Query{Action: "login"})
	if err != nil || len(events) != 0 || next == "" {
		t.Fatalf("%d events, next %q, %v: want an empty page that goes on", len(events), next, err)
	}
	events, next, err = tr.Query(Query{Action: "login", Cursor: next})
	if err != nil || len(events) != 0 || next != "" {
		t.Fatalf("%d events, next %q, %v: want the end", len(events), next, err)
	}
}

func TestOnlyCursorsOfPagesAreTaken(t *testing.T) {
	tr := open(t, Options{FS: memory(t)})
	ok(t, tr.Write(t.Context(), event(0)))
	for _, text := range []string{"x", "!", cursor{strings.Repeat("a", 12), -1}.String(), "YWFhYWFhYWFhYWFh",
		strings.Repeat("Y", 1000)} {
		if _, _, err := tr.Query(Query{Cursor: text}); fault.CodeOf(err) != "BAD_CURSOR" ||
			fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
	sum, err := firstSum(tr.current, tr.size)
	ok(t, err)
	// One that points behind the end, or into a line, gives nothing that is not there.
	for _, offset := range []int64{1, 10, 1 << 40} {
		events, _, err := tr.Query(Query{Cursor: cursor{sum, offset}.String()})
		if err != nil || len(events) != 0 {
			t.Errorf("offset %d: %v, %v", offset, events, err)
		}
	}
}

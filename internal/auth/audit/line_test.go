package audit

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestALineIsJSONInSnakeCase(t *testing.T) {
	line, err := encode(Event{
		Time:  time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)),
		Actor: Actor{Kind: "user", ID: "u1", Name: "ada"}, Action: "key.revoke", Target: "wk_1", Outcome: Denied,
		Reason: "no\nway", Remote: "::1", Door: "admin", Trace: "00", Count: 2,
	})
	ok(t, err)
	want := `{"time":"2026-01-02T02:04:05.000000006Z","actor":{"kind":"user","id":"u1","name":"ada"},` +
		`"action":"key.revoke","target":"wk_1","outcome":"denied","reason":"no\nway","remote":"::1",` +
		`"door":"admin","trace":"00","count":2}` + "\n"
	if string(line) != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
}

func TestTheLargestEventFitsALine(t *testing.T) {
	for _, fill := range []string{"\x01", "\xff", "é", "<", "\u2028"} {
		s := strings.Repeat(fill, 2000)
		line, err := encode(Event{Time: time.Unix(1, 0), Actor: Actor{s, s, s}, Action: s, Target: s, Outcome: s,
			Reason: s, Remote: s, Door: s, Trace: s})
		ok(t, err)
		if len(line) > maxLine/2 {
			t.Errorf("%q: %d bytes", fill, len(line))
		}
		e, err := decode(line[:len(line)-1])
		ok(t, err)
		if len(e.Reason) > maxText || !utf8.ValidString(e.Reason) {
			t.Errorf("%q: reason of %d bytes", fill, len(e.Reason))
		}
	}
}

func TestANewerLineIsRead(t *testing.T) {
	e, err := decode([]byte(`{"time":"2026-01-02T03:04:05Z","action":"a","outcome":"ok","planet":{"x":[1]}}`))
	if err != nil || e.Action != "a" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestLinesAreReadBackwards(t *testing.T) {
	var text bytes.Buffer
	var want []string
	for n := range 500 {
		line := strings.Repeat("x", n*7%1000)
		want = append(want, line)
		text.WriteString(line + "\n")
	}
	slices.Reverse(want)
	b := backward{r: bytes.NewReader(text.Bytes()), at: int64(text.Len())}
	var got []string
	for {
		line, start, err := b.next()
		if errors.Is(err, io.EOF) {
			break
		}
		ok(t, err)
		if !bytes.HasPrefix(text.Bytes()[start:], append(bytes.Clone(line), '\n')) {
			t.Fatalf("line %d does not start at %d", len(got), start)
		}
		got = append(got, string(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzDecode: no line breaks the decoder, and what it reads is written and read again unchanged.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decode(line)
		if err != nil {
			return
		}
		again, err := encode(e)
		if err != nil {
			t.Fatalf("%+v is read and cannot be written: %v", e, err)
		}
		once, err := decode(again[:len(again)-1])
		if err != nil {
			t.Fatalf("%s is written and cannot be read: %v", again, err)
		}
		twice, err := encode(once)
		if err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("%s became %s (%v)", again, twice, err)
		}
	})
}

// FuzzBackward: whatever a file holds, its lines read backwards are those read forwards, but for the parts
// of lines that are too long.
func FuzzBackward(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		b := backward{r: bytes.NewReader(text), at: int64(len(text)), whole: true}
		var got [][]byte
		for {
			line, _, err := b.next()
			if errors.Is(err, io.EOF) {
				break
			}
			ok(t, err)
			got = append(got, bytes.Clone(line))
		}
		slices.Reverse(got)
		joined := bytes.Join(got, []byte("\n"))
		if want := bytes.TrimSuffix(text, []byte("\n")); len(text) < maxLine && !bytes.Equal(joined, want) {
			t.Fatalf("%q was read as %q", want, joined)
		}
	})
}

package audit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/internal/store/storetest"
)

func refused(remote string) Event {
	return Event{Actor: Actor{Kind: "none"}, Action: "credential.refuse", Outcome: Denied, Remote: remote}
}

func TestAFloodOfNotesIsOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := open(t, Options{FS: memory(t)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- tr.Run(ctx) }() // ends with cancel
		for range 2 {
			for range 1000 {
				tr.Note(refused("10.0.0.1"))
			}
			tr.Note(refused("10.0.0.2"))
			time.Sleep(noteEvery)
			synctest.Wait()
		}
		events, _, err := tr.Query(Query{})
		ok(t, err)
		if len(events) != 4 || events[1].Count != 1000 || events[0].Count != 1 || events[1].Remote != "10.0.0.1" {
			t.Errorf("%+v", events)
		}
		if s := tr.Stats(); s.Syncs != 2 || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
		cancel()
		ok(t, <-ended)
	})
}

func TestWhatIsTooManyKindsIsDroppedAndTold(t *testing.T) {
	mem := memory(t)
	tr := open(t, Options{FS: mem})
	for n := range maxNotes + 44 {
		tr.Note(refused(fmt.Sprint(n)))
	}
	if s := tr.Stats(); s.Dropped != 44 {
		t.Errorf("dropped %d, want 44", s.Dropped)
	}
	ok(t, tr.Close())
	events, _, err := open(t, Options{FS: mem}).Query(Query{Limit: 1000})
	ok(t, err)
	if len(events) != maxNotes+1 || events[0].Action != "audit.drop" || events[0].Count != 44 {
		t.Errorf("%d events, the last %+v", len(events), events[0])
	}
}

func TestNotesThatTheDiskRefusedAreToldLater(t *testing.T) {
	mem := memory(t)
	f := storetest.NewFault(mem, storetest.Variants()[0], 0)
	tr := open(t, Options{FS: f})
	tr.Note(refused("a"))
	tr.Note(refused("a"))
	f.Arm(1)
	tr.flush()
	f.Heal()
	if s := tr.Stats(); s.Dropped != 2 || s.Lines != 0 {
		t.Fatalf("%+v", s)
	}
	tr.flush()
	events, _, err := tr.Query(Query{})
	ok(t, err)
	if len(events) != 1 || events[0].Action != "audit.drop" || events[0].Count != 2 {
		t.Errorf("%+v", events)
	}
}

func TestTheLastNotesAreWrittenAtTheEnd(t *testing.T) {
	mem := memory(t)
	tr := open(t, Options{FS: mem})
	tr.Note(refused("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ok(t, tr.Run(ctx))
	if got := all(t, open(t, Options{FS: mem}), Query{}); len(got) != 1 {
		t.Errorf("%d lines", len(got))
	}
}

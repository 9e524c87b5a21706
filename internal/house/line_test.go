package house

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stalled takes nothing until it is opened.
type stalled struct {
	open chan struct{}
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *stalled) Write(b []byte) (int, error) {
	<-s.open
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func TestLinesArriveInOrderAndWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{open: make(chan struct{})}
		close(out.open)
		l := NewLines(out)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		var want strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&want, "line %d\n", i)
			if n, err := fmt.Fprintf(l, "line %d\n", i); err != nil || n == 0 {
				t.Fatal(n, err)
			}
		}
		cancel()
		<-ended
		if out.text.String() != want.String() || l.Dropped() != 0 {
			t.Errorf("got %d bytes, want %d, dropped %d", out.text.Len(), want.Len(), l.Dropped())
		}
	})
}

func TestReaderThatStopsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{open: make(chan struct{})}
		l := NewLines(out)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		line := []byte(strings.Repeat("x", 1023) + "\n")
		_, _ = l.Write(line)
		synctest.Wait() // the first line is stuck in the write
		const more = 3000
		for range more {
			if _, err := l.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		if fit := uint64(lineBuffer / len(line)); l.Dropped() != more-fit {
			t.Errorf("dropped %d, want %d", l.Dropped(), more-fit)
		}
		close(out.open)
		synctest.Wait()
		if got := out.text.String(); !strings.HasSuffix(got, fmt.Sprintf("%d log lines were dropped: nobody read them in time\n",
			l.Dropped())) {
			t.Errorf("the end is %q", got[max(0, len(got)-100):])
		}
		cancel()
		<-ended
	})
}

func TestStoppedReaderDoesNotKeepTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{open: make(chan struct{})}
		l := NewLines(out)
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = l.Write([]byte("x\n"))
		cancel()
		before := time.Now()
		l.Run(ctx)
		if took := time.Since(before); took != lastCall {
			t.Errorf("took %v", took)
		}
		close(out.open)
	})
}

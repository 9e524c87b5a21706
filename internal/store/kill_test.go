package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/plinth-run/plinth/internal/store"
)

// childEnv makes the test binary a process that appends to the log in that folder until it is killed.
const childEnv = "PLINTH_STORE_CHILD"

// killWriters is how many goroutines of the child append at once.
const killWriters = 8

// child appends, and prints a line for every acknowledgement: "ack <position> <number>" for a record, "cut
// <position>" before a truncation.
func child() int {
	l, err := store.OpenLog(store.OS(), os.Getenv(childEnv), store.LogOptions{SegmentBytes: 16 << 10})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx := context.Background()
	go func() { // ends with the process
		if err := l.Run(ctx); err != nil {
			fmt.Println("error", err)
		}
	}()
	var all sync.WaitGroup
	for w := range uint64(killWriters) {
		all.Go(func() {
			for n := l.Last() + w; ; n += killWriters {
				position, err := l.Append(ctx, record(n, int(n*37%900)))
				if err != nil {
					fmt.Println("error", err)
					return
				}
				fmt.Println("ack", position, n)
				if w == 0 && position > 40 && n%5 == 0 {
					at := position - 20
					fmt.Println("cut", at)
					if err := l.Snapshot(at, snapshotOf(at)); err != nil {
						fmt.Println("error", err)
					}
					if err := l.Truncate(at + 1); err != nil {
						fmt.Println("error", err)
					}
				}
			}
		})
	}
	all.Wait()
	return 1
}

// TestAckedRecordSurvivesKill kills a real process with SIGKILL while eight goroutines append, at a random
// acknowledgement, and starts the next on what it left.
func TestAckedRecordSurvivesKill(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	r := rand.New(rand.NewPCG(seed(t), 9))
	dir := t.TempDir()
	acked := map[uint64]uint64{} // position to number
	floor, kept := uint64(1), 0
	for round := range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0]) // killed with the test at the latest
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out := must(cmd.StdoutPipe())(t)
		ok(t, cmd.Start())
		lines := bufio.NewScanner(out)
		left := 1 + r.IntN(150)
		for lines.Scan() {
			var position, n uint64
			line := lines.Text()
			if _, err := fmt.Sscanf(line, "ack %d %d", &position, &n); err == nil {
				if old, twice := acked[position]; twice {
					t.Fatalf("round %d: position %d was acknowledged for %d and for %d", round, position, old,
						n)
				}
				acked[position] = n
			} else if _, err := fmt.Sscanf(line, "cut %d", &position); err == nil {
				floor = max(floor, position+1)
			} else {
				t.Fatalf("round %d: the child says: %s", round, line)
			}
			if left--; left == 0 {
				ok(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // killed
		// Every acknowledgement that was printed counts, also those after the kill was sent.
		l := must(store.OpenLog(store.OS(), dir, store.LogOptions{}))(t)
		if l.First() > floor {
			t.Fatalf("round %d: the log starts at %d, cut was %d", round, l.First(), floor)
		}
		reader := must(l.Reader(0))(t)
		found := map[uint64]uint64{}
		for {
			position, b, err := reader.Next()
			if err == io.EOF {
				break
			}
			ok(t, err)
			n, good := number(b)
			if !good {
				t.Fatalf("round %d: position %d holds %.40q", round, position, b)
			}
			found[position] = n
		}
		ok(t, reader.Close())
		for position, n := range acked {
			if position < l.First() {
				continue
			}
			if got, there := found[position]; !there || got != n {
				t.Fatalf("round %d: position %d was acknowledged for %d and holds %d (%v)", round, position,
					n, got, there)
			}
			kept++
		}
		// What is there now is durable for the next process, acknowledged or not.
		for position, n := range found {
			acked[position] = n
		}
		ok(t, l.Close())
	}
	t.Logf("%d kills, %d records acknowledged, %d times looked up, 0 lost", rounds, len(acked), kept)
}

package store_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/store/storetest"
)

// machine compares a log with the model of one: a slice of records and a floor.
type machine struct {
	mem      *storetest.Mem
	opts     store.LogOptions
	log      *store.Log
	run      *running
	records  [][]byte // of the model; position i+1 is records[i]
	floor    uint64
	snapshot uint64
	random   *rand.Rand
	reader   *store.Reader
	next     uint64 // position that the reader must give next
}

func (m *machine) last() uint64 { return uint64(len(m.records)) }

func (m *machine) open(t *rapid.T) {
	var err error
	next := max(m.floor, m.snapshot+1)
	opts := m.opts
	opts.Replay = func(position uint64, b []byte) error {
		if position != next || position > m.last() || !slices.Equal(b, m.records[position-1]) {
			return fmt.Errorf("replayed %d as %.20q, due is %d", position, b, next)
		}
		next++
		return nil
	}
	opts.Snapshot = func(position uint64, r io.Reader) error {
		if b, err := io.ReadAll(r); err != nil || position != m.snapshot ||
			string(b) != fmt.Sprint("state ", position) {
			return fmt.Errorf("the snapshot at %d is %q: %v", position, b, err)
		}
		return nil
	}
	if m.log, err = store.OpenLog(m.mem, "/data/log", opts); err != nil {
		t.Fatal(err)
	}
	if next != m.last()+1 {
		t.Fatalf("replayed up to %d of %d", next-1, m.last())
	}
	m.run = start(m.log)
	m.follow(t, 0)
}

func (m *machine) follow(t *rapid.T, from uint64) {
	var err error
	if m.reader, err = m.log.Reader(from); err != nil {
		t.Fatal(err)
	}
	m.next = m.reader.Position()
}

// close stops the log in order.
func (m *machine) close(t *rapid.T) {
	if err := errors.Join(m.reader.Close(), m.run.stop()); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) append(t *rapid.T, sizes []int) {
	type answer struct {
		position uint64
		err      error
	}
	answers := make(chan answer, len(sizes))
	for i, size := range sizes {
		b := make([]byte, size)
		for k := range b {
			b[k] = byte(len(m.records) + i + k)
		}
		m.records = append(m.records, b)
		if err := m.log.AppendAsync(b, func(p uint64, err error) { answers <- answer{p, err} }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sizes {
		a := <-answers
		if want := m.last() - uint64(len(sizes)-1-i); a.err != nil || a.position != want {
			t.Fatalf("position %d, want %d: %v", a.position, want, a.err)
		}
	}
}

// Check runs after every action.
func (m *machine) Check(t *rapid.T) {
	if m.log.First() != m.floor || m.log.Last() != m.last() {
		t.Fatalf("the log holds %d to %d, the model %d to %d", m.log.First(), m.log.Last(),
			m.floor, m.last())
	}
}

// Append appends a group.
func (m *machine) Append(t *rapid.T) {
	m.append(t, rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 12).Draw(t, "sizes"))
}

// Read goes on with the reader.
func (m *machine) Read(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "records") {
		position, b, err := m.reader.Next()
		switch {
		case err == io.EOF && m.next == m.last()+1:
			return
		case errors.Is(err, store.ErrGone) && m.next < m.floor:
			if err := m.reader.Close(); err != nil {
				t.Fatal(err)
			}
			m.follow(t, m.floor)
		case err != nil || position != m.next || !slices.Equal(b, m.records[position-1]):
			t.Fatalf("read %d as %.20q, due is %d: %v", position, b, m.next, err)
		default:
			m.next++
		}
	}
}

// Seek starts another reader.
func (m *machine) Seek(t *rapid.T) {
	from := rapid.Uint64Range(1, m.last()+2).Draw(t, "from")
	r, err := m.log.Reader(from)
	switch {
	case from < m.floor:
		if !errors.Is(err, store.ErrGone) {
			t.Fatalf("position %d below %d: %v", from, m.floor, err)
		}
	case from > m.last()+1:
		if !errors.Is(err, store.ErrAhead) {
			t.Fatalf("position %d beyond %d: %v", from, m.last(), err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		if err := m.reader.Close(); err != nil {
			t.Fatal(err)
		}
		m.reader, m.next = r, from
	}
}

// Snapshot stores a snapshot, if it may be.
func (m *machine) Snapshot(t *rapid.T) {
	at := rapid.Uint64Range(0, m.last()+1).Draw(t, "at")
	err := m.log.Snapshot(at, func(w io.Writer) error {
		_, err := fmt.Fprint(w, "state ", at)
		return err
	})
	if good := at <= m.last() && at > m.snapshot && at+1 >= m.floor; good != (err == nil) {
		t.Fatalf("snapshot at %d after %d: %v", at, m.snapshot, err)
	} else if good {
		m.snapshot = at
	}
}

// Truncate gives records up, if it may be.
func (m *machine) Truncate(t *rapid.T) {
	before := rapid.Uint64Range(0, m.last()+2).Draw(t, "before")
	err := m.log.Truncate(before)
	if (before <= m.last()+1) != (err == nil) {
		t.Fatalf("truncate before %d: %v", before, err)
	}
	if err == nil {
		m.floor = max(m.floor, before)
	}
}

// Restart stops in order.
func (m *machine) Restart(t *rapid.T) {
	m.close(t)
	m.open(t)
}

// Kill goes on from what a killed process leaves.
func (m *machine) Kill(t *rapid.T) {
	killed := m.mem.Clone()
	m.close(t)
	m.mem = killed
	m.open(t)
}

// Power goes on from what a loss of power leaves.
func (m *machine) Power(t *rapid.T) {
	crashed := m.mem.Crash(m.random, rapid.SampledFrom(survivals).Draw(t, "survive"))
	m.close(t)
	m.mem = crashed
	m.open(t)
}

// Backup copies the log and may go on with the copy.
func (m *machine) Backup(t *rapid.T) {
	copied := storetest.NewMem()
	if err := errors.Join(copied.Mkdir("/data/log"), copied.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	err := m.log.Backup(t.Context(), func(pieces []store.Piece) error {
		for _, p := range pieces {
			r, err := p.Open()
			if err != nil {
				return err
			}
			b, err := io.ReadAll(r)
			if err = errors.Join(err, r.Close()); err != nil {
				return err
			}
			if int64(len(b)) != p.Size {
				return fmt.Errorf("%s has %d bytes, said were %d", p.Name, len(b), p.Size)
			}
			put(t, copied, "/data/log/"+p.Name, b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.CheckLog(copied, "/data/log")
	if err != nil || o.First != m.floor || o.Last != m.last() || o.Snapshot != m.snapshot {
		t.Fatalf("the copy holds %+v: %v", o, err)
	}
	if rapid.Bool().Draw(t, "restore") {
		m.close(t)
		m.mem = copied
		m.open(t)
	}
}

// TestLogIsASliceThatSurvives runs random appends, reads, snapshots, truncations, restarts, kills and losses
// of power against the model.
func TestLogIsASliceThatSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{mem: storetest.NewMem(), floor: 1}
		m.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		if err := errors.Join(m.mem.Mkdir("/data"), m.mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		segment := rapid.Int64Range(4<<10, 20<<10).Draw(t, "segment")
		m.opts = store.LogOptions{SegmentBytes: segment, Gather: -1}
		m.open(t)
		t.Repeat(rapid.StateMachineActions(m))
		m.close(t)
	})
}

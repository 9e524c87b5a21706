package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// golden is a segment byte by byte, as DESIGN.md describes it: format 1 may never read it in another way.
var golden = []byte("" +
	"plnthlog" + "\x01\x00\x00\x00" + "\x40\x00\x00\x00" + // magic, form, length of the header
	"\x88\x77\x66\x55\x44\x33\x22\x11" + "\x05\x00\x00\x00\x00\x00\x00\x00" + // salt, first position
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")

func goldenSegment() []byte {
	h := segmentHeader{salt: 0x1122334455667788, first: 5}
	b := appendSegmentHeader(nil, h)
	add := func(k kind, payload []byte, seq, durable uint64) {
		at := len(b)
		b = appendFrame(b, payload)
		stamp(b[at:], h.seed(), k, len(payload), seq, durable)
	}
	add(kindRecord, []byte("first"), 5, 4)
	add(kindRecord, nil, 6, 4)
	add(kindHole, binary.LittleEndian.AppendUint64(nil, 3), 7, 6)
	add(kindRecord, bytes.Repeat([]byte("x"), 40), 10, 9)
	add(kindMark, nil, 11, 10)
	return b
}

func TestSegmentHeaderHasItsForm(t *testing.T) {
	b := goldenSegment()
	if !bytes.Equal(b[:len(golden)], golden) || len(golden) != segmentHead-4 {
		t.Fatalf("the header is %x", b[:segmentHead])
	}
	frame := b[segmentHead:]
	if binary.LittleEndian.Uint32(frame[4:]) != 5 || binary.LittleEndian.Uint32(frame[8:]) != 1 ||
		binary.LittleEndian.Uint64(frame[16:]) != 5 || string(frame[24:29]) != "first" || len(frame) < 32 {
		t.Fatalf("the first frame is %x", frame[:32])
	}
}

func TestCursorWalksAllKindsOfFrames(t *testing.T) {
	b := goldenSegment()
	h, reason := parseSegmentHeader(b)
	if reason != "" {
		t.Fatal(reason)
	}
	c := newCursor(bytes.NewReader(b), int64(len(b)), h)
	var got []uint64
	for {
		f, payload, err := c.step()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, uint64(f.kind), f.seq, uint64(len(payload)), c.next)
	}
	want := []uint64{0, 5, 5, 6, 0, 6, 0, 7, 2, 7, 8, 10, 0, 10, 40, 11, 1, 11, 0, 11}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if c.proof != 10 {
		t.Fatalf("proven up to %d", c.proof)
	}
}

func TestTornAndDamagedAreToldApart(t *testing.T) {
	h := segmentHeader{salt: 1, first: 1}
	build := func(durable ...uint64) (b []byte, at []int) {
		b = appendSegmentHeader(nil, h)
		for i, d := range durable {
			at = append(at, len(b))
			b = appendFrame(b, []byte("some record"))
			stamp(b[at[i]:], h.seed(), kindRecord, 11, uint64(i+1), d)
		}
		return b, at
	}
	for _, c := range []struct {
		name    string
		durable []uint64 // what was durable when each record was written
		bad     int      // which is spoilt
		proven  bool
	}{
		{"the last of its own batch", []uint64{0, 1, 2}, 2, false},
		{"the middle of one batch", []uint64{0, 0, 0}, 1, false},
		{"the first of one batch", []uint64{0, 0, 0}, 0, false},
		{"before a later batch", []uint64{0, 1, 2}, 1, true},
		{"the first of two batches", []uint64{0, 0, 2}, 0, true},
		{"in the second of two batches", []uint64{0, 1, 1, 1}, 2, false},
	} {
		for _, part := range []int{0, 5, 10, 20, 30} { // checksum, length, durable, position, payload
			b, at := build(c.durable...)
			b[at[c.bad]+part] ^= 0x80
			cur := newCursor(bytes.NewReader(b), int64(len(b)), h)
			var err error
			for err == nil {
				_, _, err = cur.step()
			}
			if _, is := errors.AsType[*badFrame](err); !is || cur.next != uint64(c.bad+1) {
				t.Fatalf("%s: stopped at %d with %v", c.name, cur.next, err)
			}
			if got, err := cur.proven(); err != nil || got != c.proven {
				t.Errorf("%s, byte %d: proven is %v, %v", c.name, part, got, err)
			}
		}
	}
}

func TestNamesSortLikePositions(t *testing.T) {
	for _, n := range []uint64{0, 1, 9, 10, 1<<64 - 1} {
		name := fileName("", n, segmentExt)
		if got, ok := parseName(name, segmentExt); !ok || got != n || len(name) != 24 {
			t.Errorf("%s: %d %v", name, got, ok)
		}
	}
	for _, name := range []string{"", ".log", "1.log", "+0000000000000000001.log", "99999999999999999999.log",
		"0000000000000000000x.log", "00000000000000000001.log.tmp", "00000000000000000001.snap"} {
		if n, ok := parseName(name, segmentExt); ok {
			t.Errorf("%q is taken for %d", name, n)
		}
	}
}

// FuzzSegment walks any bytes as a segment: no panic, no endless walk, no frame outside of the bytes, and
// what is accepted is exactly what the encoder would have written.
func FuzzSegment(f *testing.F) {
	b := goldenSegment()
	f.Add(b)
	f.Add(b[:len(b)-5])
	f.Add(append(append([]byte{}, b...), make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, reason := parseSegmentHeader(b)
		if reason != "" {
			// Even so the frames must bear a walk: a salvage does that.
			h = segmentHeader{salt: 0x1122334455667788, first: 5}
			if len(b) < segmentHead {
				return
			}
		} else if !bytes.Equal(appendSegmentHeader(nil, h), b[:segmentHead]) {
			t.Fatalf("another header than was encoded: %+v", h)
		}
		c := newCursor(bytes.NewReader(b), int64(len(b)), h)
		steps := 0
		for {
			off, durable := c.off, c.next
			fr, payload, err := c.step()
			if err != nil {
				if _, is := errors.AsType[*badFrame](err); err != io.EOF && !is {
					t.Fatal(err)
				}
				break
			}
			if steps++; steps > len(b)/frameHead || c.off > int64(len(b)) || c.off < off+frameHead ||
				c.next < durable {
				t.Fatalf("step %d from %d to %d", steps, off, c.off)
			}
			again := appendFrame(nil, payload)
			stamp(again, h.seed(), fr.kind, fr.length, fr.seq, fr.durable())
			if !bytes.Equal(again, b[off:c.off]) {
				t.Fatalf("another frame than was encoded: %+v", fr)
			}
		}
		if _, err := c.proven(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.resume(); err != nil {
			t.Fatal(err)
		}
		if end, err := c.lastByte(c.off); err != nil || end > int64(len(b)) {
			t.Fatal(end, err)
		}
	})
}

// FuzzFrames walks frames whose checksums are right and whose fields are anything, so that it gets past the
// checksums: each five bytes are kind, length, position, durable position, and a byte of the payload.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x05\x05\x04x\x01\x00\x06\x05x\x02\x08\x06\x05\x01"))
	f.Add([]byte("\x00\x05\x05\x04x\x00\x05\x07\x05x\x00\x05\x08\x06x"))
	f.Fuzz(func(t *testing.T, program []byte) {
		h := segmentHeader{salt: 3, first: 5}
		b := appendSegmentHeader(nil, h)
		for ; len(program) >= 5 && len(b) < 1<<16; program = program[5:] {
			payload := bytes.Repeat(program[4:5], int(program[1]))
			at := len(b)
			b = appendFrame(b, payload)
			stamp(b[at:], h.seed(), kind(program[0]), len(payload), uint64(program[2]), uint64(program[3]))
		}
		c := newCursor(bytes.NewReader(b), int64(len(b)), h)
		for {
			before := c.next
			fr, payload, err := c.step()
			if err != nil {
				if _, is := errors.AsType[*badFrame](err); err != io.EOF && !is {
					t.Fatal(err)
				}
				break
			}
			if fr.seq != before || c.next < before || fr.kind == kindRecord && c.next != before+1 ||
				fr.kind == kindHole && (len(payload) != 8 || c.next == before) || fr.durable() >= fr.seq {
				t.Fatalf("after %d: %+v, next %d", before, fr, c.next)
			}
		}
		if _, err := c.proven(); err != nil {
			t.Fatal(err)
		}
		if fr, at, err := c.resume(); err != nil || at >= 0 && (at <= c.off || fr.seq < c.next ||
			fr.kind == kindMark) {
			t.Fatalf("resumed at %d with %+v: %v", at, fr, err)
		}
	})
}

// FuzzFile reads any bytes as a file of WriteFile and as VERSION.
func FuzzFile(f *testing.F) {
	body := []byte("content")
	sum, _ := sumOf(bytes.NewReader(body), 7)
	f.Add(append(envelope(3, 7, sum), body...))
	f.Add(version{Format: 1, WrittenBy: "1.0.0", Rooms: map[string]roomVersion{"engine": {1,
		"1.0.0"}}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		head := b[:min(len(b), envelopeBytes)]
		if v, size, sum, ok := parseEnvelope(head); ok {
			again := envelope(v, size, 0)
			if !bytes.Equal(again[:envelopeCRC], head[:envelopeCRC]) {
				t.Fatalf("version %d, %d bytes, sum %x of %q", v, size, sum, head)
			}
		}
		if v, err := parseVersion(b, "VERSION"); err == nil && !bytes.Equal(v.encode(), b) {
			t.Fatalf("%+v is not what is stored", v)
		}
	})
}

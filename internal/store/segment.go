package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strconv"
	"strings"
)

// The form of a segment, byte by byte, is in DESIGN.md. All numbers are little endian.
const (
	segmentMagic = "plnthlog"
	segmentForm  = 1
	segmentHead  = 64 // bytes of a segment's header
	frameHead    = 24 // bytes of a frame's header
	frameAlign   = 8  // frames start and end at multiples of it
	// MaxRecord is the largest record that any log can be told to take, in bytes.
	MaxRecord = 256 << 20
)

// kind is what a frame is.
type kind uint8

const (
	kindRecord kind = iota // one record
	kindMark               // no record: says that everything before it was durable when it was written
	kindHole               // records that a salvage gave up; the payload is their number
)

// segmentHeader stands at the start of every segment.
type segmentHeader struct {
	salt  uint64 // the same in all segments of a log, drawn when it was created
	first uint64 // sequence number of the first record
}

func appendSegmentHeader(dst []byte, h segmentHeader) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, segmentForm)
	dst = binary.LittleEndian.AppendUint32(dst, segmentHead)
	dst = binary.LittleEndian.AppendUint64(dst, h.salt)
	dst = binary.LittleEndian.AppendUint64(dst, h.first)
	dst = append(dst, make([]byte, segmentHead-4-(len(dst)-start))...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// parseSegmentHeader accepts exactly what appendSegmentHeader writes; the reason says what is wrong.
func parseSegmentHeader(b []byte) (h segmentHeader, reason string) {
	if len(b) < segmentHead {
		return h, fmt.Sprintf("the segment has %d bytes, its header alone has %d", len(b), segmentHead)
	}
	b = b[:segmentHead]
	sum := crc32.Checksum(b[:segmentHead-4], castagnoli)
	switch {
	case string(b[:8]) != segmentMagic:
		return h, "the segment does not start as one"
	case binary.LittleEndian.Uint32(b[segmentHead-4:]) != sum:
		return h, "the checksum of the segment's header does not fit"
	case binary.LittleEndian.Uint32(b[8:]) != segmentForm ||
		binary.LittleEndian.Uint32(b[12:]) != segmentHead:
		return h, fmt.Sprintf("the segment has form %d", binary.LittleEndian.Uint32(b[8:]))
	}
	return segmentHeader{salt: binary.LittleEndian.Uint64(b[16:]), first: binary.LittleEndian.Uint64(b[24:])},
		""
}

// seed is where the checksums of all frames of a segment start. It binds a frame to its log and segment:
// bytes of another log, which a record may well hold as its payload, are no frames here.
func (h segmentHeader) seed() uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], h.salt)
	binary.LittleEndian.PutUint64(b[8:], h.first)
	return crc32.Checksum(b[:], castagnoli)
}

// frame is the header of a frame.
type frame struct {
	kind   kind
	length int    // bytes of the payload
	back   uint32 // sequence number less the last one that was durable when the frame was written; 1 at least
	seq    uint64 // of the record; of a mark, the next record's; of a hole, the first lost record's
	sum    uint32 // checksum of the payload
}

// size returns the bytes of the whole frame on disk.
func (f frame) size() int64 { return frameSize(f.length) }

func frameSize(length int) int64 {
	return (frameHead + int64(length) + frameAlign - 1) &^ (frameAlign - 1)
}

// durable returns the last sequence number that this frame proves to have been durable.
func (f frame) durable() uint64 { return f.seq - uint64(f.back) }

// appendFrame appends a frame with room for its header, which stamp fills in when the number is known.
func appendFrame(dst, payload []byte) []byte {
	end := len(dst) + int(frameSize(len(payload)))
	dst = append(dst, make([]byte, frameHead)...)
	dst = append(dst, payload...)
	return append(dst, make([]byte, end-len(dst))...)
}

// stamp fills in the header of the frame at the start of b, whose payload of length bytes is in place.
func stamp(b []byte, seed uint32, k kind, length int, seq, durable uint64) {
	binary.LittleEndian.PutUint32(b[4:], uint32(length)|uint32(k)<<30)
	binary.LittleEndian.PutUint32(b[8:], uint32(seq-durable))
	binary.LittleEndian.PutUint32(b[12:], crc32.Update(seed, castagnoli, b[frameHead:frameHead+length]))
	binary.LittleEndian.PutUint64(b[16:], seq)
	binary.LittleEndian.PutUint32(b, crc32.Update(seed, castagnoli, b[4:frameHead]))
}

// parseFrame returns the frame header at the start of b if its checksum is right and its fields make sense.
// It says nothing about the payload, and nothing about the file being long enough for it.
func parseFrame(b []byte, seed uint32) (frame, bool) {
	if len(b) < frameHead {
		return frame{}, false
	}
	b = b[:frameHead]
	if crc32.Update(seed, castagnoli, b[4:]) != binary.LittleEndian.Uint32(b) {
		return frame{}, false
	}
	n := binary.LittleEndian.Uint32(b[4:])
	f := frame{
		kind: kind(n >> 30), length: int(n & (1<<30 - 1)),
		back: binary.LittleEndian.Uint32(b[8:]), sum: binary.LittleEndian.Uint32(b[12:]),
		seq: binary.LittleEndian.Uint64(b[16:]),
	}
	switch {
	case f.kind > kindHole, f.length > MaxRecord, f.back == 0, uint64(f.back) > f.seq,
		f.kind == kindMark && f.length != 0, f.kind == kindHole && f.length != 8:
		return frame{}, false
	}
	return f, true
}

// whole reports whether b, all bytes of the frame, has the payload that the header was made for, and a clean
// padding behind it.
func (f frame) whole(b []byte, seed uint32) bool {
	if int64(len(b)) != f.size() {
		return false
	}
	end := frameHead + f.length
	for _, c := range b[end:] {
		if c != 0 {
			return false
		}
	}
	return crc32.Update(seed, castagnoli, b[frameHead:end]) == f.sum
}

// next returns the sequence number after this frame. payload is needed for a hole.
func (f frame) next(payload []byte) (uint64, bool) {
	switch f.kind {
	case kindRecord:
		return f.seq + 1, true
	case kindHole:
		n := f.seq + binary.LittleEndian.Uint64(payload)
		return n, n > f.seq
	}
	return f.seq, true
}

// Names of a log's files: twenty digits and an ending, so that their order is the order of the positions.
const (
	segmentExt  = ".log"
	snapshotExt = ".snap"
	damagedExt  = ".damaged"
	metaName    = "LOG"
)

func fileName(dir string, position uint64, ext string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", position, ext))
}

func parseName(name, ext string) (position uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, ext)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	position, err := strconv.ParseUint(digits, 10, 64)
	return position, err == nil && fmt.Sprintf("%020d", position) == digits
}

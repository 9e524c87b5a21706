package telemetry

import (
	crypto "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// Source makes ids of traces and spans: fast, spread evenly, not secret. It is for one goroutine or one
// event loop; two sources never share a sequence unless they were given the same seed.
type Source struct{ pcg rand.PCG }

// NewSource returns a source seeded by the operating system. Tests may give one or two words of seed
// instead.
func NewSource(seed ...uint64) *Source {
	var words [2]uint64
	if copy(words[:], seed) == 0 {
		var b [16]byte
		_, _ = crypto.Read(b[:]) // never fails: crypto/rand ends the process instead
		words[0], words[1] = binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
	}
	return &Source{pcg: *rand.NewPCG(words[0], words[1])}
}

// Trace returns an id of a trace, never all zero.
func (s *Source) Trace() (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:8], s.word())
	binary.LittleEndian.PutUint64(id[8:], s.pcg.Uint64())
	return id
}

// Span returns an id of a span, never all zero.
func (s *Source) Span() (id [8]byte) {
	binary.LittleEndian.PutUint64(id[:], s.word())
	return id
}

func (s *Source) word() uint64 {
	for {
		if w := s.pcg.Uint64(); w != 0 {
			return w
		}
	}
}

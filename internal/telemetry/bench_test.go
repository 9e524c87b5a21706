package telemetry

import (
	"testing"
)

func benchSpan(s *Source) Span {
	return Span{Context: Context{s.Trace(), s.Span(), true}, Parent: s.Span(), Name: 7, Kind: KindUser,
		Status: StatusOK, Start: Now(), End: Now() + 1000, Worker: 3, Caller: 4}
}

func BenchmarkSpanRecord(b *testing.B) {
	s := NewSpans(16 << 20)
	sp := benchSpan(NewSource(1))
	b.ReportAllocs()
	for b.Loop() {
		s.Record(&sp)
	}
}

func BenchmarkSpanRecordParallel(b *testing.B) {
	s := NewSpans(16 << 20)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		sp := benchSpan(NewSource())
		for pb.Next() {
			s.Record(&sp)
		}
	})
}

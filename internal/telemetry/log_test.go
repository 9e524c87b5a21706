package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"
)

func diary() *Logs {
	l := NewLogs(1 << 20)
	for _, e := range []Log{
		{Time: 10, Severity: SeverityInfo, Body: "started", Service: "iii"},
		{Time: 20, Severity: SeverityWarn, Body: "stock is LOW", Service: "shop", Trace: [16]byte{15: 1},
			Span: [8]byte{7: 2}, Attributes: []byte(`{"left":3}`), Resource: []byte(`{"service.name":"shop"}`),
			Scope: "lib", Version: "1", Observed: 21},
		{Time: 30, Severity: SeverityError, Level: "Error", Body: "out of stock", Service: "shop",
			Trace: [16]byte{15: 1}, Attributes: []byte(`[1,"x"]`)},
		{Time: 40, Body: "?", Service: "other", Attributes: []byte("null")},
	} {
		l.Record(&e)
	}
	return l
}

func TestLogsAreFound(t *testing.T) {
	l := diary()
	for name, c := range map[string]struct {
		filter LogFilter
		want   []string
	}{
		"all":              {LogFilter{}, []string{"?", "out of stock", "stock is LOW", "started"}},
		"from":             {LogFilter{From: 30}, []string{"?", "out of stock"}},
		"to":               {LogFilter{To: 20}, []string{"stock is LOW", "started"}},
		"from to":          {LogFilter{From: 15, To: 30}, []string{"out of stock", "stock is LOW"}},
		"outside":          {LogFilter{From: 100}, nil},
		"trace":            {LogFilter{Trace: [16]byte{15: 1}}, []string{"out of stock", "stock is LOW"}},
		"span":             {LogFilter{Span: [8]byte{7: 2}}, []string{"stock is LOW"}},
		"severity":         {LogFilter{Severity: SeverityWarn}, []string{"out of stock", "stock is LOW"}},
		"level of source":  {LogFilter{Level: "ERROR"}, []string{"out of stock"}},
		"level by number":  {LogFilter{Level: "info"}, []string{"started"}},
		"service":          {LogFilter{Service: "SHOP"}, []string{"out of stock", "stock is LOW"}},
		"text":             {LogFilter{Text: "low"}, []string{"stock is LOW"}},
		"own test":         {LogFilter{Match: func(e *Log) bool { return e.Time < 20 }}, []string{"started"}},
		"page":             {LogFilter{Offset: 1, Limit: 2}, []string{"out of stock", "stock is LOW"}},
		"after the end":    {LogFilter{Offset: 10}, nil},
		"negative numbers": {LogFilter{Offset: -1, Limit: -1, Text: "?"}, []string{"?"}},
	} {
		t.Run(name, func(t *testing.T) {
			page, total := l.List(c.filter)
			var got []string
			for _, e := range page {
				got = append(got, e.Body)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			n := 0
			if l.Each(c.filter, func(*Log) bool { n++; return true }); n != total || total < len(got) {
				t.Errorf("counted %d, visited %d", total, n)
			}
		})
	}
}

func TestLogsAreWrittenInTheShapeOfTheProtocol(t *testing.T) {
	page, _ := diary().List(LogFilter{})
	raw := []byte("[")
	for i, e := range page {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = e.AppendJSON(raw)
	}
	golden(t, "logs.json", indent(t, append(raw, ']')))
}

func TestLogRecordIsBounded(t *testing.T) {
	l := NewLogs(1 << 20)
	object := func(n int) []byte { return []byte(`{"k":"` + strings.Repeat("x", n) + `"}`) }
	for name, c := range map[string]struct {
		in                        Log
		body                      int
		attributes, resource, cut bool
	}{
		"fits":          {Log{Body: "b", Attributes: object(7000), Resource: object(7000)}, 1, true, true, false},
		"resource goes": {Log{Body: "b", Attributes: object(10000), Resource: object(7000)}, 1, true, false, true},
		"attributes go": {Log{Body: "b", Attributes: object(17000), Resource: object(7000)}, 1, false, true, true},
		"body is cut":   {Log{Body: strings.Repeat("é", 6000)}, maxLogBody, false, false, true},
		"cut before":    {Log{Body: "b", Cut: true}, 1, false, false, true},
		"everything long": {Log{Body: strings.Repeat("x", 1<<20), Level: strings.Repeat("x", 1<<20),
			Service: strings.Repeat("x", 1<<20), Scope: strings.Repeat("x", 1<<20),
			Version: strings.Repeat("x", 1<<20)}, maxLogBody, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := l.Stats().Cut
			l.Record(&c.in)
			page, _ := l.List(LogFilter{Limit: 1})
			e := page[0]
			if len(e.Body) != c.body || len(e.Attributes) > 0 != c.attributes || len(e.Resource) > 0 != c.resource ||
				e.Cut != c.cut || l.Stats().Cut > before != c.cut {
				t.Errorf("%d, %d, %d bytes, cut %v", len(e.Body), len(e.Attributes), len(e.Resource), e.Cut)
			}
			if open := l.ring.open; open.used%8 != 0 {
				t.Errorf("the record ends at %d", open.used)
			}
			if raw := e.AppendJSON(nil); !json.Valid(raw) {
				t.Errorf("malformed: %.300s", raw)
			}
		})
	}
}

func TestLogRingCountsLikeTheOther(t *testing.T) {
	l := NewLogs(2 * chunkBytes)
	l.SetMemory(func(int64) bool { return true }, func(int64) {})
	for i := range 3000 {
		l.Record(&Log{Time: int64(i + 1), Body: "some body of some length"})
	}
	_, kept := l.List(LogFilter{})
	audit(t, l.Stats(), 3000, kept)
	l.Shed(1)
	l.Resize(chunkBytes)
	_, kept = l.List(LogFilter{})
	audit(t, l.Stats(), 3000, kept)
	l.Clear()
	audit(t, l.Stats(), 3000, 0)
	e := &Log{Time: 1, Body: "x"}
	if n := testing.AllocsPerRun(2000, func() { l.Record(e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSeveritiesHaveNames(t *testing.T) {
	for s, want := range map[Severity]string{0: "UNSPECIFIED", 1: "TRACE", 4: "TRACE", 5: "DEBUG",
		9: "INFO", 12: "INFO",
		13: "WARN", 17: "ERROR", 20: "ERROR", 21: "FATAL", 24: "FATAL"} {
		if got := SeverityText(s); got != want {
			t.Errorf("%d is %s", s, got)
		}
	}
	for level, want := range map[slog.Level]Severity{slog.LevelDebug - 4: 1, slog.LevelDebug: 5,
		slog.LevelInfo:     9,
		slog.LevelInfo + 2: 11, slog.LevelWarn: 13, slog.LevelError: 17, -1 << 40: 1, 1 << 40: 24} {
		if got := SeverityOf(level); got != want {
			t.Errorf("%d is %d, want %d", level, got, want)
		}
	}
}

// attributesOf returns the newest record with its attributes decoded.
func attributesOf(t testing.TB, l *Logs) (*Log, map[string]any) {
	t.Helper()
	page, _ := l.List(LogFilter{Limit: 1})
	if len(page) == 0 {
		t.Fatal("nothing was recorded")
	}
	all := map[string]any{}
	if len(page[0].Attributes) > 0 {
		if err := json.Unmarshal(page[0].Attributes, &all); err != nil {
			t.Fatalf("%v in %s", err, page[0].Attributes)
		}
	}
	return page[0], all
}

func TestHandlerKeepsToTheRulesOfSlog(t *testing.T) {
	var logs *Logs
	slogtest.Run(t, func(*testing.T) slog.Handler {
		logs = NewLogs(1 << 20)
		return NewLogHandler(newAlways(), logs)
	}, func(t *testing.T) map[string]any {
		e, all := attributesOf(t, logs)
		all[slog.MessageKey], all[slog.LevelKey] = e.Body, e.Level
		if strings.Contains(t.Name(), "zero-time") {
			return all // a ring needs a time, so the handler gives one
		}
		all[slog.TimeKey] = e.Time
		return all
	})
}

// always is a handler that takes everything and keeps what it got.
type always struct {
	slog.Handler
	text *bytes.Buffer
}

func newAlways() always {
	var b bytes.Buffer
	return always{slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}), &b}
}

func TestHandlerPassesOnWhatItRecords(t *testing.T) {
	next, logs := newAlways(), NewLogs(1<<20)
	log := slog.New(NewLogHandler(next, logs)).With("a", 1).WithGroup("g")
	log.Debug("hello", "b", 2)
	if !strings.Contains(next.text.String(), `"msg":"hello","a":1,"g":{"b":2}`) {
		t.Errorf("passed on: %s", next.text)
	}
	e, all := attributesOf(t, logs)
	if e.Body != "hello" || e.Severity != SeverityDebug || e.Service != "plinth" ||
		fmt.Sprint(all) != "map[a:1 g:map[b:2]]" {
		t.Errorf("recorded %+v with %v", e, all)
	}
	quiet := slog.New(NewLogHandler(slog.NewTextHandler(next.text, nil), logs))
	if quiet.Debug("below"); logs.Stats().Recorded != 1 {
		t.Error("a record was kept that the next handler is not enabled for")
	}
	failing := NewLogHandler(broken{slog.DiscardHandler}, logs)
	if err := failing.Handle(t.Context(), slog.Record{}); !errors.Is(err, errBroken) {
		t.Errorf("the error of the next handler became %v", err)
	}
}

var errBroken = errors.New("disk full")

type broken struct{ slog.Handler }

func (broken) Handle(context.Context, slog.Record) error { return errBroken }

type loud struct{}

func (loud) LogValue() slog.Value { return slog.GroupValue(slog.String("x", "y"), slog.Attr{}) }

type bomb struct{ B chan int }

func (bomb) MarshalJSON() ([]byte, error) { panic("boom") }

type textual struct{}

func (textual) Error() string { return "an error" }

func (textual) MarshalJSON() ([]byte, error) { return []byte(`{"as":"json"}`), nil }

func TestValuesOfEveryKindBecomeJSON(t *testing.T) {
	logs := NewLogs(1 << 20)
	log := slog.New(NewLogHandler(newAlways(), logs))
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"text": {"a\"b", `a"b`}, "int": {-3, "-3"}, "uint": {uint64(math.MaxUint64), "18446744073709551615"},
		"float": {1.5, "1.5"}, "nan": {math.NaN(), "NaN"}, "inf": {math.Inf(1), "+Inf"}, "bool": {true, "true"},
		"duration": {1500 * time.Millisecond, "1.5s"}, "nil": {nil, "<nil>"}, "slice": {[]int{1, 2}, "[1 2]"},
		"time":  {time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), "2026-01-02T03:04:05.000000006Z"},
		"error": {errors.New("it broke"), "it broke"}, "error with JSON": {textual{}, "map[as:json]"},
		"struct": {struct{ A int }{7}, "map[A:7]"}, "valuer": {loud{}, "map[x:y]"},
		"no JSON": {make(chan int), "0x"}, "panic": {bomb{}, "!panic: boom"}, "bytes": {[]byte("ab"), "YWI="},
		"bad text": {"\xff", "\ufffd"},
	} {
		log.Info("m", "k", c.value)
		_, all := attributesOf(t, logs)
		page, _ := logs.List(LogFilter{Limit: 1})
		got := fmt.Sprint(all["k"])
		if name == "uint" {
			got = strings.TrimSuffix(strings.TrimPrefix(string(page[0].Attributes), `{"k":`), "}")
		}
		if got != c.want && (c.want != "0x" || !strings.HasPrefix(got, "0x")) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestIdsGivenAsAttributesBecomeThoseOfTheRecord(t *testing.T) {
	logs := NewLogs(1 << 20)
	log := slog.New(NewLogHandler(newAlways(), logs)).With("trace_id", someTrace, "service", "shop")
	log.Info("m", "span_id", someSpan, "x", 1)
	e, all := attributesOf(t, logs)
	if fmt.Sprintf("%x %x", e.Trace, e.Span) != someTrace+" "+someSpan || e.Service != "shop" || len(all) != 1 {
		t.Errorf("got %x %x of %s, %v", e.Trace, e.Span, e.Service, all)
	}
	slog.New(NewLogHandler(newAlways(), logs)).Info("m", "trace_id", "none", "span_id", 5)
	if e, all := attributesOf(t, logs); e.Trace != [16]byte{} || len(all) != 2 {
		t.Errorf("what is no id became %x, %v", e.Trace, all)
	}
	log.WithGroup("g").Info("m", "span_id", someSpan)
	if e, all := attributesOf(t, logs); e.Span != [8]byte{} ||
		fmt.Sprint(all) != "map[g:map[span_id:"+someSpan+"]]" {
		t.Errorf("an id within a group became that of the record: %v", all)
	}
}

func TestAttributesOverTheBoundAreLeftOutOneByOne(t *testing.T) {
	logs := NewLogs(1 << 20)
	long := strings.Repeat("x", 3000)
	slog.New(NewLogHandler(newAlways(), logs)).Info("m", "a", long, "b", long, "c", long, "d", 4,
		slog.Group("e", "f", long), slog.Group("g", "h", 5))
	e, all := attributesOf(t, logs)
	if len(all) != 4 || all["c"] != nil || all["d"] != 4.0 || all["g"] == nil || !e.Cut {
		t.Errorf("kept %d attributes, cut %v", len(all), e.Cut)
	}
	slog.New(NewLogHandler(newAlways(), logs)).Info(strings.Repeat("m", 9000), "a", strings.Repeat("x", 5000))
	if e, all = attributesOf(t, logs); len(all["a"].(string)) != maxText || len(e.Body) != maxLogBody || !e.Cut {
		t.Errorf("%d and %d bytes are left, cut %v", len(all["a"].(string)), len(e.Body), e.Cut)
	}
	if page, _ := logs.List(LogFilter{}); len(page) != 2 {
		t.Errorf("%d records", len(page))
	}
}

func TestHandlersOfOneOriginDoNotMix(t *testing.T) {
	logs := NewLogs(1 << 20)
	root := slog.New(NewLogHandler(newAlways(), logs)).With("a", 1).WithGroup("g").With("b", 2)
	one, two := root.With("c", 3), root.WithGroup("h").With("d", 4)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() { one.Info("one", "e", 5) })
		wait.Go(func() { two.Info("two", "f", 6) })
	}
	wait.Wait()
	want := map[string]string{"one": `{"a":1,"g":{"b":2,"c":3,"e":5}}`,
		"two": `{"a":1,"g":{"b":2,"h":{"d":4,"f":6}}}`}
	page, _ := logs.List(LogFilter{})
	for _, e := range page {
		if string(e.Attributes) != want[e.Body] {
			t.Errorf("%s has %s", e.Body, e.Attributes)
		}
	}
}

func BenchmarkLogHandler(b *testing.B) {
	log := slog.New(NewLogHandler(enabled{slog.DiscardHandler}, NewLogs(4<<20)))
	b.ReportAllocs()
	for b.Loop() {
		log.LogAttrs(b.Context(), slog.LevelInfo, "worker connected", slog.String("worker", "shop-1"),
			slog.Int("functions", 3))
	}
}

type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }

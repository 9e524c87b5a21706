package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/plinth-run/plinth/internal/telemetry"
)

var update = flag.Bool("update", false, "write the golden files anew")

// desk is a sink with what it records into.
type desk struct {
	*Sink
	spans *telemetry.Spans
	logs  *telemetry.Logs
	names *telemetry.Names
}

func newDesk() desk {
	d := desk{spans: telemetry.NewSpans(4 << 20), logs: telemetry.NewLogs(4 << 20), names: telemetry.NewNames()}
	d.Sink = NewSink(d.spans, d.logs, d.names)
	return d
}

func (d desk) reader() telemetry.Reader { return telemetry.Reader{Spans: d.spans, Names: d.names} }

func (d desk) allSpans() []*telemetry.View {
	page, _ := d.reader().List(telemetry.Filter{Limit: 10_000})
	return page
}

func (d desk) allLogs() []*telemetry.Log {
	page, _ := d.logs.List(telemetry.LogFilter{Limit: 10_000})
	return page
}

// all writes everything the desk holds as indented JSON.
func (d desk) all(t testing.TB) []byte {
	raw := []byte(`{"spans":[`)
	for i, v := range d.allSpans() {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = v.AppendJSON(raw)
	}
	raw = append(raw, `],"logs":[`...)
	for i, e := range d.allLogs() {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = e.AppendJSON(raw)
	}
	raw = append(raw, `],"values":`...)
	values, err := json.Marshal(d.Values().List(""))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, append(append(raw, values...), '}'), "", "  "); err != nil {
		t.Fatalf("what was recorded is malformed: %v", err)
	}
	return append(b.Bytes(), '\n')
}

func TestCapturedMessagesOfTheSDKAreRead(t *testing.T) {
	for _, name := range []string{"spans", "logs", "metrics"} {
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile("testdata/" + name + ".bin")
			if err != nil {
				t.Fatal(err)
			}
			d := newDesk()
			if err := d.Take(body); err != nil {
				t.Fatal(err)
			}
			got := d.all(t)
			if *update {
				if err := os.WriteFile("testdata/"+name+".json", got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile("testdata/" + name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("differs from testdata/%s.json:\n%s", name, got)
			}
			if s := d.Stats(); s.Messages != 1 || s.Refused+s.Partial+s.Dropped+s.Cut != 0 {
				t.Errorf("got %+v", s)
			}
		})
	}
}

func TestMessageIsRefusedAsAWholeForAReason(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 300)
	for body, want := range map[string]Reason{
		"": Unknown, "OTL": Unknown, "otlp{}": Unknown, "{}{}": Unknown, "XXXX{}": Unknown,
		"OTLP": Syntax, "OTLP  ": Syntax, "OTLP{": Syntax, `OTLP{"resourceSpans":[}`: Syntax, "MTRC{}x": Syntax,
		"LOGS{\"resourceLogs\":\x00}": Syntax, `OTLP{"a":"`: Syntax, `OTLP{"a":"\`: Syntax, "OTLPx": Syntax,
		"OTLP]]]]": Syntax,
		"OTLP[]":   Shape, "OTLP null": Shape, "MTRC7": Shape, `LOGS"text"`: Shape,
		"OTLP" + deep: TooDeep, "OTLP{" + strings.Repeat(" ", MaxMessage): TooLarge,
	} {
		d := newDesk()
		err := d.Take([]byte(body))
		refusal, ok := errors.AsType[*Error](err)
		if !ok || refusal.Reason != want || !errors.Is(err, &Error{Reason: want}) || errors.Is(err,
			&Error{Reason: 77}) {
			t.Errorf("%.30q: got %v, want %v", body, err, want)
		} else if !strings.Contains(err.Error(), want.String()) ||
			refusal.Err != errors.Unwrap(err) {
			t.Errorf("%.30q: %q does not say %q", body, err, want)
		}
		if s := d.Stats(); s.Messages != 1 || s.Refused != 1 || len(d.allSpans())+len(d.allLogs()) > 0 {
			t.Errorf("%.30q: %+v", body, s)
		}
	}
}

// oneSpan is a message with one span, which has the given fields beside its ids.
func oneSpan(fields string) []byte {
	return []byte(`OTLP{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c",` +
		`"spanId":"b7ad6b7169203331"` + fields + `}]}]}]}`)
}

func TestSpanIsReadWhateverItsForm(t *testing.T) {
	const start, end = `,"startTimeUnixNano":"1000"`, `,"endTimeUnixNano":"2000"`
	for name, c := range map[string]struct {
		fields string
		check  func(v *telemetry.View) bool
	}{
		"times as numbers": {`,"startTimeUnixNano":1000,"endTimeUnixNano":2000`, func(v *telemetry.View) bool {
			return v.Start == 1000 && v.End == 2000
		}},
		"large times": {`,"startTimeUnixNano":"1796078244266000001","endTimeUnixNano":1796078244266000003`,
			func(v *telemetry.View) bool { return v.Start == 1796078244266000001 && v.End == 1796078244266000003 }},
		"times in floating point": {`,"startTimeUnixNano":1e3,"endTimeUnixNano":2.0e3`,
			func(v *telemetry.View) bool {
				return v.Start == 1000 && v.End == 2000
			}},
		"still running": {start, func(v *telemetry.View) bool { return v.Start == 1000 && v.End == 0 }},
		"only an end":   {end, func(v *telemetry.View) bool { return v.Start == 2000 && v.End == 2000 }},
		"end before start": {`,"startTimeUnixNano":"3000"` + end, func(v *telemetry.View) bool {
			return v.Start == 3000 && v.End == 3000
		}},
		"no times": {``, func(v *telemetry.View) bool { return v.Start > 1e18 && v.End == 0 }},
		"odd times": {`,"startTimeUnixNano":"x","endTimeUnixNano":{}`, func(v *telemetry.View) bool {
			return v.Start > 1e18 && v.End == 0
		}},
		"times out of range": {`,"startTimeUnixNano":"99999999999999999999","endTimeUnixNano":-1`,
			func(v *telemetry.View) bool { return v.Start > 0 && v.End >= v.Start }},
		"parent": {start + `,"parentSpanId":"00F067AA0BA902B7"`, func(v *telemetry.View) bool {
			return fmt.Sprintf("%x", v.Parent) == "00f067aa0ba902b7"
		}},
		"bad parent":   {`,"parentSpanId":"zzz"`, func(v *telemetry.View) bool { return v.Parent == [8]byte{} }},
		"kind":         {`,"kind":3`, func(v *telemetry.View) bool { return v.Role == 3 }},
		"kind by name": {`,"kind":"SPAN_KIND_CONSUMER"`, func(v *telemetry.View) bool { return v.Role == 5 }},
		"unknown kind": {`,"kind":99`, func(v *telemetry.View) bool { return v.Role == 5 }},
		"odd kind":     {`,"kind":[{}]`, func(v *telemetry.View) bool { return v.Role == 0 }},
		"status ok": {`,"status":{"code":1}`,
			func(v *telemetry.View) bool { return v.Status == telemetry.StatusOK }},
		"status unset": {`,"status":{}`,
			func(v *telemetry.View) bool { return v.Status == telemetry.StatusUnset }},
		"status null": {`,"status":null`,
			func(v *telemetry.View) bool { return v.Status == telemetry.StatusUnset }},
		"status failed": {`,"status":{"code":2,"message":"no"}`, func(v *telemetry.View) bool {
			return v.Status == telemetry.StatusError && v.Message == "no"
		}},
		"status by name": {`,"status":{"code":"STATUS_CODE_ERROR"}`, func(v *telemetry.View) bool {
			return v.Status == telemetry.StatusError
		}},
		"attributes of every type": {`,"attributes":[{"key":"s","value":{"stringValue":"a\"b"}},
			{"key":"i","value":{"intValue":"9007199254740993"}},{"key":"n","value":{"intValue":-7}},
			{"key":"d","value":{"doubleValue":1.5}},{"key":"nan","value":{"doubleValue":"NaN"}},
			{"key":"b","value":{"boolValue":true}},{"key":"y","value":{"bytesValue":"AQI="}},
			{"key":"a","value":{"arrayValue":{"values":[{"intValue":1},{"stringValue":"x"},{}]}}},
			{"key":"k","value":{"kvlistValue":{"values":[{"key":"p","value":{"boolValue":false}},{"key":"p"}]}}},
			{"key":"none"},{"key":"null","value":null},{"key":"empty","value":{}}]`, func(v *telemetry.View) bool {
			return string(v.Attributes) == `[["s","a\"b"],["i","9007199254740993"],["n","-7"],["d","1.5"],`+
				`["nan","NaN"],["b","true"],["y","AQI="],["a","[1,\"x\",null]"],["k","{\"p\":false}"],["none",""],`+
				`["null",""],["empty",""]]`
		}},
		"kind of no name": {`,"kind":"SPAN_KIND_ODDITY"`, func(v *telemetry.View) bool { return v.Role == 0 }},
		"kind as digits":  {`,"kind":"4"`, func(v *telemetry.View) bool { return v.Role == 4 }},
		"link with attributes": {`,"links":[{"attributes":[{"key":"a","value":{"stringValue":"b"}}],"spanId":"bb"}]`,
			func(v *telemetry.View) bool {
				return string(v.Links) == `[{"trace_id":"","span_id":"bb","attributes":[["a","b"]]}]`
			}},
		"numbers out of range": {`,"attributes":[{"key":"d","value":{"doubleValue":1e999}},{"key":"x","value":
			{"doubleValue":"x"}},{"key":"i","value":{"intValue":"1e400"}},{"key":"e","value":{"stringValue":null}},
			{"key":"l","value":{"arrayValue":{}}},{"key":"k","value":{"kvlistValue":{"values":[]}}}]`,
			func(v *telemetry.View) bool {
				return string(v.Attributes) == `[["d","+Inf"],["x","0"],["i","0"],["e",""],["l","[]"],["k","{}"]]`
			}},
		"events and links": {`,"events":[{"name":"e","timeUnixNano":"5","attributes":[{"key":"x",
			"value":{"intValue":1}}]},{}],"links":[{"traceId":"aa","spanId":"bb"}]`, func(v *telemetry.View) bool {
			return string(v.Events) == `[{"name":"e","timestamp_unix_nano":5,"attributes":[["x","1"]]},`+
				`{"name":"","timestamp_unix_nano":0,"attributes":[]}]` &&
				string(v.Links) == `[{"trace_id":"aa","span_id":"bb","attributes":[]}]`
		}},
		"wrong types everywhere": {`,"name":7,"attributes":{"a":1},"events":"no","links":[[],3,null],"status":[],
			"flags":"x"`, func(v *telemetry.View) bool { return v.Name == "" && string(v.Attributes) == "[]" }},
		"unknown fields": {`,"name":"n","whatever":{"a":[1,{"b":null}]},"droppedLinksCount":0`,
			func(v *telemetry.View) bool { return v.Name == "n" }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk()
			if err := d.Take(oneSpan(c.fields)); err != nil {
				t.Fatal(err)
			}
			all := d.allSpans()
			if len(all) != 1 || !c.check(all[0]) {
				t.Errorf("got %+v", all)
			}
			odd := strings.Contains(name, "odd") || strings.Contains(name, "wrong")
			if odd != (d.Stats().Partial == 1) {
				t.Errorf("got %+v", d.Stats())
			}
			d.all(t)
		})
	}
}

// attribute is an attribute as a worker has it, and the text that it becomes.
type attribute struct {
	key   string
	value map[string]any
	text  string
	json  any // what the text is as JSON, for lists
}

func drawAttribute(t *rapid.T) attribute {
	a := attribute{key: rapid.String().Draw(t, "key")}
	var content any
	a.value, content = drawValue(t, 0)
	switch content := content.(type) {
	case string:
		a.text = content
	case nil:
	case []any, map[string]any:
		a.json = content
	default:
		b, _ := json.Marshal(content)
		a.text = string(b)
	}
	return a
}

// drawValue returns an AnyValue and what it stands for.
func drawValue(t *rapid.T, depth int) (map[string]any, any) {
	switch kind := rapid.IntRange(0, 6-depth).Draw(t, "kind"); kind {
	case 0:
		s := rapid.String().Draw(t, "text")
		return map[string]any{"stringValue": s}, s
	case 1:
		n := rapid.Int64().Draw(t, "n")
		if rapid.Bool().Draw(t, "as text") {
			return map[string]any{"intValue": fmt.Sprint(n)}, n
		}
		return map[string]any{"intValue": n}, n
	case 2:
		b := rapid.Bool().Draw(t, "b")
		return map[string]any{"boolValue": b}, b
	case 3:
		f := float64(rapid.IntRange(-4000, 4000).Draw(t, "f")) / 8
		return map[string]any{"doubleValue": f, "unknown": []int{1}}, f
	case 4:
		return map[string]any{}, nil
	default:
		list, all := []any{}, []any{}
		members, object := []any{}, map[string]any{}
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			v, is := drawValue(t, 2)
			if n, ok := is.(int64); ok {
				is = json.Number(fmt.Sprint(n))
			} else if f, ok := is.(float64); ok {
				is = json.Number(strconv.FormatFloat(f, 'g', -1, 64))
			}
			list, all = append(list, v), append(all, is)
			key := fmt.Sprint("k", i%3)
			members = append(members, map[string]any{"key": key, "value": v})
			if _, twice := object[key]; !twice {
				object[key] = is
			}
		}
		if kind == 5 {
			return map[string]any{"arrayValue": map[string]any{"values": list}}, all
		}
		return map[string]any{"kvlistValue": map[string]any{"values": members}}, object
	}
}

// Any span that encoding/json writes is read as what it was.
func TestSpansComeBackAsTheyWereSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent []attribute
		list := []any{}
		for range rapid.IntRange(0, 8).Draw(t, "attributes") {
			a := drawAttribute(t)
			sent = append(sent, a)
			list = append(list, map[string]any{"key": a.key, "value": a.value})
		}
		name, message := rapid.String().Draw(t, "name"), rapid.String().Draw(t, "message")
		start, took := rapid.Int64Range(1, 1<<60).Draw(t, "start"), rapid.Int64Range(0, 1<<40).Draw(t, "took")
		id := fmt.Sprintf("%032x", rapid.Uint64Min(1).Draw(t, "trace"))
		body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
			"scopeSpans": []any{map[string]any{"scope": map[string]any{"name": name}, "spans": []any{map[string]any{
				"traceId": id, "spanId": id[16:], "name": name, "attributes": list, "startTimeUnixNano": start,
				"endTimeUnixNano": fmt.Sprint(start + took), "status": map[string]any{"code": 2, "message": message},
				"events": []any{map[string]any{"name": message, "attributes": list}}}}}},
			"resource": map[string]any{"attributes": []any{map[string]any{"key": "service.name",
				"value": map[string]any{"stringValue": name}}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk()
		if err := d.Take(append([]byte("OTLP"), body...)); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		v := d.allSpans()[0]
		if v.Name != name || v.Service != name || v.Scope != name || v.Message != message || v.Start != start ||
			v.Duration() != took || fmt.Sprintf("%x", v.TraceID) != id || d.Stats().Partial+d.Stats().Cut > 0 {
			t.Fatalf("%s\nwas read as %+v", body, v)
		}
		var events []struct {
			Name       string
			Attributes json.RawMessage
		}
		if err := json.Unmarshal(v.Events, &events); err != nil || events[0].Name != message ||
			!bytes.Equal(events[0].Attributes, v.Attributes) {
			t.Fatalf("%v: %s", err, v.Events)
		}
		checkPairs(t, v.Attributes, sent)
	})
}

func checkPairs(t *rapid.T, raw []byte, sent []attribute) {
	var pairs [][2]string
	if err := json.Unmarshal(raw, &pairs); err != nil || len(pairs) != len(sent) {
		t.Fatalf("%v, %d of %d in %s", err, len(pairs), len(sent), raw)
	}
	for i, a := range sent {
		if pairs[i][0] != a.key || a.json == nil && pairs[i][1] != a.text {
			t.Fatalf("%q, want %q, %q", pairs[i], a.key, a.text)
		}
		if a.json == nil {
			continue
		}
		var got any
		dec := json.NewDecoder(strings.NewReader(pairs[i][1]))
		dec.UseNumber()
		if err := dec.Decode(&got); err != nil || !reflect.DeepEqual(got, a.json) {
			t.Fatalf("%v: %#v, want %#v", err, got, a.json)
		}
	}
}

func TestTextThatIsNoUTF8IsMended(t *testing.T) {
	d := newDesk()
	if err := d.Take(oneSpan(",\"name\":\"a\xff\xfeb\",\"attributes\":[{\"key\":\"\xc3\"}]")); err != nil {
		t.Fatal(err)
	}
	if v := d.allSpans()[0]; v.Name != "a\ufffdb" || string(v.Attributes) != "[[\"\ufffd\",\"\"]]" {
		t.Errorf("got %q, %q", v.Name, v.Attributes)
	}
}

func TestDeepValueIsCut(t *testing.T) {
	nested := strings.Repeat(`{"arrayValue":{"values":[`, 40) + `{"intValue":1}` + strings.Repeat(`]}}`, 40)
	d := newDesk()
	if err := d.Take(oneSpan(`,"attributes":[{"key":"k","value":` + nested + `}]`)); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("[", maxValue) + "null" + strings.Repeat("]", maxValue)
	if got, _ := d.allSpans()[0].Attribute("k"); got != want || d.Stats().Cut != 1 {
		t.Errorf("got %s, %+v", got, d.Stats())
	}
}

func TestSpansWithoutIdsAreDroppedAndCounted(t *testing.T) {
	d := newDesk()
	for _, ids := range []string{``, `"traceId":"","spanId":""`,
		`"traceId":"0af7651916cd43dd8448eb211c80319c"`, `"spanId":"b7ad6b7169203331"`,
		`"traceId":"0af7651916cd43dd8448eb211c80319","spanId":"b7ad6b7169203331"`,
		`"traceId":"xaf7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"`,
		`"traceId":"00000000000000000000000000000000","spanId":"b7ad6b7169203331"`,
		`"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"0000000000000000"`,
		`"traceId":17,"spanId":[]`} {
		if err := d.Take([]byte(`OTLP{"resourceSpans":[{"scopeSpans":[{"spans":[{` + ids + `}]}]}]}`)); err != nil {
			t.Fatal(err)
		}
	}
	if s := d.Stats(); s.Dropped != 9 || s.Spans != 0 || len(d.allSpans()) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestPartsMayBeMissing(t *testing.T) {
	d := newDesk()
	for _, body := range []string{"{}", `{"resourceSpans":null,"resourceMetrics":null,"resourceLogs":null}`,
		`{"resourceSpans":[],"resourceMetrics":[],"resourceLogs":[]}`,
		`{"resourceSpans":[{},null],"resourceMetrics":[{},null],"resourceLogs":[{},null]}`,
		`{"resourceSpans":[{"resource":null,"scopeSpans":[null,{},{"spans":null}]}],
		"resourceMetrics":[{"resource":{},"scopeMetrics":[null,{},{"metrics":null}]}],
		"resourceLogs":[{"resource":{"attributes":null},"scopeLogs":[null,{},{"logRecords":null}]}]}`} {
		for _, prefix := range []string{"OTLP", "MTRC", "LOGS"} {
			if err := d.Take([]byte(prefix + body)); err != nil {
				t.Errorf("%s%s: %v", prefix, body, err)
			}
		}
	}
	if s := d.Stats(); s.Refused+s.Partial+s.Dropped+s.Spans+s.Logs+s.Points != 0 || s.Messages != 15 {
		t.Errorf("got %+v", s)
	}
}

// The order of fields is the sender's: the resource may come last.
func TestResourceMayComeLast(t *testing.T) {
	d := newDesk()
	body := `OTLP{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c",
	"spanId":"b7ad6b7169203331"}],"scope":{"name":"lib","version":"2"}}],"resource":{"attributes":[
	{"key":"service.name","value":{"stringValue":"shop"}}]}}]}`
	if err := d.Take([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if v := d.allSpans()[0]; v.Service != "shop" || v.Scope != "lib" || v.Version != "2" ||
		string(v.Resource) != `[["service.name","shop"]]` {
		t.Errorf("got %+v", v)
	}
}

func TestListsAreBounded(t *testing.T) {
	many := func(element string, n int) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	attribute := `{"key":"k","value":{"intValue":1}}`
	d := newDesk()
	if err := d.Take(oneSpan(`,"attributes":[` + many(attribute, 500) + `],"events":[` +
		many(`{"name":"e","attributes":[`+many(attribute, 130)+`]}`, 200) + `],"links":[` + many(`{}`,
		129) + `]`)); err != nil {
		t.Fatal(err)
	}
	v := d.allSpans()[0]
	// The events are over the ring's bound by far, so they are gone as a whole.
	if n := strings.Count(string(v.Attributes), `["k"`); n != maxAttributes || len(v.Events) != 0 || !v.Cut {
		t.Errorf("%d attributes, %d bytes of events", n, len(v.Events))
	}
	if n := strings.Count(string(v.Links), "trace_id"); n != maxLinks {
		t.Errorf("%d links", n)
	}
	if s := d.Stats(); s.Cut != 3+maxEvents {
		t.Errorf("got %+v", s)
	}
}

func TestLogsAreReadWhateverTheirForm(t *testing.T) {
	for name, c := range map[string]struct {
		record string
		check  func(e *telemetry.Log) bool
	}{
		"all of it": {`{"timeUnixNano":"5","observedTimeUnixNano":6,"severityNumber":17,"severityText":"Error",
			"body":{"stringValue":"b"},"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331",
			"attributes":[{"key":"a","value":{"intValue":"3"}},{"key":"a","value":{"intValue":4}}]}`,
			func(e *telemetry.Log) bool {
				return e.Time == 5 && e.Observed == 6 && e.Severity == 17 && e.Level == "Error" && e.Body == "b" &&
					e.Trace[0] == 0x0a && e.Span[0] == 0xb7 && string(e.Attributes) == `{"a":3}`
			}},
		"nothing": {`{}`, func(e *telemetry.Log) bool {
			return e.Time > 1e18 && e.Observed == e.Time && e.Body == "" && e.Level == "UNSPECIFIED"
		}},
		"only observed": {`{"observedTimeUnixNano":"7"}`, func(e *telemetry.Log) bool { return e.Time == 7 }},
		"severity by name": {`{"severityNumber":"SEVERITY_NUMBER_WARN2"}`, func(e *telemetry.Log) bool {
			return e.Severity == 14 && e.Level == "WARN"
		}},
		"severity of no name":   {`{"severityNumber":"LOUD"}`, func(e *telemetry.Log) bool { return e.Severity == 0 }},
		"severity as digits":    {`{"severityNumber":"9"}`, func(e *telemetry.Log) bool { return e.Severity == 9 }},
		"severity out of range": {`{"severityNumber":99}`, func(e *telemetry.Log) bool { return e.Severity == 24 }},
		"severity below range":  {`{"severityNumber":-5}`, func(e *telemetry.Log) bool { return e.Severity == 0 }},
		"body with structure": {`{"body":{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{}}}]}}}`,
			func(e *telemetry.Log) bool { return e.Body == `{"a":[]}` }},
		"body is a number": {`{"body":{"intValue":5}}`, func(e *telemetry.Log) bool { return e.Body == "5" }},
		"body is odd": {`{"body":"text","severityText":4}`,
			func(e *telemetry.Log) bool { return e.Body == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk()
			if err := d.Take([]byte(`LOGS{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + c.record + `]}]}]}`)); err != nil {
				t.Fatal(err)
			}
			if all := d.allLogs(); len(all) != 1 || !c.check(all[0]) {
				t.Errorf("got %+v", all)
			}
			d.all(t)
		})
	}
}

func TestMetricsOfEveryKindAreRead(t *testing.T) {
	body := `MTRC{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},
	{"key":"service.instance.id","value":{"stringValue":"i-1"}}]},"scopeMetrics":[{"scope":{"name":"x"},"metrics":[
	{"name":"gauge","unit":"By","gauge":{"dataPoints":[{"asInt":"-5","timeUnixNano":"9","attributes":[
		{"key":"l","value":{"stringValue":"v"}}]},{"asDouble":2.5,"timeUnixNano":"9"}]}},
	{"name":"null","gauge":null,"sum":{"dataPoints":[{"asInt":3,"asDouble":null,"min":null}]}},
	{"name":"counter","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"asInt":7}]}},
	{"name":"delta","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"asInt":7},{"asInt":8}]}},
	{"name":"updown","sum":{"aggregationTemporality":2,"dataPoints":[{"asDouble":"-Infinity"}]}},
	{"name":"histogram","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"4","sum":10.5,"min":1,"max":7,
		"bucketCounts":["1","3"],"explicitBounds":[5]}]}},
	{"name":"exponential","exponentialHistogram":{"dataPoints":[{"count":2,"sum":3,"scale":1}]}},
	{"name":"summary","summary":{"dataPoints":[{"count":"2","sum":4,"quantileValues":[{"quantile":0.5,"value":1}]}]}},
	{"name":"","gauge":{"dataPoints":[{"asInt":1}]}},{"name":"nothing"},{"name":"empty","gauge":{"dataPoints":[{}]}},
	{"name":"no count","histogram":{"dataPoints":[{"sum":1},{"count":-1}]}}]}]}]}`
	d := newDesk()
	if err := d.Take([]byte(body)); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, v := range d.Values().List("") {
		if v.Service != "shop" || v.Source != "i-1" || v.Time <= 0 {
			t.Errorf("%s is of %s, %s at %d", v.Name, v.Service, v.Source, v.Time)
		}
		fmt.Fprintf(&got, "%s %s %v %v %d %v %v %v\n", v.Name, v.Kind, v.Labels, v.Value, v.Count, v.Sum,
			v.Min, v.Max)
	}
	const want = `counter counter [] 7 0 0 0 0
delta counter [] 15 0 0 0 0
exponential histogram [] 0 2 3 0 0
gauge gauge [] 2.5 0 0 0 0
gauge gauge [[l v]] -5 0 0 0 0
histogram histogram [] 0 4 10.5 1 7
null gauge [] 3 0 0 0 0
summary histogram [] 0 2 4 0 0
updown gauge [] -Inf 0 0 0 0
`
	if got.String() != want {
		t.Errorf("got\n%s", got.String())
	}
	if s := d.Stats(); s.Points != 10 || s.Dropped != 5 {
		t.Errorf("got %+v", s)
	}
}

// What a hostile message costs: no more memory than it is long itself, give or take, whatever is in it.
func TestHostileMessageCostsLittle(t *testing.T) {
	for name, body := range map[string]string{
		"empty values": `OTLP{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"value":{"arrayValue":{"values":[` +
			strings.TrimSuffix(strings.Repeat("{},", 100_000), ",") + `]}}}]}]}]}]}`,
		"empty spans": `OTLP{"resourceSpans":[{"scopeSpans":[{"spans":[` +
			strings.TrimSuffix(strings.Repeat("{},", 100_000), ",") + `]}]}]}`,
		"deep values": `OTLP{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"value":` +
			strings.Repeat(`{"arrayValue":{"values":[`, 15) + strings.Repeat(`]}}`, 15) + `}]}]}]}]}`,
	} {
		d := newDesk()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = d.Take([]byte(body))
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 3*uint64(len(body))+128<<10 {
			t.Errorf("%s: %d bytes for a message of %d", name, cost, len(body))
		}
	}
}

func TestSinkFromManyGoroutines(t *testing.T) {
	d := newDesk()
	var wait sync.WaitGroup
	for _, name := range []string{"spans", "logs", "metrics"} {
		body, err := os.ReadFile("testdata/" + name + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			wait.Go(func() {
				for range 20 {
					if err := d.Take(body); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wait.Wait()
	if s := d.Stats(); s.Messages != 180 || s.Spans != 180 || s.Logs != 60 || s.Points != 540 {
		t.Errorf("got %+v", s)
	}
}

func TestMessageIsNotKept(t *testing.T) {
	body, err := os.ReadFile("testdata/spans.bin")
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk()
	copied := bytes.Clone(body)
	if err := d.Take(copied); err != nil {
		t.Fatal(err)
	}
	before := d.all(t)
	for i := range copied {
		copied[i] = 'x'
	}
	if !bytes.Equal(d.all(t), before) {
		t.Error("what was recorded changed with the message")
	}
}

var refusal = regexp.MustCompile(`^telemetry message: `)

func FuzzTake(f *testing.F) {
	for _, name := range []string{"spans", "logs", "metrics"} {
		body, err := os.ReadFile("testdata/" + name + ".bin")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := newDesk()
		err := d.Take(body)
		s := d.Stats()
		if (err != nil) != (s.Refused == 1) || s.Messages != 1 {
			t.Fatalf("%v, %+v", err, s)
		}
		if err != nil && (!refusal.MatchString(err.Error()) || s.Spans+s.Logs+s.Points != 0) {
			t.Fatalf("%v, %+v", err, s)
		}
		if got := d.spans.Stats().Recorded; got != s.Spans || d.logs.Stats().Recorded != s.Logs {
			t.Fatalf("%d spans recorded, %+v", got, s)
		}
		for _, v := range d.allSpans() {
			if !v.Valid() || v.Kind != telemetry.KindForeign || v.Duration() < 0 || !json.Valid(v.AppendJSON(nil)) {
				t.Fatalf("got %s", v.AppendJSON(nil))
			}
		}
		for _, e := range d.allLogs() {
			if !json.Valid(e.AppendJSON(nil)) || e.Time <= 0 || e.Severity > 24 {
				t.Fatalf("got %s", e.AppendJSON(nil))
			}
		}
	})
}

func benchmark(b *testing.B, name string) {
	body, err := os.ReadFile("testdata/" + name + ".bin")
	if err != nil {
		b.Fatal(err)
	}
	d := newDesk()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Take(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTakeSpans(b *testing.B)   { benchmark(b, "spans") } // three spans
func BenchmarkTakeLogs(b *testing.B)    { benchmark(b, "logs") }
func BenchmarkTakeMetrics(b *testing.B) { benchmark(b, "metrics") }

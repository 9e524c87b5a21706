package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// rows returns one column of a listing.
func rows(out frame, list, column string) (got []string) {
	all, _ := out["result"].(map[string]any)[list].([]any)
	for _, row := range all {
		s, _ := row.(map[string]any)[column].(string)
		got = append(got, s)
	}
	return got
}

func TestFunctionsAreListed(t *testing.T) {
	r := start(t)
	a := r.dial()
	a.send(`{"type":"registerfunction","id":"math::add","description":"Sums two","request_format":{"type":"object"},"metadata":{"team":"m"}}`)
	a.send(`{"type":"registerfunction","id":"math::sub"}`)
	a.send(`{"type":"registerfunction","id":"math::hidden","metadata":{"internal":true}}`)
	a.announce("a", "")
	b := r.dial()
	b.send(`{"type":"registerfunction","id":"text::add-line","description":"math too"}`)
	b.announce("b", "")
	for _, c := range []struct{ query, want string }{
		{``, "math::add math::sub text::add-line"},
		{`{}`, "math::add math::sub text::add-line"},
		{`{"prefix":"math::"}`, "math::add math::sub"},
		{`{"worker":"b"}`, "text::add-line"},
		{`{"workers":["a","b"],"search":"add"}`, "math::add text::add-line"},
		{`{"search":"math"}`, "math::add math::sub text::add-line"},
		{`{"search":"line"}`, "text::add-line"},
		{`{"search":"nothing"}`, ""},
		{`{"prefix":"math::hidden","include_internal":true}`, "math::hidden"},
	} {
		got := strings.Join(rows(b.call("engine::functions::list", c.query), "functions", "function_id"), " ")
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.query, got, c.want)
		}
	}
	out := b.call("engine::functions::info", `{"function_id":"math::add"}`)["result"].(map[string]any)
	if out["worker_name"] != "a" || out["description"] != "Sums two" || out["request_schema"] == nil ||
		out["metadata"].(map[string]any)["team"] != "m" || out["registered_triggers"] == nil {
		t.Errorf("info: %v", out)
	}
	many := b.call("engine::functions::info", `{"function_ids":["math::sub","no::such"]}`)
	if got := rows(many, "functions", "error"); !slices.Equal(got, []string{"", "not_found"}) {
		t.Errorf("infos: %v", many)
	}
	for query, code := range map[string]string{`{}`: wire.CodeInvalidArguments,
		`{"function_id":"no::such"}`:               wire.CodeNotFound,
		`{"function_id":"a","function_ids":["b"]}`: wire.CodeInvalidArguments, `[]`: wire.CodeDeserialization} {
		if got := b.call("engine::functions::info", query).code(); got != code {
			t.Errorf("info %s: got %s, want %s", query, got, code)
		}
	}
}

func TestIntrospectionWithoutANamespaceLooksEverywhere(t *testing.T) {
	r := start(t)
	for _, space := range []string{"one", "two"} {
		w := r.dial()
		w.send(`{"type":"registerfunction","id":"x::both"}`)
		w.send(`{"type":"registerfunction","id":%q}`, "x::"+space)
		w.announce("w-"+space, fmt.Sprintf(`,"namespace":%q`, space))
	}
	c := r.dial()
	if out := c.call("engine::functions::info",
		`{"function_id":"x::one"}`); out["result"].(map[string]any)["namespace"] != "one" {
		t.Errorf("a unique match: %v", out)
	}
	if out := c.call("engine::functions::info", `{"function_id":"x::both"}`); out.code() != wire.CodeNotFound ||
		!strings.Contains(out.message(), "one, two") {
		t.Errorf("an ambiguous one: %v", out)
	}
	if out := c.call("engine::functions::info", `{"function_id":"x::both","namespace":"two"}`); out.code() != "" {
		t.Errorf("with a namespace: %v", out)
	}
}

func TestWorkersAreListed(t *testing.T) {
	r := start(t)
	w := r.dial()
	w.send(`{"type":"registerfunction","id":"x::y"}`)
	w.call("engine::workers::register", `{"name":"worker-a","runtime":"node","version":"0.22.1","os":"linux","pid":42,"isolation":null,`+
		`"description":" sells\u202e \u0007books ","telemetry":{"language":"en","project_name":"p","framework":"f"}}`)
	r.dial().call("engine::workers::register", `{"name":"no-pid"}`)
	c := r.dial() // never introduces itself
	out := c.call("engine::workers::list", `{}`)
	if got := rows(out, "workers", "name"); !slices.Equal(got, []string{"engine", "worker-a"}) {
		t.Fatalf("got %v", got)
	}
	row := out["result"].(map[string]any)["workers"].([]any)[1].(map[string]any)
	for key, want := range map[string]any{"runtime": "node", "version": "0.22.1", "os": "linux", "status": "connected",
		"namespace": "default", "function_count": 1.0, "active_invocations": 0.0, "ip_address": "127.0.0.1",
		"description": "sells books", "id": w.id} {
		if row[key] != want {
			t.Errorf("%s: got %v, want %v", key, row[key], want)
		}
	}
	info := c.call("engine::workers::info", `{"name":"worker-a"}`)["result"].(map[string]any)
	if info["worker"].(map[string]any)["pid"] != 42.0 || len(info["functions"].([]any)) != 1 {
		t.Errorf("info: %v", info)
	}
	if got := c.call("engine::workers::info", `{"name":"nobody"}`).code(); got != wire.CodeNotFound {
		t.Errorf("unknown worker: %s", got)
	}
	if got := rows(c.call("engine::workers::list", `{"runtime":"engine"}`), "workers",
		"name"); !slices.Equal(got, []string{"engine"}) {
		t.Errorf("by runtime: %v", got)
	}
}

func TestASecondWorkerOfANameIsKeptOrRefused(t *testing.T) {
	r := start(t)
	first := r.worker("twin", "x::one")
	old := r.worker("twin", "x::two") // no features: kept with a suffix
	got := rows(r.dial().call("engine::workers::list", `{"search":"twin"}`), "workers", "name")
	if !slices.Equal(got, []string{"twin", "twin#2"}) {
		t.Errorf("got %v", got)
	}
	modern := r.dial()
	modern.ask("engine::workers::register", `{"name":"twin","pid":3,"features":["caller"]}`)
	f := modern.want("registrationrejected")
	if f.str("code") != wire.CodeWorkerConflict || f.str("worker_name") != "twin" ||
		f.str("owner_worker_id") != first.id {
		t.Errorf("got %v", f)
	}
	if _, err := modern.read(); err == nil || !strings.Contains(err.Error(), "closed") {
		if _, err = modern.read(); err == nil {
			t.Error("the connection stays open")
		}
	}
	old.nc.Close()
	first.nc.Close()
}

func TestTheNamespaceIsFixedByTheFirstIntroduction(t *testing.T) {
	r := start(t)
	w := r.dial()
	w.announce("w", `,"namespace":"one"`)
	w.announce("w", `,"namespace":"two"`)
	w.send(`{"type":"registerfunction","id":"x::y"}`)
	out := w.call("engine::functions::info", `{"function_id":"x::y"}`)
	if got := out["result"].(map[string]any)["namespace"]; got != "one" {
		t.Errorf("got %v", got)
	}
	if out := r.dial().call("engine::workers::register",
		`{"name":"w","namespace":7}`); out.code() != wire.CodeInvalidNamespace {
		t.Errorf("a number as namespace: %v", out)
	}
}

func TestACallerIsToldToHostsThatUnderstandIt(t *testing.T) {
	r := start(t)
	host := r.dial()
	host.send(`{"type":"registerfunction","id":"x::y"}`)
	host.announce("host", `,"features":["caller"]`)
	caller := r.worker("caller")
	id := caller.ask("x::y", "1")
	in := host.answer("1")
	if c, _ := in["caller"].(map[string]any); c["worker_name"] != "caller" || c["worker_id"] != caller.id {
		t.Errorf("got %v", in)
	}
	caller.result(id)
}

func TestLogsGoToTheRing(t *testing.T) {
	r := start(t)
	c := r.worker("chatty")
	for _, level := range []string{"trace", "debug", "info", "warn", "error"} {
		out := c.call("engine::log::"+level, `{"message":"said at `+level+`","data":{"k":1}}`)
		if v, has := out["result"]; !has || v != nil {
			t.Errorf("%s: %v", level, out)
		}
	}
	page, total := r.logs.List(telemetry.LogFilter{})
	if total != 5 || page[0].Body != "said at error" || page[0].Severity != telemetry.SeverityError ||
		page[0].Service != "chatty" ||
		string(page[0].Attributes) != `{"k":1}` {
		t.Errorf("%d records, first %+v", total, page[0])
	}
}

func TestBaggage(t *testing.T) {
	r := start(t)
	c := r.worker("w")
	call := func(function, data string) any {
		c.send(`{"type":"invokefunction","invocation_id":"b","function_id":%q,"data":%s,"baggage":"tenant=acme,k=a%%20b"}`, function, data)
		return c.result("b")["result"]
	}
	if got := call("engine::baggage::get", `{"key":"k"}`); got.(map[string]any)["value"] != "a b" {
		t.Errorf("get: %v", got)
	}
	if got := call("engine::baggage::get", `{"key":"none"}`); got.(map[string]any)["value"] != nil {
		t.Errorf("get of nothing: %v", got)
	}
	all := call("engine::baggage::get_all", `{}`).(map[string]any)["baggage"].(map[string]any)
	if all["tenant"] != "acme" || all["k"] != "a b" {
		t.Errorf("get_all: %v", all)
	}
	if got := call("engine::baggage::set",
		`{"key":"k","value":"v"}`).(map[string]any); got["success"] != true || got["note"] == "" {
		t.Errorf("set: %v", got)
	}
}

func TestHealth(t *testing.T) {
	r := start(t)
	out := r.dial().call("engine::health::check", "{}")["result"].(map[string]any)
	parts, _ := out["components"].(map[string]any)
	if out["status"] != "healthy" || out["version"] != "test" || len(parts) != 4 {
		t.Errorf("got %v", out)
	}
}

func TestTraceContextIsPassedOn(t *testing.T) {
	r := start(t)
	host, c := r.worker("host", "x::y"), r.dial()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c.send(`{"type":"invokefunction","invocation_id":"t","function_id":"x::y","traceparent":%q,"baggage":"a=1"}`, parent)
	in := host.answer("1")
	c.result("t")
	got := in.str("traceparent")
	if !strings.HasPrefix(got, parent[:36]) || got == parent {
		t.Errorf("host got %q", got)
	}
	if b := in.str("baggage"); !strings.HasPrefix(b, "a=1,iii.function.id=") {
		t.Errorf("baggage %q", b)
	}
	views, _ := telemetry.Reader{Spans: r.spans, Names: r.names}.List(telemetry.Filter{Name: "x::y"})
	if len(views) != 1 {
		t.Fatalf("%d spans", len(views))
	}
	var s struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
		Parent  string `json:"parent_span_id"`
		Status  string `json:"status"`
	}
	if err := json.Unmarshal(views[0].AppendJSON(nil), &s); err != nil {
		t.Fatal(err)
	}
	if s.TraceID != parent[3:35] || s.Parent != parent[36:52] || s.SpanID != got[36:52] || s.Status != "ok" {
		t.Errorf("span %+v, host got %s", s, got)
	}
}

func TestTelemetryMakesNoWorker(t *testing.T) {
	r := start(t)
	o := r.open("/otel")
	body := `LOGS{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"svc"}}]},"scopeLogs":[{"logRecords":[{"timeUnixNano":"1700000000000000000","severityNumber":9,"body":{"stringValue":"hello"}}]}]}]}`
	o.raw(ws.AppendMaskedFrame(nil, ws.Binary, []byte(body), 3))
	o.raw(ws.AppendMaskedFrame(nil, ws.Binary, []byte("OTLPnonsense"), 3))
	c := r.worker("w")
	c.raw(ws.AppendMaskedFrame(nil, ws.Binary, []byte(body), 3)) // the other path takes it too
	for r.logs.Stats().Recorded < 2 || r.metric("plinth_engine_telemetry_unreadable_total") == "0" {
		c.call("no::such", "")
	}
	if got := rows(c.call("engine::workers::list", ""), "workers", "name"); !slices.Equal(got,
		[]string{"engine", "w"}) {
		t.Errorf("workers: %v", got)
	}
	page, _ := r.logs.List(telemetry.LogFilter{})
	if page[0].Body != "hello" || page[0].Service != "svc" {
		t.Errorf("got %+v", page[0])
	}
}

func TestABinaryMessageIsReadAsJSON(t *testing.T) {
	r := start(t)
	c := r.dial()
	c.raw(ws.AppendMaskedFrame(nil, ws.Binary, []byte(`{"type":"ping"}`), 3))
	c.want("pong")
}

func TestDoorsAreClosedToPagesAndStrangers(t *testing.T) {
	r := start(t, func(c *engine.Config) { c.Hosts, c.Origins = []string{"plinth.test"}, []string{"https://console.test"} })
	upgrade := "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	for _, c := range []struct{ head, want string }{
		{"GET / HTTP/1.1\r\nHost: localhost:49134\r\n" + upgrade, "101"},
		{"GET /otel HTTP/1.1\r\nHost: [::1]:49134\r\n" + upgrade, "101"},
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + upgrade, "101"},
		{"GET / HTTP/1.1\r\nHost: plinth.test\r\n" + upgrade, "101"},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n" + upgrade, "403"},
		{"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n" + upgrade, "403"},
		{"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n" + upgrade, "403"},
		{"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n" + upgrade, "403"},
		{"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://console.test\r\n" + upgrade, "101"},
		{"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n" + upgrade, "404"},
		{"GET / HTTP/1.1\r\nHost: localhost\r\n", "426"},
		{"POST / HTTP/1.1\r\nHost: localhost\r\n" + upgrade, "405"},
		{"GET / HTTP/1.1\r\n" + upgrade, "400"},
	} {
		if got := status(t, r, c.head+"\r\n"); got != c.want {
			t.Errorf("%q: got %s, want %s", c.head, got, c.want)
		}
	}
}

func TestDrainAnswersWhatItTookAndRefusesTheRest(t *testing.T) {
	r := start(t, func(c *engine.Config) { c.Grace = patience })
	host, caller := r.worker("host", "x::y"), r.worker("caller")
	id := caller.ask("x::y", "1")
	in := host.want("invokefunction")
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	for { // until the engine has begun to drain
		if out := caller.call("no::such", ""); out.code() == wire.CodeDraining {
			break
		}
	}
	host.send(`{"type":"invocationresult","invocation_id":%q,"function_id":"x::y","result":"done"}`, in.str("invocation_id"))
	if out := caller.result(id); out["result"] != "done" {
		t.Errorf("the call under way: %v", out)
	}
	if _, err := caller.read(); err == nil || !strings.Contains(err.Error(), "closed 1000") {
		t.Errorf("goodbye: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestThePortableEngineServesToo runs a call over goroutines in place of epoll.
func TestThePortableEngineServesToo(t *testing.T) {
	r := start(t, func(c *engine.Config) { c.Portable = true })
	host, caller := r.worker("host", "x::y"), r.dial()
	for i := range 50 {
		id := caller.ask("x::y", fmt.Sprint(i))
		host.answer(fmt.Sprint(i + 1))
		if out := caller.result(id); out["result"] != float64(i+1) {
			t.Fatalf("got %v", out)
		}
	}
	heir := r.dial()
	heir.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`, host.id, host.token)
	heir.send(`{"type":"registerfunction","id":"x::y"}`)
	heir.announce("host", "")
	id := caller.ask("x::y", "1")
	heir.answer("2")
	if out := caller.result(id); out["result"] != 2.0 {
		t.Errorf("got %v", out)
	}
}

func TestTheMetricsPageHoldsOddNamesAndCountsWorkersOnly(t *testing.T) {
	r := start(t)
	r.open("/otel")
	odd := "odd::\u0001\"\\"
	w := r.dial()
	encoded, err := json.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	w.send(`{"type":"registerfunction","id":%s}`, encoded)
	w.announce("w", "")
	caller := r.dial()
	caller.send(`{"type":"invokefunction","invocation_id":"o","function_id":%s}`, encoded)
	w.answer("1")
	caller.result("o")
	if got := r.metric(`iii_invocations_total{function_id="odd::` + "\u0001" + `\"\\",status="ok"}`); got != "1" {
		var page strings.Builder
		r.metrics.WriteOwn(&page)
		t.Errorf("the odd name counts %q in:\n%s", got, page.String())
	}
	if got := r.metric("iii_workers_active"); got != "2" {
		t.Errorf("%s workers are connected, want 2", got)
	}
}

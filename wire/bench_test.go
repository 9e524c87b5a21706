package wire_test

import (
	"testing"

	"github.com/plinth-run/plinth/wire"
)

// messages are the frames of the benchmarks, in the names of the reference page.
var messages = []struct{ name, frame string }{
	{"InvocationResult", `{"type":"invocationresult","invocation_id":"7d6f6a2c-0b5e-4c58-9a6e-1f2d3c4b5a69",` +
		`"function_id":"billing::charge",` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"result":{"id":"ch_1","amount":990,"currency":"eur","paid":true,"tags":["a","b"]}}`},
	{"InvocationResult_Error", `{"type":"invocationresult","invocation_id":"7d6f6a2c-0b5e-4c58-9a6e-1f2d3c4b5a69",` +
		`"function_id":"billing::charge","error":{"code":"invocation_failed","message":"card refused"}}`},
	{"InvokeFunction", `{"type":"invokefunction","invocation_id":"7d6f6a2c-0b5e-4c58-9a6e-1f2d3c4b5a69",` +
		`"function_id":"billing::charge","data":{"cents":990,"card":"tok_visa","currency":"eur","n":12}}`},
	{"Ping", `{"type":"ping"}`},
	{"Pong", `{"type":"pong"}`},
	{"RegisterFunction", `{"type":"registerfunction","id":"billing::charge","description":"Charge a card",` +
		`"request_format":{"type":"object"},"metadata":{"team":"pay"}}`},
	{"RegisterTrigger", `{"type":"registertrigger","id":"2b1e6a2c-0b5e-4c58-9a6e-1f2d3c4b5a69",` +
		`"trigger_type":"cron","function_id":"jobs::sweep","config":{"expression":"0 0 * * * *"},` +
		`"metadata":{"why":"nightly"}}`},
	{"WorkerRegistered", `{"type":"workerregistered","worker_id":"0b0f5a1e-5a54-4a4b-9d4e-2b1f9c1a7e11",` +
		`"reattach_token":"6f1d5a1e-5a54-4a4b-9d4e-2b1f9c1a7e11"}`},
}

func BenchmarkProtocolDecode(b *testing.B) {
	for _, m := range messages {
		b.Run(m.name, func(b *testing.B) {
			var f wire.Frame
			raw := []byte(m.frame)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Scan(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkProtocolEncode(b *testing.B) {
	for _, m := range messages {
		b.Run(m.name, func(b *testing.B) {
			f := scanned(b, m.frame)
			dst := make([]byte, 0, 1<<10)
			b.ReportAllocs()
			for b.Loop() {
				dst = f.Append(dst[:0])
			}
		})
	}
}

func BenchmarkProtocolRoundTrip(b *testing.B) {
	for _, m := range messages {
		b.Run(m.name, func(b *testing.B) {
			in := scanned(b, m.frame)
			var out wire.Frame
			dst := make([]byte, 0, 1<<10)
			b.ReportAllocs()
			for b.Loop() {
				dst = in.Append(dst[:0])
				if err := out.Scan(dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func scanned(tb testing.TB, frame string) *wire.Frame {
	var f wire.Frame
	if err := f.Scan([]byte(frame)); err != nil {
		tb.Fatal(err)
	}
	return &f
}

func BenchmarkDrain(b *testing.B) {
	raw := []byte(`{"type":"invokefunction","data":"` + text(1<<20) + `","function_id":"a::b"}`)
	b.SetBytes(int64(len(raw)))
	var d wire.Drain
	for b.Loop() {
		d.Reset()
		d.Write(raw)
	}
}

func text(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "the quick brown fox "[i%20]
	}
	return string(b)
}

package worker_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

func TestHTTPFunctionTellsTheEngineHowToCallIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		var sent []byte
		e.Intercept(func(m workertest.Message) workertest.Verdict {
			if m.Type == wire.TypeRegisterFunction {
				sent = append([]byte(nil), m.Text...)
			}
			return workertest.Pass
		})
		w := e.Worker(t, worker.Options{}, nil)
		for auth, want := range map[*worker.HTTPAuth]string{
			nil:                                  `null`,
			worker.HTTPBearer("TOKEN"):           `{"type":"bearer","token_key":"TOKEN"}`,
			worker.HTTPSignature("SECRET"):       `{"type":"hmac","secret_key":"SECRET"}`,
			worker.HTTPKey("X-Api-Key", "VALUE"): `{"type":"api_key","header":"X-Api-Key","value_key":"VALUE"}`,
		} {
			err := w.HandleHTTP("mail::send", worker.HTTPInvocation{URL: "https://mail.example/send?a=1&b=2",
				Method: "PUT", Timeout: 1500*time.Millisecond + 1, Headers: map[string]string{"X-From": "shop"},
				Auth: auth}, worker.Description("Sends a mail"))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			var frame struct {
				Description string
				Invocation  map[string]any
			}
			if err := json.Unmarshal(sent, &frame); err != nil {
				t.Fatal(err)
			}
			var wanted any
			if err := json.Unmarshal([]byte(want), &wanted); err != nil {
				t.Fatal(err)
			}
			i := frame.Invocation
			if frame.Description != "Sends a mail" || i["url"] != "https://mail.example/send?a=1&b=2" ||
				i["method"] != "PUT" || i["timeout_ms"] != 1501.0 || !reflect.DeepEqual(i["auth"], wanted) ||
				!reflect.DeepEqual(i["headers"], map[string]any{"X-From": "shop"}) {
				t.Errorf("sent %s, want auth %s", sent, want)
			}
			if !w.Unregister("mail::send") {
				t.Error("it was not registered")
			}
		}
	})
}

func TestHTTPFunctionCannotBeRunByItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t).Worker(t, worker.Options{}, func(w *worker.Worker) error {
			return w.HandleHTTP("mail::send", worker.HTTPInvocation{URL: "http://mail.example"})
		})
		_, err := w.Call(t.Context(), "mail::send", nil)
		if !errors.Is(err, &worker.Error{Code: wire.CodeFunctionNotInvokable}) {
			t.Errorf("got %v", err)
		}
	})
}

func TestBadEndpointsAreRefusedAtOnce(t *testing.T) {
	w := fresh(t, worker.Options{})
	for name, i := range map[string]worker.HTTPInvocation{
		"no URL":    {},
		"relative":  {URL: "/send"},
		"scheme":    {URL: "ftp://x"},
		"no host":   {URL: "http:x"},
		"malformed": {URL: "http://u:s3cret@x:y"},
		"password":  {URL: "http://u:s3cret@x"},
		"timeout":   {URL: "http://x", Timeout: -1},
	} {
		if err := w.HandleHTTP("f", i); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.HandleHTTP("engine::f", worker.HTTPInvocation{URL: "http://x"}); err == nil {
		t.Error("a reserved name: accepted")
	}
}

func TestReplicasShareTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := workertest.New(t)
		rejected := make(chan worker.Rejection, 1)
		hosts := map[string]*worker.Worker{}
		for _, name := range []string{"a", "b", "c"} {
			var opts []worker.FunctionOption
			if name != "c" {
				opts = []worker.FunctionOption{worker.Replicas()}
			}
			hosts[name] = e.Worker(t, worker.Options{Name: name, Logger: silent(),
				OnRejected: func(r worker.Rejection) { rejected <- r }},
				func(w *worker.Worker) error { return w.RegisterWith("echo", echo, opts...) })
		}
		if r := <-rejected; r.Function != "echo" || r.Code != wire.CodeFunctionConflict {
			t.Errorf("who does not share: %+v", r)
		}
		for range 10 {
			if _, err := hosts["c"].Call(t.Context(), "echo", nil); err != nil {
				t.Error(err)
			}
		}
		if a, b := hosts["a"].Stats().Served, hosts["b"].Stats().Served; a != 5 || b != 5 {
			t.Errorf("%d and %d calls", a, b)
		}
		hosts["a"].Unregister("echo")
		synctest.Wait()
		if _, err := hosts["c"].Call(t.Context(), "echo", nil); err != nil || hosts["b"].Stats().Served != 6 {
			t.Errorf("the other serves on: %v, %d calls", err, hosts["b"].Stats().Served)
		}
	})
}

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

type order struct {
	Item  string `json:"item" jsonschema:"what is bought"`
	Count int    `json:"count,omitempty"`
}

type bill struct {
	Total int     `json:"total"`
	Lines []order `json:"lines,omitempty"`
}

// tree has no schema: it contains itself.
type tree struct {
	Left *tree `json:"left,omitempty"`
}

func price(_ context.Context, in order) (bill, error) {
	if in.Count < 0 {
		return bill{}, worker.Errorf("bad_count", "count is %d", in.Count)
	}
	return bill{Total: 7 * in.Count, Lines: []order{in}}, nil
}

func TestTypesGoThroughHandleAndCallAs(t *testing.T) {
	_, host, caller := pair(t, func(w *worker.Worker) error {
		return errors.Join(
			worker.Handle(w, "shop::price", price),
			worker.Handle(w, "shop::reset", func(_ context.Context, in worker.None) (worker.None, error) {
				return in, nil
			}),
			worker.Handle(w, "shop::raw", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
				return in, nil
			}),
			worker.Handle(w, "shop::broken", func(context.Context, any) (json.RawMessage, error) {
				return []byte("{"), nil
			}),
			worker.Handle(w, "shop::chan", func(context.Context, any) (chan int, error) {
				return make(chan int), nil
			}),
			worker.Handle(w, "shop::tree", func(_ context.Context, in tree) (tree, error) {
				return tree{Left: &in}, nil
			}),
		)
	})
	ctx := t.Context()
	got, err := worker.CallAs[bill](ctx, caller, "shop::price", order{Item: "nut", Count: 3})
	if err != nil || got.Total != 21 || got.Lines[0].Item != "nut" {
		t.Errorf("price: %+v, %v", got, err)
	}
	if got, err := worker.CallAs[bill](ctx, caller, "shop::price", nil); err != nil || got.Total != 0 {
		t.Errorf("price of nothing: %+v, %v", got, err)
	}
	_, err = worker.CallAs[bill](ctx, caller, "shop::price", order{Count: -1})
	if code(err) != "bad_count" {
		t.Errorf("price of a bad count: %v", err)
	}
	_, err = worker.CallAs[bill](ctx, caller, "shop::price", "text")
	if code(err) != wire.CodeDeserializationError {
		t.Errorf("a payload that does not fit: %v", err)
	}
	_, err = worker.CallAs[int](ctx, caller, "shop::price", order{})
	if code(err) != wire.CodeDeserializationError {
		t.Errorf("a result that does not fit: %v", err)
	}
	if _, err := worker.CallAs[worker.None](ctx, caller, "shop::price", order{}); err != nil {
		t.Errorf("a result of no interest: %v", err)
	}
	if raw, err := caller.Call(ctx, "shop::reset", []byte(`"ignored"`)); err != nil || raw != nil {
		t.Errorf("none: %q, %v", raw, err)
	}
	raw, err := worker.CallAs[json.RawMessage](ctx, caller, "shop::raw", json.RawMessage(`{"a": [1, 2]}`))
	if err != nil || string(raw) != `{"a": [1, 2]}` {
		t.Errorf("raw: %s, %v", raw, err)
	}
	_, err = worker.CallAs[any](ctx, caller, "shop::raw", json.RawMessage(`{`))
	if code(err) != worker.CodeInvalidJSON {
		t.Errorf("raw that is no JSON: %v", err)
	}
	for _, name := range []string{"shop::broken", "shop::chan"} {
		if _, err := worker.CallAs[any](ctx, caller, name, nil); code(err) != wire.CodeSerializationError {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := worker.CallAs[tree](ctx, host, "shop::tree", tree{}); err != nil || got.Left == nil {
		t.Errorf("tree: %+v, %v", got, err)
	}
}

func TestRegistrationsCarrySchemasOfTheTypes(t *testing.T) {
	e := workertest.New(t)
	frames := make(chan string, 10)
	e.Intercept(func(m workertest.Message) workertest.Verdict {
		if m.Type == wire.TypeRegisterFunction {
			frames <- string(m.Text)
		}
		return workertest.Pass
	})
	e.Worker(t, worker.Options{Name: "shop", Logger: silent()}, func(w *worker.Worker) error {
		return errors.Join(
			worker.Handle(w, "shop::price", price, worker.Description("Prices an order"),
				worker.Metadata(map[string]any{"team": "shop"}), worker.Replicas()),
			worker.Handle(w, "shop::tree", func(_ context.Context, in tree) (tree, error) { return in, nil },
				worker.Formats(json.RawMessage(`{"type":"object"}`), nil)),
		)
	})
	var f struct {
		ID          string
		Description string
		Metadata    struct {
			Team     string
			Replicas bool
		}
		Request struct {
			Type       string
			Required   []string
			Properties map[string]struct{ Type, Description string }
			Additional any `json:"additionalProperties"`
		} `json:"request_format"`
		Response map[string]any `json:"response_format"`
	}
	if err := json.Unmarshal([]byte(<-frames), &f); err != nil {
		t.Fatal(err)
	}
	if f.ID != "shop::price" || f.Description != "Prices an order" || f.Metadata.Team != "shop" ||
		!f.Metadata.Replicas {
		t.Errorf("registration %+v", f)
	}
	r := f.Request
	if r.Type != "object" || len(r.Required) != 1 || r.Required[0] != "item" ||
		r.Properties["count"].Type != "integer" ||
		r.Properties["item"].Description != "what is bought" {
		t.Errorf("request format %+v", r)
	}
	if r.Additional != nil {
		t.Errorf("unknown members are skipped by the handler, but its format forbids them: %v", r.Additional)
	}
	if f.Response["type"] != "object" {
		t.Errorf("response format %v", f.Response)
	}
	second := <-frames
	if !strings.Contains(second, `"request_format":{"type":"object"}`) ||
		strings.Contains(second, "response_format") {
		t.Errorf("a given format, and none of a type without a schema: %s", second)
	}
}

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/plinth-run/plinth/worker"
	"github.com/plinth-run/plinth/worker/workertest"
)

type Person struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

// A worker that hosts one function. Run it beside an engine and call it from the shell with
//
//	plinth call hello::greet name=Ann
func Example() {
	w, err := worker.New("", worker.Options{Name: "hello"})
	if err == nil {
		err = worker.Handle(w, "hello::greet", func(_ context.Context, p Person) (string, error) {
			return "Hello, " + p.Name + "!", nil
		})
	}
	if err == nil {
		err = w.Run(context.Background())
	}
	fmt.Println(err)
}

// connected runs a worker on an engine in memory, in place of a real one, until stop is called.
func connected(register func(w *worker.Worker) error) (w *worker.Worker, stop func()) {
	engine := workertest.Open()
	w, err := worker.New("", worker.Options{Dial: engine.Dial})
	if err == nil {
		err = register(w)
	}
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if err := w.Ready(ctx); err != nil {
		panic(err)
	}
	return w, func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
		engine.Close()
	}
}

func ExampleHandle() {
	type order struct {
		Item  string `json:"item"`
		Count int    `json:"count"`
	}
	w, stop := connected(func(w *worker.Worker) error {
		return worker.Handle(w, "shop::price", func(_ context.Context, o order) (int, error) {
			if o.Count < 1 {
				return 0, worker.Errorf("bad_count", "cannot sell %d of %s", o.Count, o.Item)
			}
			return 7 * o.Count, nil
		}, worker.Description("Prices an order, in cents"))
	})
	defer stop()

	result, err := w.Call(context.Background(), "shop::price", []byte(`{"item":"nut","count":3}`))
	fmt.Println(string(result), err)
	_, err = w.Call(context.Background(), "shop::price", []byte(`{"item":"nut"}`))
	fmt.Println(err)
	// Output:
	// 21 <nil>
	// bad_count: cannot sell 0 of nut
}

func ExampleCallAs() {
	w, stop := connected(func(w *worker.Worker) error {
		return worker.Handle(w, "hello::greet", func(_ context.Context, p Person) (string, error) {
			return "Hello, " + p.Name + "!", nil
		})
	})
	defer stop()

	greeting, err := worker.CallAs[string](context.Background(), w, "hello::greet", Person{"Ann"})
	fmt.Println(greeting, err)
	// Output: Hello, Ann! <nil>
}

func ExampleWorker_Register() {
	w, stop := connected(func(w *worker.Worker) error {
		return w.Register("text::echo", func(_ context.Context, payload []byte) ([]byte, error) {
			return payload, nil // JSON in, JSON out; nil is absent
		})
	})
	defer stop()

	result, err := w.Call(context.Background(), "text::echo", []byte(`{"a":[1,2]}`))
	fmt.Println(string(result), err)
	// Output: {"a":[1,2]} <nil>
}

func ExampleError() {
	w, stop := connected(func(w *worker.Worker) error {
		return w.Register("slow", func(context.Context, []byte) ([]byte, error) {
			<-time.After(100 * time.Millisecond)
			return nil, nil
		})
	})
	defer stop()

	_, err := w.Call(context.Background(), "no::such", nil)
	fmt.Println(errors.Is(err, worker.ErrNotFound))

	_, err = w.CallWith(context.Background(), "slow", nil, worker.CallTimeout(10*time.Millisecond))
	var e *worker.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.Retryable())
	}
	// Output:
	// true
	// TIMEOUT false
}

// One handler makes a channel and sends a reference to its reader; the bytes do not pass through messages.
func ExampleWorker_CreateChannel() {
	w, stop := connected(func(w *worker.Worker) error {
		return worker.Handle(w, "report::make", func(ctx context.Context, rows int) (worker.ChannelRef, error) {
			write, read, err := w.CreateChannel(ctx, 0)
			if err != nil {
				return read, err
			}
			out, err := w.OpenWriter(ctx, write)
			if err != nil {
				return read, err
			}
			go func() { // ends with the report, or when its reader leaves
				for i := range rows {
					if _, err := fmt.Fprintf(out, "row %d\n", i); err != nil {
						out.Abort() // the reader must not take a part for the whole
						return
					}
				}
				_ = out.Close()
			}()
			return read, nil
		})
	})
	defer stop()

	ctx := context.Background()
	ref, err := worker.CallAs[worker.ChannelRef](ctx, w, "report::make", 3)
	if err != nil {
		panic(err)
	}
	in, err := w.OpenReader(ctx, ref)
	if err != nil {
		panic(err)
	}
	defer in.Close()
	_, err = io.Copy(os.Stdout, in)
	fmt.Println(err)
	// Output:
	// row 0
	// row 1
	// row 2
	// <nil>
}

func ExampleWorker_RegisterTriggerType() {
	events := make(chan worker.Binding, 1)
	w, stop := connected(func(w *worker.Worker) error {
		return w.RegisterTriggerType(worker.TriggerType{ID: "inbox", Description: "A mail has come"},
			worker.TriggerProvider{
				Register: func(_ context.Context, b worker.Binding) error {
					events <- b // in earnest: keep it until Unregister, and call it for each mail
					return nil
				},
				Unregister: func(context.Context, worker.Binding) {},
			})
	})
	defer stop()

	done := make(chan struct{})
	err := w.Register("mail::read", func(_ context.Context, payload []byte) ([]byte, error) {
		fmt.Println("mail:", string(payload))
		close(done)
		return nil, nil
	})
	if err == nil {
		_, err = w.RegisterTrigger(worker.Trigger{Type: "inbox", Function: "mail::read",
			Config: map[string]string{"folder": "new"}})
	}
	if err != nil {
		panic(err)
	}

	b := <-events
	fmt.Println("config:", string(b.Config))
	ctx := context.Background()
	if err := w.Void(ctx, b.Function, []byte(`{"from":"Ann"}`), worker.CallBinding(b)); err != nil {
		panic(err)
	}
	<-done
	// Output:
	// config: {"folder":"new"}
	// mail: {"from":"Ann"}
}

func ExampleWorker_HandleHTTP() {
	w, stop := connected(func(w *worker.Worker) error {
		return w.HandleHTTP("mail::send", worker.HTTPInvocation{
			URL:     "https://mail.example/send",
			Timeout: 5 * time.Second,
			Auth:    worker.HTTPBearer("MAIL_TOKEN"), // a variable of the engine
		}, worker.Description("Sends a mail"))
	})
	defer stop()

	_, err := w.Call(context.Background(), "mail::send", []byte(`{"to":"ann@example.com"}`))
	fmt.Println(err) // the engine of this example calls nobody by HTTP
	// Output: function_not_invokable: the engine calls mail::send by HTTP, its worker cannot run it
}

func ExampleCurrent() {
	w, stop := connected(func(w *worker.Worker) error {
		return w.Register("who", func(ctx context.Context, _ []byte) ([]byte, error) {
			inv, _ := worker.Current(ctx)
			return inv.Metadata(), nil
		})
	})
	defer stop()

	result, err := w.CallWith(context.Background(), "who", nil, worker.CallMetadata([]byte(`{"tenant":"acme"}`)))
	fmt.Println(string(result), err)
	// Output: {"tenant":"acme"} <nil>
}

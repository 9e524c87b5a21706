// Command hello-go offers the function hello::greet until it is interrupted.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/plinth-run/plinth/worker"
)

type person struct {
	Name string `json:"name"`
}

type greeting struct {
	Message string `json:"message"`
}

func greet(_ context.Context, p person) (greeting, error) {
	return greeting{"Hello, " + p.Name + "!"}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	address := cmp.Or(os.Getenv("III_URL"), "ws://localhost:49134")
	w, err := worker.New(address, worker.Options{Name: "hello-go"})
	if err == nil {
		err = worker.Handle(w, "hello::greet", greet)
	}
	if err == nil {
		err = w.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Command gate-go decides who comes in through a listener with rules: whoever brings the header
// Authorization:
// Bearer open-sesame. It also hosts two functions, of which the guide exposes one.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/plinth-run/plinth/worker"
)

// visitor is what an auth function is asked.
type visitor struct {
	Headers map[string]string   `json:"headers"`
	Query   map[string][]string `json:"query_params"`
	IP      string              `json:"ip_address"`
}

// pass is what it answers: members that are left out have their defaults.
type pass struct {
	Prefix  string            `json:"function_registration_prefix"`
	Context map[string]string `json:"context"`
}

func check(_ context.Context, v visitor) (pass, error) {
	if _, key, _ := strings.Cut(v.Headers["authorization"], " "); key != "open-sesame" {
		return pass{}, worker.Errorf("denied", "nobody is let in without the word")
	}
	return pass{Prefix: "guest", Context: map[string]string{"ip": v.IP}}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	address := cmp.Or(os.Getenv("PLINTH_URL"), "ws://localhost:49134")
	w, err := worker.New(address, worker.Options{Name: "gate-go"})
	if err == nil {
		err = worker.Handle(w, "gate::check", check)
	}
	if err == nil {
		err = worker.Handle(w, "shop::list", func(context.Context, any) ([]string, error) {
			return []string{"bread", "salt"}, nil
		})
	}
	if err == nil {
		err = worker.Handle(w, "office::payroll", func(context.Context, any) (string, error) {
			return "none of your business", nil
		})
	}
	if err == nil {
		err = w.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

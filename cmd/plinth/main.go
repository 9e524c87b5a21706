// Command plinth is the program: it runs the house (serve) and speaks to one that runs (call, functions,
// workers, doctor, ...).
//
// It promises that the standard output carries the result and nothing else, that every verb which prints
// results has --json, that without a terminal nothing is coloured, moves or asks, and that the exit code says
// what happened (plinth help exit-codes). Nothing here is for other packages.
//
// It holds no logic of the rooms: serve hands over to internal/app, the other verbs call functions of a
// running engine through the public Go SDK.
package main

import (
	"context"
	"os"

	"github.com/plinth-run/plinth/internal/house"
)

func main() {
	ctx, stop := house.Signals(context.Background(), os.Stderr, os.Exit)
	p := newProgram(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

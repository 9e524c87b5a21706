// Command relay serves calls with two hops and nothing else: see package relay.
package main

import (
	"github.com/plinth-run/plinth/bench/peers/relay"
	"github.com/plinth-run/plinth/bench/peers/serve"
)

func main() { serve.Main("relay", relay.Run) }

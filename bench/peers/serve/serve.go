// Package serve is the frame of every server program among the peers: it listens on a free port of
// the loopback interface, says which in one line of JSON on standard output, as `plinth serve --json`
// does, and ends with SIGTERM or Ctrl-C.
//
// It promises that the line is written once the port takes connections. It serves nothing itself.
package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a server until it is asked to end, and exits with 1 if it fails.
func Main(name string, run func(ctx context.Context, l *net.TCPListener) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		Banner(name, l.Addr().String())
		err = run(ctx, l)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Banner writes the line that a launcher waits for.
func Banner(name, address string) {
	_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"program": name, "workers": address})
}

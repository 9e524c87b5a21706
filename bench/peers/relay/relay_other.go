//go:build !linux

package relay

import (
	"context"
	"errors"
	"net"
)

func run(_ context.Context, l *net.TCPListener) error {
	return errors.Join(l.Close(), errors.New("the relay stands on epoll: Linux only"))
}

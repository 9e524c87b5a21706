//go:build !linux

package load

import "time"

func newTransport(_ bool, epoch time.Time) (transport, error) { return newGoroutines(epoch), nil }

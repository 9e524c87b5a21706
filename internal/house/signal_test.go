//go:build !windows

package house

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestSecondSignalLeavesAtOnce(t *testing.T) {
	var said strings.Builder
	left := make(chan int, 1)
	ctx, stop := Signals(t.Context(), &said, func(code int) { left <- code })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	var got Interrupted
	if !errors.As(context.Cause(ctx), &got) || got.Signal != syscall.SIGTERM {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
	select {
	case code := <-left:
		t.Errorf("the first signal left with %d", code)
	default:
	}
	if err := self.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := <-left; code != ExitInterrupted {
		t.Errorf("left with %d", code)
	}
	stop()
	if !strings.Contains(said.String(), "leaving at once") {
		t.Errorf("said %q", said.String())
	}
}

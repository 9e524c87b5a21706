package house

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Interrupted is the cause of a context that a signal ended.
type Interrupted struct{ Signal os.Signal }

// Error names the signal.
func (i Interrupted) Error() string { return "got the signal " + i.Signal.String() }

// ExitInterrupted is the exit code of a program that a signal ended before it was done.
const ExitInterrupted = 130

// Signals gives a context that ends at the first SIGINT or SIGTERM, with Interrupted as its cause. A second
// signal calls exit with 130 at once. stop gives the signals back to the system and ends the goroutine.
func Signals(parent context.Context, note io.Writer, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() { // owned by the caller; ends with stop or with the second signal
		defer close(gone)
		for first := true; ; first = false {
			select {
			case s := <-got:
				if !first {
					_, _ = fmt.Fprintln(note, "second signal: leaving at once")
					exit(ExitInterrupted)
					return
				}
				cancel(Interrupted{s})
			case <-quit:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		close(quit)
		<-gone
		cancel(nil)
	}
}

// isEnd says whether err only tells that a context ended.
func isEnd(err error) bool {
	var i Interrupted
	return errors.Is(err, context.Canceled) || errors.As(err, &i)
}

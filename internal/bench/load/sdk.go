package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/plinth-run/plinth/worker"
)

// ConnectSDK is a Connect: callers and hosts are workers of the Go SDK with its defaults.
func ConnectSDK(ctx context.Context, job *Job) (Session, error) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &sdk{end: cancel}
	for i := range job.Hosts {
		name := prefix + strconv.Itoa(i)
		s.names = append(s.names, name)
		w, err := s.open(job.target(Host), fmt.Sprintf("bench-host-%d", i))
		if err == nil {
			err = w.Register(name, func(_ context.Context, payload []byte) ([]byte, error) { return payload, nil })
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	for i := range job.Callers {
		w, err := s.open(job.target(Caller), fmt.Sprintf("bench-caller-%d", i))
		if err != nil {
			s.Close()
			return nil, err
		}
		s.callers = append(s.callers, w)
	}
	if err := s.start(ctx, run); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start runs all workers until run ends, and waits until they are connected.
func (s *sdk) start(ctx, run context.Context) error {
	for _, w := range s.all {
		s.busy.Go(func() { _ = w.Run(run) }) // what it ended with shows in the calls
	}
	ready, stop := context.WithTimeout(ctx, dialTime)
	defer stop()
	for _, w := range s.all {
		if err := w.Ready(ready); err != nil {
			return err
		}
	}
	return nil
}

// sdk is a session of workers. It owns the goroutines that run them.
type sdk struct {
	names        []string
	all, callers []*worker.Worker
	end          context.CancelFunc
	busy         sync.WaitGroup
}

func (s *sdk) open(target, name string) (*worker.Worker, error) {
	at, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	w, err := worker.New(at.url(), worker.Options{Name: name, Token: at.key, Logger: quiet, Grace: time.Second})
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, w)
	return w, nil
}

// Call implements Session.
func (s *sdk) Call(ctx context.Context, caller, function int, payload []byte) (code string) {
	result, err := s.callers[caller].Call(ctx, s.names[function], payload)
	if err != nil {
		var e *worker.Error
		if errors.As(err, &e) {
			return e.Code
		}
		return "SDK_ERROR"
	}
	if !bytes.Equal(result, payload) {
		return CodeDiffers
	}
	return ""
}

// Close implements Session.
func (s *sdk) Close() {
	s.end()
	s.busy.Wait()
}

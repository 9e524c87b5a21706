package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plinth-run/plinth/internal/bench/load"
)

// callTime is how long a request may take.
const callTime = 30 * time.Second

// Connect is a load.Connect: callers and hosts are connections of nats.go with its defaults.
func Connect(_ context.Context, job *load.Job) (load.Session, error) {
	s := &session{}
	for i := range job.Hosts {
		nc, err := s.connect(job.Target)
		if err != nil {
			return nil, err
		}
		name := subject + strconv.Itoa(i)
		s.subjects = append(s.subjects, name)
		if _, err := nc.Subscribe(name, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
			s.Close()
			return nil, fmt.Errorf("subscribe to %s: %w", name, err)
		}
		if err := nc.Flush(); err != nil { // the server knows the subscription now
			s.Close()
			return nil, fmt.Errorf("subscribe to %s: %w", name, err)
		}
	}
	for range job.Callers {
		nc, err := s.connect(job.Target)
		if err != nil {
			return nil, err
		}
		s.callers = append(s.callers, nc)
	}
	return s, nil
}

type session struct {
	all, callers []*nats.Conn
	subjects     []string
}

func (s *session) connect(target string) (*nats.Conn, error) {
	nc, err := nats.Connect("nats://"+target, nats.NoReconnect(), nats.Timeout(dialTime))
	if err != nil {
		s.Close()
		return nil, err
	}
	s.all = append(s.all, nc)
	return nc, nil
}

// Call implements load.Session.
func (s *session) Call(_ context.Context, caller, function int, payload []byte) (code string) {
	m, err := s.callers[caller].Request(s.subjects[function], payload, callTime)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return "no_responders"
	case errors.Is(err, nats.ErrTimeout):
		return "timeout"
	case err != nil:
		return "nats"
	case !bytes.Equal(m.Data, payload):
		return load.CodeDiffers
	}
	return ""
}

// Close implements load.Session.
func (s *session) Close() {
	for _, nc := range s.all {
		nc.Close()
	}
}

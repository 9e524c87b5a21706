package load

import (
	"context"
	"fmt"

	"github.com/plinth-run/plinth/worker"
)

// channels are two workers of the Go SDK: one writes, the other reads.
type channels struct {
	sdk
	from, to *worker.Worker
}

// PlumbChannel is a Plumb whose pipes are channels between two workers of the Go SDK.
func PlumbChannel(ctx context.Context, job *Job) (Plumber, error) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &channels{sdk: sdk{end: cancel}}
	var err error
	if c.from, err = c.open(job.target(Caller), "bench-writer"); err == nil {
		c.to, err = c.open(job.target(Host), "bench-reader")
	}
	if err == nil {
		err = c.start(ctx, run)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Pipe implements Plumber.
func (c *channels) Pipe(ctx context.Context) (p Pipe, err error) {
	writer, reader, err := c.from.CreateChannel(ctx, 0)
	if err != nil {
		return p, fmt.Errorf("create a channel: %w", err)
	}
	w, err := c.from.OpenWriter(ctx, writer)
	if err != nil {
		return p, fmt.Errorf("open the writer: %w", err)
	}
	r, err := c.to.OpenReader(ctx, reader)
	if err != nil {
		w.Abort()
		return p, fmt.Errorf("open the reader: %w", err)
	}
	return Pipe{Writer: w, Reader: r}, nil
}

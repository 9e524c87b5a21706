package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/otlp"
	"github.com/plinth-run/plinth/internal/telemetry"
)

// isTelemetry recognises the binary messages of protocol section 11.
func isTelemetry(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	switch string(b[:4]) {
	case "OTLP", "MTRC", "LOGS":
		return true
	}
	return false
}

const (
	inboxMessages = 256
	inboxBytes    = 16 << 20
	keepValues    = time.Hour // a worker's metrics, after their last report
)

// inbox takes the telemetry that workers send off the event loops: it is decoded on one goroutine, and
// what does not fit the bounds is dropped and counted.
type inbox struct {
	sink    *otlp.Sink
	queue   chan []byte
	bytes   atomic.Int64
	dropped atomic.Uint64
	bad     atomic.Uint64
	engine  *Engine
}

func newInbox(e *Engine) *inbox {
	return &inbox{engine: e, queue: make(chan []byte, inboxMessages),
		sink: otlp.NewSink(e.cfg.Spans, e.cfg.Logs, e.cfg.Names)}
}

// put keeps a copy of a message, or drops it. It does not block.
func (i *inbox) put(b []byte) {
	if i.bytes.Add(int64(len(b))) > inboxBytes {
		i.bytes.Add(-int64(len(b)))
		i.dropped.Add(1)
		return
	}
	select {
	case i.queue <- append(make([]byte, 0, len(b)), b...):
	default:
		i.bytes.Add(-int64(len(b)))
		i.dropped.Add(1)
	}
}

func (i *inbox) run(ctx context.Context) error {
	clean := time.NewTicker(time.Minute)
	defer clean.Stop()
	for {
		select {
		case <-clean.C:
			i.sink.Values().Expire(telemetry.Now() - int64(keepValues))
		case b := <-i.queue:
			if err := i.sink.Take(b); err != nil {
				i.bad.Add(1)
				i.engine.log.Debug("telemetry ignored", "error", err)
			}
			i.bytes.Add(-int64(len(b)))
		case <-ctx.Done():
			return nil
		}
	}
}

package telemetry

import (
	"context"
	"log/slog"
)

// LogHandler writes records into Logs and passes them on.
type LogHandler struct {
	next slog.Handler
	logs *Logs
}

// NewLogHandler returns a handler that records into logs what next is enabled for, then passes it on to
// next.
func NewLogHandler(next slog.Handler, logs *Logs) slog.Handler { return &LogHandler{next, logs} }

func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	h.logs.Record(&Log{Time: r.Time.UnixNano(), Severity: SeverityOf(r.Level), Body: r.Message})
	return h.next.Handle(ctx, r)
}

func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LogHandler{h.next.WithAttrs(attrs), h.logs}
}

func (h *LogHandler) WithGroup(name string) slog.Handler {
	return &LogHandler{h.next.WithGroup(name), h.logs}
}

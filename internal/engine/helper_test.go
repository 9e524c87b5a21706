package engine_test

import (
	"time"

	"github.com/plinth-run/plinth/internal/engine"
)

// grace shortens the time that a worker has to introduce itself.
func grace(ms int) func(*engine.Config) {
	return func(c *engine.Config) { c.Bounds.NamespaceGrace = time.Duration(ms) * time.Millisecond }
}

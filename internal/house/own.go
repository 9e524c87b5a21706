package house

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Keys of the settings that the porch itself reads.
const (
	KeyFolder      = "data"
	KeyMemory      = "memory"
	KeyOnly        = "only"
	KeyLogLevel    = "log.level"
	KeyLogFormat   = "log.format"
	KeyAdminListen = "admin.listen"
	KeyAdminHosts  = "admin.hosts"
	KeyGrace       = "drain.grace"
)

// Settings are the porch's own. The names of the rooms are handed in, because it knows none.
func Settings(rooms []string) []Setting {
	return []Setting{
		{Key: KeyFolder, Type: Text, Default: "./plinth-data", Check: notEmpty,
			Help: "folder that holds all data; made when it is not there"},
		{Key: KeyMemory, Type: Size, Default: "auto", Words: []string{"auto"}, Min: 16 << 20, Max: 1 << 50,
			Help: "memory promise that rings, queues, buffers and caches share; " +
				"auto is three quarters of the cgroup or machine, at most 2GiB"},
		{Key: KeyOnly, Type: List, Words: rooms,
			Help: "rooms to run, such as engine; empty runs all"},
		{Key: KeyLogLevel, Type: Text, Default: "info", Words: []string{"debug", "info", "warn", "error"},
			Help: "least level that is logged"},
		{Key: KeyLogFormat, Type: Text, Default: "text", Words: []string{"text", "json"},
			Help: "form of a log line on stderr"},
		{Key: KeyAdminListen, Type: Text, Default: "127.0.0.1:8081", Check: Address,
			Help: "address of the admin door: /livez, /readyz, /metrics"},
		{Key: KeyAdminHosts, Type: List,
			Help: "more host names that the admin door answers to, beside localhost and loopback addresses"},
		{Key: KeyGrace, Type: Duration, Default: "10s", Min: int64(100 * time.Millisecond), Max: int64(time.Hour),
			Help: "how long calls in flight may take to end after SIGTERM"},
	}
}

func notEmpty(text string) error {
	if text == "" {
		return fmt.Errorf("may not be empty")
	}
	return nil
}

// NewLogger makes the logger of the program from log.level and log.format. The handler is returned bare,
// so that the program can wrap it before it makes a logger of it.
func NewLogger(w io.Writer, c *Config) slog.Handler {
	options := &slog.HandlerOptions{}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Text(KeyLogLevel))); err == nil {
		options.Level = level
	}
	if c.Text(KeyLogFormat) == "json" {
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}

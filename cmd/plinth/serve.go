package main

import (
	"context"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// newServe makes `plinth serve`.
func newServe(p *program) *cobra.Command {
	cmd := withSettings(&cobra.Command{
		Use: "serve", Short: "Run Plinth in the foreground", GroupID: groupRun,
		Long: "Runs all rooms, or those of --only, on one data folder until SIGTERM or SIGINT. Then no new work is taken, calls\n" +
			"under way have --drain-grace to end, and a second signal leaves at once.\n\n" +
			"Every flag is a setting: plinth.toml and PLINTH_... variables take the same names (plinth config shows them all).",
		Example: "  plinth serve\n  plinth serve --data /var/lib/plinth --memory 256MiB\n  PLINTH_LOG_FORMAT=json plinth serve",
		Args:    args(0, 0, "no arguments"),
	}, func(cmd *cobra.Command, _ []string, s *settings) error {
		c, err := s.load(p)
		if err != nil {
			return err
		}
		return p.serve(cmd.Context(), c)
	})
	return p.prints(cmd, formObject, house.Banner{})
}

func (p *program) serve(ctx context.Context, c *house.Config) error {
	signal.Ignore(syscall.SIGPIPE) // a reader of the log that goes away does not end the server
	lines := house.NewLines(p.err)
	logging, stop := context.WithCancel(context.WithoutCancel(ctx))
	written := make(chan struct{})
	go func() { // ends with stop, after the last line
		lines.Run(logging)
		close(written)
	}()
	defer func() {
		stop()
		<-written
	}()
	b := readBuild(debug.ReadBuildInfo)
	a, err := app.Open(ctx, c, app.Options{Version: b.Version, Commit: b.short(), Go: b.Go, Log: lines,
		LogName: "stderr"})
	if err != nil {
		return err
	}
	banner := a.Banner()
	if banner.Workers != worker.DefaultURL {
		banner.Next += " --url " + banner.Workers
	}
	p.printBanner(banner)
	return a.Run(ctx)
}

// printBanner says that the doors are open. Whoever started the program may have closed its standard
// output; that is no reason not to serve.
func (p *program) printBanner(b house.Banner) {
	if p.wantJSON() {
		_ = b.WriteJSON(p.out)
		return
	}
	_ = b.WriteText(p.out, p.outPaint().Strong)
}

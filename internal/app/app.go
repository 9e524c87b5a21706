// Package app is the house: it makes every room in start order, ties them together, and runs them.
//
// It is the only package that knows every room, and it holds no logic of its own: a page of constructors.
// It promises that a program which cannot have its data folder or a port starts nothing at all and says
// which and why, and that what was started stops in reverse order. An App belongs to one caller; State may
// be asked by anyone.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/plinth-run/plinth/internal/budget"
	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/telemetry"
)

// gcPercent is how much garbage the Go heap may hold, in percent of what lives. The hot paths make none, so
// collecting sooner costs little, and ten thousand idle workers take a quarter less memory.
const gcPercent = 50

// Options are what the program knows and the configuration does not.
type Options struct {
	Version string // "v0.1.0"
	Commit  string
	Go      string
	Log     io.Writer // where the log goes
	LogName string    // what the banner calls that place
}

// App is all rooms of one process.
type App struct {
	cfg    *house.Config
	opts   Options
	log    *slog.Logger
	life   house.Life
	dir    *store.Dir
	folder house.Folder
	limit  int64
	from   string
	budget *budget.Budget
	auth   *identity
	core   *fn.Registry
	engine *engine.Engine
	admin  *house.Admin

	workers, adminURL string
}

// Open makes the rooms, takes the data folder and binds the ports. When it fails, everything it took is
// free again; the error is, where a person can put it right, a *house.Problem.
func Open(ctx context.Context, cfg *house.Config, o Options) (*App, error) {
	a := &App{cfg: cfg, opts: o}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// open makes the rooms in start order.
func (a *App) open(ctx context.Context) error {
	cfg := a.cfg
	a.limit, a.from = cfg.Int(house.KeyMemory), "--memory"
	if a.limit == 0 {
		a.limit, a.from = budget.Detect()
	}
	a.budget = budget.Apply(a.limit)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}

	spans, logs := telemetry.NewSpans(cfg.Int(KeySpans)), telemetry.NewLogs(cfg.Int(KeyLogs))
	spanAccount := a.budget.Account("telemetry.spans", 10, spans.Shed)
	spans.SetMemory(spanAccount.Take, spanAccount.Give)
	logAccount := a.budget.Account("telemetry.logs", 20, logs.Shed)
	logs.SetMemory(logAccount.Take, logAccount.Give)
	names, metrics := telemetry.NewNames(), telemetry.NewMetrics()
	a.log = slog.New(telemetry.NewLogHandler(house.NewLogger(a.opts.Log, cfg), logs))
	a.life = house.Life{Grace: cfg.Duration(house.KeyGrace), Log: a.log}

	if err := a.openFolder(); err != nil {
		return err
	}
	var err error
	if a.auth, err = openIdentity(ctx, a.dir, cfg, a.log); err != nil {
		return err
	}
	limits, err := bounds(cfg)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	ceiling := limits.MaxInvocation
	if ceiling == 0 {
		ceiling = -1
	}
	a.core = fn.New(fn.Config{Spans: spans, Names: names, Log: a.log, MaxInFlight: limits.MaxInFlightPerWorker,
		MaxMade: limits.MaxCallsPerWorker, Ceiling: ceiling})
	a.engine, err = engine.New(engine.Config{Listener: engine.Listener{Listen: cfg.Text(KeyEngineListen),
		Hosts: cfg.List(KeyEngineHosts), Origins: cfg.List(KeyEngineOrigins)}, Functions: a.core,
		Authenticate: authenticate(a.auth.Auth),
		Bounds:       limits, Loops: int(cfg.Int(KeyEngineLoops)),
		Grace: a.life.Grace * 3 / 4, Version: a.opts.Version, Spans: spans, Logs: logs, Names: names,
		Metrics: metrics,
		Budget:  a.budget, Log: a.log})
	if err != nil {
		return err
	}
	a.admin = house.NewAdmin(house.AdminOptions{Hosts: cfg.List(house.KeyAdminHosts), State: a.life.State,
		Checks:  []house.Check{{Name: "engine", Ready: a.engine.Ready}},
		Metrics: metrics.WritePrometheus, Log: a.log})
	a.auth.Watch(a.engine.Revoke)
	metrics.Collector(a.auth.WritePrometheus)
	measure(metrics, a.budget, spans, logs)
	return a.bind(ctx)
}

// openFolder takes the data folder for this process.
func (a *App) openFolder() error {
	path := a.cfg.Text(house.KeyFolder)
	setting, _ := a.cfg.Table().Find(house.KeyFolder)
	if err := house.CheckFolder(path, setting); err != nil {
		return err
	}
	dir, err := store.Open(path, store.Options{})
	if err != nil {
		return house.FolderProblem(err, setting, path)
	}
	a.dir, a.folder = dir, house.LookAtFolder(path)
	return nil
}

// bind opens the doors.
func (a *App) bind(ctx context.Context) error {
	doors, err := a.engine.Listen(ctx)
	if err != nil {
		s, _ := a.cfg.Table().Find(KeyEngineListen)
		return house.ListenProblem(err, s, a.cfg.Text(KeyEngineListen))
	}
	a.workers = "ws://" + doors[0].String()
	s, _ := a.cfg.Table().Find(house.KeyAdminListen)
	at, err := a.admin.Listen(ctx, a.cfg.Text(house.KeyAdminListen))
	if err != nil {
		return house.ListenProblem(err, s, a.cfg.Text(house.KeyAdminListen))
	}
	a.adminURL = "http://" + at.String()
	return nil
}

// Run serves until ctx ends or a part fails, and drains.
func (a *App) Run(ctx context.Context) error {
	err := a.life.Run(ctx,
		house.Part{Name: "auth", Run: a.auth.Run},
		house.Part{Name: "functions", Run: a.core.Run},
		house.Part{Name: "admin", Run: a.admin.Run},
		house.Part{Name: "engine", Run: a.engine.Run},
	)
	return errors.Join(err, a.Close())
}

// Close gives back what Open took. After Run there is nothing left to do for it.
func (a *App) Close() (err error) {
	if a.admin != nil {
		err = a.admin.Close()
	}
	if a.engine != nil {
		err = errors.Join(err, a.engine.Close())
	}
	if a.auth != nil {
		err = errors.Join(err, a.auth.close())
	}
	if a.dir != nil {
		err = errors.Join(err, a.dir.Close())
		a.dir = nil
	}
	return err
}

// Banner says what is open where.
func (a *App) Banner() house.Banner {
	return house.Banner{Version: a.opts.Version, Commit: a.opts.Commit, Go: a.opts.Go, PID: os.Getpid(),
		Admin: a.adminURL, Workers: a.workers, Folder: a.folder, Config: a.cfg.File(),
		Log: house.LogInUse{To: a.opts.LogName, Format: a.cfg.Text(house.KeyLogFormat),
			Level: a.cfg.Text(house.KeyLogLevel)},
		Memory: house.Promise{Bytes: a.limit, From: a.from},
		Next:   "plinth functions"}
}

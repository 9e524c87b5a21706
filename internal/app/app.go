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
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/danielgtaylor/huma/v2"
	"github.com/plinth-run/plinth/internal/budget"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/auth/api"
	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/engine/httpfn"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/internal/telemetry"
	"github.com/plinth-run/plinth/wire"
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
	more              map[string]string // URLs of further listeners, by name
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
	main, more, err := a.listeners()
	if err != nil {
		return err
	}
	room, err := a.dir.Room(ctx, engineRoom, store.Schema{Number: 1})
	if err != nil {
		return fmt.Errorf("open the engine's folder: %w", err)
	}
	a.engine, err = engine.New(engine.Config{Listener: main, More: more, Functions: a.core, Room: room,
		HTTP: httpfn.Policy{Allow: cfg.List(KeyHTTPAllow), BlockPrivate: cfg.Bool(KeyHTTPPrivate),
			RequireHTTPS: cfg.Bool(KeyHTTPSecure), Env: cfg.List(KeyHTTPEnv)},
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
		Metrics: metrics.WritePrometheus, Log: a.log, Protect: api.Protect(a.auth.Auth), Version: a.opts.Version})
	a.admin.Offer(func(h huma.API) {
		api.Register(h, a.auth.Auth, api.Options{Backup: a.backup, Link: a.claimLink, Log: a.log})
	})
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

// backup copies every store into a new folder while the rooms run.
func (a *App) backup(ctx context.Context, target string) (api.Summary, error) {
	if !filepath.IsAbs(target) {
		return api.Summary{}, fault.New(fault.Invalid, wire.CodeInvalidArguments, "target must be an absolute path")
	}
	if there, err := os.ReadDir(target); err == nil && len(there) > 0 {
		return api.Summary{}, fault.Newf(fault.Conflict, auth.CodeExists, "%s is not empty: name a new folder",
			target)
	}
	sources := a.auth.Sources()
	maps.Copy(sources, a.engine.Sources())
	m, err := a.dir.Backup(ctx, target, sources)
	if err != nil {
		return api.Summary{}, err
	}
	s := api.Summary{Path: target, Files: len(m.Files), Version: m.WrittenBy}
	for _, f := range m.Files {
		s.Bytes += f.Size
	}
	return s, nil
}

// claimLink is where a person makes the first account. The token stands in the fragment, which no server
// and no
// log is told.
func (a *App) claimLink(token string) string { return a.adminURL + "/setup#token=" + token }

// narrow refuses doors beyond this machine while there is no account.
func (a *App) narrow() error {
	if a.auth.Claimed() {
		return nil
	}
	for _, key := range append([]string{KeyEngineListen, house.KeyAdminListen}, a.listenKeys()...) {
		s, _ := a.cfg.Table().Find(key)
		if s == nil {
			s = &house.Setting{Key: key}
		}
		if err := house.WideProblem(s, a.cfg.Text(key)); err != nil {
			return err
		}
	}
	return nil
}

// listenKeys are the keys of the addresses of further listeners.
func (a *App) listenKeys() (keys []string) {
	for _, name := range a.cfg.Names(listenerFamily) {
		keys = append(keys, listenerFamily+"."+name+".listen")
	}
	return keys
}

// bind opens the doors.
func (a *App) bind(ctx context.Context) error {
	if err := a.narrow(); err != nil {
		return err
	}
	doors, err := a.engine.Listen(ctx)
	if err != nil {
		key := KeyEngineListen
		if le := (*engine.ListenError)(nil); errors.As(err, &le) && le.Name != "" {
			key = listenerFamily + "." + le.Name + ".listen"
		}
		s, _ := a.cfg.Table().Find(key)
		if s == nil {
			s = &house.Setting{Key: key}
		}
		return house.ListenProblem(err, s, a.cfg.Text(key))
	}
	a.workers = "ws://" + doors[0].String()
	if a.cfg.Text(KeyEngineCert) != "" {
		a.workers = "wss://" + doors[0].String()
	}
	a.more = map[string]string{}
	for i, name := range a.cfg.Names(listenerFamily) {
		scheme := "ws://"
		if a.cfg.Text(listenerFamily+"."+name+".tls_cert") != "" {
			scheme = "wss://"
		}
		a.more[name] = scheme + doors[i+1].String()
		a.log.Info("further worker listener", "name", name, "url", a.more[name])
	}
	s, _ := a.cfg.Table().Find(house.KeyAdminListen)
	at, err := a.admin.Listen(ctx, a.cfg.Text(house.KeyAdminListen))
	if err != nil {
		return house.ListenProblem(err, s, a.cfg.Text(house.KeyAdminListen))
	}
	a.adminURL = "http://" + at.String()
	if !a.auth.Claimed() {
		a.log.Info("no account yet: programs of this machine are let in and nobody else; the first account is made by " +
			"plinth admin claim")
	}
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

// Listeners are the URLs of the further worker listeners, by name.
func (a *App) Listeners() map[string]string { return maps.Clone(a.more) }

// Banner says what is open where.
func (a *App) Banner() house.Banner {
	return house.Banner{Version: a.opts.Version, Commit: a.opts.Commit, Go: a.opts.Go, PID: os.Getpid(),
		Admin: a.adminURL, Workers: a.workers, Folder: a.folder, Config: a.cfg.File(),
		Log: house.LogInUse{To: a.opts.LogName, Format: a.cfg.Text(house.KeyLogFormat),
			Level: a.cfg.Text(house.KeyLogLevel)},
		Memory: house.Promise{Bytes: a.limit, From: a.from},
		Next:   "plinth functions"}
}

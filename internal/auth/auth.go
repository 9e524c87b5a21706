// Package auth says who is calling and what they may do: users and their roles, sessions, API keys and
// worker keys, the claim of the first account, and the audit trail of all that.
//
// It promises that a change is answered only when it and its line in the trail are on disk, that a failed
// change leaves everything as it was, that a secret is shown once and kept as a hash, that secrets are
// compared in constant time, and that Authenticate neither blocks nor hashes, so that an event loop may
// ask it. Nobody can give a right that it does not have. An Auth is safe for concurrent use. It opens no
// socket, knows no HTTP and no room; DESIGN.md has the whole story.
package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/store"
)

// Options says how to open an Auth. The zero value is good for use.
type Options struct {
	Log          *slog.Logger
	Now          func() time.Time
	HashMemory   uint32   // KiB that one password hash takes; 0 = 19,456
	HashesAtOnce int      // 0 = 1
	FS           store.FS // of the data folder; nil is the operating system's
}

// Auth is the identities of one node.
type Auth struct {
	o     Options
	log   *slog.Logger
	trail *audit.Trail
	room  *store.Room
	disk  *store.Log
	crew  crew
	calm  throttle
	local string // the local token
	stats counters
	index *index // of state; Authenticate reads it without a lock

	claimed atomic.Bool

	// change is held while a change is made durable: one at a time. Whoever changes state holds it and mu; so
	// who holds either may read it. mu is never held while anything waits.
	change sync.Mutex
	mu     sync.RWMutex
	state  state
	limits quota // attempts to claim

	watch    sync.Mutex
	watchers []func(string)
}

// The room's schema, and its log.
const (
	roomName = "auth"
	logName  = "identity"
	trailDir = "audit"
	schema   = 1

	snapshotEvery = 4096 // records
	flushEvery    = time.Minute
	tickEvery     = time.Second
)

// Open opens the identities in the data folder, and writes a new local token.
func Open(ctx context.Context, dir *store.Dir, o Options) (*Auth, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = store.OS()
	}
	a := &Auth{o: o, log: o.Log, state: newState(), calm: newThrottle(),
		crew: newCrew(o.HashesAtOnce, o.HashMemory)}
	var err error
	if a.room, err = dir.Room(ctx, roomName, store.Schema{Number: schema}); err != nil {
		return nil, fmt.Errorf("auth: open: %w", err)
	}
	a.disk, err = a.room.Log(logName, store.LogOptions{RecordBytes: 256 << 10,
		Snapshot: func(_ uint64, r io.Reader) error { return a.state.read(r) },
		Replay:   func(_ uint64, b []byte) error { return a.state.replay(b) }})
	if err != nil {
		return nil, fmt.Errorf("auth: open: %w", err)
	}
	a.trail, err = audit.Open(filepath.Join(dir.Path(), trailDir), audit.Options{Now: o.Now, FS: o.FS})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("auth: open the audit trail: %w", err), a.disk.Close())
	}
	// The folder of a new trail must outlast a loss of power like what is in it.
	if err := o.FS.SyncDir(dir.Path()); err != nil {
		return nil, errors.Join(fmt.Errorf("auth: open the audit trail: %w", err), a.Close())
	}
	a.index = a.state.index
	a.claimed.Store(len(a.state.Users) > 0)
	if err := a.newLocalToken(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Run keeps the log and the trail until ctx ends, ends what expires, and writes down when keys were last
// used. Changes wait until it runs. An error means that the disk failed: the owner must stop the process.
func (a *Auth) Run(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan error, 2)
	go func() { done <- a.disk.Run(serving) }()  // owner: Run, which waits below
	go func() { done <- a.trail.Run(serving) }() // owner: Run
	tick, flush := time.NewTicker(tickEvery), time.NewTicker(flushEvery)
	defer tick.Stop()
	defer flush.Stop()
	var err error
	left := 2
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case err = <-done:
			running = false
			left--
		case <-tick.C:
			a.expireKeys()
		case <-flush.C:
			a.expireSessions()
			a.calm.sweep(a.o.Now())
			a.flush(serving)
		}
	}
	if err == nil {
		a.flush(serving)
	}
	stop()
	for range left {
		err = errors.Join(err, <-done)
	}
	return err
}

// Close gives back an Auth that never ran; after Run it does nothing.
func (a *Auth) Close() error { return errors.Join(a.disk.Close(), a.trail.Close()) }

// Sources are the folders that a backup must have.
func (a *Auth) Sources() map[string]store.Source {
	return map[string]store.Source{roomName + "/" + logName: a.disk, trailDir: a.trail}
}

// Audit returns the trail.
func (a *Auth) Audit() *audit.Trail { return a.trail }

// Claimed reports whether there is an account.
func (a *Auth) Claimed() bool { return a.claimed.Load() }

// reason is what the trail may say of an error.
func reason(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return "internal"
}

// event begins a line of the trail for something that a principal does; nil is nobody.
func event(by *Principal, action, target string) audit.Event {
	if by == nil {
		return audit.Event{Actor: audit.Actor{Kind: kindNone}, Action: action, Target: target}
	}
	return audit.Event{Actor: audit.Actor{Kind: by.Kind, ID: by.ID, Name: by.Name}, Action: action,
		Target: target, Remote: address(by.remote), Door: by.door}
}

// address is empty where none is known.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.Unmap().String()
}

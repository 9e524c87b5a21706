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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	HashMemory   uint32 // KiB that one password hash takes; 0 = 19,456
	HashesAtOnce int    // 0 = 1
	FS           store.FS
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

	change  sync.Mutex // held while a change is made durable: one at a time
	claimed atomic.Bool

	mu       sync.RWMutex // guards everything below; never held while waiting
	state    state
	byPrefix map[string]*Key
	sessions map[string]*Session // by the hash of their token
	limits   quota               // attempts to claim

	watch   sync.Mutex
	watcher func(string)
}

// counters are what WritePrometheus shows.
type counters struct {
	logins, loginsFailed, lockedOut, refused atomic.Uint64
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
	a := &Auth{o: o, log: o.Log, byPrefix: map[string]*Key{}, sessions: map[string]*Session{},
		state: newState()}
	a.crew = newCrew(o.HashesAtOnce, o.HashMemory)
	a.calm = newThrottle()
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
	a.index()
	if err := a.newLocalToken(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// index makes the tables that are not on disk.
func (a *Auth) index() {
	for _, k := range a.state.Keys {
		a.byPrefix[k.Prefix] = k
	}
	for _, s := range a.state.Sessions {
		a.sessions[s.Hash] = s
	}
	a.claimed.Store(len(a.state.Users) > 0)
}

// Run keeps the log and the trail until ctx ends, ends what expires, and writes down when keys were last
// used.
// An error means that the disk failed: the owner must stop the process.
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
			a.expire()
		case <-flush.C:
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

// Watch has f told of each principal that lost a right: revoked, expired, disabled or changed; "" stands for
// all that came as loopback, when the first account is made. f must not block and must not call back.
func (a *Auth) Watch(f func(principal string)) {
	a.watch.Lock()
	defer a.watch.Unlock()
	a.watcher = f
}

func (a *Auth) tell(principal string) {
	a.watch.Lock()
	f := a.watcher
	a.watch.Unlock()
	if f != nil {
		f(principal)
	}
}

// commit makes a change durable and then applies it. prepare looks at the state and makes the records,
// under the
// lock for reading; an error ends it. The line of the trail is on disk first, so that nothing happens unseen.
func (a *Auth) commit(ctx context.Context, e audit.Event, prepare func(*state) ([]record, error)) error {
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.RLock()
	records, err := prepare(&a.state)
	a.mu.RUnlock()
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, reason(err)
		if fault.KindOf(err) == fault.Denied {
			e.Outcome = audit.Denied
		}
		a.trail.Note(e)
		return err
	}
	b, err := json.Marshal(records)
	if err != nil {
		return fmt.Errorf("auth: encode a change: %w", err)
	}
	if e.Action != "" {
		e.Outcome = audit.OK
		if err := a.trail.Write(context.WithoutCancel(ctx), e); err != nil {
			return fmt.Errorf("auth: write the audit trail: %w", err)
		}
	}
	// Once appended a change may become durable whatever ctx does, so it is waited for.
	at, err := a.disk.Append(context.WithoutCancel(ctx), b)
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, "the change could not be stored"
		a.trail.Note(e)
		return fmt.Errorf("auth: store a change: %w", err)
	}
	a.mu.Lock()
	for i := range records {
		a.state.apply(&records[i])
		a.reindex(&records[i])
	}
	a.mu.Unlock()
	if at%snapshotEvery == 0 {
		a.snapshot(at)
	}
	return nil
}

// reindex follows a record in the tables that are not on disk; a.mu is held.
func (a *Auth) reindex(r *record) {
	switch {
	case r.Key != nil:
		a.byPrefix[r.Key.Prefix] = a.state.Keys[r.Key.ID]
	case r.Session != nil:
		a.sessions[r.Session.Hash] = a.state.Sessions[r.Session.ID]
	case r.EndSession != "" || r.EndSessionsOf != "" || r.DropUser != "":
		for hash, s := range a.sessions {
			if a.state.Sessions[s.ID] == nil {
				delete(a.sessions, hash)
			}
		}
	}
	a.claimed.Store(len(a.state.Users) > 0)
}

// snapshot keeps the log short. A failure leaves the older one; the log tells of it.
func (a *Auth) snapshot(at uint64) {
	a.mu.RLock()
	b, err := json.Marshal(&a.state)
	a.mu.RUnlock()
	if err == nil {
		err = a.disk.Snapshot(at, func(w io.Writer) error {
			_, err := w.Write(b)
			return err
		})
	}
	if err == nil {
		err = a.disk.Truncate(at + 1)
	}
	if err != nil {
		a.log.Warn("auth: snapshot failed; the log stays long", "error", err)
	}
}

// expire tells of keys that have just run out, and forgets sessions that have.
func (a *Auth) expire() {
	now := a.o.Now()
	var gone []string
	a.mu.Lock()
	for _, k := range a.state.Keys {
		if !k.told && !k.Revoked && k.expired(now) {
			k.told = true
			gone = append(gone, k.ID)
		}
	}
	for hash, s := range a.sessions {
		if s.expired(now) {
			delete(a.sessions, hash)
			delete(a.state.Sessions, s.ID)
		}
	}
	a.calm.sweep(now)
	a.mu.Unlock()
	for _, id := range gone {
		a.tell(id)
	}
}

// flush writes down when keys and sessions were last used.
func (a *Auth) flush(ctx context.Context) {
	var used []record
	a.mu.RLock()
	for _, k := range a.state.Keys {
		if at := k.used.Load(); at > k.LastUsed.Unix() {
			used = append(used, record{Used: &use{Key: k.ID, At: time.Unix(at, 0).UTC()}})
		}
	}
	for _, s := range a.state.Sessions {
		if at := s.used.Load(); at > s.Seen.Unix()+int64(flushEvery/time.Second) {
			used = append(used, record{Used: &use{Session: s.ID, At: time.Unix(at, 0).UTC()}})
		}
	}
	a.mu.RUnlock()
	for len(used) > 0 {
		n := min(len(used), 500)
		part := used[:n]
		used = used[n:]
		if err := a.commit(ctx, audit.Event{}, func(*state) ([]record, error) { return part, nil }); err != nil {
			a.log.Warn("auth: last use not stored", "error", err)
			return
		}
	}
}

// reason is what the trail may say of an error.
func reason(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return "internal"
}

// event begins a line of the trail for something that a principal does.
func event(by *Principal, action, target string) audit.Event {
	return audit.Event{Actor: audit.Actor{Kind: by.Kind, ID: by.ID, Name: by.Name}, Action: action,
		Target: target,
		Remote: by.remote, Door: by.door}
}

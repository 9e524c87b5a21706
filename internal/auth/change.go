package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
)

// Watch has f told of each principal that lost a right: revoked, expired, disabled, changed, or with a
// session that ended, whose connections must be ended; they may come back with what is still good. ""
// stands for all that came as loopback, when the first account is made. Every f of several calls is told. f
// must not block and must not call back.
func (a *Auth) Watch(f func(principal string)) {
	a.watch.Lock()
	defer a.watch.Unlock()
	a.watchers = append(a.watchers[:len(a.watchers):len(a.watchers)], f)
}

func (a *Auth) tell(principals ...string) {
	a.watch.Lock()
	watchers := a.watchers
	a.watch.Unlock()
	for _, f := range watchers {
		for _, p := range principals {
			f(p)
		}
	}
}

// commit makes a change durable and then applies it. prepare looks at the state and makes the records; an
// error ends it. The line of the trail is on disk first, so that nothing happens unseen; when the change
// then fails, another line says so.
func (a *Auth) commit(ctx context.Context, e audit.Event, prepare func(*state) ([]record, error)) error {
	a.change.Lock()
	defer a.change.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("auth: wait for a change: %w", err)
	}
	records, err := prepare(&a.state)
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
		if e.Action != "" {
			e.Outcome, e.Reason = audit.Failed, "the change could not be stored"
			a.trail.Note(e)
		}
		return fmt.Errorf("auth: store a change: %w", err)
	}
	a.mu.Lock()
	for i := range records {
		a.state.apply(&records[i])
	}
	a.mu.Unlock()
	a.claimed.Store(len(a.state.Users) > 0)
	if at%snapshotEvery == 0 {
		a.snapshot(at)
	}
	return nil
}

// snapshot keeps the log short. A failure leaves the older one; the log tells of it. Its caller holds
// change, which is enough to read the state: readers go on.
func (a *Auth) snapshot(at uint64) {
	b, err := json.Marshal(&a.state)
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

// expireKeys tells of keys that have just run out.
func (a *Auth) expireKeys() {
	now := a.o.Now()
	var gone []string
	a.mu.RLock()
	for _, k := range a.state.Keys {
		if !k.Revoked && k.expired(now) && !k.told.Swap(true) {
			gone = append(gone, k.ID)
		}
	}
	a.mu.RUnlock()
	a.tell(gone...)
}

// expireSessions forgets sessions that have run out, and tells of their users. That is no change on disk:
// the next start finds them expired as well.
func (a *Auth) expireSessions() {
	now := a.o.Now()
	var over []*Session
	var gone []string
	a.change.Lock()
	for _, n := range a.state.Sessions {
		if n.expired(now) {
			over = append(over, n)
		}
	}
	a.mu.Lock()
	for _, n := range over {
		a.state.forget(n)
		if u := a.state.Users[n.User]; u != nil {
			gone = append(gone, u.ID)
		}
	}
	a.mu.Unlock()
	a.change.Unlock()
	a.tell(gone...)
}

// flush writes down when keys and sessions were last used.
func (a *Auth) flush(ctx context.Context) {
	var used []record
	a.mu.RLock()
	for _, k := range a.state.Keys {
		if at := k.used.Load(); at != 0 && at > k.LastUsed.Unix() {
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

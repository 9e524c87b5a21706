package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/engine"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/internal/store"
	"github.com/plinth-run/plinth/wire"
)

// engineRoom is what scopes call the engine.
const engineRoom = "engine"

// access is a principal of package auth in the words of the function core.
type access struct{ who *auth.Principal }

// Call asks for the verb of a function. Those that register something look at what it is themselves.
func (a access) Call(f *fn.Function) *fault.Error {
	if f.Verb == fn.VerbRegister || a.who.May(engineRoom, f.Verb.String(), f.Name) {
		return nil
	}
	return lacks(f.Verb.String(), f.Name)
}

// Register asks whether a name may be registered.
func (a access) Register(_, name string) *fault.Error {
	if a.who.May(engineRoom, "register", name) {
		return nil
	}
	return lacks("register", name)
}

func lacks(verb, name string) *fault.Error {
	if verb == fn.VerbRead.String() || verb == fn.VerbManage.String() {
		return fault.Newf(fault.Denied, wire.CodeForbidden, "the credential lacks the scope %s:%s", engineRoom,
			verb)
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden, "the credential lacks the scope %s:%s:%s", engineRoom, verb,
		name)
}

// authenticate says who connects to a worker socket.
func authenticate(a *auth.Auth) func(engine.Attempt) (fn.Principal, *fault.Error) {
	return func(at engine.Attempt) (fn.Principal, *fault.Error) {
		token, ok := auth.Token(at.Authorization)
		if !ok {
			return fn.Principal{}, fault.New(fault.Denied, wire.CodeAuthError,
				"the Authorization header is neither Bearer nor Basic with a key as password")
		}
		who, err := a.Authenticate(auth.Credential{Token: token, Remote: at.Remote, Browser: at.Browser,
			Door: "worker"})
		if err != nil {
			var f *fault.Error
			if !errors.As(err, &f) {
				f = fault.New(fault.Internal, "", "the credential could not be checked")
			}
			return fn.Principal{}, f
		}
		p := fn.Principal{Kind: who.Kind, ID: who.ID, Name: who.Name}
		if !who.All(engineRoom) {
			p.Access = access{who}
		}
		return p, nil
	}
}

// identity is the auth room with the goroutine that runs it. It runs from Open on, since the first account
// may
// have to be made before a door opens.
type identity struct {
	*auth.Auth
	stop context.CancelFunc
	done chan error // one value: how Run ended
}

// openIdentity opens the auth room, runs it, and makes the first account where the configuration has one.
func openIdentity(ctx context.Context, dir *store.Dir, cfg *house.Config, log *slog.Logger) (*identity,
	error) {
	a, err := auth.Open(ctx, dir, auth.Options{Log: log})
	if err != nil {
		return nil, err
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	i := &identity{Auth: a, stop: stop, done: make(chan error, 1)}
	go func() { i.done <- a.Run(own) }() // owner: identity; close waits for it
	if err := bootstrap(ctx, a, cfg, log); err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

// bootstrap makes the account of the settings bootstrap.*, if there is none yet.
func bootstrap(ctx context.Context, a *auth.Auth, cfg *house.Config, log *slog.Logger) error {
	n := auth.NewUser{Name: cfg.Text(KeyBootstrapName), Email: cfg.Text(KeyBootstrapEmail),
		Password: cfg.Text(KeyBootstrapPassword), Hash: cfg.Text(KeyBootstrapHash)}
	if n.Name == "" {
		return nil
	}
	u, created, err := a.Bootstrap(ctx, n)
	switch {
	case err != nil:
		return &house.Problem{Kind: fault.KindOf(err), Code: "bootstrap_failed",
			What: "cannot make the first account " + n.Name, Why: plainly(err),
			Do: "correct PLINTH_BOOTSTRAP_NAME, _EMAIL, and _PASSWORD (or _PASSWORD_HASH)", Err: err}
	case created:
		log.Info("first account made", "name", u.Name, "role", u.Role)
	default:
		log.Info("there is an account already: bootstrap does nothing")
	}
	return nil
}

// plainly is the message of a fault without its code.
func plainly(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

// Run waits for ctx or for the end of the room, which is a failure.
func (i *identity) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return i.close()
	case err := <-i.done:
		i.done <- err
		return fmt.Errorf("auth: %w", err)
	}
}

// close ends the room and waits for it.
func (i *identity) close() error {
	i.stop()
	err := <-i.done
	i.done <- err
	return err
}

// Package api puts identities on the admin door: the operations under /api, and the guard in front of the
// whole door.
//
// It promises that every request passes one guard, which lets by only what Open lists; that an operation asks
// the principal's own rights before it looks at anything; that answers are never stored by a browser or a
// proxy; and that a refusal is a problem document (RFC 9457) with a stable code. It keeps nothing: package
// auth does. Register and Protect are called once; what they make may be used by any goroutine.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/auth/audit"
	"github.com/plinth-run/plinth/internal/fault"
)

// Summary is what a backup holds.
type Summary struct {
	Path    string `json:"path" doc:"folder of the backup on the server"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Version string `json:"written_by" doc:"version of Plinth that made it"`
}

// Options is what the house hands in.
type Options struct {
	// Backup copies every store into a new folder on this machine; nil: there is none.
	Backup func(ctx context.Context, target string) (Summary, error)
	// Link makes the link by which a person claims the first account.
	Link func(token string) string
	// Secure says that there is TLS in front of the door. Cookies are then for TLS only, as they are when the
	// door itself has it.
	Secure bool
	Log    *slog.Logger
}

// server is the operations and what they need.
type server struct {
	auth *auth.Auth
	o    Options
}

// Register adds all operations.
func Register(h huma.API, a *auth.Auth, o Options) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &server{a, o}
	describe(h.OpenAPI())
	s.setup(h)
	s.sessions(h)
	s.users(h)
	s.keys(h)
	s.rest(h)
}

// operation begins a description.
func operation(id, method, path, summary string, status int, needs right) huma.Operation {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, DefaultStatus: status,
		Tags: []string{"identity"}, MaxBodyBytes: 64 << 10, Description: "Needs " + string(needs) + ".",
		Errors: []int{http.StatusBadRequest, http.StatusTooManyRequests}, Metadata: map[string]any{rightKey: needs}}
	if needs != nobody {
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden)
		op.Security = []map[string][]string{{"bearer": {}}, {"basic": {}}, {"session": {}}}
	}
	return op
}

// describe adds the ways in which a credential is shown.
func describe(o *huma.OpenAPI) {
	o.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer":  {Type: "http", Scheme: "bearer", Description: "a key, a session's token or the local token"},
		"basic":   {Type: "http", Scheme: "basic", Description: "the same as password, with any name"},
		"session": {Type: "apiKey", In: "cookie", Name: Cookie, Description: "what a login sets, for pages"},
	}
}

// add registers an operation whose failures are faults. The right it needs is asked first: who may not use it
// does not learn from its answers what there is.
func add[In, Out any](s *server, h huma.API, op huma.Operation, f func(context.Context, *In) (*Out, error)) {
	needs, _ := op.Metadata[rightKey].(right) // put there by operation
	huma.Register(h, op, func(ctx context.Context, in *In) (*Out, error) {
		if err := needs.check(ctx, in); err != nil {
			s.refused(ctx, op.OperationID, err)
			return nil, problemOf(err)
		}
		out, err := f(ctx, in)
		if err != nil {
			p := problemOf(err)
			if p.Status == http.StatusInternalServerError && ctx.Err() == nil {
				s.o.Log.Error("api: an operation failed", "operation", op.OperationID, "error", err)
			}
			return nil, p
		}
		return out, nil
	})
}

// refused leaves a line in the trail for somebody who tried what they may not.
func (s *server) refused(ctx context.Context, operation string, err error) {
	e := event(ctx, "operation.refuse", operation)
	e.Outcome, e.Reason = audit.Denied, problemOf(err).Detail
	s.auth.Audit().Note(e)
}

// event begins a line of the trail.
func event(ctx context.Context, action, target string) audit.Event {
	p := by(ctx)
	return audit.Event{Actor: audit.Actor{Kind: p.Kind, ID: p.ID, Name: p.Name}, Action: action, Target: target,
		Remote: remote(ctx), Door: "admin"}
}

// Problem is a refusal as a document of RFC 9457.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`

	retry time.Duration
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns what goes with the status.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="plinth"`)
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retry+time.Second-1)/time.Second)))
	}
	return h
}

// ContentType says that it is a problem document.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// statuses maps kinds of faults.
var statuses = map[fault.Kind]int{
	fault.Invalid: http.StatusBadRequest, fault.NotFound: http.StatusNotFound,
	fault.Denied: http.StatusForbidden, fault.Conflict: http.StatusConflict,
	fault.Limit:   http.StatusTooManyRequests,
	fault.Timeout: http.StatusGatewayTimeout, fault.Unavailable: http.StatusServiceUnavailable,
	fault.Internal: http.StatusInternalServerError,
}

// problemOf puts a failure into a document. The text of an internal one stays inside.
func problemOf(err error) *Problem {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		return &Problem{Title: http.StatusText(http.StatusInternalServerError),
			Status: http.StatusInternalServerError, Code: "INTERNAL",
			Detail: "it did not work; the log has the reason"}
	}
	status := statuses[f.Kind]
	if f.Kind == fault.Denied && f.Code != "FORBIDDEN" {
		status = http.StatusUnauthorized
	}
	p := &Problem{Title: http.StatusText(status), Status: status, Code: f.Code, Detail: f.Message}
	if status == http.StatusTooManyRequests {
		p.retry = 5 * time.Second
		if later := (*auth.LaterError)(nil); errors.As(err, &later) {
			p.retry = later.After
		}
	}
	return p
}

// nothing is an answer without a body.
type nothing struct{}

// by returns the principal that the guard put there.
func by(ctx context.Context) *auth.Principal {
	if p := From(ctx); p != nil {
		return p
	}
	return &auth.Principal{Kind: "none"}
}

// remote is the address of the client, as the trail has it.
func remote(ctx context.Context) string {
	if a := requestOf(ctx).credential.Remote; a.IsValid() {
		return a.String()
	}
	return ""
}

type auditInput struct {
	Actor   string    `query:"actor" doc:"id or name of who did it"`
	Action  string    `query:"action" doc:"an action, or the part before its dot"`
	Outcome string    `query:"outcome" doc:"ok, denied or failed"`
	After   time.Time `query:"after"`
	Before  time.Time `query:"before"`
	Limit   int       `query:"limit" minimum:"0" maximum:"1000" doc:"0 is 100"`
	Cursor  string    `query:"cursor"`
}

type auditOutput struct {
	Body struct {
		Events []audit.Event `json:"events"`
		Next   string        `json:"next" doc:"cursor of the page after this one; empty at the end"`
	}
}

type backupInput struct {
	Body struct {
		Target string `json:"target" minLength:"1" maxLength:"4096" doc:"absolute path of a new folder on the server"`
	}
}

type backupOutput struct{ Body Summary }

// rest adds the trail and backups.
func (s *server) rest(h huma.API) {
	add(s, h, operation("list-audit-events", http.MethodGet, "/api/audit", "What people and programs did, newest first",
		200, read),
		func(ctx context.Context, in *auditInput) (*auditOutput, error) {
			events, next, err := s.auth.Audit().Query(audit.Query{Actor: in.Actor, Action: in.Action,
				Outcome: in.Outcome, After: in.After, Before: in.Before, Limit: in.Limit, Cursor: in.Cursor})
			if err != nil {
				return nil, err
			}
			out := new(auditOutput)
			out.Body.Events, out.Body.Next = events, next
			if events == nil {
				out.Body.Events = []audit.Event{}
			}
			return out, nil
		})
	if s.o.Backup == nil {
		return
	}
	op := operation("create-backup", http.MethodPost, "/api/backups", "Copy every store into a new folder on the server",
		201, manage)
	op.Middlewares = huma.Middlewares{unhurried}
	add(s, h, op, func(ctx context.Context, in *backupInput) (*backupOutput, error) {
		if !filepath.IsAbs(in.Body.Target) {
			return nil, fault.New(fault.Invalid, "INVALID_ARGUMENTS", "target must be an absolute path on the server")
		}
		e := event(ctx, "backup.create", in.Body.Target)
		e.Outcome = audit.OK
		sum, err := s.o.Backup(ctx, in.Body.Target)
		if err != nil {
			e.Outcome, e.Reason = audit.Failed, err.Error()
		}
		// Also when the asker is gone: it was tried.
		if told := s.auth.Audit().Write(context.WithoutCancel(ctx), e); err == nil && told != nil {
			err = told
		}
		if err != nil {
			return nil, err
		}
		return &backupOutput{sum}, nil
	})
}

// unhurried takes the door's deadline for answers off a request whose work grows with what is stored.
func unhurried(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	// Where there is no connection, in a test, there is no deadline either.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	next(ctx)
}

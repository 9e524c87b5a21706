// Package api puts identities on the admin door: the operations under /api, and the guard in front of the whole
// door.
//
// It promises that every request passes one guard, which lets by only what Open lists; that an operation asks
// the principal's own rights; that answers are never stored by a browser or a proxy; and that a refusal is a
// problem document (RFC 9457) with a stable code. It keeps nothing: package auth does. Register and Protect
// are called once; what they make may be used by any goroutine.
package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
	Link   func(token string) string
	Secure bool // the door has TLS: cookies are for TLS only
}

// server is the operations and what they need.
type server struct {
	auth *auth.Auth
	o    Options
}

// Register adds all operations.
func Register(h huma.API, a *auth.Auth, o Options) {
	s := &server{a, o}
	s.setup(h)
	s.sessions(h)
	s.users(h)
	s.keys(h)
	s.rest(h)
}

// operation begins a description.
func operation(id, method, path, summary string, status int) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, DefaultStatus: status,
		Tags: []string{"identity"}, MaxBodyBytes: 64 << 10,
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden}}
}

// add registers an operation whose failures are faults.
func add[In, Out any](h huma.API, op huma.Operation, f func(context.Context, *In) (*Out, error)) {
	huma.Register(h, op, func(ctx context.Context, in *In) (*Out, error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return out, nil
	})
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

// ContentType says that it is a problem document.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// statuses maps kinds of faults.
var statuses = map[fault.Kind]int{
	fault.Invalid: http.StatusBadRequest, fault.NotFound: http.StatusNotFound, fault.Denied: http.StatusForbidden,
	fault.Conflict: http.StatusConflict, fault.Limit: http.StatusTooManyRequests,
	fault.Timeout: http.StatusGatewayTimeout, fault.Unavailable: http.StatusServiceUnavailable,
	fault.Internal: http.StatusInternalServerError,
}

// problemOf puts a failure into a document. The text of an internal one stays inside.
func problemOf(err error) *Problem {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		return &Problem{http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError, "INTERNAL",
			"it did not work; the log has the reason", 0}
	}
	status := statuses[f.Kind]
	if f.Kind == fault.Denied && f.Code != "FORBIDDEN" {
		status = http.StatusUnauthorized
	}
	p := &Problem{Title: http.StatusText(status), Status: status, Code: f.Code, Detail: f.Message}
	if status == http.StatusTooManyRequests {
		p.retry = 5 * time.Second
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

// needs refuses a principal that lacks a right of room admin.
func needs(ctx context.Context, verb string) error {
	if by(ctx).May("admin", verb, "") {
		return nil
	}
	return fault.Newf(fault.Denied, "FORBIDDEN", "this needs the scope admin:%s", verb)
}

// self lets users look at themselves.
func self(ctx context.Context, name string) error {
	if p := by(ctx); p.Kind == auth.KindUser && strings.EqualFold(p.Name, name) {
		return nil
	}
	return needs(ctx, "read")
}

// remote is the address of the client.
func remote(ctx context.Context) netip.Addr {
	r, _ := ctx.Value(requestKey{}).(*seen)
	if r == nil {
		return netip.Addr{}
	}
	return r.credential.Remote
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
	add(h, operation("list-audit-events", http.MethodGet, "/api/audit", "What people and programs did, newest first", 200),
		func(ctx context.Context, in *auditInput) (*auditOutput, error) {
			if err := needs(ctx, "read"); err != nil {
				return nil, err
			}
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
	add(h, operation("create-backup", http.MethodPost, "/api/backups", "Copy every store into a new folder on the server", 201),
		func(ctx context.Context, in *backupInput) (*backupOutput, error) {
			if err := needs(ctx, "manage"); err != nil {
				return nil, err
			}
			p := by(ctx)
			e := audit.Event{Actor: audit.Actor{Kind: p.Kind, ID: p.ID, Name: p.Name}, Action: "backup.create",
				Target: in.Body.Target, Outcome: audit.OK, Remote: remote(ctx).String(), Door: "admin"}
			sum, err := s.o.Backup(ctx, in.Body.Target)
			if err != nil {
				e.Outcome, e.Reason = audit.Failed, err.Error()
			}
			if werr := s.auth.Audit().Write(ctx, e); err == nil && werr != nil {
				err = werr
			}
			if err != nil {
				return nil, err
			}
			return &backupOutput{sum}, nil
		})
}

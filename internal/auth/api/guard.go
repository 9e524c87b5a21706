package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/plinth-run/plinth/internal/auth"
	"github.com/plinth-run/plinth/internal/fault"
)

// Cookie is the name of the session cookie.
const Cookie = "plinth_session"

// Open lists the requests that need no credential: "METHOD path". Nothing else is let by.
func Open() []string { return []string{"GET /api/setup", "POST /api/setup/claim", "POST /api/login"} }

// seen is what the guard found out about a request.
type seen struct {
	credential auth.Credential
	principal  *auth.Principal // nil where none was needed
	cookie     bool            // the credential came as cookie
	secure     bool            // it came over TLS
}

type requestKey struct{}

// requestOf is what the guard found out; nothing, where there is no guard.
func requestOf(ctx context.Context) *seen {
	if r, ok := ctx.Value(requestKey{}).(*seen); ok {
		return r
	}
	return &seen{}
}

// From returns the principal of a request; nil where none was needed.
func From(ctx context.Context) *auth.Principal {
	return requestOf(ctx).principal
}

// Protect is the one guard of the admin door. It finds the credential (Authorization, else the session
// cookie), asks package auth, and hands the principal on. Changes with a cookie must come from a page of this
// door.
func Protect(a *auth.Auth) func(http.Handler) http.Handler {
	open := map[string]bool{}
	for _, o := range Open() {
		open[o] = true
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			s := &seen{credential: credentialOf(r), secure: r.TLS != nil}
			token, ok := auth.Token(r.Header.Get("Authorization"))
			if !ok || len(r.Header.Values("Authorization")) > 1 {
				refuse(w, fault.New(fault.Denied, "AUTH_ERROR",
					"the Authorization header is neither Bearer nor Basic with a key as password"))
				return
			}
			if c, err := r.Cookie(Cookie); token == "" && err == nil {
				token, s.cookie = c.Value, true
			}
			s.credential.Token = token
			if s.cookie && !safe(r.Method) && !fromHere(r) {
				refuse(w, fault.New(fault.Denied, "FORBIDDEN",
					"a change with a session cookie must come from a page of this door"))
				return
			}
			if !open[r.Method+" "+r.URL.Path] {
				p, err := a.Authenticate(s.credential)
				if err != nil {
					refuse(w, err)
					return
				}
				if r.URL.Path == "/metrics" && !p.May("admin", "read", "metrics") && !p.May("engine", "read", "") {
					refuse(w, fault.New(fault.Denied, "FORBIDDEN",
						"this needs the scope admin:read:metrics or engine:read"))
					return
				}
				s.principal = p
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, s)))
		})
	}
}

func credentialOf(r *http.Request) auth.Credential {
	c := auth.Credential{Door: "admin", Browser: r.Header.Get("Origin") != ""}
	for name := range r.Header {
		c.Browser = c.Browser || strings.HasPrefix(name, "Sec-Fetch-")
	}
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		c.Remote = ap.Addr().Unmap()
	}
	return c
}

func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// fromHere reports whether a browser says that the request comes from a page of this door. The door refuses
// other origins itself; this does not lean on it. A browser that says nothing is not believed.
func fromHere(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	from, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host)
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the asker is gone: nobody to tell
}

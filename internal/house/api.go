package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// apiSpec is where the API describes itself.
const apiSpec = "/api/openapi.json"

// apiBody bounds the body of an operation: the door's connections may hold one each.
const apiBody = 64 << 10

// Codes of the API for what no operation says itself.
const (
	codeInvalid  = "INVALID_ARGUMENTS"
	codeInternal = "INTERNAL"
)

// desk serves the operations of the API below /api/. They are made when the first request for one comes:
// their schemas take some hundred kilobytes that a house without visitors need not hold.
type desk struct {
	version string
	log     *slog.Logger

	mu    sync.Mutex
	offer []func(huma.API) // not registered yet
	api   huma.API         // nil before the first request
	mux   *http.ServeMux

	spec func() ([]byte, error)
}

// Offer adds operations to the API: register is called once, when the API is first needed. It must come
// before Run.
func (a *Admin) Offer(register func(huma.API)) {
	a.api.mu.Lock()
	defer a.api.mu.Unlock()
	a.api.offer = append(a.api.offer, register)
}

// API gives the API with all that was offered so far. Operations may be registered in it before Run.
func (a *Admin) API() huma.API {
	a.api.mu.Lock()
	defer a.api.mu.Unlock()
	return a.api.made()
}

// made makes the API if there is none, and registers what was offered; d.mu is held.
func (d *desk) made() huma.API {
	if d.api == nil {
		d.mux = http.NewServeMux()
		d.api = humago.New(d.mux, huma.Config{
			OpenAPI: &huma.OpenAPI{Info: &huma.Info{Title: "Plinth", Version: d.version},
				OnAddOperation: []huma.AddOpFunc{patient}},
			// Others than JSON are not spoken, and asking for one gets JSON.
			Formats: map[string]huma.Format{
				"application/json": huma.DefaultJSONFormat,
				"json":             huma.DefaultJSONFormat, // of application/problem+json
			},
			DefaultFormat: "application/json", RejectUnknownQueryParameters: true,
			Transformers: []huma.Transformer{document},
		})
		d.spec = sync.OnceValues(func() ([]byte, error) { return describe(d.api.OpenAPI()) })
		d.mux.HandleFunc("GET "+apiSpec, d.openapi)
	}
	for _, register := range d.offer {
		register(d.api)
	}
	d.offer = nil
	return d.api
}

// ServeHTTP answers a request below /api/. Nothing of it may be kept by a browser or a proxy.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.made()
	mux := d.mux
	d.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	defer d.caught(w, r)
	if !arrive(w, r) {
		return
	}
	if _, pattern := mux.Handler(r); pattern != "" {
		mux.ServeHTTP(w, r)
		return
	}
	// The mux would say it in plain text; what it would say is asked first.
	said := refusal{header: http.Header{}}
	mux.ServeHTTP(&said, r)
	if said.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", said.header.Get("Allow"))
		refuse(w, said.status, "method_not_allowed", "this path takes "+said.header.Get("Allow"))
		return
	}
	refuse(w, http.StatusNotFound, "not_found", "there is no such operation; see "+apiSpec)
}

// arrive takes in the whole body, while the door's time for a request runs, and ends that time: were it to
// pass while an operation works, the connection would be taken for broken and the operation cancelled.
func arrive(w http.ResponseWriter, r *http.Request) bool {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, apiBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "LIMIT_EXCEEDED", "the body is over "+RoundSize(apiBody))
		return false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, codeInvalid, "the body did not arrive")
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	// Where there is no connection, in a test, there is no deadline either.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return true
}

// patient keeps the library from setting a deadline of its own that it does not lift.
func patient(_ *huma.OpenAPI, op *huma.Operation) { op.BodyReadTimeout = -1 }

// caught ends a request whose handler panicked. The library does that by itself when an answer cannot be
// written because its asker is gone; that is nothing to tell.
func (d *desk) caught(w http.ResponseWriter, r *http.Request) {
	failure := recover()
	if failure == nil || r.Context().Err() != nil {
		return
	}
	d.log.Error("a handler of the API panicked", "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(failure), "stack", string(debug.Stack()))
	refuse(w, http.StatusInternalServerError, codeInternal, "the server failed; its log has more")
}

func (d *desk) openapi(w http.ResponseWriter, _ *http.Request) {
	b, err := d.spec()
	if err != nil {
		refuse(w, http.StatusInternalServerError, codeInternal, "the description of the API cannot be written")
		return
	}
	w.Header().Set("Content-Type", "application/openapi+json")
	_, _ = w.Write(b) // the asker is gone: nobody to tell
}

// describe writes the description. The library puts its own form of errors into it, which document replaces.
func describe(o *huma.OpenAPI) ([]byte, error) {
	if schemas := o.Components.Schemas.Map(); schemas["ErrorModel"] != nil {
		ours := huma.SchemaFromType(o.Components.Schemas, reflect.TypeFor[problem]())
		schemas["ErrorModel"] = ours
	}
	return json.Marshal(o)
}

// refusal takes the answer of a mux that found nothing.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header         { return r.header }
func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }
func (r *refusal) WriteHeader(status int)      { r.status = status }

// problem is the body of every answer that is no success (RFC 9457), with the stable code.
type problem struct {
	Title  string `json:"title" doc:"The status in words"`
	Status int    `json:"status" doc:"The HTTP status"`
	Code   string `json:"code" doc:"The stable text to match on"`
	Detail string `json:"detail,omitempty" doc:"What is wrong, for a person"`
}

// document turns the errors that the library makes into ours. What was sent is not sent back with them: it
// may be a password.
func document(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &problem{Title: http.StatusText(m.Status), Status: m.Status, Code: codeInvalid, Detail: m.Detail}
	switch m.Status {
	case http.StatusInternalServerError:
		p.Code, p.Detail = codeInternal, "the server failed; its log has more"
		return p, nil
	case http.StatusRequestEntityTooLarge:
		p.Code = "LIMIT_EXCEEDED"
	case http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		p.Code = "bad_media_type"
	}
	var more []string
	for _, e := range m.Errors {
		if e == nil || len(more) == 8 {
			continue
		}
		text := e.Message
		if e.Location != "" {
			text = e.Location + ": " + text
		}
		more = append(more, text)
	}
	if len(more) > 0 {
		p.Detail += ": " + strings.Join(more, "; ")
	}
	return p, nil
}

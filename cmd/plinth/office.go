package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// office is the admin door, for one verb.
type office struct {
	door   *door
	client *http.Client
}

const (
	officeTimeout = 30 * time.Second
	maxAnswer     = 16 << 20
)

// office finds the admin door.
func (p *program) office() (*office, error) {
	d, err := p.door()
	if err != nil {
		return nil, err
	}
	p.url = d.URL
	stay := func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a token goes to the door that was named, and to no other
	}
	return &office{d, &http.Client{Timeout: officeTimeout, CheckRedirect: stay}}, nil
}

// withOffice runs a verb at the admin door.
func (p *program) withOffice(do func(o *office) error) error {
	o, err := p.office()
	if err != nil {
		return err
	}
	return do(o)
}

// refusal is a problem document of the door.
type refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

// ask makes one request. in and out may be nil.
func (o *office) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("request of %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, o.door.Admin+path, body)
	if err != nil {
		return usage("the address of the admin door is wrong: "+err.Error(), "such as --admin "+defaultAdmin)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if o.door.token != "" {
		r.Header.Set("Authorization", "Bearer "+o.door.token)
	}
	a, err := o.client.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return &house.Problem{Kind: fault.Unavailable, Code: codeUnreachable,
			What: "cannot reach the admin door at " + o.door.Admin, Why: err.Error(),
			Do: "Is it running? Start it with: plinth serve. Another address: --admin or PLINTH_ADMIN", Err: err}
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil {
		return &house.Problem{Kind: fault.Unavailable, Code: codeUnreachable,
			What: "the answer of " + o.door.Admin + " broke off", Why: err.Error(), Err: err}
	}
	if a.StatusCode >= 300 {
		return o.failed(a.StatusCode, b)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &house.Problem{Kind: fault.Internal, Code: "bad_answer", Err: err, Why: err.Error(),
			What: "the answer of " + path + " is not understood",
			Do:   "check that " + o.door.Admin + " is the admin door of a Plinth of this version"}
	}
	return nil
}

// failed puts a refusal into words.
func (o *office) failed(status int, body []byte) error {
	var r refusal
	if json.Unmarshal(body, &r) != nil || r.Detail == "" {
		r.Detail = first(http.StatusText(status), fmt.Sprint("status ", status))
	}
	for _, e := range r.Errors {
		r.Detail += fmt.Sprintf("; %s: %s", e.Location, e.Message)
	}
	one := &house.Problem{Kind: fault.Internal, Code: first(r.Code, fmt.Sprint("HTTP_", status)),
		What: "Plinth refuses", Why: r.Detail}
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		one.Kind = fault.Invalid
	case http.StatusUnauthorized:
		one.Kind, one.Do = fault.Denied, o.door.howToProve()
	case http.StatusForbidden:
		one.Kind, one.Do = fault.Denied, o.howToBeAllowed()
	case http.StatusNotFound:
		one.Kind = fault.NotFound
	case http.StatusConflict:
		one.Kind = fault.Conflict
	case http.StatusTooManyRequests:
		one.Kind, one.Do = fault.Limit, "try again later"
	case http.StatusServiceUnavailable:
		one.Kind, one.Do = fault.Unavailable, "try again later"
		if r.Code == codeUnclaimed {
			one.Do = "make the first account: plinth admin claim"
		}
	case http.StatusGatewayTimeout:
		one.Kind = fault.Timeout
	}
	if status < 400 || r.Code == "" && one.Kind == fault.Internal {
		one.Do = "check that " + o.door.Admin + " is the admin door of a Plinth"
	}
	return one
}

// howToBeAllowed says what to do about a right that is missing.
func (o *office) howToBeAllowed() string {
	if o.door.token == "" {
		return o.door.howToProve()
	}
	return "plinth admin status shows who you are there and what you may do"
}

// near adds the names that may have been meant to a failure of kind NotFound. names is asked only then, and
// its own failure is not told: the first one is.
func near(err error, wanted string, names func() ([]string, error)) error {
	one := (*house.Problem)(nil)
	if !errors.As(err, &one) || one.Kind != fault.NotFound {
		return err
	}
	if all, bad := names(); bad == nil {
		one.Near = house.Nearest(wanted, all)
	}
	return err
}

// dryFlag adds --dry-run, which tells what would be done.
func dryFlag(cmd *cobra.Command, dry *bool) {
	cmd.Flags().BoolVar(dry, "dry-run", false, "say what would be done, and do nothing")
}

// yesFlag adds --yes, which answers the question of sure.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do not ask; needed where nobody can be asked")
}

// sure asks before what cannot be undone. Without a terminal there is nobody to ask, so --yes is needed.
func (p *program) sure(ctx context.Context, what string, yes bool) error {
	if yes {
		return nil
	}
	if !p.canAsk() {
		return usage("this cannot be undone, and there is no terminal to ask at: "+what, "add --yes, or --dry-run to look first")
	}
	answer, err := p.ask(ctx, what+"? Type yes: ", true)
	if err != nil {
		return err
	}
	if !strings.EqualFold(strings.TrimSpace(answer), "yes") {
		return &house.Problem{Kind: fault.Internal, Code: "declined", What: "nothing was done",
			Why: "the answer was not yes"}
	}
	return nil
}

// done is what verbs print that change something and have nothing else to show.
type done struct {
	Done string `json:"done"` // what was done, or would be
	Dry  bool   `json:"dry_run"`
}

// finish prints what was done.
func (p *program) finish(what string, dry bool) error {
	if p.wantJSON() {
		return p.printJSON(done{what, dry})
	}
	if dry {
		what = "would have: " + what
	}
	p.note("%s", what)
	return nil
}

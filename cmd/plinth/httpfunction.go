package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// httpFunction is a function that is an HTTP endpoint, as engine::http-functions::add takes it.
type httpFunction struct {
	FunctionID  string         `json:"function_id"`
	Namespace   string         `json:"namespace,omitempty"`
	Description string         `json:"description,omitempty"`
	Invocation  httpInvocation `json:"invocation"`
}

// httpInvocation is protocol section 10.
type httpInvocation struct {
	URL       string            `json:"url"`
	Method    string            `json:"method,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Auth      *httpAuth         `json:"auth,omitempty"`
}

// httpAuth names variables of the environment of the server; the secrets themselves stay there.
type httpAuth struct {
	Type      string `json:"type"`
	SecretKey string `json:"secret_key,omitempty"`
	TokenKey  string `json:"token_key,omitempty"`
	Header    string `json:"header,omitempty"`
	ValueKey  string `json:"value_key,omitempty"`
}

// addedRow is the answer of engine::http-functions::add.
type addedRow struct {
	FunctionID string `json:"function_id"`
	Namespace  string `json:"namespace"`
	Replaced   bool   `json:"replaced"`
}

// parseHTTPAuth reads --auth: bearer:VARIABLE, hmac:VARIABLE or api_key:HEADER:VARIABLE.
func parseHTTPAuth(text string) (*httpAuth, error) {
	parts := strings.Split(text, ":")
	switch {
	case parts[0] == "bearer" && len(parts) == 2 && parts[1] != "":
		return &httpAuth{Type: "bearer", TokenKey: parts[1]}, nil
	case parts[0] == "hmac" && len(parts) == 2 && parts[1] != "":
		return &httpAuth{Type: "hmac", SecretKey: parts[1]}, nil
	case parts[0] == "api_key" && len(parts) == 3 && parts[1] != "" && parts[2] != "":
		return &httpAuth{Type: "api_key", Header: parts[1], ValueKey: parts[2]}, nil
	}
	return nil, usage("--auth is not understood",
		"bearer:VARIABLE, hmac:VARIABLE or api_key:HEADER:VARIABLE; the variable is set where Plinth runs")
}

func (p *program) newFunctionAdd() *cobra.Command {
	var f httpFunction
	var headers []string
	var proof string
	var timeout time.Duration
	var dry bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make a function of an HTTP endpoint; it outlives restarts",
		Example: "  plinth functions add billing::charge --endpoint https://billing.example.org/charge --auth hmac:BILLING_SECRET\n" +
			"  plinth functions add mail::send --endpoint https://mail.example.org/send --header X-Team=ops --timeout 5s",
		Args: args(1, 1, "the name of a function"),
		RunE: func(cmd *cobra.Command, given []string) error {
			f.FunctionID = given[0]
			if f.Invocation.URL == "" {
				return usage("--endpoint is missing",
					"such as --endpoint https://example.org/hook; --url is the socket of the engine")
			}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, "=")
				if !ok || name == "" {
					return usage("a --header is not NAME=VALUE", "such as --header X-Team=ops")
				}
				if strings.EqualFold(name, "Authorization") {
					return usage("the header Authorization is a secret, and a command line is seen by everyone",
						"set a variable where Plinth runs, and give its name: --auth bearer:VARIABLE")
				}
				if f.Invocation.Headers == nil {
					f.Invocation.Headers = map[string]string{}
				}
				f.Invocation.Headers[name] = value
			}
			if proof != "" {
				var err error
				if f.Invocation.Auth, err = parseHTTPAuth(proof); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("timeout") {
				if f.Invocation.TimeoutMS = timeout.Milliseconds(); f.Invocation.TimeoutMS < 1 {
					return usage("--timeout must be at least 1ms", "such as --timeout 5s")
				}
			}
			if dry {
				return p.finish("make function "+f.FunctionID+" of "+f.Invocation.URL, true)
			}
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				var row addedRow
				if err := c.ask(ctx, "engine::http-functions::add", f, &row); err != nil {
					return err
				}
				word := "added"
				if row.Replaced {
					word = "replaced"
				}
				p.note("function %s is %s", row.FunctionID, word)
				if p.wantJSON() {
					return p.printJSON(row)
				}
				return nil
			})
		},
	}
	p.engineFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.Invocation.URL, "endpoint", "", "URL that is called, https unless the server allows http")
	flags.StringVar(&f.Invocation.Method, "method", "", "GET, POST, PUT, PATCH or DELETE; default POST")
	flags.StringArrayVar(&headers, "header", nil, "NAME=VALUE of a header; may be given more than once")
	flags.DurationVar(&timeout, "timeout", 0, "how long the endpoint may take; default is the server's")
	flags.StringVar(&proof, "auth", "", "bearer:VARIABLE, hmac:VARIABLE or api_key:HEADER:VARIABLE of the server")
	flags.StringVar(&f.Description, "description", "", "what the function does")
	flags.StringVar(&f.Namespace, "namespace", "", "namespace; default is default")
	dryFlag(cmd, &dry)
	return p.prints(cmd, formObject, addedRow{})
}

// notAdded tells that no such function was added, and which one may have been meant.
func (c *client) notAdded(ctx context.Context, name string) error {
	err := &house.Problem{Kind: fault.NotFound, Code: "NOT_FOUND", What: "no function " + name + " was added",
		Why: "functions of workers go with their workers", Do: "plinth functions shows who hosts it"}
	return near(err, name, func() (names []string, err error) {
		var out struct {
			Functions []addedRow `json:"functions"`
		}
		err = c.ask(ctx, "engine::http-functions::list", struct{}{}, &out)
		for _, f := range out.Functions {
			names = append(names, f.FunctionID)
		}
		return names, err
	})
}

func (p *program) newFunctionRemove() *cobra.Command {
	var namespace string
	var dry bool
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Remove a function that was added", Example: "  plinth functions remove billing::charge",
		Args: args(1, 1, "the name of a function"), ValidArgsFunction: p.completeFunctions,
		RunE: func(cmd *cobra.Command, given []string) error {
			what := "remove function " + given[0]
			if dry {
				return p.finish(what, true)
			}
			return p.withEngine(cmd.Context(), func(ctx context.Context, c *client) error {
				var out struct {
					Removed bool `json:"removed"`
				}
				if err := c.ask(ctx, "engine::http-functions::remove", map[string]string{"function_id": given[0],
					"namespace": namespace}, &out); err != nil {
					return err
				}
				if !out.Removed {
					return c.notAdded(ctx, given[0])
				}
				return p.finish(what, false)
			})
		},
	}
	p.engineFlags(cmd)
	cmd.Flags().StringVar(&namespace, "namespace", "", "namespace; default is default")
	dryFlag(cmd, &dry)
	return p.prints(cmd, formObject, done{})
}

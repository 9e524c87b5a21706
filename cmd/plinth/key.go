package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/house"
)

// keyRow is a key without its secret, as the admin door gives it.
type keyRow struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Prefix   string     `json:"prefix"`
	Owner    string     `json:"owner"`
	Scopes   []string   `json:"scopes"`
	Created  time.Time  `json:"created"`
	Expires  *time.Time `json:"expires,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"`
	Status   string     `json:"status"`
}

// newKeyRow is a key with its secret, which is shown this once.
type newKeyRow struct {
	Key    keyRow `json:"key"`
	Secret string `json:"secret"`
}

// newKey makes `plinth key` with its verbs; alone it lists.
func newKey(p *program) *cobra.Command {
	list := p.newKeyList()
	cmd := &cobra.Command{
		Use: "key", Short: "Manage API keys and worker keys", GroupID: groupLook, Aliases: []string{"keys"},
		Long: "A key has scopes: room:verb or room:verb:prefix, where the prefix narrows it to names that begin with it.\n" +
			"Rooms are engine, flows, sites, secrets and admin; verbs are read, call, register, write and manage; * is all.",
		Example: "  plinth key\n  plinth key create billing --scope engine:register:billing:: --scope engine:call:billing::",
	}
	cmd.AddCommand(list, p.newKeyInfo(), p.newKeyCreate(), p.newKeyRevoke())
	alone(cmd, list)
	return cmd
}

// keys lists the keys.
func (o *office) keys(ctx context.Context) ([]keyRow, error) {
	out := struct {
		Keys []keyRow `json:"keys"`
	}{[]keyRow{}}
	err := o.ask(ctx, http.MethodGet, "/api/keys", nil, &out)
	return out.Keys, err
}

// askKey asks about one key; a failure has the names that may have been meant.
func (o *office) askKey(ctx context.Context, key, method string, out any) error {
	err := o.ask(ctx, method, "/api/keys/"+url.PathEscape(key), nil, out)
	return near(err, key, func() (names []string, err error) {
		rows, err := o.keys(ctx)
		for _, k := range rows {
			names = append(names, k.Name)
		}
		return names, err
	})
}

func (p *program) newKeyList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the keys, without their secrets", Example: "  plinth key list --json=lines",
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withOffice(func(o *office) error {
				rows, err := o.keys(cmd.Context())
				if err != nil {
					return err
				}
				if p.wantJSON() {
					return printRows(p, rows)
				}
				if len(rows) == 0 {
					p.note("no keys yet: plinth key create NAME --kind worker --scope engine:*")
					return nil
				}
				t := p.table("name", "prefix", "kind", "status", "scopes", "expires", "last used")
				for _, k := range rows {
					expires := "never"
					if k.Expires != nil {
						expires = k.Expires.Format(time.DateOnly)
					}
					t.Row(k.Name, k.Prefix, k.Kind, k.Status, strings.Join(k.Scopes, " "), expires, ago(k.LastUsed))
				}
				_, err = t.WriteTo(p.out)
				return wrote(err)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formList, keyRow{})
}

// printKey prints one key.
func (p *program) printKey(k keyRow) error {
	if p.wantJSON() {
		return p.printJSON(k)
	}
	t := p.table("what", "value")
	t.Row("name", k.Name)
	t.Row("id", k.ID)
	t.Row("kind", k.Kind)
	t.Row("begins with", k.Prefix)
	t.Row("status", k.Status)
	for i, s := range k.Scopes {
		t.Row([]string{"scopes", ""}[min(i, 1)], s)
	}
	t.Row("made by", k.Owner)
	t.Row("made", k.Created.Format(time.RFC3339))
	if k.Expires != nil {
		t.Row("expires", k.Expires.Format(time.RFC3339))
	}
	t.Row("last used", ago(k.LastUsed))
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

func (p *program) newKeyInfo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "info KEY", ValidArgsFunction: p.completeKeys,
		Short: "Show one key, by name, id or prefix", Example: "  plinth key info billing",
		Args: args(1, 1, "a name, an id or a prefix"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withOffice(func(o *office) error {
				var out struct {
					Key keyRow `json:"key"`
				}
				if err := o.askKey(cmd.Context(), given[0], http.MethodGet, &out); err != nil {
					return err
				}
				return p.printKey(out.Key)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	return p.prints(cmd, formObject, keyRow{})
}

func (p *program) newKeyCreate() *cobra.Command {
	var kind, expires string
	var scopes []string
	var dry bool
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a key; its text is shown this once", Args: args(1, 1, "a name"),
		Long: "Prints the text of the key on the standard output, and nothing else there. Nobody can read it again.",
		Example: "  plinth key create billing --kind worker --scope engine:register:billing:: --scope engine:call:billing:: > billing.key\n" +
			"  plinth key create deploy --kind api --scope 'engine:*' --expires 90d --json",
		RunE: func(cmd *cobra.Command, given []string) error {
			in := map[string]any{"name": given[0], "kind": kind, "scopes": scopes}
			if len(scopes) == 0 {
				return usage("a key needs a scope", "such as --scope engine:call:billing::")
			}
			if expires != "" {
				d, err := house.ParseDuration(expires)
				if err != nil || d < time.Second {
					return usage("--expires is no duration", "such as --expires 90d or --expires 12h")
				}
				in["expires_in_seconds"] = int64(d / time.Second)
			}
			if dry {
				return p.finish("make the "+kind+" key "+given[0]+" with "+strings.Join(scopes, " "), true)
			}
			return p.withOffice(func(o *office) error {
				var out newKeyRow
				if err := o.ask(cmd.Context(), http.MethodPost, "/api/keys", in, &out); err != nil {
					return err
				}
				if p.wantJSON() {
					return p.printJSON(out)
				}
				p.note("key %s is made; this is the only time that it is shown", out.Key.Name)
				return p.print(out.Secret + "\n")
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&kind, "kind", "worker", "worker (room engine only) or api")
	cmd.Flags().StringArrayVar(&scopes, "scope", nil, "room:verb or room:verb:prefix; may be given more than once")
	cmd.Flags().StringVar(&expires, "expires", "", "how long it is good, such as 90d; default is for ever")
	dryFlag(cmd, &dry)
	return p.prints(cmd, formObject, newKeyRow{})
}

func (p *program) newKeyRevoke() *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "revoke KEY", ValidArgsFunction: p.completeKeys,
		Short:   "End a key for good, and its connections",
		Example: "  plinth key revoke billing\n  plinth key revoke billing --yes",
		Args:    args(1, 1, "a name, an id or a prefix"),
		RunE: func(cmd *cobra.Command, given []string) error {
			what := "revoke key " + given[0] + " and end its connections"
			if dry {
				return p.finish(what, true)
			}
			return p.withOffice(func(o *office) error {
				if err := p.sure(cmd.Context(), what, yes); err != nil {
					return err
				}
				if err := o.askKey(cmd.Context(), given[0], http.MethodDelete, nil); err != nil {
					return err
				}
				return p.finish(what, false)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	dryFlag(cmd, &dry)
	yesFlag(cmd, &yes)
	return p.prints(cmd, formObject, done{})
}

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/house"
)

// auditRow is one line of the trail, as the admin door gives it.
type auditRow struct {
	Time  time.Time `json:"time"`
	Actor struct {
		Kind string `json:"kind"`
		ID   string `json:"id,omitempty"`
		Name string `json:"name,omitempty"`
	} `json:"actor"`
	Action  string `json:"action"`
	Target  string `json:"target,omitempty"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Remote  string `json:"remote,omitempty"`
	Door    string `json:"door,omitempty"`
	Trace   string `json:"trace,omitempty"`
	Count   int    `json:"count,omitempty"`
}

// newAudit makes `plinth audit`; alone it lists.
func newAudit(p *program) *cobra.Command {
	list := p.newAuditList()
	cmd := &cobra.Command{
		Use: "audit", Short: "Read the audit trail", GroupID: groupLook,
		Example: "  plinth audit\n  plinth audit list --action login --outcome denied --since 24h",
	}
	cmd.AddCommand(list)
	alone(cmd, list)
	return cmd
}

func (p *program) newAuditList() *cobra.Command {
	var actor, action, outcome, since string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List what people and programs did, newest first", Args: args(0, 0, "no arguments"),
		Example: "  plinth audit list --actor ann\n  plinth audit list --action key --json=lines",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for name, v := range map[string]string{"actor": actor, "action": action, "outcome": outcome} {
				if v != "" {
					q.Set(name, v)
				}
			}
			if since != "" {
				d, err := house.ParseDuration(since)
				if err != nil {
					return usage("--since is no duration", "such as --since 24h")
				}
				q.Set("after", time.Now().Add(-d).UTC().Format(time.RFC3339))
			}
			return p.withOffice(func(o *office) error {
				rows := []auditRow{}
				for {
					q.Set("limit", fmt.Sprint(min(limit-len(rows), 1000)))
					var out struct {
						Events []auditRow `json:"events"`
						Next   string     `json:"next"`
					}
					if err := o.ask(cmd.Context(), http.MethodGet, "/api/audit?"+q.Encode(), nil, &out); err != nil {
						return err
					}
					rows = append(rows, out.Events...)
					if out.Next == "" || len(rows) >= limit {
						break
					}
					q.Set("cursor", out.Next)
				}
				return p.printAudit(rows)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	cmd.Flags().StringVar(&actor, "actor", "", "name or id of who did it")
	cmd.Flags().StringVar(&action, "action", "", "an action such as login, or the part before its dot such as key")
	cmd.Flags().StringVar(&outcome, "outcome", "", "ok, denied or failed")
	cmd.Flags().StringVar(&since, "since", "", "no older than this, such as 24h or 7d")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many lines")
	return p.prints(cmd, formList, auditRow{})
}

func (p *program) printAudit(rows []auditRow) error {
	if p.wantJSON() {
		return printRows(p, rows)
	}
	if len(rows) == 0 {
		p.note("nothing there")
		return nil
	}
	t := p.table("time", "who", "action", "target", "outcome", "from", "reason")
	for _, r := range rows {
		who := strings.TrimSpace(r.Actor.Kind + " " + r.Actor.Name)
		outcome := r.Outcome
		if r.Count > 1 {
			outcome = fmt.Sprintf("%s ×%d", outcome, r.Count)
		}
		t.Row(r.Time.Local().Format(time.DateTime), who, r.Action, r.Target, outcome, r.Remote, r.Reason)
	}
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

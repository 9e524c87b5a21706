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

// maxAudit bounds one listing; more is for --since and --until.
const maxAudit = 100_000

// moment reads how long ago something was, or when; the zero time of "".
func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := house.ParseDuration(text); err == nil {
		return time.Now().Add(-d), nil
	}
	return time.Parse(time.RFC3339, text)
}

func (p *program) newAuditList() *cobra.Command {
	var actor, action, outcome, since, until string
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
			if limit < 1 || limit > maxAudit {
				return usage(fmt.Sprintf("--limit must be between 1 and %d", maxAudit),
					"narrow the list with the other flags")
			}
			for _, f := range [][3]string{{"--since", "after", since}, {"--until", "before", until}} {
				at, err := moment(f[2])
				if err != nil {
					return usage(f[0]+" is neither a duration nor a time", "such as 24h, 7d or 2026-01-31T12:00:00Z")
				}
				if !at.IsZero() {
					q.Set(f[1], at.UTC().Format(time.RFC3339))
				}
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
	cmd.Flags().StringVar(&since, "since", "", "no older than this: how long ago (24h, 7d) or a time (RFC 3339)")
	cmd.Flags().StringVar(&until, "until", "", "no younger than this: how long ago or a time")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many lines")
	return p.prints(cmd, formList, auditRow{})
}

func (p *program) printAudit(rows []auditRow) error {
	if p.wantJSON() {
		return printRows(p, rows)
	}
	if len(rows) == 0 {
		p.note("no such events: leave out a flag to see more")
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

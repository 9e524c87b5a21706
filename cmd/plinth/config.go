package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
)

// configuration is what `plinth config --json` prints.
type configuration struct {
	File     string      `json:"file"` // "" when there is none
	Settings []house.Row `json:"settings"`
}

// newConfig makes `plinth config` and its verbs.
func newConfig(p *program) *cobra.Command {
	cmd := withSettings(&cobra.Command{
		Use: "config [KEY ...]", Short: "Show the effective settings and where each came from", GroupID: groupLook,
		Long: "Shows what plinth serve would run with, given the same flags, environment and folder: every setting, its value\n" +
			"and where that came from. The sources are, weakest first: the defaults, plinth.toml, PLINTH_... variables, flags.",
		Example: "  plinth config\n  plinth config log\n  plinth config --memory 256MiB --json",
		Args:    cobra.ArbitraryArgs,
	}, func(cmd *cobra.Command, args []string, s *settings) error {
		if len(args) > 0 && len(house.Nearest(args[0], verbsOf(cmd))) > 0 {
			return group(cmd, args)
		}
		c, err := s.load(p)
		if err != nil {
			return err
		}
		rows, err := rowsOf(c.Rows(), args)
		if err != nil {
			return err
		}
		return p.printConfig(c.File(), rows)
	})
	cmd.ValidArgsFunction = completeSettings
	cmd.AddCommand(newConfigValidate(p), newConfigSchema(p))
	return p.prints(cmd, formObject, configuration{Settings: []house.Row{}})
}

func notASetting(key string, near []string) error {
	return &house.Problem{Kind: fault.NotFound, Code: house.CodeUnknownSetting,
		What: "there is no setting " + key,
		Do:   "plinth config lists all settings", Near: near}
}

func (p *program) printConfig(file string, rows []house.Row) error {
	if p.wantLines() {
		return printRows(p, rows)
	}
	if p.wantJSON() {
		return p.printJSON(configuration{file, rows})
	}
	t := p.table("setting", "value", "from")
	for _, r := range rows {
		from := r.Origin.String()
		t.Row(r.Key, r.Value, from)
		if r.Origin.Source != "default" {
			t.Mark(1, p.outPaint().Strong)
		}
	}
	_, err := t.WriteTo(p.out)
	return wrote(err)
}

// validation is what `plinth config validate --json` prints when all is well; faults are problems on stderr.
type validation struct {
	Valid bool   `json:"valid"`
	File  string `json:"file"`
	Given int    `json:"given"` // settings that do not stand at their default
}

func newConfigValidate(p *program) *cobra.Command {
	cmd := withSettings(&cobra.Command{
		Use: "validate [FILE]", Short: "Check a configuration file and the environment",
		Example: "  plinth config validate\n  plinth config validate /etc/plinth.toml",
		Args:    args(0, 1, "at most one file"),
	}, func(_ *cobra.Command, args []string, s *settings) error {
		if len(args) == 1 {
			s.file = args[0]
		}
		c, err := s.load(p)
		if err != nil {
			return err
		}
		v := validation{Valid: true, File: c.File()}
		for _, r := range c.Rows() {
			if r.Origin.Source != "default" {
				v.Given++
			}
		}
		if p.wantJSON() {
			return p.printJSON(v)
		}
		what := c.File()
		if what == "" {
			what = "no file, and the environment"
		}
		return p.print(fmt.Sprintf("valid: %s (%d settings given)\n", what, v.Given))
	})
	return p.prints(cmd, formObject, validation{})
}

func newConfigSchema(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file",
		Long:    "Prints the JSON Schema (draft 2020-12) of plinth.toml, for editors that check and complete it.",
		Example: "  plinth config schema > plinth.schema.json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			table, err := app.Settings()
			if err != nil {
				return err
			}
			return p.printJSON(table.Schema())
		},
	}
	return p.prints(cmd, formObject, nil)
}

// completeSettings offers the keys of the table.
func completeSettings(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	table, err := app.Settings()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return table.Keys(), cobra.ShellCompDirectiveNoFileComp
}

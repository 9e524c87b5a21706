package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plinth-run/plinth/internal/app"
	"github.com/plinth-run/plinth/internal/house"
)

// known are the variables of this command that are no settings.
func known() []string {
	return []string{"PLINTH_URL", "PLINTH_PROGRESS", "PLINTH_ADMIN", "PLINTH_CONTEXT", "PLINTH_TOKEN",
		"PLINTH_TOKEN_FILE"}
}

// settings are the flags of one verb that stand for settings, with what was given.
type settings struct {
	file  string
	given map[string]string
}

// settingFlags adds --config and a flag for every setting. The rare ones work but are not in the help; the
// reference has them all.
func settingFlags(cmd *cobra.Command) (*settings, error) {
	s := &settings{given: map[string]string{}}
	table, err := app.Settings()
	if err != nil {
		return nil, err
	}
	cmd.Flags().StringVar(&s.file, "config", "",
		"configuration file; default is ./"+house.FileName+" if it is there (PLINTH_CONFIG)")
	for _, row := range table.Settings() {
		if row.Flag() == "" {
			continue
		}
		f := cmd.Flags().VarPF(&settingFlag{s.given, row}, row.Flag(), "", row.Help)
		f.Hidden = row.Rare
		if row.Type == house.Bool {
			f.NoOptDefVal = "true"
		}
		if row.Type == house.Text && len(row.Words) > 0 || row.Type == house.List {
			words := row.Words
			err := cmd.RegisterFlagCompletionFunc(row.Flag(), cobra.FixedCompletions(words,
				cobra.ShellCompDirectiveNoFileComp))
			if err != nil {
				return nil, fmt.Errorf("completion of --%s: %w", row.Flag(), err)
			}
		}
	}
	return s, nil
}

// settingFlag keeps the text of a flag; house checks it together with the other sources.
type settingFlag struct {
	given map[string]string
	row   house.Setting
}

func (f *settingFlag) String() string {
	if f.given == nil {
		return ""
	}
	if text, ok := f.given[f.row.Key]; ok {
		return text
	}
	return f.row.Default
}

func (f *settingFlag) Set(text string) error {
	f.given[f.row.Key] = text
	return nil
}

func (f *settingFlag) Type() string {
	if f.row.Type == house.Bool {
		return "bool"
	}
	return f.row.Type.String()
}

var _ pflag.Value = (*settingFlag)(nil)

// load reads the configuration with these flags on top.
func (s *settings) load(p *program) (*house.Config, error) {
	table, err := app.Settings()
	if err != nil {
		return nil, err
	}
	return house.Load(table, house.Sources{File: s.file, Environ: p.environ, Flags: s.given, Known: known()})
}

// withSettings makes the flags of a verb, or a verb that tells why they cannot be made: a fault of the
// program, which the tests find.
func withSettings(cmd *cobra.Command, run func(*cobra.Command, []string, *settings) error) *cobra.Command {
	s, err := settingFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err != nil {
			return err
		}
		return run(cmd, args, s)
	}
	return cmd
}

// rowsOf keeps the rows whose key is one of keys or below one of them; no keys keep all.
func rowsOf(rows []house.Row, keys []string) ([]house.Row, error) {
	if len(keys) == 0 {
		return rows, nil
	}
	kept := []house.Row{}
	for _, key := range keys {
		before := len(kept)
		for _, r := range rows {
			if r.Key == key || len(r.Key) > len(key) && r.Key[:len(key)+1] == key+"." {
				kept = append(kept, r)
			}
		}
		if len(kept) == before {
			names := make([]string, 0, len(rows))
			for _, r := range rows {
				names = append(names, r.Key)
			}
			return nil, notASetting(key, house.Nearest(key, names))
		}
	}
	slices.SortStableFunc(kept, func(a, b house.Row) int { return index(rows, a.Key) - index(rows, b.Key) })
	return slices.CompactFunc(kept, func(a, b house.Row) bool { return a.Key == b.Key }), nil
}

func index(rows []house.Row, key string) int {
	return slices.IndexFunc(rows, func(r house.Row) bool { return r.Key == key })
}

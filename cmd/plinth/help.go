package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/house"
)

// newHelp makes `plinth help`, with its topics.
func newHelp(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "help [VERB ...]", Short: "Explain a verb or a topic (exit-codes)", GroupID: groupLook,
		Example: "  plinth help call\n  plinth help exit-codes",
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			names := []string{"exit-codes\tWhat the exit codes mean"}
			for _, c := range cmd.Root().Commands() {
				names = append(names, c.Name()+"\t"+c.Short)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil || len(rest) > 0 || found == cmd.Root() && len(args) > 0 {
				names := []string{"exit-codes"}
				for _, c := range cmd.Root().Commands() {
					names = append(names, c.Name())
				}
				return usage("there is no help for "+strings.Join(args, " "), "see plinth help",
					house.Nearest(args[0], names)...)
			}
			return found.Help()
		},
	}
	cmd.AddCommand(newExitCodes(p))
	return p.prints(cmd, formText, nil)
}

func newExitCodes(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "exit-codes", Short: "What the exit codes mean", Args: args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if p.wantJSON() {
				return printRows(p, exitCodes())
			}
			t := p.table("code", "meaning")
			for _, row := range exitCodes() {
				t.Row(fmt.Sprint(row.Code), row.Meaning)
			}
			_, err := t.WriteTo(p.out)
			return wrote(err)
		},
	}
	return p.prints(cmd, formList, exitRow{})
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plinth-run/plinth/cmd/plinth/screen"
	"github.com/plinth-run/plinth/internal/house"
)

// The groups of verbs in the help text.
const (
	groupRun  = "run"
	groupUse  = "use"
	groupLook = "look"
)

// newRoot builds the tree of commands.
func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   "plinth",
		Short: "Functions, flows, sites and secrets in one program",
		Long: "Plinth runs functions that workers in any language offer, and calls them.\n\n" +
			"Start it with plinth serve, then look around with plinth functions and plinth call.",
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run:"}, &cobra.Group{ID: groupUse, Title: "Use:"},
		&cobra.Group{ID: groupLook, Title: "Look after:"})
	flags := root.PersistentFlags()
	flags.Var(&choice{&p.json, []string{"true", "false", "lines"}}, "json",
		"print results as JSON; --json=lines prints lists one row a line")
	flags.Lookup("json").NoOptDefVal = "true"
	flags.Var(&choice{&p.color, screen.ColorWords()}, "color", "colour: auto, always or never")
	flags.Var(&choice{&p.progress, screen.ProgressWords()}, "progress",
		"progress on stderr: auto, plain, quiet or json (PLINTH_PROGRESS)")
	root.SetFlagErrorFunc(flagProblem)
	// --engine.listen is --engine-listen: the spelling of the file works as well.
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.NewReplacer(".", "-", "_", "-").Replace(name))
	})
	root.SetHelpCommand(newHelp(p))
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newServe(p), newCall(p), newFunctions(p), newWorkers(p), newTriggers(p), newKey(p),
		newUser(p), newAdmin(p), newAudit(p), newContext(p), newBackup(p), newHashPassword(p),
		newLogin(p), newLogout(p), newConfig(p), newDoctor(p), newBench(p), newVersion(p), newCompletion(p))
	for _, c := range root.Commands() {
		strict(c)
	}
	return root
}

// strict makes a parent complain about a verb it does not have.
func strict(cmd *cobra.Command) {
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, group
	}
	for _, c := range cmd.Commands() {
		strict(c)
	}
}

// group runs a command that only has verbs below it: help without a verb, a suggestion for a wrong one.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	near := house.Nearest(args[0], verbsOf(cmd))
	for i := range near {
		near[i] = cmd.CommandPath() + " " + near[i]
	}
	return usage(fmt.Sprintf("%s has no verb %q", cmd.CommandPath(), args[0]),
		"see "+cmd.CommandPath()+" --help", near...)
}

func verbsOf(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
		names = append(names, c.Aliases...)
	}
	return names
}

// flagProblem puts a fault of pflag into our words, with the nearest flags.
func flagProblem(cmd *cobra.Command, err error) error {
	what := err.Error()
	var near []string
	if name, ok := strings.CutPrefix(what, "unknown flag: --"); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		for _, n := range house.Nearest(name, names) {
			near = append(near, "--"+n)
		}
	}
	return usage(what, "see "+cmd.CommandPath()+" --help", near...)
}

// args makes a check of the number of arguments that speaks our words.
func args(least, most int, form string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < least || most >= 0 && len(given) > most {
			return usage(fmt.Sprintf("%s takes %s", cmd.CommandPath(), form), "see "+cmd.CommandPath()+" --help")
		}
		return nil
	}
}

// choice is a flag that takes one of some words.
type choice struct {
	value *string
	words []string
}

func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
	}
	*c.value = text
	return nil
}

func (c *choice) Type() string { return "word" }

package main

import "github.com/spf13/cobra"

func newBench(p *program) *cobra.Command {
	return p.prints(&cobra.Command{Use: "bench", Short: "Measure", GroupID: groupLook,
		RunE: func(*cobra.Command, []string) error { return nil }}, formObject, nil)
}

// Package screen decides what a stream may show (colour, animation, width) and draws tables and progress
// on it.
//
// It promises that a stream which is no terminal gets neither colour nor movement unless somebody asked
// for it, that --color and --progress win over the environment, and that a progress bar is drawn at most
// ten times a second. A [Paint] may be used by any goroutine; a [Progress] belongs to one.
//
// It reads no environment and opens no terminal by itself: facts about streams are handed in.
package screen

import (
	"fmt"
	"slices"
	"strings"
)

// Facts are what is known of a stream before flags are read.
type Facts struct {
	Terminal bool
	Width    int // columns; 0 when unknown
	Getenv   func(string) string
}

// The words that --color and --progress take.
const (
	Auto   = "auto"
	Always = "always"
	Never  = "never"
	Bars   = "bars" // what auto comes to in a terminal; no word of the flag
	Plain  = "plain"
	Quiet  = "quiet"
	JSON   = "json"
)

// ColorWords are the values of --color; ProgressWords those of --progress and PLINTH_PROGRESS.
func ColorWords() []string { return []string{Auto, Always, Never} }

// ProgressWords are the values of --progress and PLINTH_PROGRESS.
func ProgressWords() []string { return []string{Auto, Plain, Quiet, JSON} }

// Colour decides whether a stream is coloured. Strongest first: the flag, NO_COLOR, FORCE_COLOR and
// CLICOLOR_FORCE, CLICOLOR=0, then whether it is a terminal that can do it and not a CI log.
func Colour(flag string, f Facts) bool {
	switch flag {
	case Always:
		return true
	case Never:
		return false
	}
	switch {
	case f.Getenv("NO_COLOR") != "":
		return false
	case on(f.Getenv("FORCE_COLOR")), on(f.Getenv("CLICOLOR_FORCE")):
		return true
	case f.Getenv("FORCE_COLOR") != "", f.Getenv("CLICOLOR") == "0":
		return false
	}
	return f.lively()
}

// ProgressMode decides how progress is shown: Bars, Plain, Quiet or JSON. The flag wins over PLINTH_PROGRESS.
func ProgressMode(flag string, f Facts) (string, error) {
	word, from := flag, "--progress"
	if word == "" {
		word, from = f.Getenv("PLINTH_PROGRESS"), "PLINTH_PROGRESS"
	}
	if word == "" {
		word = Auto
	}
	if !slices.Contains(ProgressWords(), word) {
		return "", fmt.Errorf("%s must be one of %s, not %q", from, strings.Join(ProgressWords(), ", "), word)
	}
	if word != Auto {
		return word, nil
	}
	if f.lively() {
		return Bars, nil
	}
	return Plain, nil
}

// lively says whether a stream can be drawn on: a terminal that knows control codes, and no CI log.
func (f Facts) lively() bool {
	ci := f.Getenv("CI")
	return f.Terminal && f.Getenv("TERM") != "dumb" && (ci == "" || ci == "false" || ci == "0")
}

// on says whether a switch of the environment is on.
func on(value string) bool { return value != "" && value != "0" && value != "false" }

// Paint colours text, with the eight basic colours only; the zero Paint leaves it as it is.
type Paint struct{ On bool }

func (p Paint) wrap(code, text string) string {
	if !p.On || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Strong makes text bold.
func (p Paint) Strong(text string) string { return p.wrap("1", text) }

// Good is green, for what is in order.
func (p Paint) Good(text string) string { return p.wrap("32", text) }

// Warn is yellow, for what should be looked at.
func (p Paint) Warn(text string) string { return p.wrap("33", text) }

// Bad is red, for what failed.
func (p Paint) Bad(text string) string { return p.wrap("31", text) }

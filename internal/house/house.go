// Package house is the porch of Plinth: settings and where their values come from, signals, the life
// of the parts in start order, the banner, the log, and the small HTTP server behind the admin door.
//
// It promises that a setting has one name in the file, the environment and the flags, that every
// value knows its origin, that a key nobody declared is an error with the nearest real name, and that
// parts stop in the reverse order of their start. Everything that a person has to put right is told
// as a [Problem]: what, why, what to do.
//
// A [Table] and a [Config] are read only after they are made and may be used by any number of
// goroutines; so may [Life.State] and the handlers of [Admin]. Everything else belongs to one caller.
//
// It knows no room, opens no data, and reads no setting by itself: the packages that own a setting
// declare it, and the program hands it what it needs.
package house

import (
	"errors"
	"strings"

	"github.com/plinth-run/plinth/internal/fault"
)

// A Problem is an error for a person: one line what happened, one line why, one line what to do.
// Its kind decides the exit code and its code is the stable text for programs.
type Problem struct {
	Kind  fault.Kind
	Code  string
	What  string   // "cannot listen on 127.0.0.1:49134"
	Why   string   // "process 4711 (plinth) has the port"
	Do    string   // "choose another address with --engine-listen"
	Near  []string // names that may have been meant, the nearest first
	Trace string   // the trace id of the call that failed, 32 hex digits, or empty
	Err   error    // the cause, for errors.Is; its text is not shown
}

// Error gives what and why in one line.
func (p *Problem) Error() string {
	if p.Why == "" {
		return p.What
	}
	return p.What + ": " + p.Why
}

// Unwrap gives a *fault.Error of the problem's kind and code, and the cause.
func (p *Problem) Unwrap() []error {
	errs := []error{fault.New(p.Kind, p.Code, p.Error())}
	if p.Err != nil {
		errs = append(errs, p.Err)
	}
	return errs
}

// Codes of the problems that this package finds.
const (
	CodeUnknownSetting = "unknown_setting"
	CodeBadSetting     = "bad_setting"
	CodeBadFile        = "bad_config_file"
	CodeNotLoopback    = "not_loopback"
	CodePortInUse      = "port_in_use"
	CodePortRefused    = "port_refused"
	CodeFolderLocked   = "folder_locked"
	CodeFolderRefused  = "folder_refused"
	CodeDiskFull       = "disk_full"
	CodeNotStopped     = "not_stopped"
)

// Problems lists every Problem inside err, in order; one that is wrapped in another is not repeated.
func Problems(err error) []*Problem {
	if err == nil {
		return nil
	}
	if p, ok := err.(*Problem); ok {
		return []*Problem{p}
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Problem
		for _, e := range many.Unwrap() {
			all = append(all, Problems(e)...)
		}
		return all
	}
	return Problems(errors.Unwrap(err))
}

// didYouMean makes the sentence of a suggestion, or "" when there is none.
func didYouMean(near []string) string {
	switch len(near) {
	case 0:
		return ""
	case 1:
		return "did you mean " + near[0] + "?"
	}
	return "did you mean " + strings.Join(near[:len(near)-1], ", ") + " or " + near[len(near)-1] + "?"
}

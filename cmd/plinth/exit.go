package main

import (
	"context"
	"errors"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/worker"
)

// The exit codes. They are part of what scripts rely on, and never change their meaning.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitDenied      = 4
	exitConflict    = 5
	exitTimeout     = 6
	exitUnavailable = 7
	exitPartly      = 8
	exitInterrupted = house.ExitInterrupted
)

// exitCodes is the table that `plinth help exit-codes` prints.
func exitCodes() []exitRow {
	return []exitRow{
		{exitDone, "done"},
		{exitFailed, "failed: the call or the check failed"},
		{exitUsage, "usage: the command line or the configuration is wrong"},
		{exitNotFound, "not found: no such function, worker or setting"},
		{exitDenied, "not allowed: no credential, a wrong one, or one that lacks the right"},
		{exitConflict, "conflict: a name, a port or the data folder is taken"},
		{exitTimeout, "timed out: it may still have happened"},
		{exitUnavailable, "unavailable: trying again later may help"},
		{exitPartly, "partly done: there are warnings"},
		{exitInterrupted, "interrupted by a signal"},
	}
}

type exitRow struct {
	Code    int    `json:"code"`
	Meaning string `json:"meaning"`
}

// Codes of problems that this command finds itself.
const (
	codeUsage       = "usage"
	codeInterrupted = "interrupted"
	codeUnreachable = "engine_unreachable"
	codePartly      = "partly"
	codeChecks      = "checks_failed"
	codeUnclaimed   = "UNCLAIMED"
	codeAuth        = "AUTH_ERROR"
)

// exitCode turns what went wrong into a code.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	for _, p := range house.Problems(err) {
		switch p.Code {
		case codeInterrupted:
			return exitInterrupted
		case codePartly:
			return exitPartly
		}
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return exitUsage
	case fault.NotFound:
		return exitNotFound
	case fault.Denied:
		return exitDenied
	case fault.Conflict:
		return exitConflict
	case fault.Timeout:
		return exitTimeout
	case fault.Limit, fault.Unavailable:
		return exitUnavailable
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return exitTimeout
	}
	return exitFailed
}

// kindOfCode says what sort of failure the code of a call means for the one who called.
func kindOfCode(code string) fault.Kind {
	switch code {
	case worker.CodeInvalidJSON:
		return fault.Invalid
	case worker.CodeClosed:
		return fault.Unavailable
	}
	return fn.KindOf(code)
}

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/plinth-run/plinth/internal/fault"
)

// Errors without details. Each carries a fault kind and a stable code.
var (
	// ErrBusy: the queue of a log is full; nothing was taken.
	ErrBusy error = fault.New(fault.Limit, "STORE_BUSY", "the log's queue is full")
	// ErrGone: the position was truncated away. A *GoneError says what is left.
	ErrGone error = fault.New(fault.NotFound, "POSITION_GONE", "the position is no longer in the log")
	// ErrAhead: the position is behind the end of the log: it belongs to another log, or to a lost one.
	ErrAhead error = fault.New(fault.Invalid, "POSITION_AHEAD", "the position is beyond the end of the log")
	// ErrClosed: the log has stopped; nothing was taken.
	ErrClosed error = fault.New(fault.Unavailable, "STORE_CLOSED", "the log is closed")
)

// LockedError says that another process has the data folder open.
type LockedError struct {
	Dir string
	PID int // of the other process; 0 when it could not be read
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("store: the data folder %s is in use by %s: stop it or use another folder", e.Dir, who)
}

// Unwrap gives the kind Conflict.
func (e *LockedError) Unwrap() error {
	return fault.New(fault.Conflict, "DATA_FOLDER_LOCKED", "")
}

// UnwritableError says that the data folder cannot be written. Path is absolute.
type UnwritableError struct {
	Path string
	Err  error
}

func (e *UnwritableError) Error() string {
	return fmt.Sprintf("store: cannot write the data folder %s: %v: make it a folder that this user may "+
		"write (mode 0700, on a writable disk with free space), or use another one", e.Path, e.Err)
}

// Unwrap gives the kind Unavailable and the cause.
func (e *UnwritableError) Unwrap() []error {
	return []error{fault.New(fault.Unavailable, "DATA_FOLDER_UNWRITABLE", ""), e.Err}
}

// SchemaError says that a newer version of the program wrote a room's files, or the folder itself.
type SchemaError struct {
	Path      string
	Room      string // empty: the folder's own format
	Schema    int    // what is on disk
	Known     int    // the newest that this program can read
	WrittenBy string // version of the program that wrote it
}

func (e *SchemaError) Error() string {
	what := "the data folder"
	if e.Room != "" {
		what = "the room " + e.Room
	}
	return fmt.Sprintf("store: %s in %s has schema %d, written by version %s; this program knows schema %d: "+
		"run that version or a newer one, or restore a backup from before", what, e.Path, e.Schema,
		e.WrittenBy, e.Known)
}

// Unwrap gives the kind Conflict.
func (e *SchemaError) Unwrap() error {
	return fault.New(fault.Conflict, "DATA_FOLDER_NEWER", "")
}

// DamageError says that bytes which were once durable are not what was written. Nothing is read past it.
type DamageError struct {
	File   string
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("store: damage in %s at byte %d: %s", e.File, e.Offset, e.Reason)
}

// Unwrap gives the kind Internal.
func (e *DamageError) Unwrap() error {
	return fault.New(fault.Internal, "STORE_DAMAGED", "")
}

// FailedError says that a sync to disk failed, or a write that cannot be undone. What was under way may or
// may not be on disk; only opening again tells. The log does not work any more and its process must stop.
type FailedError struct {
	Op   string
	Path string
	Err  error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("store: %s %s failed, so what is on disk is unknown until the next start: %v", e.Op,
		e.Path, e.Err)
}

// Unwrap gives the kind Unavailable and the cause.
func (e *FailedError) Unwrap() []error {
	return []error{fault.New(fault.Unavailable, "STORE_FAILED", ""), e.Err}
}

func failed(op, path string, err error) error {
	return &FailedError{Op: op, Path: path, Err: err}
}

// SpaceError says that the disk or the quota is full. Nothing of the record stays; later ones may work.
type SpaceError struct {
	Path string
	Err  error
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("store: no space left to write %s: %v", e.Path, e.Err)
}

// Unwrap gives the kind Unavailable and the cause.
func (e *SpaceError) Unwrap() []error {
	return []error{fault.New(fault.Unavailable, "STORE_FULL", ""), e.Err}
}

// SizeError says that a record is larger than the log takes.
type SizeError struct {
	Size, Max int64
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("store: a record of %d bytes is over the limit of %d", e.Size, e.Max)
}

// Unwrap gives the kind Limit.
func (e *SizeError) Unwrap() error {
	return fault.New(fault.Limit, "RECORD_TOO_LARGE", "")
}

// GoneError is ErrGone with the first position that can still be read.
type GoneError struct {
	Position, First uint64
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("store: position %d is gone, the log starts at %d", e.Position, e.First)
}

// Unwrap gives ErrGone.
func (e *GoneError) Unwrap() error { return ErrGone }

// LostError says that the records From to To (both included) were damaged and given up by a salvage.
type LostError struct {
	From, To uint64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("store: the records %d to %d were lost to damage", e.From, e.To)
}

// Unwrap gives the kind Internal.
func (e *LostError) Unwrap() error {
	return fault.New(fault.Internal, "RECORDS_LOST", "")
}

// full reports whether err says that space, quota or a size limit ran out: the errors that time may mend.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, syscall.EFBIG) || diskFull(err)
}

// scarce reports whether err says that descriptors ran out.
func scarce(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

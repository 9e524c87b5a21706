// Package worker connects a Go program to a Plinth engine: it hosts functions and calls others.
//
// It promises that every call ends exactly once, with a result or an *[Error] whose Code says what is
// known of it; that a lost connection is made again, with everything registered anew and what was not
// sent yet sent then; that nothing a peer sends stops the process; and that queues, handlers and waiting
// calls are bounded, and what is refused or dropped is counted in [Stats].
//
// A Worker may be used by all goroutines at once, before, during and after [Worker.Run]. Run owns all
// goroutines of the worker, but for those of channel writers, which end with their streams: without it calls
// wait and nothing is served.
//
// Beside calls there are channels, for streams of any size, and triggers, for being called when something
// happens. The end of a channel has a connection of its own.
//
// It does not send a call again that may have run: such a call ends with [ErrOutcomeUnknown]. It does
// not dispatch calls of its own functions locally, keeps no spans, and speaks part A of the protocol
// only: observers are added through calls of engine functions.
package worker

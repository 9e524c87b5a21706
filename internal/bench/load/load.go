// Package load makes the load of a benchmark: callers, hosts and idle workers in one process, driven
// by one event loop, and the latencies and counts they see; or bytes through a pipe.
//
// It promises that every call it makes ends in exactly one count: answered, failed under a code, or
// lost; that an answer is compared with what was sent; that latencies of an open loop run from the
// moment a call was due, not from the moment it could be sent; and that the processor time of the
// server is read at the edges of the measured window, so that warm-up and ramp-down do not count.
// Serve and Do own their process's time until they return; one at a time is what a child process
// runs. It starts no server, pins nothing and decides nothing about what is measured: package bench
// does. Protocols come in as a Dial or a Connect.
package load

import (
	"context"
	"io"
	"net"
	"time"
)

// Job is what a child process is to do: one connection set and a list of steps. Without callers and
// hosts its steps connect idle workers.
type Job struct {
	Dialect  string        `json:"dialect"`            // a key of Protocols
	Target   string        `json:"target"`             // host:port, or a URL that the dialect reads
	CallAt   string        `json:"call_at,omitempty"`  // where callers connect; "": Target
	PID      int           `json:"pid,omitempty"`      // the server's, for its processor time; 0: unknown
	Callers  int           `json:"callers"`            // connections that call
	Hosts    int           `json:"hosts"`              // connections that answer
	Payload  int           `json:"payload"`            // bytes of JSON in each call and each answer
	Plain    bool          `json:"plain,omitempty"`    // one write for each frame
	Portable bool          `json:"portable,omitempty"` // goroutines in place of the event loop
	Service  time.Duration `json:"service,omitempty"`  // what one call costs a host; 0: answers at once
	Steps    []Step        `json:"steps"`
}

// Step is one load, held for a while. With Rate it is an open loop, else a closed one of InFlight
// calls. With Workers it is no load at all: that many idle workers are to be connected.
type Step struct {
	Name     string        `json:"name"`
	InFlight int           `json:"in_flight,omitempty"`
	Rate     float64       `json:"rate,omitempty"` // calls a second
	Workers  int           `json:"workers,omitempty"`
	Warm     time.Duration `json:"warm,omitempty"` // before the window
	Measure  time.Duration `json:"measure"`        // the window
	// Calls ends the window once so many calls have ended in it, before its time; 0: its time does.
	Calls int64 `json:"calls,omitempty"`
	// Bytes makes the step a transfer of that many through a pipe; its window lasts as long as that takes.
	Bytes int64 `json:"bytes,omitempty"`
	// Keep leaves the calls of this step in flight when the next one begins, as the end of an
	// overload does; else the step ends when its last call has.
	Keep bool `json:"keep,omitempty"`
}

// calls tells whether a step makes calls.
func (s Step) calls() bool { return s.InFlight > 0 || s.Rate > 0 }

// Result is what one step measured.
type Result struct {
	Step     Step             `json:"step"`
	Begin    time.Time        `json:"begin"`            // of the window
	Seconds  float64          `json:"seconds"`          // its length
	Calls    int64            `json:"calls"`            // answered well within the window
	Errors   map[string]int64 `json:"errors,omitempty"` // failed within the window, by code
	Lost     int64            `json:"lost,omitempty"`   // never answered, in warm-up or window
	Stray    int64            `json:"stray,omitempty"`  // answers that nobody waited for
	P50      time.Duration    `json:"p50"`              // of the calls answered well
	P90      time.Duration    `json:"p90"`
	P99      time.Duration    `json:"p99"`
	Max      time.Duration    `json:"max"`
	Server   time.Duration    `json:"server"`         // processor time within the window; 0: unknown
	Own      time.Duration    `json:"own"`            // processor time of this process
	OwnCPUs  int              `json:"own_cpus"`       // processors this process may use
	Writes   int64            `json:"writes"`         // system calls that sent, within the window
	Late     time.Duration    `json:"late,omitempty"` // the most a due call waited to be sent
	Series   []Point          `json:"series,omitempty"`
	Sessions int              `json:"sessions,omitempty"` // idle workers connected
	Shares   []int64          `json:"shares,omitempty"`   // calls that each host was asked within the window
	Bytes    int64            `json:"bytes,omitempty"`    // that arrived
}

// Answered returns how many calls had any answer within the window.
func (r *Result) Answered() int64 {
	n := r.Calls
	for _, failed := range r.Errors {
		n += failed
	}
	return n
}

// Point is one stretch of a window.
type Point struct {
	At     time.Duration `json:"at"` // its end, from the start of the window
	Calls  int64         `json:"calls"`
	Failed int64         `json:"failed,omitempty"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
}

// Event is one line that a child process writes.
type Event struct {
	Kind   Kind    `json:"kind"`
	Step   int     `json:"step"`             // index into Job.Steps
	Point  *Point  `json:"point,omitempty"`  // of KindPoint
	Result *Result `json:"result,omitempty"` // of KindResult
	Error  string  `json:"error,omitempty"`  // of KindFailed
}

// Kind says what an Event tells.
type Kind string

// What a child tells, in this order: ready once, then for each step window, points, result.
const (
	KindReady  Kind = "ready"  // connected, and every function answers
	KindWindow Kind = "window" // the window of a step begins
	KindPoint  Kind = "point"
	KindResult Kind = "result"
	KindFailed Kind = "failed" // last: what went wrong
	KindDone   Kind = "done"   // last: nothing did
)

// Codes that the load itself gives to calls.
const (
	CodeDiffers = "BENCH_ANSWER_DIFFERS" // the answer is not the payload that was sent
	CodeBacklog = "BENCH_BACKLOG"        // more calls open than the load can hold
)

// Role says what a connection does.
type Role uint8

// The roles.
const (
	Caller Role = iota
	Host
	Idle // registers two functions and is never called
)

// Link is an open connection of a protocol.
type Link struct {
	Conn    net.Conn
	Speaker Speaker
	Rest    []byte // already read from Conn, not yet fed
	Greet   []byte // to be sent first
}

// Speaker speaks a protocol on one connection. It is used by one goroutine.
type Speaker interface {
	// Feed reads what it can of b, which it may change, and returns how many bytes that was. It tells
	// what it found to c.Asked, c.Answered, c.Send and c.Synced.
	Feed(c *Conn, b []byte) (int, error)
	// Call appends a call of function number function.
	Call(dst []byte, function int, id uint64, payload []byte) []byte
	// Answer appends the good answer to a call that Feed told of, with the same token and name.
	Answer(dst, token, name, payload []byte) []byte
}

// Dial opens connection number index of a role.
type Dial func(ctx context.Context, target string, role Role, index int) (Link, error)

// Session is a set of connections that a client library holds.
type Session interface {
	// Call makes one call from a caller connection to a host and waits; it returns the code of a
	// failure, "" for a good answer. Many goroutines call it.
	Call(ctx context.Context, caller, function int, payload []byte) (code string)
	Close()
}

// Connect opens all connections of a job through a client library.
type Connect func(ctx context.Context, job *Job) (Session, error)

// Pipe is one way through a server: what is written at one end is read at the other. Closing the writer
// ends what the reader reads. The two ends are used by a goroutine each.
type Pipe struct {
	Writer io.WriteCloser
	Reader io.ReadCloser
}

// Plumber opens pipes through a server.
type Plumber interface {
	Pipe(ctx context.Context) (Pipe, error)
	Close()
}

// Plumb connects to what opens pipes.
type Plumb func(ctx context.Context, job *Job) (Plumber, error)

// Protocols are the ways to talk to a server that a program offers, by name.
type Protocols struct {
	Loop    map[string]Dial    // driven by the event loop
	Library map[string]Connect // driven by a goroutine for each call in flight
	Pipes   map[string]Plumb   // bytes instead of calls
}

package wire

import (
	"fmt"
	"slices"
	"time"
)

// MaxHeadBytes bounds the request and the answer head of a WebSocket handshake.
const MaxHeadBytes = 16 << 10

// Bounds holds every bound of the protocol. Sizes are bytes. The zero value bounds everything to
// nothing: start from DefaultBounds.
type Bounds struct {
	MaxMessageBytes       int64
	HardMessageBytes      int64
	MaxDepth              int
	MaxIDBytes            int
	MaxInvocationIDBytes  int
	MaxNamespaceBytes     int
	MaxDescriptionBytes   int
	MaxSchemaBytes        int
	MaxMetadataBytes      int
	MaxBaggageBytes       int
	MaxFunctionsPerWorker int
	MaxTriggersPerWorker  int
	MaxInFlightPerWorker  int
	MaxCallsPerWorker     int
	MaxHeldFrames         int
	MaxHeldBytes          int
	WriteQueueBytes       int
	HandshakeBytes        int
	HandshakeTimeout      time.Duration
	NamespaceGrace        time.Duration
	PingAfter             time.Duration
	DropAfter             time.Duration
	MaxInvocation         time.Duration
	MaxConnections        int
	MaxChannelsPerWorker  int
	MaxChannels           int
	ChannelBufferBytes    int
	ChannelUntaken        time.Duration
}

// Limit is one row of the table of bounds. Default, Min and Max are in Unit; Min equal to Max means
// that the bound is fixed.
type Limit struct {
	Name              string // snake case, as in the configuration
	Default, Min, Max int64
	Unit              string // "bytes", "levels", "ms" or "count"
	Help              string // what is bounded and what happens past it
	Code              string // the code that tells of it; empty where no frame can
}

// row ties a limit to its field in Bounds; at returns a *int, *int64 or *time.Duration.
type row struct {
	Limit
	at func(*Bounds) any
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30

	second = int64(time.Second / time.Millisecond)
	minute = 60 * second
	hour   = 60 * minute
)

// rows is the one list of bounds: the table, the defaults and the checks are made from it.
func rows() []row {
	return []row{
		{Limit{"max_message_bytes", 64 * mib, kib, gib, "bytes",
			"One message. A larger one is not kept: its call fails, the connection stays.",
			CodeMessageTooLarge}, func(b *Bounds) any { return &b.MaxMessageBytes }},
		{Limit{"hard_message_bytes", 256 * mib, kib, 4 * gib, "bytes",
			"One message, ceiling. Past it the connection is closed with 1009.",
			""}, func(b *Bounds) any { return &b.HardMessageBytes }},
		{Limit{"max_depth", MaxDepth, MaxDepth, MaxDepth, "levels",
			"Nesting of objects and arrays in a message, the message itself included. A deeper one is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxDepth }},
		{Limit{"max_id_bytes", 512, 16, 4 * kib, "bytes",
			"An id of a function, trigger, trigger type, service or worker name. A longer one is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxIDBytes }},
		{Limit{"max_invocation_id_bytes", 256, 36, 4 * kib, "bytes",
			"An invocation id. A call with a longer one is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxInvocationIDBytes }},
		{Limit{"max_namespace_bytes", 128, 8, 4 * kib, "bytes",
			"A namespace. A longer one is refused.",
			CodeInvalidNamespace}, func(b *Bounds) any { return &b.MaxNamespaceBytes }},
		{Limit{"max_description_bytes", 4 * kib, 0, mib, "bytes",
			"A description. A longer one is cut.",
			""}, func(b *Bounds) any { return &b.MaxDescriptionBytes }},
		{Limit{"max_schema_bytes", 256 * kib, 0, 16 * mib, "bytes",
			"Each JSON Schema of a registration. A larger one is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxSchemaBytes }},
		{Limit{"max_metadata_bytes", 64 * kib, 0, 16 * mib, "bytes",
			"The metadata of a registration or a call. Larger ones are refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxMetadataBytes }},
		{Limit{"max_baggage_bytes", 8 * kib, 0, mib, "bytes",
			"The W3C baggage of a call. A longer one is dropped, the call goes on.",
			""}, func(b *Bounds) any { return &b.MaxBaggageBytes }},
		{Limit{"max_functions_per_worker", 10_000, 1, 1_000_000, "count",
			"Functions that one connection registers. One more is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxFunctionsPerWorker }},
		{Limit{"max_triggers_per_worker", 10_000, 1, 1_000_000, "count",
			"Triggers and trigger types that one connection registers. One more is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxTriggersPerWorker }},
		{Limit{"max_in_flight_per_worker", 4_096, 1, 1_000_000, "count",
			"Calls that one connection hosts at a time. One more is refused.",
			CodeHostOverloaded}, func(b *Bounds) any { return &b.MaxInFlightPerWorker }},
		{Limit{"max_calls_per_worker", 16_384, 1, 1_000_000, "count",
			"Calls that one connection has made and that have no answer yet. One more is refused.",
			CodeCallerOverloaded}, func(b *Bounds) any { return &b.MaxCallsPerWorker }},
		{Limit{"max_held_frames", 20_000, 1, 1_000_000, "count",
			"Frames held until a worker has introduced itself. At the bound they are applied at once.",
			""}, func(b *Bounds) any { return &b.MaxHeldFrames }},
		{Limit{"max_held_bytes", 8 * mib, kib, gib, "bytes",
			"Bytes of held frames. At the bound they are applied at once.",
			""}, func(b *Bounds) any { return &b.MaxHeldBytes }},
		{Limit{"write_queue_bytes", 8 * mib, 64 * kib, gib, "bytes",
			"Bytes that wait to be sent to one connection. A call that does not fit is refused.",
			CodeHostOverloaded}, func(b *Bounds) any { return &b.WriteQueueBytes }},
		{Limit{"handshake_bytes", MaxHeadBytes, MaxHeadBytes, MaxHeadBytes, "bytes",
			"The head of a handshake. A larger one is refused with 431.",
			""}, func(b *Bounds) any { return &b.HandshakeBytes }},
		{Limit{"handshake_timeout_ms", 10 * second, 100, 10 * minute, "ms",
			"Time for a connection to send its request. Then it is closed.",
			""}, func(b *Bounds) any { return &b.HandshakeTimeout }},
		{Limit{"namespace_grace_ms", 5 * second, 0, minute, "ms",
			"Time that registrations are held for the worker to introduce itself. Then they are filed.",
			""}, func(b *Bounds) any { return &b.NamespaceGrace }},
		{Limit{"ping_after_ms", 30 * second, 100, hour, "ms",
			"Silence of a connection after which it is pinged.",
			""}, func(b *Bounds) any { return &b.PingAfter }},
		{Limit{"drop_after_ms", 90 * second, 200, 24 * hour, "ms",
			"Silence of a connection after which it is dropped.",
			""}, func(b *Bounds) any { return &b.DropAfter }},
		{Limit{"max_invocation_ms", 15 * minute, 0, 7 * 24 * hour, "ms",
			"Time a call may take. Then it fails. 0 is no bound.",
			CodeInvocationTimeout}, func(b *Bounds) any { return &b.MaxInvocation }},
		{Limit{"max_connections", 20_000, 1, 1_000_000, "count",
			"Connections at a time. One more is refused with 503.",
			""}, func(b *Bounds) any { return &b.MaxConnections }},
		{Limit{"max_channels_per_worker", 1_000, 1, 1_000_000, "count",
			"Channels that one connection has made and that are not over. One more is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxChannelsPerWorker }},
		{Limit{"max_channels", 10_000, 1, 1_000_000, "count",
			"Channels at a time. One more is refused.",
			CodeLimit}, func(b *Bounds) any { return &b.MaxChannels }},
		{Limit{"channel_buffer_bytes", mib, 64 * kib, gib, "bytes",
			"Bytes of one channel that wait for its reader. Past it nothing is read from its writer.",
			""}, func(b *Bounds) any { return &b.ChannelBufferBytes }},
		{Limit{"channel_untaken_ms", 5 * minute, 100, 24 * hour, "ms",
			"Time for both ends of a channel to be opened. Then it is removed.",
			""}, func(b *Bounds) any { return &b.ChannelUntaken }},
	}
}

// Limits returns the table of all bounds.
func Limits() []Limit {
	rs := rows()
	ls := make([]Limit, len(rs))
	for i, r := range rs {
		ls[i] = r.Limit
	}
	return ls
}

// DefaultBounds returns the default of every bound.
func DefaultBounds() Bounds {
	var b Bounds
	for _, r := range rows() {
		r.set(&b, r.Default)
	}
	return b
}

// Get returns the value of the bound with a name of the table, in the unit of the table.
func (b *Bounds) Get(name string) (v int64, ok bool) {
	for _, r := range rows() {
		if r.Name == name {
			return r.get(b), true
		}
	}
	return 0, false
}

// Set changes one bound; v is in the unit of the table. It refuses, with CodeInvalidArguments, a name
// that is not in the table and a value outside Min and Max.
func (b *Bounds) Set(name string, v int64) error {
	rs := rows()
	i := slices.IndexFunc(rs, func(r row) bool { return r.Name == name })
	if i < 0 {
		return &Error{Code: CodeInvalidArguments, Message: fmt.Sprintf("no limit is named %q", name)}
	}
	if err := rs[i].check(v); err != nil {
		return err
	}
	rs[i].set(b, v)
	return nil
}

// Check reports the first bound that is outside its Min and Max, or that contradicts another one.
func (b *Bounds) Check() error {
	for _, r := range rows() {
		if err := r.check(r.get(b)); err != nil {
			return err
		}
	}
	switch {
	case b.HardMessageBytes < b.MaxMessageBytes:
		return contradiction("hard_message_bytes", "max_message_bytes")
	case b.DropAfter <= b.PingAfter:
		return contradiction("drop_after_ms", "ping_after_ms")
	}
	return nil
}

func contradiction(low, high string) error {
	return &Error{Code: CodeInvalidArguments, Message: low + " must be above " + high}
}

func (r row) check(v int64) error {
	if v < r.Min || v > r.Max {
		return &Error{Code: CodeInvalidArguments,
			Message: fmt.Sprintf("%s is %d, must be %d to %d %s", r.Name, v, r.Min, r.Max, r.Unit)}
	}
	return nil
}

func (r row) get(b *Bounds) int64 {
	switch p := r.at(b).(type) {
	case *int:
		return int64(*p)
	case *int64:
		return *p
	case *time.Duration:
		return p.Milliseconds()
	}
	return 0
}

func (r row) set(b *Bounds, v int64) {
	switch p := r.at(b).(type) {
	case *int:
		*p = int(v)
	case *int64:
		*p = v
	case *time.Duration:
		*p = time.Duration(v) * time.Millisecond
	}
}

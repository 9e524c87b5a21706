package wire

// Frame is one message, read or to be written.
//
// After Scan each field is a slice of the scanned bytes, or of memory of the frame where a text had
// escapes: valid until the next Scan or Reset, or until those bytes change. The capacity of each slice ends
// with it. nil means absent. A Frame must not be copied while its fields are in use.
//
// The zero Frame is ready. A Frame serves one caller at a time and is meant to be used again.
type Frame struct {
	Type Type

	// BadNamespace and BadTriggerNamespace: the field was given and is null or no text (protocol
	// section 8: such a frame is refused, never routed to "default"). Blank texts are not judged here.
	BadNamespace, BadTriggerNamespace bool

	// Texts: JSON strings with their escapes resolved. JSON null, and any other kind, is nil.
	ID               []byte // "id": function, service, trigger or trigger type
	FunctionID       []byte // "function_id"
	InvocationID     []byte // "invocation_id": opaque, chosen by the sender of this hop
	Namespace        []byte // "namespace"
	TriggerNamespace []byte // "trigger_namespace"
	WorkerID         []byte // "worker_id"
	ReattachToken    []byte // "reattach_token": a secret, keep it out of logs
	PreviousWorkerID []byte // "previous_worker_id"
	Description      []byte // "description"
	Name             []byte // "name"
	ParentServiceID  []byte // "parent_service_id"
	TriggerType      []byte // "trigger_type"
	Traceparent      []byte // "traceparent"
	Baggage          []byte // "baggage"
	Observer         []byte // "observer"
	Code             []byte // "code"
	WorkerName       []byte // "worker_name"
	OwnerWorkerID    []byte // "owner_worker_id"

	// Raw JSON values: valid JSON exactly as it was sent, without white space around it. JSON null is
	// the four bytes null. Bytes that are no UTF-8 inside strings are kept as they are.
	Data                 []byte // "data"
	Result               []byte // "result"; absent and null differ: the handler returned nothing, or null
	Error                []byte // "error": see ParseError
	Metadata             []byte // "metadata"
	Action               []byte // "action": see ParseAction
	Invocation           []byte // "invocation": an HTTP-invoked function (protocol section 10)
	RequestFormat        []byte // "request_format"
	ResponseFormat       []byte // "response_format"
	Observe              []byte // "observe"
	LocalDispatch        []byte // "local_dispatch"
	Config               []byte // "config"
	TriggerRequestFormat []byte // "trigger_request_format"
	CallRequestFormat    []byte // "call_request_format"
	Features             []byte // "features"
	Caller               []byte // "caller"

	scratch []byte // decoded texts that had escapes
}

// keepScratch bounds what a frame keeps for the next one; more was needed by a rare large text.
const keepScratch = 16 << 10

// Reset makes every field absent and keeps a little memory for the next Scan.
func (f *Frame) Reset() {
	s := f.scratch
	if cap(s) > keepScratch {
		s = nil
	}
	*f = Frame{scratch: s[:0]}
}

// Failed reports whether the frame carries an error: the field is there and is not null.
func (f *Frame) Failed() bool { return !IsNull(f.Error) }

// IsNull reports whether a raw value is absent or JSON null, which mean the same for every optional
// field but Result.
func IsNull(raw []byte) bool {
	return len(raw) == 0 || len(raw) == 4 && string(raw) == "null"
}

// Package wire is the protocol between a worker and the engine: one JSON object in one text message.
//
// It promises to read every frame in one pass that validates all of its bytes, to take no memory for
// a frame whose texts carry no escapes, to stay inside the bounds of [Limits], and to agree with
// encoding/json on what is JSON and on what each field holds. It never panics on foreign bytes.
//
// A Frame or a Drain belongs to one caller at a time; functions without a receiver may be called by
// all at once.
//
// It does no I/O, keeps no state between frames, routes nothing and judges no permission. The
// WebSocket framing is in the package ws beside it.
package wire

// Type names a frame. Its text on the wire is what String returns.
type Type uint8

// The frame types (protocol section 2.1). TypeUnknown stands for all texts that are none of these:
// a peer must ignore such a frame and keep the connection.
const (
	TypeUnknown Type = iota
	TypeInvokeFunction
	TypeInvocationResult
	TypePing
	TypePong
	TypeWorkerRegistered
	TypeReattach
	TypeRegisterFunction
	TypeUnregisterFunction
	TypeRegisterService
	TypeRegisterTriggerType
	TypeUnregisterTriggerType
	TypeRegisterTrigger
	TypeUnregisterTrigger
	TypeTriggerRegistrationResult
	TypeRegistrationRejected
	TypeError
	types // how many there are
)

// String returns the text of the type field, or "unknown".
func (t Type) String() string {
	switch t {
	case TypeInvokeFunction:
		return "invokefunction"
	case TypeInvocationResult:
		return "invocationresult"
	case TypePing:
		return "ping"
	case TypePong:
		return "pong"
	case TypeWorkerRegistered:
		return "workerregistered"
	case TypeReattach:
		return "reattach"
	case TypeRegisterFunction:
		return "registerfunction"
	case TypeUnregisterFunction:
		return "unregisterfunction"
	case TypeRegisterService:
		return "registerservice"
	case TypeRegisterTriggerType:
		return "registertriggertype"
	case TypeUnregisterTriggerType:
		return "unregistertriggertype"
	case TypeRegisterTrigger:
		return "registertrigger"
	case TypeUnregisterTrigger:
		return "unregistertrigger"
	case TypeTriggerRegistrationResult:
		return "triggerregistrationresult"
	case TypeRegistrationRejected:
		return "registrationrejected"
	case TypeError:
		return "error"
	}
	return "unknown"
}

// ParseType returns the type whose text is s (decoded, without quotes), TypeUnknown for all others.
// The comparison is exact: types are lower case.
func ParseType(s []byte) Type {
	switch string(s) {
	case "invokefunction":
		return TypeInvokeFunction
	case "invocationresult":
		return TypeInvocationResult
	case "ping":
		return TypePing
	case "pong":
		return TypePong
	case "workerregistered":
		return TypeWorkerRegistered
	case "reattach":
		return TypeReattach
	case "registerfunction":
		return TypeRegisterFunction
	case "unregisterfunction":
		return TypeUnregisterFunction
	case "registerservice":
		return TypeRegisterService
	case "registertriggertype":
		return TypeRegisterTriggerType
	case "unregistertriggertype":
		return TypeUnregisterTriggerType
	case "registertrigger":
		return TypeRegisterTrigger
	case "unregistertrigger":
		return TypeUnregisterTrigger
	case "triggerregistrationresult":
		return TypeTriggerRegistrationResult
	case "registrationrejected":
		return TypeRegistrationRejected
	case "error":
		return TypeError
	}
	return TypeUnknown
}

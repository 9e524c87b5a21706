package wire

import (
	"bytes"
	"strconv"
)

// fault says why bytes are no frame.
type fault uint8

const (
	fine fault = iota
	faultEmpty
	faultEnd
	faultObject
	faultByte
	faultString
	faultNumber
	faultLiteral
	faultDepth
	faultTrailing
)

func (w fault) String() string {
	switch w {
	case faultEmpty:
		return "empty message"
	case faultEnd:
		return "message ends too early"
	case faultObject:
		return "message is no object"
	case faultByte:
		return "unexpected byte"
	case faultString:
		return "bad string"
	case faultNumber:
		return "bad number"
	case faultLiteral:
		return "bad literal"
	case faultDepth:
		return "nested deeper than " + strconv.Itoa(MaxDepth)
	case faultTrailing:
		return "bytes after the end of the object"
	}
	return "fine"
}

// err makes the error for a fault found at byte i.
func (w fault) err(i int) error {
	code := CodeMalformedFrame
	if w == faultDepth {
		code = CodeLimit
	}
	return &Error{Code: code, Message: w.String() + " at byte " + strconv.Itoa(i)}
}

// Blank reports whether a message holds white space only. Peers ignore such a message silently
// (protocol section 2); Scan refuses it.
func Blank(b []byte) bool { return len(bytes.TrimLeft(b, " \t\r\n")) == 0 }

// Scan reads one frame from all of b, in one pass. It accepts exactly what encoding/json.Valid
// accepts, if the value is an object and nests no deeper than MaxDepth. Unknown fields are checked and
// skipped. Of a repeated field the last one counts. A text field that holds another kind of value is
// absent. An unknown type is TypeUnknown and no error.
//
// The error is an *Error with CodeMalformedFrame or, for the depth, CodeLimit. After an error f holds
// what stood before the fault: enough to name the call in an answer or a log line, not to act on.
func (f *Frame) Scan(b []byte) error {
	f.Reset()
	if i, why := f.scan(b); why != fine {
		return why.err(i)
	}
	return nil
}

// scan does the work of Scan and returns where and why it stopped.
func (f *Frame) scan(b []byte) (int, fault) {
	i := space(b, 0)
	if i == len(b) {
		return i, faultEmpty
	}
	if b[i] != '{' {
		return i, faultObject
	}
	i++
	if i < len(b) && b[i] <= ' ' {
		i = space(b, i)
	}
	if i < len(b) && b[i] == '}' {
		return trailing(b, i+1)
	}
	for {
		// Here b[i:] must begin with a key.
		if i >= len(b) {
			return i, faultEnd
		}
		if b[i] != '"' {
			return i, faultByte
		}
		start := i + 1
		end, odd := stringEnd(b, start)
		if end < 0 {
			return ^end, faultString
		}
		key := b[start:end]
		if odd {
			key = f.oddKey(key)
		}
		i = end + 1
		if i < len(b) && b[i] != ':' {
			i = space(b, i)
		}
		if i >= len(b) {
			return i, faultEnd
		}
		if b[i] != ':' {
			return i, faultByte
		}
		i++
		if i < len(b) && b[i] <= ' ' {
			i = space(b, i)
		}
		if i >= len(b) {
			return i, faultEnd
		}

		text, raw := f.field(key)
		if b[i] == '"' {
			start = i + 1
			if end, odd = stringEnd(b, start); end < 0 {
				return ^end, faultString
			}
			switch {
			case text != nil && odd:
				*text = f.decode(b[start:end:end])
			case text != nil:
				*text = b[start:end:end]
			case raw != nil:
				*raw = b[i : end+1 : end+1]
			case string(key) == "type":
				f.setType(b[start:end], odd)
			}
			i = end + 1
		} else {
			start = i
			var why fault
			if i, why = skip(b, i); why != fine {
				return i, why
			}
			switch {
			case raw != nil:
				*raw = b[start:i:i]
			case text != nil:
				f.spoil(text)
			case string(key) == "type":
				f.Type = TypeUnknown
			}
		}

		if i < len(b) && b[i] <= ' ' {
			i = space(b, i)
		}
		if i >= len(b) {
			return i, faultEnd
		}
		switch b[i] {
		case ',':
			i++
			if i < len(b) && b[i] <= ' ' {
				i = space(b, i)
			}
		case '}':
			return trailing(b, i+1)
		default:
			return i, faultByte
		}
	}
}

// field returns where the value of a key goes: to a text or to a raw field, or nowhere.
func (f *Frame) field(key []byte) (text, raw *[]byte) {
	switch string(key) {
	case "id":
		return &f.ID, nil
	case "function_id":
		return &f.FunctionID, nil
	case "invocation_id":
		return &f.InvocationID, nil
	case "namespace":
		f.BadNamespace = false
		return &f.Namespace, nil
	case "trigger_namespace":
		f.BadTriggerNamespace = false
		return &f.TriggerNamespace, nil
	case "worker_id":
		return &f.WorkerID, nil
	case "reattach_token":
		return &f.ReattachToken, nil
	case "previous_worker_id":
		return &f.PreviousWorkerID, nil
	case "description":
		return &f.Description, nil
	case "name":
		return &f.Name, nil
	case "parent_service_id":
		return &f.ParentServiceID, nil
	case "trigger_type":
		return &f.TriggerType, nil
	case "traceparent":
		return &f.Traceparent, nil
	case "baggage":
		return &f.Baggage, nil
	case "observer":
		return &f.Observer, nil
	case "code":
		return &f.Code, nil
	case "worker_name":
		return &f.WorkerName, nil
	case "owner_worker_id":
		return &f.OwnerWorkerID, nil
	case "data":
		return nil, &f.Data
	case "result":
		return nil, &f.Result
	case "error":
		return nil, &f.Error
	case "metadata":
		return nil, &f.Metadata
	case "action":
		return nil, &f.Action
	case "invocation":
		return nil, &f.Invocation
	case "request_format":
		return nil, &f.RequestFormat
	case "response_format":
		return nil, &f.ResponseFormat
	case "observe":
		return nil, &f.Observe
	case "local_dispatch":
		return nil, &f.LocalDispatch
	case "config":
		return nil, &f.Config
	case "trigger_request_format":
		return nil, &f.TriggerRequestFormat
	case "call_request_format":
		return nil, &f.CallRequestFormat
	case "features":
		return nil, &f.Features
	case "caller":
		return nil, &f.Caller
	}
	return nil, nil
}

// spoil makes a text field absent whose value was no text.
func (f *Frame) spoil(text *[]byte) {
	*text = nil
	switch text {
	case &f.Namespace:
		f.BadNamespace = true
	case &f.TriggerNamespace:
		f.BadTriggerNamespace = true
	}
}

func (f *Frame) setType(s []byte, odd bool) {
	if odd {
		s = f.decode(s)
	}
	f.Type = ParseType(s)
}

// trailing checks that only white space follows the top object.
func trailing(b []byte, i int) (int, fault) {
	if i < len(b) {
		if i = space(b, i); i < len(b) {
			return i, faultTrailing
		}
	}
	return i, fine
}

// space returns the index of the first byte of b[i:] that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

package wire

import "unicode/utf8"

// AppendString appends s as a JSON string. Bytes that are no UTF-8 become U+FFFD, so that the result
// may stand in a text message. s must not lie in the spare capacity of dst.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	return appendInside(append(dst, '"'), s)
}

// appendInside appends the inside of a JSON string and its closing quote. It copies s whole and looks
// at the copy, as most texts need no escape.
func appendInside[T string | []byte](dst []byte, s T) []byte {
	start := len(dst)
	dst = append(dst, s...)
	if i := clean(dst, start); i < len(dst) {
		dst = appendEscaped(dst[:i], s[i-start:])
	}
	return append(dst, '"')
}

// clean returns an index of b, not before start, up to which b[start:] may stand in a JSON string as it
// is; len(b) if all of it may. b[start-1] is a quote.
func clean(b []byte, start int) int {
	i := start
	for ; i+8 <= len(b); i += 8 {
		if x := load(b[i:]); special(x)|x&highs != 0 {
			return i
		}
	}
	n := len(b) - i
	if n == 0 {
		return i
	}
	if len(b) < 8 {
		return start
	}
	// The last bytes, moved down in a word and filled up with spaces.
	x := load(b[len(b)-8:])>>(64-8*n) | spaces<<(8*n)
	if special(x)|x&highs != 0 {
		return i
	}
	return len(b)
}

// appendEscaped appends s with its escapes.
func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			n := runeLen(s[i:min(i+utf8.UTFMax, len(s))])
			if n > 0 {
				i += n
				continue
			}
			dst = append(append(dst, s[start:i]...), "\uFFFD"...)
			i++
			start = i
			continue
		}
		if c < ' ' || c == '"' || c == '\\' {
			dst = appendEscape(append(dst, s[start:i]...), c)
			start = i + 1
		}
		i++
	}
	return append(dst, s[start:]...)
}

// runeLen returns how many bytes the rune at the start of s has, 0 if that is no UTF-8.
func runeLen[T string | []byte](s T) int {
	var a [utf8.UTFMax]byte
	if r, n := utf8.DecodeRune(a[:copy(a[:], s)]); r != utf8.RuneError || n > 1 {
		return n
	}
	return 0
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// appendText appends one text field if it is there; name is the comma, the quoted key, the colon and the
// quote of the value.
func appendText(dst []byte, name string, s []byte) []byte {
	if s == nil {
		return dst
	}
	return appendInside(append(dst, name...), s)
}

// appendRaw appends one raw field if it is there.
func appendRaw(dst []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	return append(append(dst, name...), raw...)
}

// appendSpace appends a namespace; one that was given and is no text stays so.
func appendSpace(dst []byte, name string, s []byte, bad bool) []byte {
	if bad && s == nil {
		return append(append(dst, name[:len(name)-1]...), "null"...)
	}
	return appendText(dst, name, s)
}

// AppendInvoke appends f as an invokefunction frame, whatever its Type. It takes no memory but for dst.
func AppendInvoke(dst []byte, f *Frame) []byte {
	dst = append(dst, `{"type":"invokefunction"`...)
	dst = appendText(dst, `,"invocation_id":"`, f.InvocationID)
	dst = appendText(dst, `,"function_id":"`, f.FunctionID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"traceparent":"`, f.Traceparent)
	dst = appendText(dst, `,"baggage":"`, f.Baggage)
	dst = appendText(dst, `,"observer":"`, f.Observer)
	dst = appendRaw(dst, `,"action":`, f.Action)
	dst = appendRaw(dst, `,"caller":`, f.Caller)
	dst = appendRaw(dst, `,"metadata":`, f.Metadata)
	dst = appendRaw(dst, `,"data":`, f.Data)
	return append(dst, '}')
}

// AppendResult appends f as an invocationresult frame, whatever its Type. It takes no memory but for dst.
func AppendResult(dst []byte, f *Frame) []byte {
	dst = append(dst, `{"type":"invocationresult"`...)
	dst = appendText(dst, `,"invocation_id":"`, f.InvocationID)
	dst = appendText(dst, `,"function_id":"`, f.FunctionID)
	dst = appendText(dst, `,"traceparent":"`, f.Traceparent)
	dst = appendText(dst, `,"baggage":"`, f.Baggage)
	dst = appendRaw(dst, `,"error":`, f.Error)
	dst = appendRaw(dst, `,"result":`, f.Result)
	return append(dst, '}')
}

// Append appends f as JSON: its type, then the ids, then the rest of the fields that its type has
// (protocol sections 3 to 9); other fields of f are left out. Texts are escaped, raw values are copied
// as they are and have to be valid JSON. A frame of TypeUnknown appends nothing.
func (f *Frame) Append(dst []byte) []byte {
	switch f.Type {
	case TypeInvokeFunction:
		return AppendInvoke(dst, f)
	case TypeInvocationResult:
		return AppendResult(dst, f)
	case TypePing:
		return append(dst, `{"type":"ping"}`...)
	case TypePong:
		return append(dst, `{"type":"pong"}`...)
	case TypeWorkerRegistered:
		return f.appendWorkerRegistered(dst)
	case TypeReattach:
		return f.appendReattach(dst)
	case TypeRegisterFunction:
		return f.appendRegisterFunction(dst)
	case TypeUnregisterFunction:
		return f.appendUnregisterFunction(dst)
	case TypeRegisterService:
		return f.appendRegisterService(dst)
	case TypeRegisterTriggerType, TypeUnregisterTriggerType:
		return f.appendTriggerType(dst)
	case TypeRegisterTrigger, TypeUnregisterTrigger:
		return f.appendTrigger(dst)
	case TypeTriggerRegistrationResult:
		return f.appendTriggerResult(dst)
	case TypeRegistrationRejected:
		return f.appendRejected(dst)
	case TypeError:
		dst = append(dst, `{"type":"error"`...)
		return append(appendRaw(dst, `,"error":`, f.Error), '}')
	}
	return dst
}

func (f *Frame) appendWorkerRegistered(dst []byte) []byte {
	dst = append(dst, `{"type":"workerregistered"`...)
	dst = appendText(dst, `,"worker_id":"`, f.WorkerID)
	dst = appendText(dst, `,"reattach_token":"`, f.ReattachToken)
	dst = appendRaw(dst, `,"features":`, f.Features)
	return append(dst, '}')
}

func (f *Frame) appendReattach(dst []byte) []byte {
	dst = append(dst, `{"type":"reattach"`...)
	dst = appendText(dst, `,"previous_worker_id":"`, f.PreviousWorkerID)
	dst = appendText(dst, `,"reattach_token":"`, f.ReattachToken)
	return append(dst, '}')
}

func (f *Frame) appendRegisterFunction(dst []byte) []byte {
	dst = append(dst, `{"type":"registerfunction"`...)
	dst = appendText(dst, `,"id":"`, f.ID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"description":"`, f.Description)
	dst = appendRaw(dst, `,"request_format":`, f.RequestFormat)
	dst = appendRaw(dst, `,"response_format":`, f.ResponseFormat)
	dst = appendRaw(dst, `,"metadata":`, f.Metadata)
	dst = appendRaw(dst, `,"invocation":`, f.Invocation)
	dst = appendRaw(dst, `,"observe":`, f.Observe)
	dst = appendRaw(dst, `,"local_dispatch":`, f.LocalDispatch)
	return append(dst, '}')
}

func (f *Frame) appendUnregisterFunction(dst []byte) []byte {
	dst = append(dst, `{"type":"unregisterfunction"`...)
	dst = appendText(dst, `,"id":"`, f.ID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	return append(dst, '}')
}

func (f *Frame) appendRegisterService(dst []byte) []byte {
	dst = append(dst, `{"type":"registerservice"`...)
	dst = appendText(dst, `,"id":"`, f.ID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"name":"`, f.Name)
	dst = appendText(dst, `,"parent_service_id":"`, f.ParentServiceID)
	dst = appendText(dst, `,"description":"`, f.Description)
	return append(dst, '}')
}

func (f *Frame) appendTriggerType(dst []byte) []byte {
	if f.Type == TypeRegisterTriggerType {
		dst = append(dst, `{"type":"registertriggertype"`...)
	} else {
		dst = append(dst, `{"type":"unregistertriggertype"`...)
	}
	dst = appendText(dst, `,"id":"`, f.ID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"description":"`, f.Description)
	dst = appendRaw(dst, `,"trigger_request_format":`, f.TriggerRequestFormat)
	dst = appendRaw(dst, `,"call_request_format":`, f.CallRequestFormat)
	return append(dst, '}')
}

func (f *Frame) appendTrigger(dst []byte) []byte {
	if f.Type == TypeRegisterTrigger {
		dst = append(dst, `{"type":"registertrigger"`...)
	} else {
		dst = append(dst, `{"type":"unregistertrigger"`...)
	}
	dst = appendText(dst, `,"id":"`, f.ID)
	dst = appendText(dst, `,"trigger_type":"`, f.TriggerType)
	dst = appendText(dst, `,"function_id":"`, f.FunctionID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendSpace(dst, `,"trigger_namespace":"`, f.TriggerNamespace, f.BadTriggerNamespace)
	dst = appendRaw(dst, `,"config":`, f.Config)
	dst = appendRaw(dst, `,"metadata":`, f.Metadata)
	return append(dst, '}')
}

func (f *Frame) appendTriggerResult(dst []byte) []byte {
	dst = append(dst, `{"type":"triggerregistrationresult"`...)
	dst = appendText(dst, `,"id":"`, f.ID)
	dst = appendText(dst, `,"trigger_type":"`, f.TriggerType)
	dst = appendText(dst, `,"function_id":"`, f.FunctionID)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendRaw(dst, `,"error":`, f.Error)
	return append(dst, '}')
}

func (f *Frame) appendRejected(dst []byte) []byte {
	dst = append(dst, `{"type":"registrationrejected"`...)
	dst = appendText(dst, `,"code":"`, f.Code)
	dst = appendSpace(dst, `,"namespace":"`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"worker_name":"`, f.WorkerName)
	dst = appendText(dst, `,"function_id":"`, f.FunctionID)
	dst = appendText(dst, `,"owner_worker_id":"`, f.OwnerWorkerID)
	return append(dst, '}')
}

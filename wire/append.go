package wire

import "unicode/utf8"

// AppendString appends s as a JSON string. Bytes that are no UTF-8 become U+FFFD, so that the result
// may stand in a text message.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start, i := 0, 0
	for i < len(s) {
		if i+8 <= len(s) {
			x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
				uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
			if special(x)|x&highs == 0 {
				i += 8
				continue
			}
		}
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' {
				dst = append(dst, s[start:i]...)
				dst = appendEscape(dst, c)
				start = i + 1
			}
			i++
			continue
		}
		n := runeLen(s[i:min(i+utf8.UTFMax, len(s))])
		if n == 0 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			i++
			start = i
			continue
		}
		i += n
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
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

// text appends one text field if it is there; name is the comma, the quoted key and the colon.
func appendText(dst []byte, name string, s []byte) []byte {
	if s == nil {
		return dst
	}
	return AppendString(append(dst, name...), s)
}

// raw appends one raw field if it is there.
func appendRaw(dst []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	return append(append(dst, name...), raw...)
}

// appendSpace appends a namespace; one that was given and is no text stays so.
func appendSpace(dst []byte, name string, s []byte, bad bool) []byte {
	if bad && s == nil {
		return append(append(dst, name...), "null"...)
	}
	return appendText(dst, name, s)
}

// AppendInvoke appends f as an invokefunction frame, whatever its Type. It takes no memory but for dst.
func AppendInvoke(dst []byte, f *Frame) []byte {
	dst = append(dst, `{"type":"invokefunction"`...)
	dst = appendText(dst, `,"invocation_id":`, f.InvocationID)
	dst = appendText(dst, `,"function_id":`, f.FunctionID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"traceparent":`, f.Traceparent)
	dst = appendText(dst, `,"baggage":`, f.Baggage)
	dst = appendText(dst, `,"observer":`, f.Observer)
	dst = appendRaw(dst, `,"action":`, f.Action)
	dst = appendRaw(dst, `,"caller":`, f.Caller)
	dst = appendRaw(dst, `,"metadata":`, f.Metadata)
	dst = appendRaw(dst, `,"data":`, f.Data)
	return append(dst, '}')
}

// AppendResult appends f as an invocationresult frame, whatever its Type. It takes no memory but for dst.
func AppendResult(dst []byte, f *Frame) []byte {
	dst = append(dst, `{"type":"invocationresult"`...)
	dst = appendText(dst, `,"invocation_id":`, f.InvocationID)
	dst = appendText(dst, `,"function_id":`, f.FunctionID)
	dst = appendText(dst, `,"traceparent":`, f.Traceparent)
	dst = appendText(dst, `,"baggage":`, f.Baggage)
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
	dst = appendText(dst, `,"worker_id":`, f.WorkerID)
	dst = appendText(dst, `,"reattach_token":`, f.ReattachToken)
	dst = appendRaw(dst, `,"features":`, f.Features)
	return append(dst, '}')
}

func (f *Frame) appendReattach(dst []byte) []byte {
	dst = append(dst, `{"type":"reattach"`...)
	dst = appendText(dst, `,"previous_worker_id":`, f.PreviousWorkerID)
	dst = appendText(dst, `,"reattach_token":`, f.ReattachToken)
	return append(dst, '}')
}

func (f *Frame) appendRegisterFunction(dst []byte) []byte {
	dst = append(dst, `{"type":"registerfunction"`...)
	dst = appendText(dst, `,"id":`, f.ID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"description":`, f.Description)
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
	dst = appendText(dst, `,"id":`, f.ID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	return append(dst, '}')
}

func (f *Frame) appendRegisterService(dst []byte) []byte {
	dst = append(dst, `{"type":"registerservice"`...)
	dst = appendText(dst, `,"id":`, f.ID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"name":`, f.Name)
	dst = appendText(dst, `,"parent_service_id":`, f.ParentServiceID)
	dst = appendText(dst, `,"description":`, f.Description)
	return append(dst, '}')
}

func (f *Frame) appendTriggerType(dst []byte) []byte {
	if f.Type == TypeRegisterTriggerType {
		dst = append(dst, `{"type":"registertriggertype"`...)
	} else {
		dst = append(dst, `{"type":"unregistertriggertype"`...)
	}
	dst = appendText(dst, `,"id":`, f.ID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"description":`, f.Description)
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
	dst = appendText(dst, `,"id":`, f.ID)
	dst = appendText(dst, `,"trigger_type":`, f.TriggerType)
	dst = appendText(dst, `,"function_id":`, f.FunctionID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendSpace(dst, `,"trigger_namespace":`, f.TriggerNamespace, f.BadTriggerNamespace)
	dst = appendRaw(dst, `,"config":`, f.Config)
	dst = appendRaw(dst, `,"metadata":`, f.Metadata)
	return append(dst, '}')
}

func (f *Frame) appendTriggerResult(dst []byte) []byte {
	dst = append(dst, `{"type":"triggerregistrationresult"`...)
	dst = appendText(dst, `,"id":`, f.ID)
	dst = appendText(dst, `,"trigger_type":`, f.TriggerType)
	dst = appendText(dst, `,"function_id":`, f.FunctionID)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendRaw(dst, `,"error":`, f.Error)
	return append(dst, '}')
}

func (f *Frame) appendRejected(dst []byte) []byte {
	dst = append(dst, `{"type":"registrationrejected"`...)
	dst = appendText(dst, `,"code":`, f.Code)
	dst = appendSpace(dst, `,"namespace":`, f.Namespace, f.BadNamespace)
	dst = appendText(dst, `,"worker_name":`, f.WorkerName)
	dst = appendText(dst, `,"function_id":`, f.FunctionID)
	dst = appendText(dst, `,"owner_worker_id":`, f.OwnerWorkerID)
	return append(dst, '}')
}

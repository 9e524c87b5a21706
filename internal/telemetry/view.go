package telemetry

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
)

// View is a span as read back.
type View struct {
	Context
	Parent   [8]byte
	Name     string // as it is shown: "call <function>" for a call
	Function string // id of the called function; empty for other spans
	Kind     Kind
	Role     uint8 // span kind of OTLP
	Status   Status
	Start    int64  // Unix ns
	End      int64  // Unix ns; 0: still running
	Service  string // who recorded it
	Worker   string // who ran the function
	Caller   string // who asked for it
	Code     string // of the error
	Message  string // of the error
	Scope    string
	Version  string // of the scope
	Cut      bool   // recorded in part
	// JSON as Foreign has it; nil for spans of our own
	Attributes, Resource, Links, Events []byte
}

// Duration returns nanoseconds from start to end; 0 for a span that is still running.
func (v *View) Duration() int64 {
	if v.End == 0 {
		return 0
	}
	return v.End - v.Start
}

// StatusText returns "unset", "ok" or "error".
func StatusText(s Status) string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusError:
		return "error"
	}
	return "unset"
}

// attributes calls yield for each attribute that the packed fields of our own span stand for.
func (v *View) attributes(yield func(key, value string)) {
	if v.Function != "" {
		yield("function_id", v.Function)
		yield("faas.invoked_name", v.Function)
	}
	switch v.Kind {
	case KindUser:
		yield("iii.function.kind", "user")
	case KindInternal:
		yield("iii.function.kind", "internal")
	}
	if v.Worker != "" {
		yield("plinth.worker", v.Worker)
	}
	if v.Caller != "" {
		yield("plinth.caller", v.Caller)
	}
	if v.Status == StatusError && v.Code != "" {
		yield("error.type", v.Code)
	}
	if v.Status == StatusError && v.Message != "" {
		yield("error.message", v.Message)
	}
}

// Attribute returns the value of one attribute.
func (v *View) Attribute(key string) (value string, found bool) {
	if v.Kind != KindForeign {
		v.attributes(func(k, s string) {
			if k == key {
				value, found = s, true
			}
		})
		return value, found
	}
	var pairs [][2]string
	if json.Unmarshal(v.Attributes, &pairs) != nil {
		return "", false
	}
	for _, p := range pairs {
		if p[0] == key {
			return p[1], true
		}
	}
	return "", false
}

// AppendJSON appends the span in the shape of engine::traces::list (engine-semantics section 5).
func (v *View) AppendJSON(dst []byte) []byte {
	dst = append(v.appendOpen(dst), '}')
	return dst
}

// appendOpen is AppendJSON without the last brace, for shapes that go on.
func (v *View) appendOpen(dst []byte) []byte {
	dst = append(appendHex(append(dst, `{"trace_id":"`...), v.TraceID[:]), `","span_id":"`...)
	dst = append(appendHex(dst, v.SpanID[:]), '"')
	if v.Parent != [8]byte{} {
		dst = append(appendHex(append(dst, `,"parent_span_id":"`...), v.Parent[:]), '"')
	}
	dst = appendString(append(dst, `,"name":`...), v.Name)
	dst = strconv.AppendInt(append(dst, `,"start_time_unix_nano":`...), v.Start, 10)
	dst = strconv.AppendInt(append(dst, `,"end_time_unix_nano":`...), v.End, 10)
	dst = append(append(append(dst, `,"status":"`...), StatusText(v.Status)...), '"')
	if v.Message != "" {
		dst = appendString(append(dst, `,"status_description":`...), v.Message)
	}
	dst = append(dst, `,"attributes":`...)
	if v.Kind == KindForeign {
		dst = appendArray(dst, v.Attributes)
	} else {
		dst = v.appendAttributes(dst)
	}
	dst = appendString(append(dst, `,"service_name":`...), v.Service)
	dst = append(dst, `,"events":`...)
	if v.Kind != KindForeign && v.Status == StatusError {
		dst = v.appendException(dst)
	} else {
		dst = appendArray(dst, v.Events)
	}
	dst = appendArray(append(dst, `,"links":`...), v.Links)
	dst = append(append(append(dst, `,"kind":"`...), roleText(v.Role)...), '"')
	if v.Scope != "" {
		dst = appendString(append(dst, `,"instrumentation_scope_name":`...), v.Scope)
	}
	if v.Version != "" {
		dst = appendString(append(dst, `,"instrumentation_scope_version":`...), v.Version)
	}
	if len(v.Resource) > 0 {
		dst = append(append(dst, `,"resource_attributes":`...), v.Resource...)
	}
	if v.Cut {
		dst = append(dst, `,"truncated":true`...)
	}
	if v.End == 0 {
		dst = append(dst, `,"pending":true`...)
	}
	return dst
}

func (v *View) appendAttributes(dst []byte) []byte {
	dst = append(dst, '[')
	n := 0
	v.attributes(func(key, value string) {
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		dst = appendPair(dst, key, value)
	})
	return append(dst, ']')
}

func (v *View) appendException(dst []byte) []byte {
	dst = append(dst, `[{"name":"exception","timestamp_unix_nano":`...)
	dst = append(strconv.AppendInt(dst, v.End, 10), `,"attributes":[`...)
	dst = append(appendPair(dst, "exception.type", v.Code), ',')
	return append(appendPair(dst, "exception.message", v.Message), "]}]"...)
}

func appendPair(dst []byte, key, value string) []byte {
	dst = append(appendString(append(dst, '['), key), ',')
	return append(appendString(dst, value), ']')
}

func appendArray(dst, array []byte) []byte {
	if len(array) == 0 {
		return append(dst, "[]"...)
	}
	return append(dst, array...)
}

func roleText(role uint8) string {
	switch role {
	case 2:
		return "server"
	case 3:
		return "client"
	case 4:
		return "producer"
	case 5:
		return "consumer"
	}
	return "internal"
}

// view decodes a record. Texts and JSON are copies.
func view(b []byte, names *Names, service string) *View {
	le := binary.LittleEndian
	v := &View{Kind: b[atKind], Status: b[spanStatus], Role: b[spanRole], Service: service,
		Start: int64(le.Uint64(b[spanStart:])), End: int64(le.Uint64(b[spanEnd:])),
		Worker: names.Text(le.Uint32(b[spanWorker:])), Caller: names.Text(le.Uint32(b[spanCaller:])),
		Code: names.Text(le.Uint32(b[spanCode:])), Cut: b[spanFlags]&flagCut != 0,
		Parent: [8]byte(b[spanParent:])}
	v.Context = Context{[16]byte(b[spanTrace:]), [8]byte(b[spanID:]), b[spanFlags]&flagSampled != 0}
	if b[spanFlags]&flagPending != 0 {
		v.End = 0
	}
	message := int(le.Uint32(b[spanMessage:]))
	if v.Kind == KindForeign {
		v.readForeign(b, message)
		return v
	}
	v.Role = 1
	if v.Name, v.Function = nameOf(b, names); v.Function != "" {
		v.Role = 2
	}
	v.Message = string(b[spanHeader : spanHeader+message])
	return v
}

// nameOf returns the name under which a span of our own is shown, and the function if it is a call.
func nameOf(b []byte, names *Names) (name, function string) {
	name = names.Text(binary.LittleEndian.Uint32(b[spanName:]))
	if kind := b[atKind]; kind == KindUser || kind == KindInternal {
		return "call " + name, name
	}
	return name, ""
}

// foreignParts returns the variable parts of a foreign span, in the order of Foreign.parts.
func foreignParts(b []byte) (parts [8][]byte) {
	at := spanHeader + foreignPart + binary.LittleEndian.Uint32(b[spanMessage:])
	for i := range parts {
		n := binary.LittleEndian.Uint32(b[spanHeader+4*i:])
		parts[i] = b[at : at+n : at+n]
		at += n
	}
	return parts
}

func (v *View) readForeign(b []byte, message int) {
	parts := foreignParts(slices.Clone(b))
	at := spanHeader + foreignPart
	v.Message = string(b[at : at+message])
	v.Name, v.Service = string(parts[0]), string(parts[1])
	v.Scope, v.Version = string(parts[2]), string(parts[3])
	v.Attributes, v.Resource, v.Links, v.Events = parts[4], parts[5], parts[6], parts[7]
}

package telemetry

// Context is the part of a trace that travels: which trace, which span is the parent, and whether
// somebody upstream asked for it to be recorded. The zero value means none.
type Context struct {
	TraceID [16]byte
	SpanID  [8]byte
	Sampled bool
}

// Valid reports whether both ids are set.
func (c Context) Valid() bool { return c.TraceID != [16]byte{} && c.SpanID != [8]byte{} }

// TraceparentBytes is the length of a traceparent of version 00.
const TraceparentBytes = 55

// ParseTraceparent reads a traceparent (W3C Trace Context, Recommendation of 23 November 2021, section
// 3.2). It refuses version ff, upper-case digits, all-zero ids, and anything after the flags in version
// 00; from a higher version it takes the fields that version 00 has. White space is the header parser's
// to remove.
func ParseTraceparent(b []byte) (Context, bool) {
	var c Context
	if len(b) < TraceparentBytes || b[2] != '-' || b[35] != '-' || b[52] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !unhex(version[:], b[:2]) || version[0] == 0xff {
		return Context{}, false
	}
	if len(b) > TraceparentBytes && (version[0] == 0 || b[TraceparentBytes] != '-') {
		return Context{}, false
	}
	if !unhex(c.TraceID[:], b[3:35]) || !unhex(c.SpanID[:], b[36:52]) || !unhex(flags[:], b[53:55]) {
		return Context{}, false
	}
	if !c.Valid() {
		return Context{}, false
	}
	c.Sampled = flags[0]&1 != 0
	return c, true
}

// AppendTraceparent appends c in version 00. Flags other than "sampled" are not passed on, as section
// 3.2.2.5 asks. A context that is not Valid appends nothing.
func AppendTraceparent(dst []byte, c Context) []byte {
	if !c.Valid() {
		return dst
	}
	dst = append(dst, "00-"...)
	dst = appendHex(dst, c.TraceID[:])
	dst = append(dst, '-')
	dst = appendHex(dst, c.SpanID[:])
	if c.Sampled {
		return append(dst, "-01"...)
	}
	return append(dst, "-00"...)
}

const hexDigits = "0123456789abcdef"

func appendHex(dst, src []byte) []byte {
	for _, c := range src {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// unhex decodes lower-case digits; len(src) must be twice len(dst).
func unhex(dst, src []byte) bool {
	bad := byte(0)
	for i := range dst {
		h, l := digits[src[2*i]], digits[src[2*i+1]]
		bad |= h | l
		dst[i] = h<<4 | l&15
	}
	return bad < 16
}

// digits maps a lower-case hexadecimal digit to its value and every other byte to 0xf0.
var digits = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xf0
	}
	for i := range hexDigits {
		t[hexDigits[i]] = byte(i)
	}
	return t
}()

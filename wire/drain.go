package wire

// What Drain keeps of one text: the longest value that may stand in an id field, all of it escaped.
const (
	drainText = 512
	drainRaw  = 6 * drainText
	drainKey  = 6 * longestKey
)

// Drain follows a message that is too large to be kept, part by part, and keeps its type and its ids,
// wherever they stand, so that the call can be answered. It holds less than 16 KiB whatever comes.
//
// It does not validate: for a message that Scan accepts it finds what Scan finds (for texts up to 512
// bytes; longer ones are absent), for all else it finds something or nothing.
//
// The zero Drain is ready. A Drain serves one caller at a time.
type Drain struct {
	frame Frame
	depth int64
	mode  drainMode
	after bool // at depth 1 a colon came: a value follows, not a key
	slot  drainSlot
	key   []byte // inside of the key, escapes and all
	text  []byte // inside of the value, escapes and all
	over  bool   // key or text did not fit

	typ, invocation, function, id []byte // what was found
}

type drainMode uint8

const (
	drainOutside drainMode = iota // between tokens
	drainSkip                     // in a string of no interest
	drainSkipEscape
	drainKeep // in a key or a value to keep
	drainKeepEscape
	drainDone // the top object is closed
)

// drainSlot says which field the value behind the last key goes to.
type drainSlot uint8

const (
	slotNone drainSlot = iota
	slotType
	slotInvocation
	slotFunction
	slotID
)

// Reset makes the drain ready for the next message.
func (d *Drain) Reset() {
	*d = Drain{key: d.key[:0], text: d.text[:0]}
}

// Write follows the next part of the message. It keeps no reference to p.
func (d *Drain) Write(p []byte) {
	for i := 0; i < len(p); {
		switch d.mode {
		case drainOutside:
			i = d.outside(p, i)
		case drainSkip:
			i = d.skip(p, i)
		case drainKeep:
			i = d.keep(p, i)
		case drainSkipEscape:
			d.mode = drainSkip
			i++
		case drainKeepEscape:
			d.add(p[i : i+1])
			d.mode = drainKeep
			i++
		default:
			return
		}
	}
}

// outside follows bytes between strings until one begins.
func (d *Drain) outside(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch c := p[i]; c {
		case '"':
			d.begin()
			return i + 1
		case '{', '[':
			d.wrongKind()
			if d.depth == 0 && c == '[' {
				d.mode = drainDone
				return len(p)
			}
			d.depth++
		case '}', ']':
			d.depth--
			if d.depth <= 0 {
				d.mode = drainDone
				return len(p)
			}
		case ':':
			if d.depth == 1 {
				d.after = true
			}
		case ',':
			if d.depth == 1 {
				d.after = false
				d.slot = slotNone
			}
		case ' ', '\n', '\r', '\t':
		default: // a number or literal
			d.wrongKind()
		}
	}
	return i
}

// begin enters a string.
func (d *Drain) begin() {
	d.mode = drainSkip
	switch {
	case d.depth != 1:
	case !d.after:
		d.mode = drainKeep
		d.key = d.key[:0]
		d.over = false
	case d.slot != slotNone:
		d.mode = drainKeep
		d.text = d.text[:0]
		d.over = false
	}
}

// wrongKind forgets a field whose value is no text.
func (d *Drain) wrongKind() {
	if d.depth == 1 && d.after {
		if p := d.found(); p != nil {
			*p = nil
		}
	}
}

// found returns where the value behind the last key is kept.
func (d *Drain) found() *[]byte {
	switch d.slot {
	case slotType:
		return &d.typ
	case slotInvocation:
		return &d.invocation
	case slotFunction:
		return &d.function
	case slotID:
		return &d.id
	}
	return nil
}

// skip follows a string to its end.
func (d *Drain) skip(p []byte, i int) int {
	i = plainEnd(p, i)
	if i == len(p) {
		return i
	}
	if p[i] == '"' {
		d.mode = drainOutside
	} else if p[i] == '\\' {
		d.mode = drainSkipEscape
	}
	return i + 1
}

// keep follows a string to its end and keeps what is in it.
func (d *Drain) keep(p []byte, i int) int {
	n := plainEnd(p, i)
	d.add(p[i:n])
	if n == len(p) {
		return n
	}
	switch p[n] {
	case '"':
		d.mode = drainOutside
		d.end()
	case '\\':
		d.add(p[n : n+1])
		d.mode = drainKeepEscape
	default: // a control character: no JSON
		d.over = true
	}
	return n + 1
}

// plainEnd returns the index of the first byte of p[i:] that is a quote, a backslash or a control
// character, or len(p).
func plainEnd(p []byte, i int) int {
	for i+8 <= len(p) {
		m := special(load(p[i:]))
		if m != 0 {
			return i + first(m)
		}
		i += 8
	}
	for i < len(p) && p[i] >= ' ' && p[i] != '"' && p[i] != '\\' {
		i++
	}
	return i
}

// add keeps a part of a key or a value while it fits.
func (d *Drain) add(p []byte) {
	dst, most := &d.key, drainKey
	if d.after {
		dst, most = &d.text, drainRaw
	}
	if len(*dst)+len(p) > most {
		d.over = true
	}
	if !d.over {
		*dst = append(*dst, p...)
	}
}

// end takes the key or the value that is now whole.
func (d *Drain) end() {
	if !d.after {
		d.slot = slotNone
		if key, ok := d.decode(d.key, len(d.key)); ok {
			d.slot = slotOf(key)
		}
		return
	}
	if p := d.found(); p != nil {
		*p = nil
		if s, ok := d.decode(d.text, drainText); ok {
			*p = s
		}
	}
}

// decode returns the text of the inside of a string, if that is valid, was kept whole and is not too long.
func (d *Drain) decode(s []byte, most int) ([]byte, bool) {
	if d.over {
		return nil, false
	}
	if end, _ := stringEnd(append(s, '"'), 0); end != len(s) {
		return nil, false
	}
	dst := unquote(make([]byte, 0, 64), s)
	return dst, len(dst) <= most
}

func slotOf(key []byte) drainSlot {
	switch string(key) {
	case "type":
		return slotType
	case "invocation_id":
		return slotInvocation
	case "function_id":
		return slotFunction
	case "id":
		return slotID
	}
	return slotNone
}

// Frame returns the type and the ids as far as they were seen: Type, ID, FunctionID and InvocationID.
// It is valid until the next call of Write or Reset.
func (d *Drain) Frame() *Frame {
	d.frame = Frame{Type: ParseType(d.typ), ID: d.id, FunctionID: d.function, InvocationID: d.invocation}
	return &d.frame
}

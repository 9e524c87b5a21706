package wire

// MaxDepth is how deep objects and arrays may nest in a frame, the frame itself included.
const MaxDepth = 512

// kinds remembers for each open container whether it is an object. The youngest 64 are bits of top,
// so that ordinary values touch no memory.
type kinds struct {
	top   uint64
	depth int
	older [MaxDepth / 64]uint64
}

func (k *kinds) push(bit uint64) {
	if k.depth&63 == 0 {
		k.older[k.depth>>6&(len(k.older)-1)] = k.top
	}
	k.top = k.top<<1 | bit
	k.depth++
}

func (k *kinds) pop() {
	k.depth--
	k.top >>= 1
	if k.depth&63 == 0 {
		k.top = k.older[k.depth>>6&(len(k.older)-1)]
	}
}

// skip validates the JSON value that begins at b[i] inside the top object and returns the index
// behind it, or where the fault is.
func skip(b []byte, i int) (int, fault) {
	var k kinds
	var why fault
value:
	if i >= len(b) {
		return i, faultEnd
	}
	switch c := b[i]; c {
	case '"':
		end, _ := stringEnd(b, i+1)
		if end < 0 {
			return ^end, faultString
		}
		i = end + 1
	case '{':
		if k.depth == MaxDepth-1 {
			return i, faultDepth
		}
		k.push(1)
		i = spaced(b, i+1)
		if i < len(b) && b[i] == '}' {
			i++
			k.pop()
			break
		}
		goto key
	case '[':
		if k.depth == MaxDepth-1 {
			return i, faultDepth
		}
		k.push(0)
		i = spaced(b, i+1)
		if i < len(b) && b[i] == ']' {
			i++
			k.pop()
			break
		}
		goto value
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if i, why = number(b, i); why != fine {
			return i, why
		}
	case 't':
		if i, why = literal(b, i, "true"); why != fine {
			return i, why
		}
	case 'f':
		if i, why = literal(b, i, "false"); why != fine {
			return i, why
		}
	case 'n':
		if i, why = literal(b, i, "null"); why != fine {
			return i, why
		}
	default:
		return i, faultByte
	}
after:
	if k.depth == 0 {
		return i, fine
	}
	i = spaced(b, i)
	if i >= len(b) {
		return i, faultEnd
	}
	switch b[i] {
	case ',':
		i = spaced(b, i+1)
		if k.top&1 == 0 {
			goto value
		}
	case '}':
		if k.top&1 == 0 {
			return i, faultByte
		}
		i++
		k.pop()
		goto after
	case ']':
		if k.top&1 == 1 {
			return i, faultByte
		}
		i++
		k.pop()
		goto after
	default:
		return i, faultByte
	}
key:
	if i >= len(b) {
		return i, faultEnd
	}
	if b[i] != '"' {
		return i, faultByte
	}
	end, _ := stringEnd(b, i+1)
	if end < 0 {
		return ^end, faultString
	}
	i = spaced(b, end+1)
	if i >= len(b) {
		return i, faultEnd
	}
	if b[i] != ':' {
		return i, faultByte
	}
	i = spaced(b, i+1)
	goto value
}

// spaced is space for places that seldom have any; it is small enough to be inlined.
func spaced(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return space(b, i)
	}
	return i
}

// number validates a JSON number that begins at b[i] with a digit or a minus sign.
func number(b []byte, i int) (int, fault) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return i, faultEnd
	case b[i] == '0':
		i++
	case b[i]-'1' < 9:
		i = digits(b, i+1)
	default:
		return i, faultNumber
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b, i+1)
		if n == i+1 {
			return n, faultNumber
		}
		i = n
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b, i)
		if n == i {
			return n, faultNumber
		}
		i = n
	}
	return i, fine
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	return i
}

func literal(b []byte, i int, want string) (int, fault) {
	if len(b)-i < len(want) || string(b[i:i+len(want)]) != want {
		return i, faultLiteral
	}
	return i + len(want), fine
}

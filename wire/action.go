package wire

// Action is what a caller wants done with a call (protocol section 6.3).
type Action uint8

const (
	// ActionCall routes the call and answers with its result: no action was given.
	ActionCall Action = iota
	// ActionVoid routes the call and answers nothing.
	ActionVoid
	// ActionEnqueue puts the call into a queue and answers with a receipt.
	ActionEnqueue
	// ActionUnknown is an action of another shape.
	ActionUnknown
)

// String returns "call", "void", "enqueue" or "unknown".
func (a Action) String() string {
	switch a {
	case ActionCall:
		return "call"
	case ActionVoid:
		return "void"
	case ActionEnqueue:
		return "enqueue"
	}
	return "unknown"
}

// ParseAction reads Frame.Action: absent or null is ActionCall, {"type":"void"} is ActionVoid and
// {"type":"enqueue","queue":"name"} is ActionEnqueue with the name of the queue (nil if there is none),
// all else is ActionUnknown. It takes memory only for a queue whose name has escapes.
func ParseAction(raw []byte) (a Action, queue []byte) {
	if IsNull(raw) {
		return ActionCall, nil
	}
	if string(raw) == `{"type":"void"}` {
		return ActionVoid, nil
	}
	var kind []byte
	if !members(raw, func(key, value []byte) {
		switch string(key) {
		case "type":
			kind = text(value)
		case "queue":
			queue = text(value)
		}
	}) {
		return ActionUnknown, nil
	}
	switch string(kind) {
	case "void":
		return ActionVoid, nil
	case "enqueue":
		return ActionEnqueue, queue
	}
	return ActionUnknown, nil
}

// members calls visit for each member of the object raw, the key decoded and the value raw, and
// reports whether raw is a valid object.
func members(raw []byte, visit func(key, value []byte)) bool {
	i := spaced(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return false
	}
	i = spaced(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return spaced(raw, i+1) == len(raw)
	}
	for {
		if i >= len(raw) || raw[i] != '"' {
			return false
		}
		end, odd := stringEnd(raw, i+1)
		if end < 0 {
			return false
		}
		key := raw[i+1 : end]
		if odd {
			key = unquote(nil, key)
		}
		i = spaced(raw, end+1)
		if i >= len(raw) || raw[i] != ':' {
			return false
		}
		start := spaced(raw, i+1)
		next, why := skip(raw, start)
		if why != fine {
			return false
		}
		visit(key, raw[start:next:next])
		i = spaced(raw, next)
		if i >= len(raw) {
			return false
		}
		if raw[i] == '}' {
			return spaced(raw, i+1) == len(raw)
		}
		if raw[i] != ',' {
			return false
		}
		i = spaced(raw, i+1)
	}
}

// text decodes a valid raw value that is a string; nil for any other kind.
func text(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	s := raw[1 : len(raw)-1 : len(raw)-1]
	if plain(s) {
		return s
	}
	return unquote(make([]byte, 0, len(s)), s)
}

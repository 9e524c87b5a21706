package channel

// ValidInParts checks text that comes in parts.
func ValidInParts(parts ...[]byte) bool {
	var t text
	for _, p := range parts {
		if !t.add(p) {
			return false
		}
	}
	return t.end()
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxPayload bounds what is read for one call: the engine takes no larger message.
const maxPayload = 64 << 20

// field is one member of a payload made from the command line: a JSON value, or members of its own in
// the order they were given.
type field struct {
	name    string
	value   json.RawMessage
	members []*field
}

// payloadOf makes a JSON object of arguments such as name=Ann a.b=1 tags:='["x"]'. A value is taken as JSON
// when it is a number, true, false, null, an object, an array or a quoted text, and as text otherwise; :=
// demands JSON. A dot in the name goes one object deeper; \. is a dot. No arguments make no payload (nil).
func payloadOf(args []string) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	root := &field{}
	for _, arg := range args {
		path, value, err := assignment(arg)
		if err != nil {
			return nil, err
		}
		if err := root.set(path, value, arg); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	root.write(&b)
	return b.Bytes(), nil
}

// assignment splits one argument into the path of the name and the value.
func assignment(arg string) (path []string, value json.RawMessage, err error) {
	name, text, ok := strings.Cut(arg, "=")
	if !ok {
		return nil, nil, usage(fmt.Sprintf("%q is no key=value", arg), "write the payload as key=value, or whole with --data")
	}
	name, force := strings.CutSuffix(name, ":")
	switch {
	case json.Valid([]byte(text)):
		value = json.RawMessage(strings.TrimSpace(text))
	case force:
		return nil, nil, usage(fmt.Sprintf("the value of %q is not valid JSON", arg), "write key=value for a text")
	default:
		value = quote(text)
	}
	path = splitPath(name)
	for _, part := range path {
		if part == "" {
			return nil, nil, usage(fmt.Sprintf("%q has an empty name", arg), `write \. for a dot inside a name`)
		}
	}
	return path, value, nil
}

// splitPath splits at dots that have no backslash before them.
func splitPath(name string) []string {
	parts := []string{""}
	for i := 0; i < len(name); i++ {
		last := len(parts) - 1
		switch {
		case name[i] == '\\' && i+1 < len(name) && (name[i+1] == '.' || name[i+1] == '\\'):
			i++
			parts[last] += name[i : i+1]
		case name[i] == '.':
			parts = append(parts, "")
		default:
			parts[last] += name[i : i+1]
		}
	}
	return parts
}

// quote makes a JSON text.
func quote(text string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a text can always be written
	return bytes.TrimSpace(b.Bytes())
}

// set puts a value at a path below f.
func (f *field) set(path []string, value json.RawMessage, arg string) error {
	for i, m := range f.members {
		if m.name != path[0] {
			continue
		}
		if len(path) == 1 || m.value != nil {
			return usage(fmt.Sprintf("%q is given twice", strings.Join(path[:1], ".")),
				"leave one of them out; the second is "+arg)
		}
		return f.members[i].set(path[1:], value, arg)
	}
	m := &field{name: path[0]}
	f.members = append(f.members, m)
	if len(path) == 1 {
		m.value = value
		return nil
	}
	return m.set(path[1:], value, arg)
}

func (f *field) write(b *bytes.Buffer) {
	if f.value != nil {
		b.Write(f.value)
		return
	}
	b.WriteByte('{')
	for i, m := range f.members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(m.name))
		b.WriteByte(':')
		m.write(b)
	}
	b.WriteByte('}')
}

// readJSON reads a flag that holds JSON: itself, @file, or - for the standard input.
func (p *program) readJSON(flag, text string) (json.RawMessage, error) {
	b := []byte(text)
	from := "--" + flag
	switch {
	case text == "-":
		var err error
		if b, err = io.ReadAll(io.LimitReader(p.in, maxPayload+1)); err != nil {
			return nil, fmt.Errorf("read the standard input: %w", err)
		}
		from = "the standard input"
	case strings.HasPrefix(text, "@"):
		var err error
		if b, err = readFile(text[1:]); err != nil {
			return nil, usage(fmt.Sprintf("cannot read the file of --%s: %v", flag, err), "correct the path after @")
		}
		from = text[1:]
	}
	if len(b) > maxPayload {
		return nil, usage(from+" is larger than 64 MiB", "send less in one call")
	}
	b = bytes.TrimSpace(b)
	if !json.Valid(b) {
		return nil, usage(from+" is not valid JSON", whereInvalid(b))
	}
	return b, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: a failed close loses nothing
	return io.ReadAll(io.LimitReader(f, maxPayload+1))
}

// whereInvalid says at which byte JSON goes wrong.
func whereInvalid(b []byte) string {
	if len(b) == 0 {
		return "it is empty; leave the flag out for a call without a payload"
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err.Error()
	}
	return ""
}

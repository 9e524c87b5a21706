package httpfn

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/wire"
)

// Bounds of an Entry, in bytes. Those of the protocol for a registration are the same or smaller.
const (
	maxRecord      = 1 << 20
	maxID          = 512
	maxNamespace   = 128
	maxDescription = 4 << 10
	maxSchema      = 256 << 10
	maxMetadata    = 64 << 10
)

// Entry is one registration. Request, Response and Metadata are JSON, and nil when they are absent.
type Entry struct {
	Namespace   string
	FunctionID  string
	Spec        *Spec
	Description string
	Request     []byte
	Response    []byte
	Metadata    []byte

	size int64 // of its record
}

// change is what one record says: one of both.
type change struct {
	put    *Entry
	remove *key
}

// record is the form on disk, one JSON object: {"v":1,"put":{...}} or {"v":1,"remove":{...}}. It is the
// form of a line of a snapshot too, whose first line has the number of entries: {"v":1,"entries":n}.
type record struct {
	V       int    `json:"v"`
	Entries *int   `json:"entries,omitempty"`
	Put     *saved `json:"put,omitempty"`
	Remove  *named `json:"remove,omitempty"`
}

type named struct {
	Namespace  string `json:"namespace,omitempty"`
	FunctionID string `json:"function_id"`
}

type saved struct {
	named
	Invocation  json.RawMessage `json:"invocation"`
	Description string          `json:"description,omitempty"`
	Request     json.RawMessage `json:"request_format,omitempty"`
	Response    json.RawMessage `json:"response_format,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// errRecord: the bytes are whole, as the log checked them, but are no record that this version wrote.
var errRecord = errors.New("httpfn: no record of the catalog")

// encode checks e and returns its record, and the entry that reading the record gives.
func (e *Entry) encode() (b []byte, kept *Entry, err error) {
	if e.Spec == nil {
		return nil, nil, invalid("the function has no invocation")
	}
	if err := e.key().check(); err != nil {
		return nil, nil, err
	}
	if _, ferr := e.Spec.check(); ferr != nil {
		return nil, nil, ferr
	}
	for _, raw := range [][]byte{e.Request, e.Response, e.Metadata} {
		if raw != nil && (!json.Valid(raw) || !utf8.Valid(raw) || deeper(raw, wire.MaxDepth-1)) {
			return nil, nil, invalid("a schema or the metadata is not JSON")
		}
	}
	b, err = record{V: snapshotFormat, Put: &saved{named: named{e.Namespace, e.FunctionID},
		Invocation: e.Spec.Append(nil), Description: e.Description, Request: e.Request, Response: e.Response,
		Metadata: e.Metadata}}.encode()
	if err != nil {
		return nil, nil, err
	}
	if len(b) > maxRecord {
		return nil, nil, fault.Newf(fault.Limit, wire.CodeLimit, "the function has more than %d bytes", maxRecord)
	}
	c, err := parseRecord(b)
	if err != nil {
		return nil, nil, err
	}
	return b, c.put, nil
}

// encode leaves <, > and & as they are: escapes of six bytes would take a schema over the bound of a record.
func (r record) encode() ([]byte, error) {
	var b bytes.Buffer
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if err := j.Encode(r); err != nil {
		return nil, fmt.Errorf("httpfn: encode a record: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

func encodeRemoval(k key) ([]byte, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	return record{V: snapshotFormat, Remove: &named{k.namespace, k.function}}.encode()
}

// check has a plain error as its result because a nil *fault.Error in one would not be nil.
func (k key) check() error {
	switch {
	case k.function == "":
		return invalid("function_id is missing")
	case len(k.function) > maxID:
		return invalid("function_id is longer than %d bytes", maxID)
	case len(k.namespace) > maxNamespace:
		return invalid("namespace is longer than %d bytes", maxNamespace)
	case !utf8.ValidString(k.function) || !utf8.ValidString(k.namespace):
		return invalid("function_id or namespace is not UTF-8")
	}
	return nil
}

// parseRecord reads one record of the log. An entry has copies of the bytes.
func parseRecord(b []byte) (change, error) {
	r, err := decode(b)
	switch {
	case err != nil:
		return change{}, err
	case r.Put != nil && r.Remove == nil && r.Entries == nil:
		e, err := r.Put.entry()
		if err != nil {
			return change{}, err
		}
		e.size = int64(len(b))
		return change{put: e}, nil
	case r.Remove != nil && r.Put == nil && r.Entries == nil:
		k := key{r.Remove.Namespace, r.Remove.FunctionID}
		return change{remove: &k}, k.check()
	}
	return change{}, errRecord
}

func decode(b []byte) (record, error) {
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if d.InputOffset() != int64(len(b)) {
		return record{}, fmt.Errorf("%w: bytes behind its end", errRecord)
	}
	if r.V != snapshotFormat {
		return record{}, fmt.Errorf("%w: version %d", errRecord, r.V)
	}
	return r, nil
}

func (s *saved) entry() (*Entry, error) {
	e := &Entry{Namespace: s.Namespace, FunctionID: s.FunctionID, Description: s.Description,
		Request: present(s.Request), Response: present(s.Response), Metadata: present(s.Metadata)}
	if err := e.key().check(); err != nil {
		return nil, err
	}
	switch {
	case len(e.Description) > maxDescription:
		return nil, invalid("description is longer than %d bytes", maxDescription)
	case len(e.Request) > maxSchema, len(e.Response) > maxSchema:
		return nil, invalid("a schema is longer than %d bytes", maxSchema)
	case len(e.Metadata) > maxMetadata:
		return nil, invalid("metadata is longer than %d bytes", maxMetadata)
	}
	spec, err := Parse(s.Invocation)
	if err != nil {
		return nil, err
	}
	e.Spec = spec
	return e, nil
}

// present makes null absent, as in a registration.
func present(raw json.RawMessage) []byte {
	if wire.IsNull(raw) {
		return nil
	}
	return raw
}

func writeSnapshot(w io.Writer, list []*Entry) error {
	out := bufio.NewWriter(w)
	n := len(list)
	head, err := record{V: snapshotFormat, Entries: &n}.encode()
	if err != nil {
		return err
	}
	// A bufio.Writer keeps its first error until Flush.
	_, _ = out.Write(append(head, '\n'))
	for _, e := range list {
		b, _, err := e.encode()
		if err != nil {
			return fmt.Errorf("httpfn: write the snapshot: %s: %w", e.FunctionID, err)
		}
		_, _ = out.Write(append(b, '\n'))
	}
	return out.Flush()
}

// readSnapshot gives each entry to keep. The log has checked that the bytes are those that were written.
func readSnapshot(r io.Reader, keep func(*Entry)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRecord+2)
	left := -1
	for lines.Scan() {
		if left < 0 {
			head, err := decode(lines.Bytes())
			if err != nil {
				return fmt.Errorf("httpfn: read the snapshot: %w", err)
			}
			if head.Entries == nil || head.Put != nil || head.Remove != nil || *head.Entries < 0 {
				return fmt.Errorf("httpfn: read the snapshot: %w at its start", errRecord)
			}
			left = *head.Entries
			continue
		}
		c, err := parseRecord(lines.Bytes())
		if err != nil {
			return fmt.Errorf("httpfn: read the snapshot: %w", err)
		}
		if c.put == nil || left == 0 {
			return fmt.Errorf("httpfn: read the snapshot: %w too many", errRecord)
		}
		keep(c.put)
		left--
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("httpfn: read the snapshot: %w", err)
	}
	if left != 0 {
		return fmt.Errorf("httpfn: read the snapshot: it ends early")
	}
	return nil
}

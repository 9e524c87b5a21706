package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// formatNow is the format of the data folder itself: names and places of files, and the forms of files and
// logs.
const formatNow = 1

// maxVersion bounds the file VERSION, in bytes.
const maxVersion = 1 << 20

// version is the content of the file VERSION: plain JSON, for people and scripts to read.
type version struct {
	Format    int                    `json:"format"`
	WrittenBy string                 `json:"written_by"`
	Rooms     map[string]roomVersion `json:"rooms"`
	// Sum is the CRC32C, in hex, of this JSON with an empty Sum.
	Sum string `json:"sum"`
}

type roomVersion struct {
	Schema    int    `json:"schema"`
	WrittenBy string `json:"written_by"`
}

// Schema is what a room's files look like in this program, and how older ones become so.
type Schema struct {
	// Number is the schema that this program writes, from 1 up. A fresh room starts with it.
	Number int
	// Steps bring an older room up, one number each. There is no way down.
	Steps []Step
}

// Step brings a room from schema From to From+1. A crash can end it anywhere, after which it runs again from
// its start, so it must bear that: write new files beside the old ones, remove the old ones last.
type Step struct {
	From int
	Run  func(ctx context.Context, r *Room) error
}

// Room returns the room's folder, created where it is missing and brought to the schema where it is older.
// The schema number is stored after each step. A room of a newer schema is refused with a *SchemaError.
func (d *Dir) Room(ctx context.Context, name string, s Schema) (*Room, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if s.Number < 1 {
		return nil, fmt.Errorf("store: room %s: schema numbers start at 1", name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("store: room %s: %w", name, ErrClosed)
	}
	if r := d.rooms[name]; r != nil {
		return r, nil
	}
	have, known := d.version.Rooms[name]
	if known && have.Schema > s.Number {
		return nil, &SchemaError{Path: d.path, Room: name, Schema: have.Schema, Known: s.Number,
			WrittenBy: have.WrittenBy}
	}
	r := &Room{name: name, path: filepath.Join(d.path, name), fs: d.fs}
	if err := d.prepare(r); err != nil {
		return nil, err
	}
	if !known {
		have = roomVersion{Schema: s.Number}
	}
	if err := d.migrate(ctx, r, have, s); err != nil {
		return nil, err
	}
	d.rooms[name] = r
	return r, nil
}

func (d *Dir) prepare(r *Room) error {
	if err := makeDir(d.fs, r.path); err != nil {
		return fmt.Errorf("store: room %s: %w", r.name, err)
	}
	return removeTemporary(d.fs, r.path)
}

func (d *Dir) migrate(ctx context.Context, r *Room, have roomVersion, s Schema) error {
	for have.Schema < s.Number {
		step := -1
		for i := range s.Steps {
			if s.Steps[i].From == have.Schema {
				step = i
			}
		}
		if step < 0 {
			return fmt.Errorf("store: room %s: no step leads from schema %d to %d", r.name, have.Schema,
				have.Schema+1)
		}
		if err := s.Steps[step].Run(ctx, r); err != nil {
			return fmt.Errorf("store: room %s: from schema %d to %d: %w", r.name, have.Schema, have.Schema+1,
				err)
		}
		have.Schema++
		if err := d.record(r.name, have.Schema); err != nil {
			return err
		}
	}
	return d.record(r.name, have.Schema)
}

// record stores a room's schema number, if it is not stored so.
func (d *Dir) record(room string, schema int) error {
	want := roomVersion{Schema: schema, WrittenBy: d.writer}
	if d.version.Rooms[room] == want {
		return nil
	}
	next := version{Format: formatNow, WrittenBy: d.writer, Rooms: map[string]roomVersion{}}
	for name, v := range d.version.Rooms {
		next.Rooms[name] = v
	}
	next.Rooms[room] = want
	if err := writeVersion(d.fs, d.versionPath(), next); err != nil {
		return fmt.Errorf("store: room %s: %w", room, err)
	}
	d.version = next
	return nil
}

func (v version) encode() []byte {
	v.Sum = ""
	v.Sum = fmt.Sprintf("%08x", crc32.Checksum(v.json(), castagnoli))
	return v.json()
}

func (v version) json() []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("store: numbers and strings always encode: " + err.Error())
	}
	return append(b, '\n')
}

func writeVersion(fs FS, path string, v version) error {
	return replace(fs, path, func(f File) error {
		_, err := f.WriteAt(v.encode(), 0)
		return err
	})
}

func readVersion(fs FS, path string) (version, error) {
	f, err := fs.Open(path, os.O_RDONLY)
	if err != nil {
		return version{}, fmt.Errorf("store: read version: %w", err)
	}
	size, err := f.Size()
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.NewSectionReader(f, 0, min(size, maxVersion)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return version{}, fmt.Errorf("store: read version: %w", err)
	}
	return parseVersion(b, path)
}

// parseVersion refuses a newer format before it looks at anything else of the file: only these two fields are
// promised to mean the same for ever.
func parseVersion(b []byte, path string) (version, error) {
	var first struct {
		Format    int    `json:"format"`
		WrittenBy string `json:"written_by"`
	}
	if err := json.Unmarshal(b, &first); err != nil {
		return version{}, &DamageError{File: path,
			Reason: "is not the JSON that it should be: " + err.Error()}
	}
	var v version
	err := json.Unmarshal(b, &v)
	if err == nil && first.Format == formatNow && bytes.Equal(v.encode(), b) {
		for name, r := range v.Rooms {
			if checkName(name) != nil || r.Schema < 1 {
				return version{}, &DamageError{File: path, Reason: fmt.Sprintf("names a room %q of schema %d",
					name, r.Schema)}
			}
		}
		return v, nil
	}
	if first.Format > formatNow {
		return version{}, &SchemaError{Path: filepath.Dir(path), Schema: first.Format, Known: formatNow,
			WrittenBy: first.WrittenBy}
	}
	return version{}, &DamageError{File: path, Reason: "its checksum (the field sum) does not fit its text"}
}

package testkit

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Canaries is how many marked values a Canary hands out.
const Canaries = 64

// mark starts every value. It is long enough not to occur by itself, and the same in all runs, so that a
// search looks for a few patterns and not for each value.
const mark = "plinthCANARYdoNOTlog"

// Canary hands out values that can be recognised wherever they turn up: put them in as secrets, run the
// suite, then look for them in every file, log and answer. It may be used from any goroutine.
type Canary struct {
	values [Canaries]string
	forms  []form
}

// form is one way to write the mark.
type form struct {
	name string
	text []byte
}

// Sighting is a place where a canary was seen.
type Sighting struct {
	File   string // empty for bytes
	Offset int64
	Form   string // raw, base64, hex, HEX, url, json
	Value  int    // which one; -1 when only the mark could be read
}

func (s Sighting) String() string {
	return fmt.Sprintf("%s: byte %d: canary %d as %s", s.File, s.Offset, s.Value, s.Form)
}

// NewCanary makes 64 values from the seed. The values have characters in them that encodings change.
func NewCanary(seed uint64) *Canary {
	r := rand.New(rand.NewPCG(seed, 64))
	c := &Canary{}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for i := range c.values {
		var b strings.Builder
		for range 16 {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		c.values[i] = fmt.Sprintf("%s/%02d+%s=", mark, i, b.String())
	}
	raw := []byte(mark)
	add := func(name string, text []byte) { c.forms = append(c.forms, form{name: name, text: text}) }
	add("raw", raw)
	add("hex", hex.AppendEncode(nil, raw))
	add("HEX", bytes.ToUpper(hex.AppendEncode(nil, raw)))
	add("url", everyByte(raw, "%%%02X"))
	add("url", everyByte(raw, "%%%02x"))
	add("json", everyByte(raw, `\u%04x`))
	// The mark may start at any place of a group of three bytes. What depends on its neighbours is left out.
	for skip := range 3 {
		padded := append(bytes.Repeat([]byte{0}, skip), raw...)
		text := []byte(base64.StdEncoding.EncodeToString(padded))
		from, to := 0, len(padded)/3*4
		if skip > 0 {
			from = 4
		}
		add("base64", text[from:to])
	}
	return c
}

func everyByte(raw []byte, verb string) (out []byte) {
	for _, b := range raw {
		out = fmt.Appendf(out, verb, b)
	}
	return out
}

// Value returns value i of 64.
func (c *Canary) Value(i int) string { return c.values[i] }

// Find looks for canaries in b: as they are, in base64 (any alphabet and alignment), hex, percent and JSON
// escapes.
func (c *Canary) Find(b []byte) (seen []Sighting) {
	for _, f := range c.forms {
		for at := 0; ; {
			i := bytes.Index(b[at:], f.text)
			if i < 0 {
				break
			}
			seen = append(seen, Sighting{Offset: int64(at + i), Form: f.name, Value: c.which(b[at+i:], f)})
			at += i + len(f.text)
		}
	}
	return seen
}

// which returns the number of the value whose mark starts b, where that can be read.
func (c *Canary) which(b []byte, f form) int {
	if f.name != "raw" {
		return -1
	}
	for i, v := range c.values {
		if bytes.HasPrefix(b, []byte(v)) {
			return i
		}
	}
	return -1
}

// chunk is how much of a file is looked at together; two chunks share an overlap longer than any form.
const (
	chunk   = 1 << 20
	overlap = 1 << 10
)

// FindReader is Find for a stream of any length.
func (c *Canary) FindReader(r io.Reader) (seen []Sighting, err error) {
	buf := make([]byte, 0, chunk+overlap)
	known := map[Sighting]bool{}
	var base int64
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for _, s := range c.Find(buf) {
			s.Offset += base
			// In the overlap a mark is seen twice, and the second time with more of its value.
			key := Sighting{Offset: s.Offset, Form: s.Form}
			if !known[key] {
				known[key] = true
				seen = append(seen, s)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
		keep := min(overlap, len(buf))
		base += int64(len(buf) - keep)
		copy(buf, buf[len(buf)-keep:])
		buf = buf[:keep]
	}
}

// FindDir is Find for every file below dir, and for the names of the files. Compressed files hide their
// content.
func (c *Canary) FindDir(dir string) (seen []Sighting, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, s := range c.Find([]byte(e.Name())) {
			s.File = path
			seen = append(seen, s)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		found, err := c.FindReader(f)
		for _, s := range found {
			s.File = path
			seen = append(seen, s)
		}
		return errors.Join(err, f.Close())
	})
	return seen, err
}

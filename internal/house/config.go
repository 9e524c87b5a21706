package house

import (
	"fmt"
	"strconv"
	"time"
)

// value is one effective setting.
type value struct {
	parsed any
	text   string
	origin Origin
}

// A Config holds the effective values of a Table. Asking it for a key that the table has not, or for
// the wrong type, is a fault of the program and panics: keys are constants, never input.
type Config struct {
	table  *Table
	file   string
	values []value
}

func get[T any](c *Config, key string) T {
	i, ok := c.table.byKey[key]
	if !ok {
		panic("house: no setting is called " + strconv.Quote(key))
	}
	v, ok := c.values[i].parsed.(T)
	if !ok {
		panic(fmt.Sprintf("house: setting %s is a %s", key, c.table.rows[i].Type))
	}
	return v
}

// Text gives a setting of type Text.
func (c *Config) Text(key string) string { return get[string](c, key) }

// Bool gives a setting of type Bool.
func (c *Config) Bool(key string) bool { return get[bool](c, key) }

// Int gives a setting of type Int or Size; a size is in bytes, and 0 for a word such as "auto".
func (c *Config) Int(key string) int64 { return get[int64](c, key) }

// Duration gives a setting of type Duration, 0 for a word such as "off".
func (c *Config) Duration(key string) time.Duration { return get[time.Duration](c, key) }

// List gives a setting of type List, never nil.
func (c *Config) List(key string) []string { return get[[]string](c, key) }

// File is the configuration file in use, or "".
func (c *Config) File() string { return c.file }

// Table is the table that the values belong to.
func (c *Config) Table() *Table { return c.table }

// A Row is one effective value, as `plinth config --json` shows it.
type Row struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // "(hidden)" for a secret that is set
	Default string `json:"default"`
	Type    string `json:"type"`
	Origin  Origin `json:"origin"`
	Env     string `json:"env"`
	Flag    string `json:"flag"` // with dashes; "" for a secret
	Help    string `json:"help"`
}

// Rows lists all effective values in the order of the table.
func (c *Config) Rows() []Row {
	rows := make([]Row, len(c.values))
	for i, v := range c.values {
		s := &c.table.rows[i]
		r := Row{Key: s.Key, Value: v.text, Default: s.Default, Type: s.Type.String(), Origin: v.origin,
			Env: s.Env(), Help: s.Help}
		if s.Secret {
			if v.text != "" {
				r.Value = "(hidden)"
			}
		} else {
			r.Flag = "--" + s.Flag()
		}
		rows[i] = r
	}
	return rows
}

// Schema describes the configuration file as a JSON Schema (draft 2020-12), for editors.
func (t *Table) Schema() map[string]any {
	root := object()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = FileName
	for i := range t.rows {
		t.rows[i].schema(root)
	}
	return root
}

func object() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
}

// schema adds the setting beneath root, making the tables on the way.
func (s *Setting) schema(root map[string]any) {
	at, parts := root, splitKey(s.Key)
	for _, part := range parts[:len(parts)-1] {
		below := at["properties"].(map[string]any) //nolint:errcheck,forcetypeassert // made by object
		if below[part] == nil {
			below[part] = object()
		}
		at = below[part].(map[string]any) //nolint:errcheck,forcetypeassert // made by object
	}
	about := map[string]any{"description": s.Help}
	switch s.Type {
	case Bool:
		about["type"] = "boolean"
	case Int:
		about["type"] = "integer"
		if s.Min != 0 || s.Max != 0 {
			about["minimum"], about["maximum"] = s.Min, s.Max
		}
	case Size:
		about["type"] = []string{"string", "integer"}
	case List:
		items := map[string]any{"type": "string"}
		if len(s.Words) > 0 {
			items["enum"] = s.Words
		}
		about["type"], about["items"] = "array", items
	default:
		about["type"] = "string"
		if len(s.Words) > 0 && s.Type == Text {
			about["enum"] = s.Words
		}
	}
	if s.Type != List && !s.Secret {
		about["default"] = s.typedDefault()
	}
	at["properties"].(map[string]any)[parts[len(parts)-1]] = about //nolint:errcheck,forcetypeassert // made by object
}

// typedDefault is the default as it stands in TOML.
func (s *Setting) typedDefault() any {
	switch s.Type {
	case Bool, Int:
		if v, err := s.read(s.Default); err == nil {
			return v
		}
	}
	return s.Default
}

package house

import "time"

// value is one effective setting.
type value struct {
	parsed any
	text   string
	origin Origin
}

// A Config holds the effective values of a Table. As a map does, it gives the zero value for a key that
// the table has not, and for one of another type.
type Config struct {
	table  *Table
	file   string
	values []value // by row; none for rows of families

	members map[string]value             // of families, by key
	names   map[string]map[string]Origin // by family
}

func get[T any](c *Config, key string) (v T) {
	if i, ok := c.table.byKey[key]; ok {
		v, _ = c.values[i].parsed.(T)
	} else if m, ok := c.members[key]; ok {
		v, _ = m.parsed.(T)
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
	Flag    string `json:"flag"` // with dashes; "" for a secret and in a family
	Help    string `json:"help"`
}

// Rows lists all effective values in the order of the table; a family has a row for each name and setting.
func (c *Config) Rows() []Row {
	rows := make([]Row, 0, len(c.values))
	for i, v := range c.values {
		if s := &c.table.rows[i]; s.family() {
			rows = append(rows, c.familyRows(i)...)
		} else {
			rows = append(rows, s.row(v))
		}
	}
	return rows
}

func (s *Setting) row(v value) Row {
	r := Row{Key: s.Key, Value: v.text, Default: s.Default, Type: s.Type.String(), Origin: v.origin,
		Env: s.Env(), Help: s.Help}
	if s.Secret && v.text != "" {
		r.Value = "(hidden)"
	}
	if flag := s.Flag(); flag != "" {
		r.Flag = "--" + flag
	}
	return r
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

// schemaName is the pattern of the names in a family.
const schemaName = "^[a-z0-9-]{1,32}$"

func object() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
}

// properties gives the keys of a table, making the table itself where it is not there yet.
func properties(root map[string]any, parts []string) map[string]any {
	keys, _ := root["properties"].(map[string]any) // made by object
	if len(parts) == 0 {
		return keys
	}
	if parts[0] == anyName {
		names, there := root["patternProperties"].(map[string]any)
		if !there {
			names = map[string]any{}
			root["patternProperties"] = names
		}
		parts, keys = append([]string{schemaName}, parts[1:]...), names
	}
	below, there := keys[parts[0]].(map[string]any)
	if !there {
		below = object()
		keys[parts[0]] = below
	}
	return properties(below, parts[1:])
}

// schema adds the setting beneath root.
func (s *Setting) schema(root map[string]any) {
	parts := splitKey(s.Key)
	last := len(parts) - 1
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
	properties(root, parts[:last])[parts[last]] = about
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

package wire_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/wire"
)

func TestTableCoversEveryBoundOnce(t *testing.T) {
	bounds := reflect.TypeFor[wire.Bounds]()
	if n := len(wire.Limits()); n != bounds.NumField() {
		t.Errorf("%d rows for %d fields", n, bounds.NumField())
	}
	changed := map[string]string{}
	for _, l := range wire.Limits() {
		var b wire.Bounds
		// Set one bound of a zero value and see which field it was.
		if err := b.Set(l.Name, l.Max); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		v := reflect.ValueOf(b)
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				name := bounds.Field(i).Name
				if changed[name] != "" {
					t.Errorf("%s and %s are both %s", l.Name, changed[name], name)
				}
				changed[name] = l.Name
			}
		}
		if got, ok := b.Get(l.Name); !ok || got != l.Max {
			t.Errorf("%s is %d, %v after it was set to %d", l.Name, got, ok, l.Max)
		}
	}
	if len(changed) != bounds.NumField() {
		t.Errorf("the table reaches %d of %d fields", len(changed), bounds.NumField())
	}
}

func TestNamesOfLimitsFollowTheFields(t *testing.T) {
	var b wire.Bounds
	for _, l := range wire.Limits() {
		want := strings.ReplaceAll(strings.TrimSuffix(l.Name, "_ms"), "_", "")
		if err := b.Set(l.Name, l.Max); err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(&b).Elem()
		found := false
		for i := range v.NumField() {
			if !v.Field(i).IsZero() && strings.EqualFold(v.Type().Field(i).Name, want) {
				found = true
			}
			v.Field(i).SetZero()
		}
		if !found {
			t.Errorf("%s does not set the field of its name", l.Name)
		}
	}
}

func TestRowsAreComplete(t *testing.T) {
	units := map[string]bool{"bytes": true, "levels": true, "ms": true, "count": true}
	for _, l := range wire.Limits() {
		if l.Name != strings.ToLower(l.Name) || !units[l.Unit] || !strings.HasSuffix(l.Help, ".") {
			t.Errorf("row %+v", l)
		}
		if l.Min > l.Default || l.Default > l.Max {
			t.Errorf("%s: default %d is not within %d to %d", l.Name, l.Default, l.Min, l.Max)
		}
		if (l.Unit == "ms") != strings.HasSuffix(l.Name, "_ms") {
			t.Errorf("%s is in %s", l.Name, l.Unit)
		}
	}
}

func TestDefaultsAreThoseOfTheProtocol(t *testing.T) {
	b := wire.DefaultBounds()
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"MaxMessageBytes", b.MaxMessageBytes, 64 << 20},
		{"HardMessageBytes", b.HardMessageBytes, 256 << 20},
		{"MaxDepth", int64(b.MaxDepth), 512},
		{"MaxIDBytes", int64(b.MaxIDBytes), 512},
		{"MaxDescriptionBytes", int64(b.MaxDescriptionBytes), 4096},
		{"HandshakeBytes", int64(b.HandshakeBytes), wire.MaxHeadBytes},
		{"HandshakeTimeout", int64(b.HandshakeTimeout), int64(10 * time.Second)},
		{"NamespaceGrace", int64(b.NamespaceGrace), int64(5 * time.Second)},
		{"PingAfter", int64(b.PingAfter), int64(30 * time.Second)},
		{"DropAfter", int64(b.DropAfter), int64(90 * time.Second)},
		{"MaxInvocation", int64(b.MaxInvocation), int64(15 * time.Minute)},
		{"MaxConnections", int64(b.MaxConnections), 20_000},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}

func TestBoundsOutsideTheTableAreRefused(t *testing.T) {
	invalid := &wire.Error{Code: wire.CodeInvalidArguments}
	for _, l := range wire.Limits() {
		b := wire.DefaultBounds()
		for _, v := range []int64{l.Min - 1, l.Max + 1} {
			err := b.Set(l.Name, v)
			if !errors.Is(err, invalid) || !strings.Contains(err.Error(), l.Name) {
				t.Errorf("%s = %d: %v", l.Name, v, err)
			}
		}
		if got, _ := b.Get(l.Name); got != l.Default {
			t.Errorf("%s is %d after refused changes", l.Name, got)
		}
		for _, v := range []int64{l.Min, l.Max} {
			if err := b.Set(l.Name, v); err != nil {
				t.Errorf("%s = %d: %v", l.Name, v, err)
			}
		}
	}
	b := wire.DefaultBounds()
	if err := b.Set("max_nothing", 1); !errors.Is(err, invalid) {
		t.Errorf("unknown name: %v", err)
	}
	if _, ok := b.Get("max_nothing"); ok {
		t.Error("an unknown name has a value")
	}
}

func TestCheckFindsContradictions(t *testing.T) {
	for name, change := range map[string]func(*wire.Bounds){
		"hard_message_bytes": func(b *wire.Bounds) { b.HardMessageBytes = b.MaxMessageBytes - 1 },
		"drop_after_ms":      func(b *wire.Bounds) { b.DropAfter = b.PingAfter },
		"max_id_bytes":       func(b *wire.Bounds) { b.MaxIDBytes = 0 },
	} {
		b := wire.DefaultBounds()
		change(&b)
		if err := b.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

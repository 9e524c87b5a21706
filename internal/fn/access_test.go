package fn_test

import (
	"context"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/fn"
	"github.com/plinth-run/plinth/wire"
)

// prefix lets a principal call what begins with it.
type prefix string

func (p prefix) Call(f *fn.Function) *fault.Error {
	if f.Verb == fn.VerbCall && strings.HasPrefix(f.Name, string(p)) {
		return nil
	}
	return fault.Newf(fault.Denied, wire.CodeForbidden, "%s of %s", f.Verb, f.Name)
}

func (p prefix) Register(string, string) *fault.Error { return nil }

func TestAccessIsAskedBeforeEveryHandler(t *testing.T) {
	r := fn.New(fn.Config{})
	room := r.Room("room")
	ran := 0
	quick := fn.Quick(func(*fn.Call) fn.Outcome { ran++; return fn.Outcome{} })
	plain := fn.Func(func(context.Context, []byte) ([]byte, error) { ran++; return nil, nil })
	for _, spec := range []fn.Spec{
		{Name: "a::quick", Target: quick}, {Name: "a::plain", Target: plain}, {Name: "a::event"},
		{Name: "b::quick", Target: quick}, {Name: "b::list", Target: quick, Verb: fn.VerbRead},
		{Name: "a::open", Target: quick, Verb: fn.VerbOpen},
	} {
		if _, err := r.Add(room, spec); err != nil {
			t.Fatal(err)
		}
	}
	p := new(fn.Peer)
	r.Join(p, fn.Principal{Kind: "key", Name: "narrow", Access: prefix("b::")})
	for name, want := range map[string]string{
		"a::quick": wire.CodeForbidden, "a::plain": wire.CodeForbidden, "a::event": wire.CodeForbidden,
		"b::list": wire.CodeForbidden, "b::quick": "<nil>", "a::open": "<nil>",
	} {
		if _, err := r.CallFrom(t.Context(), p, fn.Default, name, nil); codeOf(err) != want {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if ran != 2 {
		t.Errorf("%d handlers ran, want the two that are allowed", ran)
	}
	if n := r.Stats().Denied; n != 4 {
		t.Errorf("%d calls counted as denied, want 4", n)
	}
}

func TestAHandlersCallsAreMadeForThePrincipalThatItServes(t *testing.T) {
	r := fn.New(fn.Config{})
	room := r.Room("room")
	var seen []string
	add(t, r, room, "b::inner", fn.Func(func(ctx context.Context, _ []byte) ([]byte, error) {
		i, _ := fn.Current(ctx)
		seen = append(seen, i.Principal.Kind+":"+i.Principal.Name)
		return nil, nil
	}))
	add(t, r, room, "c::secret", fn.Func(func(context.Context, []byte) ([]byte, error) { return nil, nil }))
	add(t, r, room, "b::outer", fn.Func(func(ctx context.Context, _ []byte) ([]byte, error) {
		if _, err := r.Call(ctx, "b::inner", nil); err != nil {
			return nil, err
		}
		return r.Call(ctx, "c::secret", nil)
	}))
	p := new(fn.Peer)
	r.Join(p, fn.Principal{Kind: "key", Name: "narrow", Access: prefix("b::")})
	if _, err := r.CallFrom(t.Context(), p, fn.Default, "b::outer", nil); codeOf(err) != wire.CodeForbidden {
		t.Errorf("a handler lent its own rights to its caller: %v", err)
	}
	ctx := fn.As(t.Context(), &fn.Principal{Kind: "user", Name: "ann", Access: prefix("b::inner")})
	if _, err := r.Call(ctx, "b::inner", nil); err != nil {
		t.Error(err)
	}
	if _, err := r.Call(ctx, "c::secret", nil); codeOf(err) != wire.CodeForbidden {
		t.Errorf("got %v for a call on behalf of a user", err)
	}
	if len(seen) != 2 || seen[0] != "key:narrow" || seen[1] != "user:ann" {
		t.Errorf("the handler served %q", seen)
	}
}

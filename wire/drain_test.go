package wire_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire"
)

func TestDrainFindsIDsWhereverTheyStand(t *testing.T) {
	large := `"data":{"invocation_id":"inner","list":["type",{"function_id":"inner"},"\"invocation_id\":\"x\""],` +
		`"text":"` + text(50_000) + `"}`
	for _, s := range []string{
		`{"type":"invokefunction","invocation_id":"i-1","function_id":"a::b",` + large + `}`,
		`{` + large + `,"type":"invokefunction","invocation_id":"i-1","function_id":"a::b"}`,
		`{"function_id":"a::b",` + large + `,"type":"invokefunction" , "invocation_id" : "i-1" }`,
		`{"\u0069nvocation_id":"i\u002d1","type":"invoke\u0066unction",` + large + `,"function_id":"a::b"}`,
		`{"invocation_id":7,"type":"ping","invocation_id":"i-1",` + large + `,"function_id":"a::b","type":"invokefunction"}`,
	} {
		for _, n := range []int{1, 2, 7, 64, 4096, 1 << 20} {
			var d wire.Drain
			for rest := s; rest != ""; {
				k := min(n, len(rest))
				d.Write([]byte(rest[:k]))
				rest = rest[k:]
			}
			f := d.Frame()
			if f.Type != wire.TypeInvokeFunction || string(f.InvocationID) != "i-1" || string(f.FunctionID) != "a::b" {
				t.Fatalf("parts of %d: %v %q %q in %s…", n, f.Type, f.InvocationID, f.FunctionID, s[:60])
			}
		}
	}
}

func TestDrainTellsWhatItHasSeenSoFar(t *testing.T) {
	var d wire.Drain
	if f := d.Frame(); f.Type != wire.TypeUnknown || f.InvocationID != nil {
		t.Errorf("before anything: %+v", f)
	}
	d.Write([]byte(`{"type":"invokefunction","invocation_id":"i-1","function_id":"a:`))
	f := d.Frame()
	if f.Type != wire.TypeInvokeFunction || string(f.InvocationID) != "i-1" || f.FunctionID != nil {
		t.Errorf("in the middle: %v %q %q", f.Type, f.InvocationID, f.FunctionID)
	}
	d.Write([]byte(`:b","data":[`))
	if f := d.Frame(); string(f.FunctionID) != "a::b" {
		t.Errorf("later: %q", f.FunctionID)
	}
	d.Reset()
	if diff := differences(&wire.Frame{}, d.Frame()); diff != "" {
		t.Errorf("after Reset: %s", diff)
	}
	d.Write([]byte(`{"id":"x"}`))
	if f := d.Frame(); string(f.ID) != "x" {
		t.Errorf("after Reset: id %q", f.ID)
	}
}

func TestDrainKeepsNoLongTexts(t *testing.T) {
	for n, want := range map[int]bool{511: true, 512: true, 513: false, 100_000: false} {
		for _, one := range []string{"a", `\u0061`} {
			var d wire.Drain
			d.Write([]byte(`{"id":"` + strings.Repeat(one, n) + `","function_id":"f"}`))
			f := d.Frame()
			if (f.ID != nil) != want || want && len(f.ID) != n {
				t.Errorf("%d bytes as %s: kept %d", n, one, len(f.ID))
			}
			if string(f.FunctionID) != "f" {
				t.Errorf("%d bytes as %s: the next field is %q", n, one, f.FunctionID)
			}
		}
	}
	var d wire.Drain
	d.Write([]byte(`{"id":"short","id":"` + strings.Repeat("a", 600) + `"}`))
	if d.Frame().ID != nil {
		t.Error("an older value was taken for the last one")
	}
}

// TestDrainSurvivesWhatIsNoJSON: nothing to find, nothing to break.
func TestDrainSurvivesWhatIsNoJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var d wire.Drain
	for _, s := range append(bodies(),
		`{"id":"\u12"}`, `{"id":"\q"}`, `{"\u":"x"}`, "{\"id\":\"a\nb\"}", `]]]]{"id":"x"}`,
		`{{{{"id":"x"}`, `[{"id":"x"}]`,
		strings.Repeat("[", 10_000), strings.Repeat("]", 10_000), `{"id":`+strings.Repeat(`"`, 1000),
	) {
		d.Reset()
		drainAgrees(t, &d, []byte(s), rnd)
	}
}

func TestArrayHasNoIDs(t *testing.T) {
	var d wire.Drain
	d.Write([]byte(`[{"id":"x"},{"type":"ping"}]`))
	if f := d.Frame(); f.ID != nil || f.Type != wire.TypeUnknown {
		t.Errorf("%v %q", f.Type, f.ID)
	}
}

func TestDrainHoldsLittleAndTakesNothingForThePayload(t *testing.T) {
	part := []byte(text(64 << 10))
	var d wire.Drain
	d.Write([]byte(`{"type":"invokefunction","invocation_id":"i","data":"`))
	if n := testing.AllocsPerRun(50, func() { d.Write(part) }); n != 0 {
		t.Errorf("%v allocations for a part of the payload", n)
	}
}

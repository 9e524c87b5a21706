package telemetry

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const (
	someTrace = "0af7651916cd43dd8448eb211c80319c"
	someSpan  = "b7ad6b7169203331"
)

func TestTraceparentIsReadAsTheRecommendationSays(t *testing.T) {
	id := "-" + someTrace + "-" + someSpan
	zeroTrace, zeroSpan := strings.Repeat("0", 32), strings.Repeat("0", 16)
	for text, want := range map[string]string{
		"00" + id + "-01": "sampled", "00" + id + "-00": "not", "00" + id + "-ff": "sampled",
		"00" + id + "-02": "not",
		"00" + id + "-09": "sampled",
		// higher versions: by prefix, more only after a dash
		"01" + id + "-01": "sampled", "cc" + id + "-00": "not", "fe" + id + "-01": "sampled",
		"01" + id + "-01-": "sampled", "01" + id + "-01-what-the-future": "sampled",
		"01" + id + "-01x": "", "cc" + id + "-01.what": "", "01" + id + "-0": "", "01" + id: "",
		// not version 00
		"00" + id + "-01-": "", "00" + id + "-01-x": "", "00" + id + "-010": "", "00" + id + "-0": "",
		"00" + id:       "",
		"00" + id + "-": "",
		// bad versions
		"ff" + id + "-01": "", "0" + id + "-01": "", "000" + id + "-01": "", "0x" + id + "-01": "",
		"FE" + id + "-01": "",
		"zz" + id + "-01": "", id[1:] + "-01": "",
		// bad ids
		"00-" + zeroTrace + "-" + someSpan + "-01": "", "00-" + someTrace + "-" + zeroSpan + "-01": "",
		"00-" + strings.ToUpper(someTrace) + "-" + someSpan + "-01": "",
		"00-" + someTrace + "-" + strings.ToUpper(someSpan) + "-01": "",
		"00-" + someTrace[:31] + "x-" + someSpan + "-01":            "",
		"00-" + someTrace + "-" + someSpan[:15] + "g-01":            "",
		"00-" + someTrace[:31] + "-" + someSpan + "-01":             "", "00-" + someTrace + someSpan + "-01": "",
		"00-" + someTrace + "-" + someSpan + "-0G": "", "00-" + someTrace + "-" + someSpan + "-0A": "",
		// separators and space
		"00_" + someTrace + "-" + someSpan + "-01": "", "00-" + someTrace + "_" + someSpan + "-01": "",
		"00-" + someTrace + "-" + someSpan + "_01": "", " 00" + id + "-01": "", "00" + id + "-01 ": "", "": "",
		"00" + id + "-\xff1": "",
	} {
		c, ok := ParseTraceparent([]byte(text))
		got := ""
		if ok {
			got = map[bool]string{true: "sampled", false: "not"}[c.Sampled]
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if !ok && c != (Context{}) {
			t.Errorf("%q: refused, but gave %+v", text, c)
		}
		if ok && string(AppendTraceparent(nil, c))[2:52] != text[2:52] {
			t.Errorf("%q: written as %s", text, AppendTraceparent(nil, c))
		}
	}
}

func TestTraceparentIsWrittenInVersionZero(t *testing.T) {
	c := Context{TraceID: [16]byte{1, 0xab, 15: 0xff}, SpanID: [8]byte{7: 9}, Sampled: true}
	if got := string(AppendTraceparent([]byte("x"),
		c)); got != "x00-01ab00000000000000000000000000ff-0000000000000009-01" {
		t.Errorf("got %s", got)
	}
	c.Sampled = false
	if got := AppendTraceparent(nil, c); len(got) != TraceparentBytes || string(got[52:]) != "-00" {
		t.Errorf("got %s", got)
	}
	for _, none := range []Context{{}, {TraceID: [16]byte{1}}, {SpanID: [8]byte{1}}} {
		if got := AppendTraceparent(nil, none); len(got) > 0 || none.Valid() {
			t.Errorf("no context was written as %s", got)
		}
	}
}

func TestTraceparentCostsNoMemory(t *testing.T) {
	text, room := []byte("00-"+someTrace+"-"+someSpan+"-01"), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		c, _ := ParseTraceparent(text)
		room = AppendTraceparent(room[:0], c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add([]byte("00-" + someTrace + "-" + someSpan + "-01"))
	f.Add([]byte("cc-" + someTrace + "-" + someSpan + "-00-more"))
	f.Add([]byte("ff-" + someTrace + "-" + someSpan + "-00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := ParseTraceparent(b)
		if !ok {
			return
		}
		if !c.Valid() || strings.ToLower(string(b[:55])) != string(b[:55]) || strings.HasPrefix(string(b), "ff") {
			t.Fatalf("%q was read as %+v", b, c)
		}
		again, ok := ParseTraceparent(AppendTraceparent(nil, c))
		if !ok || again != c {
			t.Fatalf("%q: %+v was written and read as %+v", b, c, again)
		}
	})
}

func BenchmarkTraceparentParse(b *testing.B) {
	text := []byte("00-" + someTrace + "-" + someSpan + "-01")
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParseTraceparent(text); !ok {
			b.Fatal("refused")
		}
	}
}

func BenchmarkTraceparentAppend(b *testing.B) {
	c, room := Context{[16]byte{1}, [8]byte{1}, true}, make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		room = AppendTraceparent(room[:0], c)
	}
}

func TestSourcesGiveIdsThatAreNeverZeroAndNeverTheSame(t *testing.T) {
	seen := map[[8]byte]bool{}
	traces := map[[16]byte]bool{}
	for range 4 {
		s := NewSource()
		for range 2000 {
			id, trace := s.Span(), s.Trace()
			if id == ([8]byte{}) || trace == ([16]byte{}) || seen[id] || traces[trace] {
				t.Fatalf("span %x, trace %x after %d", id, trace, len(seen))
			}
			seen[id], traces[trace] = true, true
		}
	}
}

func TestSeededSourceRepeats(t *testing.T) {
	a, b, other := NewSource(1, 2), NewSource(1, 2), NewSource(1, 3)
	for range 10 {
		x := a.Trace()
		if x != b.Trace() || a.Span() != b.Span() {
			t.Fatal("the same seed gives different ids")
		}
		if y := other.Trace(); y == x {
			t.Fatal("another seed gives the same ids")
		}
		other.Span()
	}
}

func TestIdsAreSpreadEvenly(t *testing.T) {
	s, ones := NewSource(7), [128]int{}
	const n = 4000
	for range n {
		for bit, id := 0, s.Trace(); bit < 128; bit++ {
			ones[bit] += int(id[bit/8] >> (bit % 8) & 1)
		}
	}
	for bit, count := range ones {
		if count < n*2/5 || count > n*3/5 {
			t.Errorf("bit %d is set in %d of %d", bit, count, n)
		}
	}
}

func BenchmarkSource(b *testing.B) {
	s := NewSource()
	for b.Loop() {
		s.Trace()
		s.Span()
	}
}

func TestNowIsTheWallClockAndNeverGoesBack(t *testing.T) {
	if d := time.Now().UnixNano() - Now(); d < -int64(time.Minute) || d > int64(time.Minute) {
		t.Errorf("off by %v", time.Duration(d))
	}
	for last := Now(); last < last+1; {
		now := Now()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		if now > last {
			break
		}
	}
}

// In a bubble the date is odd, but differences are those of the bubble's clock.
func TestNowFollowsTheClockOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := Now()
		<-time.After(3 * time.Hour)
		if d := time.Duration(Now() - before); d != 3*time.Hour {
			t.Errorf("three hours took %v", d)
		}
	})
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

func TestBaggageMembersAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"a=1":                          "a=1;",
		"a=1,b=2":                      "a=1;b=2;",
		" a = 1 ,\tb\t=\t2\t":          "a=1;b=2;",
		"a=1;prop;p=2,b=2;x":           "a=1;b=2;",
		"a=,b":                         "a=;",
		"=1,,, ,a=1":                   "a=1;",
		"a=x=y":                        "a=x=y;",
		"a=%41%20%C3%A9,b=%4":          "a=%41%20%C3%A9;b=%4;",
		"bad key=1,b@d=2,ok!#$&'*+-=3": "ok!#$&'*+-=3;",
		"a=1,a=2":                      "a=1;a=2;",
	} {
		got := ""
		for k, v := range Members([]byte(text)) {
			got += string(k) + "=" + string(v) + ";"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for range Members([]byte("a=1,b=2")) {
		break
	}
}

func TestBaggageIsDecoded(t *testing.T) {
	all := Baggage("user=al%20ice,n=%C3%A9,odd=%zz%4,twice=1,twice=%32,plus=a+b")
	want := map[string]string{"user": "al ice", "n": "é", "odd": "%zz%4", "twice": "2", "plus": "a+b"}
	if len(all) != len(want) {
		t.Errorf("got %v", all)
	}
	for k, v := range want {
		if got, ok := BaggageValue([]byte("user=al%20ice,n=%C3%A9,odd=%zz%4,twice=1,twice=%32,plus=a+b"), k); !ok ||
			got != v || all[k] != v {
			t.Errorf("%s is %q, %q", k, got, all[k])
		}
	}
	if _, ok := BaggageValue([]byte("a=1"), "b"); ok || Baggage("") != nil ||
		Baggage([]byte("nonsense")) != nil {
		t.Error("something was found in nothing")
	}
}

func TestBaggageMemberIsSet(t *testing.T) {
	for _, c := range []struct{ baggage, key, value, want string }{
		{"", "k", "v", "k=v"},
		{"a=1", "k", "v", "a=1,k=v"},
		{"k=old,a=1", "k", "new", "a=1,k=new"},
		{"k=1,k=2,a=1;p=q, b = 2 ", "k", "3", "a=1;p=q,b = 2,k=3"},
		{"a=1,,broken,", "k", "v", "a=1,k=v"},
		{"", "iii.function.id", "orders::create", "iii.function.id=orders::create"},
		{"", "k", `a b,c;d"e\f%é`, "k=a%20b%2Cc%3Bd%22e%5Cf%25%C3%A9"},
		{"a=1", "no token", "v", "a=1"},
		{"a=1", "", "v", "a=1"},
	} {
		if got := string(SetBaggage([]byte("x"), []byte(c.baggage), c.key, c.value)); got != "x"+c.want {
			t.Errorf("%q with %s=%s is %q, want %q", c.baggage, c.key, c.value, got, c.want)
		}
	}
	if got := string(AppendBaggage(nil, "a b", "v")); got != "" {
		t.Errorf("a key that is no token was written as %q", got)
	}
}

func TestBaggageStaysWithinItsBounds(t *testing.T) {
	var many []string
	for range 300 {
		many = append(many, "k=v")
	}
	n := 0
	for range Members([]byte(strings.Join(many, ","))) {
		n++
	}
	if n != MaxBaggageMembers {
		t.Errorf("%d members were read", n)
	}
	long := "a=" + strings.Repeat("x", MaxBaggageBytes-2)
	if v, ok := BaggageValue([]byte(long), "a"); !ok || len(v) != MaxBaggageBytes-2 {
		t.Errorf("the longest baggage has a value of %d bytes", len(v))
	}
	if Baggage(long+"x") != nil {
		t.Error("a baggage over the bound was read")
	}
	for i := range many {
		many[i] = strings.Repeat("k", i/26+1) + string(rune('a'+i%26)) + "=v"
	}
	set := SetBaggage(nil, []byte(strings.Join(many[:200], ",")), "new", "member")
	count := 0
	for range Members(set) {
		count++
	}
	if v, ok := BaggageValue(set, "new"); !ok || v != "member" || count != MaxBaggageMembers {
		t.Errorf("%d members with new %q", count, v)
	}
	set = SetBaggage(nil, []byte("b=1,"+long[:len(long)-4]), "new", "member")
	if v, _ := BaggageValue(set, "new"); v != "member" || len(set) > MaxBaggageBytes ||
		string(set) != "b=1,new=member" {
		t.Errorf("%d bytes, %.40s", len(set), set)
	}
	if got := SetBaggage(nil, []byte("b=1"), "new", strings.Repeat("x", MaxBaggageBytes)); string(got) != "b=1" {
		t.Errorf("a member over the bound was set: %d bytes", len(got))
	}
}

func TestBaggageComesBackAsItWasSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		want := map[string]string{}
		for range rapid.IntRange(0, 20).Draw(t, "members") {
			key := rapid.StringMatching("[a-d.!~]{1,2}").Draw(t, "key")
			value := string(rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "value"))
			b = SetBaggage(nil, b, key, value)
			want[key] = value
		}
		got := Baggage(b)
		if len(got) != len(want) {
			t.Fatalf("%s: got %q, want %q", b, got, want)
		}
		for k, v := range want {
			if got[k] != v {
				t.Fatalf("%s: %s is %q, want %q", b, k, got[k], v)
			}
		}
	})
}

func TestBaggageIsSetWithoutAllocating(t *testing.T) {
	in, room := []byte("a=1,iii.function.id=x::y,b=2;p"), make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		room = SetBaggage(room[:0], in, "iii.function.id", "orders::create")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzBaggage(f *testing.F) {
	for _, s := range []string{"", "a=1,b=2;p=q", " k = %41 ,,=,x", "a=%", "é=1,\xff=2"} {
		f.Add([]byte(s), "key", "value")
	}
	f.Fuzz(func(t *testing.T, b []byte, key, value string) {
		all := Baggage(b)
		for k, v := range all {
			if got, ok := BaggageValue(b, k); !ok || got != v {
				t.Fatalf("%q: %s is %q and %q", b, k, v, got)
			}
		}
		set := SetBaggage(nil, b, key, value)
		if isToken(key) && len(key)+1+encodedLen(value) <= MaxBaggageBytes {
			if got, ok := BaggageValue(set, key); !ok || got != value || len(set) > MaxBaggageBytes {
				t.Fatalf("%q: set %s to %q, got %q in %q", b, key, value, got, set)
			}
		} else if string(set) != string(b) {
			t.Fatalf("%q became %q though nothing could be set", b, set)
		}
	})
}

func BenchmarkBaggageSet(b *testing.B) {
	in, room := []byte("user=alice,tenant=blue"), make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		room = SetBaggage(room[:0], in, "iii.function.id", "orders::create")
	}
}

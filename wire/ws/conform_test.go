package ws_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/plinth-run/plinth/wire/ws"
)

// The cases follow the categories of the public conformance suite for WebSocket: 1 framing, 2 pings and
// pongs, 3 reserved bits, 4 opcodes, 5 fragmentation, 6 text, 7 close, 9 limits.

// raw makes a frame from its parts, with any first byte.
func raw(first byte, payload string) []byte {
	b := ws.AppendMaskedFrame(nil, ws.Binary, []byte(payload), 0x89abcdef)
	b[0] = first
	return b
}

func told(parts ...[]byte) []happening {
	return toldBy(ws.Config{}, parts...)
}

func toldBy(cfg ws.Config, parts ...[]byte) []happening {
	r := newReader(panics{}, cfg)
	r.feed(bytes.Join(parts, nil))
	return r.end().list
}

// panics lets the reader check without a test at hand.
type panics struct{ testing.TB }

func (panics) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (panics) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

const (
	text  = 0x81
	bin   = 0x82
	cont  = 0x80
	closF = 0x88
	ping  = 0x89
	pong  = 0x8a
	more  = 0x7f // and-mask that takes the fin bit away
)

func failure(code uint16) happening { return happening{what: "error", code: code} }

func message(op ws.Opcode, p string) happening { return happening{"message", op, 0, p} }

func pinged(p string) happening { return happening{"ping", ws.Ping, 0, p} }

func status(code uint16, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, code)) + reason
}

func TestConformance(t *testing.T) {
	long := strings.Repeat("*", 126)
	for _, c := range []struct {
		name string
		in   [][]byte
		want []happening
	}{
		{"1 empty text", [][]byte{raw(text, "")}, []happening{message(ws.Text, "")}},
		{"1 empty binary", [][]byte{raw(bin, "")}, []happening{message(ws.Binary, "")}},
		{"1 two messages in one read", [][]byte{raw(text, "a"), raw(bin, "b")},
			[]happening{message(ws.Text, "a"), message(ws.Binary, "b")}},

		{"2 ping without payload", [][]byte{raw(ping, "")}, []happening{pinged("")}},
		{"2 ping of 125 bytes", [][]byte{raw(ping, long[:125])}, []happening{pinged(long[:125])}},
		{"2 ping of binary bytes", [][]byte{raw(ping, "\x00\xff\xfe")}, []happening{pinged("\x00\xff\xfe")}},
		{"2 ping of 126 bytes", [][]byte{raw(ping, long)}, []happening{failure(1002)}},
		{"2 pong that nobody asked for", [][]byte{raw(pong, "x"), raw(ping, "y")},
			[]happening{{"pong", ws.Pong, 0, "x"}, pinged("y")}},
		{"2 ten pings", bytesTimes(raw(ping, "p"), 10), happeningsTimes(pinged("p"), 10)},

		{"3 first reserved bit", [][]byte{raw(text|0x40, "x")}, []happening{failure(1002)}},
		{"3 second reserved bit", [][]byte{raw(text, "ok"), raw(text|0x20, "x")},
			[]happening{message(ws.Text, "ok"), failure(1002)}},
		{"3 third reserved bit", [][]byte{raw(ping|0x10, "x")}, []happening{failure(1002)}},
		{"3 all reserved bits on close", [][]byte{raw(closF|0x70, "")}, []happening{failure(1002)}},

		{"5 fragmented ping", [][]byte{raw(ping&more, "a"), raw(cont, "b")}, []happening{failure(1002)}},
		{"5 fragmented pong", [][]byte{raw(pong&more, "a"), raw(cont, "b")}, []happening{failure(1002)}},
		{"5 fragmented close", [][]byte{raw(closF&more, "")}, []happening{failure(1002)}},
		{"5 two fragments", [][]byte{raw(text&more, "a"), raw(cont, "b")}, []happening{message(ws.Text, "ab")}},
		{"5 control frames between fragments",
			[][]byte{raw(bin&more, "a"), raw(ping, "p"), raw(cont&more, "b"), raw(pong, "q"), raw(cont, "c")},
			[]happening{pinged("p"), {"pong", ws.Pong, 0, "q"}, message(ws.Binary, "abc")}},
		{"5 empty fragments", [][]byte{raw(text&more, ""), raw(cont&more, ""), raw(cont, "")},
			[]happening{message(ws.Text, "")}},
		{"5 empty first and last fragment", [][]byte{raw(text&more, ""), raw(cont&more, "x"), raw(cont, "")},
			[]happening{message(ws.Text, "x")}},
		{"5 continuation of nothing", [][]byte{raw(cont, "x")}, []happening{failure(1002)}},
		{"5 open continuation of nothing", [][]byte{raw(cont&more, "x")}, []happening{failure(1002)}},
		{"5 continuation behind a whole message", [][]byte{raw(text, "a"), raw(cont, "x")},
			[]happening{message(ws.Text, "a"), failure(1002)}},
		{"5 new message inside a message", [][]byte{raw(text&more, "a"), raw(text, "b")},
			[]happening{failure(1002)}},
		{"5 other message inside a message", [][]byte{raw(text&more, "a"), raw(bin&more, "b")},
			[]happening{failure(1002)}},
		{"5 close inside a message", [][]byte{raw(text&more, "a"), raw(closF, "")},
			[]happening{{"close", ws.Close, 1005, ""}}},

		{"6 text is not judged by the decoder", [][]byte{raw(text, "\xff")}, []happening{message(ws.Text, "\xff")}},

		{"7 close without a code", [][]byte{raw(closF, "")}, []happening{{"close", ws.Close, 1005, ""}}},
		{"7 close of one byte", [][]byte{raw(closF, "x")}, []happening{failure(1002)}},
		{"7 close with a code", [][]byte{raw(closF, status(1000, ""))}, []happening{{"close", ws.Close, 1000, ""}}},
		{"7 close with the longest reason", [][]byte{raw(closF, status(1001, long[:123]))},
			[]happening{{"close", ws.Close, 1001, long[:123]}}},
		{"7 close of 126 bytes", [][]byte{raw(closF, status(1001, long[:124]))}, []happening{failure(1002)}},
		{"7 close with a reason that is no UTF-8", [][]byte{raw(closF, status(1000, "\xce\xba\xed\xa0\x80"))},
			[]happening{failure(1007)}},
		{"7 close with a cut rune", [][]byte{raw(closF, status(1000, "\xe2\x82"))}, []happening{failure(1007)}},
		{"7 message behind close", [][]byte{raw(closF, status(1000, "")), raw(text, "late")},
			[]happening{{"close", ws.Close, 1000, ""}}},
		{"7 two closes", [][]byte{raw(closF, status(1000, "")), raw(closF, status(1001, ""))},
			[]happening{{"close", ws.Close, 1000, ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := compare(story{list: c.want}, story{list: told(c.in...)}, false); diff != "" {
				t.Error(diff)
			}
			// The same, one byte at a time.
			r := newReader(t, ws.Config{})
			feedSplit(r, bytes.Join(c.in, nil), 1)
			if diff := compare(story{list: c.want}, r.end(), false); diff != "" {
				t.Error("byte by byte:", diff)
			}
		})
	}
}

func bytesTimes(b []byte, n int) (list [][]byte) {
	for range n {
		list = append(list, b)
	}
	return list
}

func happeningsTimes(h happening, n int) (list []happening) {
	for range n {
		list = append(list, h)
	}
	return list
}

func TestReservedOpcodesAreRefused(t *testing.T) {
	for op := byte(0); op < 16; op++ {
		got := told(raw(0x80|op, ""))
		reserved := op > 2 && op < 8 || op > 10
		if reserved != (len(got) == 1 && got[0] == failure(1002)) && op != 0 {
			t.Errorf("opcode %d: %v", op, got)
		}
	}
}

// TestCloseCodes holds the ranges of RFC 6455 section 7.4 and what is registered since.
func TestCloseCodes(t *testing.T) {
	good := map[uint16]bool{
		1000: true, 1001: true, 1002: true, 1003: true, 1007: true, 1008: true, 1009: true, 1010: true,
		1011: true, 1012: true, 1013: true, 1014: true, 3000: true, 3999: true, 4000: true, 4999: true,
	}
	for _, code := range []uint16{
		0, 1, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014,
		1015, 1016, 1100, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 65535,
	} {
		if ws.ValidCode(code) != good[code] {
			t.Errorf("ValidCode(%d) is %v", code, !good[code])
		}
		got := told(raw(closF, status(code, "r")))
		want := failure(1002)
		if good[code] {
			want = happening{"close", ws.Close, code, "r"}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("close with code %d: %v, want %v", code, got, want)
		}
	}
}

func TestMaskingIsAskedOfClientsAndRefusedFromServers(t *testing.T) {
	masked := ws.AppendMaskedFrame(nil, ws.Text, []byte("x"), 0)
	plain := ws.AppendFrame(nil, ws.Text, []byte("x"))
	for _, c := range []struct {
		role ws.Role
		in   []byte
		want happening
	}{
		{ws.Server, masked, message(ws.Text, "x")},
		{ws.Server, plain, failure(1002)},
		{ws.Client, plain, message(ws.Text, "x")},
		{ws.Client, masked, failure(1002)},
	} {
		if got := toldBy(ws.Config{Role: c.role}, c.in); len(got) != 1 || got[0] != c.want {
			t.Errorf("role %d: %v, want %v", c.role, got, c.want)
		}
	}
}

func TestLengthsMustBeMinimal(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want []happening
	}{
		{"125 in two bytes", append([]byte{bin, 126, 0, 125}, filled(125)...), []happening{failure(1002)}},
		{"0 in two bytes", []byte{bin, 126, 0, 0}, []happening{failure(1002)}},
		{"126 in two bytes", append([]byte{bin, 126, 0, 126}, filled(126)...),
			[]happening{message(ws.Binary, string(filled(126)))}},
		{"65535 in eight bytes", []byte{bin, 127, 0, 0, 0, 0, 0, 0, 255, 255}, []happening{failure(1002)}},
		{"5 in eight bytes", []byte{bin, 127, 0, 0, 0, 0, 0, 0, 0, 5}, []happening{failure(1002)}},
		{"65536 in eight bytes", append([]byte{bin, 127, 0, 0, 0, 0, 0, 1, 0, 0}, filled(65536)...),
			[]happening{message(ws.Binary, string(filled(65536)))}},
		{"top bit", []byte{bin, 127, 128, 0, 0, 0, 0, 0, 0, 0}, []happening{failure(1002)}},
		{"63 bits", []byte{bin, 127, 127, 255, 255, 255, 255, 255, 255, 255}, []happening{failure(1009)}},
		{"ping in two bytes", append([]byte{ping, 126, 0, 10}, filled(10)...), []happening{failure(1002)}},
	} {
		got := toldBy(ws.Config{Role: ws.Client}, c.in)
		if diff := compare(story{list: c.want}, story{list: got}, false); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestSumOfFragmentsCannotOverflow(t *testing.T) {
	cfg := ws.Config{Role: ws.Client, MaxMessage: 1<<63 - 1, HardMessage: 1<<63 - 1}
	in := []byte{bin & more, 1, 'a', cont, 127, 127, 255, 255, 255, 255, 255, 255, 255}
	if got := toldBy(cfg, in); len(got) != 1 || got[0] != failure(1009) {
		t.Errorf("%v, want 1009", got)
	}
}

func TestZeroConfigHasBounds(t *testing.T) {
	in := []byte{bin, 127, 0, 0, 0, 0, 16, 0, 0, 1} // 256 MiB + 1
	if got := toldBy(ws.Config{Role: ws.Client}, in); len(got) != 1 || got[0] != failure(1009) {
		t.Errorf("%v, want 1009", got)
	}
	in[9] = 0
	if got := toldBy(ws.Config{Role: ws.Client}, in); len(got) != 0 {
		t.Errorf("%v, want nothing yet", got)
	}
}

func TestBoundsOfOneByteAreBounds(t *testing.T) {
	cfg := ws.Config{Role: ws.Client, MaxMessage: 1, HardMessage: 1}
	got := toldBy(cfg, []byte{bin, 1, 'a', bin, 2, 'b', 'c'})
	want := []happening{message(ws.Binary, "a"), failure(1009)}
	if diff := compare(story{list: want}, story{list: got}, false); diff != "" {
		t.Error(diff)
	}
}

// TestCodesHaveTheirNumbers holds the names to the registry.
func TestCodesHaveTheirNumbers(t *testing.T) {
	for code, want := range map[uint16]uint16{
		ws.CloseNormal: 1000, ws.CloseGoingAway: 1001, ws.CloseProtocol: 1002, ws.CloseUnsupported: 1003,
		ws.CloseNoStatus: 1005, ws.CloseAbnormal: 1006, ws.CloseInvalidText: 1007, ws.ClosePolicy: 1008,
		ws.CloseTooBig: 1009, ws.CloseInternal: 1011, ws.CloseRestart: 1012, ws.CloseTryLater: 1013,
	} {
		if code != want {
			t.Errorf("%d, want %d", code, want)
		}
	}
}

func TestTextIsChecked(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "plain": true, "κόσμε": true, "\U0010ffff": true, "\x00": true, "\ufffe": true,
		"\xff": false, "\xed\xa0\x80": false, "\xf4\x90\x80\x80": false, "\xc0\xaf": false, "abc\xe2\x82": false,
		strings.Repeat("a", 1000) + "\x80": false,
	} {
		if ws.ValidText([]byte(s)) != want {
			t.Errorf("ValidText(%q) is %v", s, !want)
		}
	}
}

func TestOpcodesHaveNames(t *testing.T) {
	for op, want := range map[ws.Opcode]string{
		ws.Continuation: "continuation", ws.Text: "text", ws.Binary: "binary", ws.Close: "close",
		ws.Ping: "ping", ws.Pong: "pong", 3: "reserved 3",
	} {
		if op.String() != want {
			t.Errorf("opcode %d is %q, want %q", byte(op), op, want)
		}
	}
}

package load

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
)

// dialTime bounds the opening of one connection, handshake included.
const dialTime = 10 * time.Second

// DialFrames opens a worker connection to a Plinth engine, or to whatever speaks its frames. target is
// host:port or a ws URL.
func DialFrames(ctx context.Context, target string, role Role, index int) (Link, error) {
	return dialFrames(ctx, target, newFrames(role, index))
}

// DialReplicas is DialFrames with one function, which every host has a replica of.
func DialReplicas(ctx context.Context, target string, role Role, index int) (Link, error) {
	f := newFrames(role, index)
	f.replica = true
	return dialFrames(ctx, target, f)
}

func dialFrames(ctx context.Context, target string, f *frames) (Link, error) {
	at, err := parseTarget(target)
	if err != nil {
		return Link{}, err
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "tcp", at.host)
	if err != nil {
		return Link{}, err
	}
	return openFrames(conn, at, f)
}

// openFrames shakes hands on a connection, which it closes when that fails.
func openFrames(conn net.Conn, at address, f *frames) (Link, error) {
	_ = conn.SetDeadline(time.Now().Add(dialTime)) // a socket that is closed by now says so below
	rest, err := ws.ClientHandshake(conn, at.host, at.path, at.header())
	if err != nil {
		_ = conn.Close()
		return Link{}, fmt.Errorf("handshake: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return Link{Conn: conn, Speaker: f, Rest: rest, Greet: f.greet()}, nil
}

// frames speaks the worker protocol over WebSocket: one JSON object for each text message.
type frames struct {
	role    Role
	index   int
	name    string
	replica bool // the function of a host is every host's
	decoder ws.Decoder
	config  *ws.Config
	frame   wire.Frame // what Feed scans
	call    wire.Frame // what Call and Answer write
	id      [36]byte
	mask    uint32
	scratch []byte
}

// Functions of hosts; a function's number is the index of its host.
const (
	prefix = "bench::echo"
	idle   = "idle::w"
)

func newFrames(role Role, index int) *frames {
	f := &frames{role: role, index: index, config: &ws.Config{Role: ws.Client}}
	f.mask = uint32(index)*2654435761 + 1
	kind := [...]string{Caller: "caller", Host: "host", Idle: "idle"}[role]
	f.name = fmt.Sprintf("bench-%s-%d", kind, index)
	copy(f.id[:], "00000000-0000-4000-8000-000000000000")
	return f
}

// greet registers this connection's functions and introduces the worker, as an SDK does.
func (f *frames) greet() []byte {
	var ids []string
	switch f.role {
	case Host:
		ids = []string{prefix + strconv.Itoa(f.index)}
	case Idle:
		ids = []string{fmt.Sprintf("%s%d::first", idle, f.index), fmt.Sprintf("%s%d::second", idle, f.index)}
	}
	var b []byte
	for _, id := range ids {
		r := wire.Frame{Type: wire.TypeRegisterFunction, ID: []byte(id)}
		if f.replica {
			r.ID, r.Metadata = []byte(prefix), []byte(`{"replicas":true}`)
		}
		b = f.text(b, r.Append)
	}
	info := wire.AppendString([]byte(`{"runtime":"go","version":"bench","name":`), f.name)
	info = append(info, `,"os":"`+runtime.GOOS+`","pid":`...)
	info = append(strconv.AppendInt(info, int64(os.Getpid()), 10), '}')
	r := wire.Frame{
		Type:       wire.TypeInvokeFunction,
		FunctionID: []byte("engine::workers::register"),
		Data:       info,
		Action:     []byte(`{"type":"void"}`),
	}
	b = f.text(b, r.Append)
	if f.role != Idle {
		return b
	}
	// Frames of one connection are read in order: the answer to this ping says that all above are in.
	return ws.AppendMaskedFrame(b, ws.Ping, []byte(syncMark), f.key())
}

const syncMark = "bench"

func (f *frames) key() uint32 {
	f.mask = f.mask*1664525 + 1013904223
	return f.mask
}

// text appends one masked text message.
func (f *frames) text(dst []byte, appendTo func([]byte) []byte) []byte {
	start := len(dst)
	return ws.EndMasked(appendTo(ws.Begin(dst)), start, ws.Text, f.key())
}

// Call implements Speaker.
func (f *frames) Call(dst []byte, function int, id uint64, payload []byte) []byte {
	start := len(dst)
	f.call.Type, f.call.InvocationID = wire.TypeInvokeFunction, f.write(id)
	f.call.Data, f.call.Result = payload, nil
	f.scratch = f.function(f.scratch[:0], function)
	f.call.FunctionID = f.scratch
	return ws.EndMasked(wire.AppendInvoke(ws.Begin(dst), &f.call), start, ws.Text, f.key())
}

// function appends the name of a function: what an idle worker calls is another idle worker.
func (f *frames) function(dst []byte, number int) []byte {
	if f.role == Idle {
		return append(strconv.AppendInt(append(dst, idle...), int64(number), 10), "::second"...)
	}
	if f.replica {
		return append(dst, prefix...)
	}
	return strconv.AppendInt(append(dst, prefix...), int64(number), 10)
}

// Answer implements Speaker.
func (f *frames) Answer(dst, token, name, payload []byte) []byte {
	start := len(dst)
	f.call.Type, f.call.InvocationID, f.call.FunctionID = wire.TypeInvocationResult, token, name
	f.call.Data, f.call.Result = nil, payload
	return ws.EndMasked(wire.AppendResult(ws.Begin(dst), &f.call), start, ws.Text, f.key())
}

// write writes id in the shape of a UUID, which public engines insist on: 8 digits of the upper half
// at the start, 8 of the lower half at the end.
func (f *frames) write(id uint64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], id)
	hex.Encode(f.id[:8], b[:4])
	hex.Encode(f.id[28:], b[4:])
	return f.id[:]
}

// readID reads what write wrote; anything else is no id of this load.
func readID(text []byte) (uint64, bool) {
	if len(text) != 36 {
		return 0, false
	}
	var b [8]byte
	if _, err := hex.Decode(b[:4], text[:8]); err != nil {
		return 0, false
	}
	if _, err := hex.Decode(b[4:], text[28:]); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[:]), true
}

// Feed implements Speaker.
func (f *frames) Feed(c *Conn, b []byte) (int, error) {
	used := 0
	for {
		ev, n, err := f.decoder.Next(f.config, b[used:])
		used += n
		if err != nil {
			return used, err
		}
		switch ev.Kind {
		case ws.KindNone:
			return used, nil
		case ws.KindMessage:
			if err := f.message(c, ev.Payload); err != nil {
				return used, err
			}
		case ws.KindPing:
			c.Send(ws.AppendMaskedFrame(nil, ws.Pong, ev.Payload, f.key()))
		case ws.KindPong:
			if string(ev.Payload) == syncMark {
				c.Synced()
			}
		case ws.KindClose:
			return used, fmt.Errorf("the server closed the connection: %d %s", ev.Code, ev.Payload)
		}
	}
}

func (f *frames) message(c *Conn, payload []byte) error {
	if err := f.frame.Scan(payload); err != nil {
		return fmt.Errorf("a frame from the server: %w", err)
	}
	switch f.frame.Type {
	case wire.TypeInvokeFunction:
		c.Asked(f.frame.InvocationID, f.frame.FunctionID, f.frame.Data)
	case wire.TypeInvocationResult:
		id, ok := readID(f.frame.InvocationID)
		if !ok {
			id = ^uint64(0) // a stray
		}
		var code []byte
		if f.frame.Failed() {
			code = []byte(wire.ParseError(f.frame.Error).Code)
		}
		c.Answered(id, code, f.frame.Result)
	case wire.TypePing:
		pong := wire.Frame{Type: wire.TypePong}
		c.Send(f.text(nil, pong.Append))
	case wire.TypeRegistrationRejected:
		return fmt.Errorf("the server refused %s: %s", f.frame.FunctionID, f.frame.Code)
	case wire.TypeError:
		return fmt.Errorf("the server refused the connection: %s", f.frame.Error)
	}
	return nil
}

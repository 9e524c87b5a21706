package engine_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/plinth-run/plinth/wire/ws"
)

// script is what a worker sends on a connection: its reattachment, 30 functions, its introduction.
func script(functions int, previous *client) (frames []string) {
	if previous != nil && previous.id != "" {
		frames = append(frames, fmt.Sprintf(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`,
			previous.id, previous.token))
	} else {
		frames = append(frames, `{"type":"ping"}`)
	}
	for i := range functions {
		frames = append(frames, fmt.Sprintf(`{"type":"registerfunction","id":"cut::f%d"}`, i))
	}
	return append(frames, `{"type":"invokefunction","invocation_id":"hello","function_id":"engine::workers::register",`+
		`"data":{"name":"cut-worker","pid":7}}`)
}

// cut is a way in which a connection can end.
type cut struct {
	name string
	do   func(c *client, half []byte)
}

var cuts = []cut{
	{"closed", func(c *client, _ []byte) { c.nc.Close() }},
	{"reset", func(c *client, _ []byte) { c.nc.(*net.TCPConn).SetLinger(0); c.nc.Close() }},
	{"in mid frame", func(c *client, half []byte) { c.nc.Write(half[:len(half)/2]); c.nc.Close() }},
	{"half open", func(c *client, _ []byte) {}}, // the engine hears nothing: the ghost stays
}

// TestReconnectsNeverLoseFunctions cuts a worker's connection at each of 64 stages, 32 while it registers
// for the first time and 32 while it comes back, in four ways each. After every cut the worker replays
// what it has, as SDKs do, and each of its functions must be served by the new connection.
func TestReconnectsNeverLoseFunctions(t *testing.T) {
	const functions = 30
	lost := 0
	for stage := range 64 {
		for _, how := range cuts {
			r := start(t)
			first := r.dial()
			frames := script(functions, nil)
			if stage < len(frames) {
				first.play(frames, stage, how)
			} else {
				first.play(frames, len(frames), cut{"", nil})
				first.nc.Close()
				second := r.dial()
				again := script(functions, first)
				second.play(again, stage-len(frames), how)
				first = second
			}
			last := r.dial()
			last.play(script(functions, first), functions+2, cut{"", nil})
			last.serve()
			caller := r.dial()
			for i := range functions {
				if out := caller.call(fmt.Sprintf("cut::f%d", i), `"here"`); out["result"] != "here" {
					t.Errorf("stage %d, %s: cut::f%d is lost: %v", stage, how.name, i, out)
					lost++
				}
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d functions lost in 64 stages x %d ways x %d functions", lost, len(cuts), functions)
}

// play sends the first n frames and then cuts; with all of them sent it waits until they are applied.
func (c *client) play(frames []string, n int, how cut) {
	c.t.Helper()
	var batch []byte
	for _, f := range frames[:n] {
		batch = ws.AppendMaskedFrame(batch, ws.Text, []byte(f), 0x0badcafe)
	}
	c.raw(batch)
	if how.do != nil {
		next := []byte(`{"type":"ping"}`)
		if n < len(frames) {
			next = []byte(frames[n])
		}
		how.do(c, ws.AppendMaskedFrame(nil, ws.Text, next, 0x0badcafe))
		return
	}
	c.result("hello")
}

func TestReattachNeedsTheToken(t *testing.T) {
	r := start(t)
	ghost := r.worker("w", "x::y")
	for _, token := range []string{"", `,"reattach_token":"00000000-0000-4000-8000-000000000000"`, `,"reattach_token":7`} {
		thief := r.dial()
		thief.send(`{"type":"reattach","previous_worker_id":%q`+token+`}`, ghost.id)
		thief.send(`{"type":"ping"}`)
		thief.want("pong")
	}
	caller := r.dial()
	id := caller.ask("x::y", "1")
	ghost.answer("2")
	if out := caller.result(id); out["result"] != 2.0 {
		t.Errorf("the worker was retired without its token: %v", out)
	}
	own := r.dial()
	own.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`, own.id, own.token)
	own.send(`{"type":"ping"}`)
	own.want("pong")
}

func TestReattachEndsTheOldConnectionAndItsCalls(t *testing.T) {
	r := start(t)
	ghost, caller := r.worker("w", "x::y"), r.dial()
	id := caller.ask("x::y", "1")
	ghost.want("invokefunction")
	heir := r.dial()
	heir.send(`{"type":"reattach","previous_worker_id":%q,"reattach_token":%q}`, ghost.id, ghost.token)
	heir.send(`{"type":"registerfunction","id":"x::y"}`)
	heir.announce("w", "")
	if out := caller.result(id); out.code() != "invocation_stopped" {
		t.Errorf("the call that the ghost hosted: %v", out)
	}
	if f, err := ghost.read(); err == nil {
		t.Errorf("the ghost still gets %v", f)
	}
	id = caller.ask("x::y", "1")
	heir.answer("3")
	if out := caller.result(id); out["result"] != 3.0 {
		t.Errorf("got %v", out)
	}
	if n := r.metric("iii_workers_active"); n != "2" {
		t.Errorf("%s connections are open, want 2", n)
	}
}

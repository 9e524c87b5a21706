package engine_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/plinth-run/plinth/wire/ws"
)

// refs makes a channel and returns the paths of its ends.
func (c *client) refs() (write, read string) {
	c.t.Helper()
	out, _ := c.call("engine::channels::create", `{"buffer_size":4}`)["result"].(map[string]any)
	path := func(end string) string {
		ref, _ := out[end].(map[string]any)
		return fmt.Sprintf("/ws/channels/%s?key=%s&dir=%s", ref["channel_id"], ref["access_key"], ref["direction"])
	}
	return path("writer"), path("reader")
}

// channel opens the writing end of a new channel; the path of the other end is returned.
func (r *rig) channel(c *client) (writer *client, read string) {
	r.t.Helper()
	write, read := c.refs()
	return r.open(write), read
}

func TestAChannelCarriesTextAndBytesInOrder(t *testing.T) {
	r := start(t)
	writer, read := r.channel(r.worker("w"))
	writer.raw(ws.AppendMaskedFrame(nil, ws.Binary, []byte("one"), 1))
	writer.raw(ws.AppendMaskedFrame(nil, ws.Text, []byte("two"), 2))
	reader := r.open(read)
	writer.raw(ws.AppendMaskedFrame(nil, ws.Binary, []byte("three"), 3))
	writer.raw(ws.AppendMaskedFrame(nil, ws.Close, []byte("\x03\xe8stream_complete"), 4))
	var got []string
	for len(got) < 4 {
		ev, err := reader.event()
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case ws.KindMessage:
			got = append(got, string(ev.Payload))
		case ws.KindClose:
			got = append(got, fmt.Sprint(ev.Code, " ", string(ev.Payload)))
		}
	}
	if want := "one two three 1000 stream_complete"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAChannelNeedsItsKey(t *testing.T) {
	r := start(t)
	write, read := r.worker("w").refs()
	for path, want := range map[string]string{
		strings.Replace(write, "key=", "key=0", 1):         "404",
		strings.Replace(write, "dir=write", "dir=read", 1): "404", // each end has a key of its own
		"/ws/channels/none?key=a&dir=read":                 "404",
		"/ws/channels/":                                    "404",
		read + "&x=%zz":                                    "400",
	} {
		head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
		if got := status(t, r, head); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	r.open(write)
	if ev, err := r.open(write).event(); err != nil || ev.Kind != ws.KindClose {
		t.Errorf("an end that is taken: got %v, %v, want a close", ev.Kind, err)
	}
}

func TestAChannelGoesWithTheWorkerThatMadeIt(t *testing.T) {
	r := start(t)
	w := r.worker("w")
	writer, read := r.channel(w)
	reader := r.open(read)
	w.nc.Close()
	for _, end := range []*client{writer, reader} {
		if ev, err := end.event(); err != nil || ev.Kind != ws.KindClose || ev.Code != ws.CloseGoingAway {
			t.Errorf("got %v %d, %v", ev.Kind, ev.Code, err)
		}
	}
	if got := r.metric("plinth_channels"); got != "0" {
		t.Errorf("%s channels are left", got)
	}
}

func TestTheEngineStopsWithOpenChannels(t *testing.T) {
	r := start(t)
	writer, read := r.channel(r.worker("w"))
	reader := r.open(read)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []*client{writer, reader} {
		end.nc.SetDeadline(time.Now().Add(patience))
		ev, err := end.event()
		if ne, ok := err.(net.Error); ok && ne.Timeout() || err == nil && ev.Kind != ws.KindClose {
			t.Errorf("got %v, %v", ev.Kind, err)
		}
	}
}

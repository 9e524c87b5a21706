package workertest

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/plinth-run/plinth/wire"
	"github.com/plinth-run/plinth/wire/ws"
	"github.com/plinth-run/plinth/worker"
)

const (
	createName  = "engine::channels::create"
	channelPath = "/ws/channels/"

	fewMessages  = 64
	manyMessages = 1024

	pipeBytes = 256 << 10 // of one read from a writer: frames of the usual size lie whole in it
	frameHead = 10        // the head of a frame of ours, at most
)

type side uint8

const (
	writes side = iota
	reads
)

// pipe is a channel. Messages wait in a channel of the language; its writer closes that.
type pipe struct {
	engine   *Engine
	owner    *link
	id       string
	keys     [2]string
	messages chan []byte // frames

	once sync.Once
	cut  chan struct{} // closed when the channel is over before its time
	last []byte        // the goodbye of a channel that was cut; set before cut is closed

	// Guarded by Engine.mu.
	taken [2]bool
	end   []byte // the goodbye to the reader behind the last message; set before messages is closed
}

// createChannel is engine::channels::create.
func (e *Engine) createChannel(l *link, f *wire.Frame) {
	in := struct {
		Messages int `json:"buffer_size"`
	}{}
	_ = json.Unmarshal(f.Data, &in) // what does not fit stays 0
	if in.Messages <= 0 {
		in.Messages = fewMessages
	}
	e.mu.Lock()
	e.next++
	p := &pipe{engine: e, owner: l, id: fmt.Sprintf("22222222-0000-4000-8000-%012x", e.next),
		keys:     [2]string{fmt.Sprintf("write-key-%d", e.next), fmt.Sprintf("read-key-%d", e.next)},
		messages: make(chan []byte, min(in.Messages, manyMessages)), cut: make(chan struct{})}
	e.pipes[p.id] = p
	e.mu.Unlock()
	out, err := json.Marshal(map[string]worker.ChannelRef{
		"writer": {ChannelID: p.id, AccessKey: p.keys[writes], Direction: "write"},
		"reader": {ChannelID: p.id, AccessKey: p.keys[reads], Direction: "read"}})
	if err == nil && len(f.InvocationID) > 0 {
		e.answer(l, string(f.InvocationID), createName, out, nil)
	}
}

// admit judges a handshake; 0 lets it in.
func (e *Engine) admit(r *ws.Request) (status int, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.credential != "" && subtle.ConstantTimeCompare([]byte(shown(r)), []byte(e.credential)) != 1 {
		return 401, "a key is needed, or this one is wrong"
	}
	if _, _, ok := e.lookup(r); !ok && strings.Contains(r.Path, channelPath) {
		return 404, "no such channel, or a wrong key"
	}
	return 0, ""
}

// shown returns the key of a request: a bearer token, or the password of the basic scheme.
func shown(r *ws.Request) string {
	scheme, value, _ := strings.Cut(r.Header("Authorization"), " ")
	switch scheme {
	case "Bearer":
		return value
	case "Basic":
		if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
			_, password, _ := strings.Cut(string(raw), ":")
			return password
		}
	}
	return ""
}

// lookup finds the channel a request is for. Caller holds mu.
func (e *Engine) lookup(r *ws.Request) (p *pipe, s side, ok bool) {
	_, id, found := strings.Cut(r.Path, channelPath)
	q, err := url.ParseQuery(r.Query)
	if !found || err != nil {
		return nil, 0, false
	}
	s = writes
	if q.Get("dir") == "read" {
		s = reads
	}
	p = e.pipes[id]
	return p, s, p != nil && q.Get("key") == p.keys[s]
}

// take gives an end of a channel to a link; ok is false for a request that is for none. The link of an end
// that is taken already is closed, and gets nil.
func (e *Engine) take(l *link, r *ws.Request) (p *pipe, s side, ok bool) {
	e.mu.Lock()
	p, s, ok = e.lookup(r)
	was := ok && p.taken[s]
	if ok {
		p.taken[s] = true
	}
	e.mu.Unlock()
	if was {
		_ = l.push(ws.AppendClose(nil, ws.ClosePolicy, "this end of the channel is taken"))
		return nil, s, ok
	}
	return p, s, ok
}

// sever ends a channel at once.
func (p *pipe) sever(code uint16, reason string) {
	p.once.Do(func() {
		p.last = ws.AppendClose(nil, code, reason)
		close(p.cut)
	})
}

// pipeIn serves the writer of a channel.
func (l *link) pipeIn(p *pipe, buf []byte, have int) {
	end := ws.AppendClose(nil, ws.CloseInternal, "the connection of the writer broke")
	over := make(chan struct{})
	buf = append(make([]byte, 0, pipeBytes), buf[:have]...)[:pipeBytes]
	l.engine.tasks.Go(func() { // ends with the channel or the connection of its writer
		select {
		case <-p.cut:
			_ = l.push(p.last)
			l.cut()
		case <-over:
		case <-l.down:
		}
	})
	l.events(buf, have, func(ev ws.Event) bool {
		switch ev.Kind {
		case ws.KindMessage:
			select {
			case p.messages <- ws.AppendFrame(make([]byte, 0, len(ev.Payload)+frameHead), ev.Op, ev.Payload):
			case <-p.cut:
			}
		case ws.KindPing:
			l.put(ws.Pong, ev.Payload)
		case ws.KindClose:
			end = ws.AppendClose(nil, ev.Code, string(ev.Payload))
			if ev.Code != ws.CloseNormal {
				end = ws.AppendClose(nil, ws.CloseInternal,
					fmt.Sprintf("the writer closed with %d %s", ev.Code, ev.Payload))
			}
			close(over)
			_ = l.push(ws.AppendClose(nil, ev.Code, ""))
			return false
		}
		return true
	})
	l.engine.mu.Lock()
	p.end = end
	l.engine.mu.Unlock()
	close(p.messages)
}

// pipeOut serves the reader of a channel.
func (l *link) pipeOut(p *pipe, buf []byte, have int) {
	l.engine.tasks.Go(func() { l.pump(p) }) // ends with the channel or the connection of its reader
	l.events(buf, have, func(ev ws.Event) bool {
		if ev.Kind == ws.KindPing {
			l.put(ws.Pong, ev.Payload)
		}
		return ev.Kind != ws.KindClose
	})
	p.sever(ws.CloseGoingAway, "the reader went away")
}

// pump sends what waits for a reader, and how it ended.
func (l *link) pump(p *pipe) {
	for {
		select {
		case <-l.down:
			return
		case <-p.cut:
			_ = l.push(p.last)
			l.cut()
			return
		case frame, ok := <-p.messages:
			if !ok {
				l.engine.mu.Lock()
				frame = p.end
				delete(l.engine.pipes, p.id)
				l.engine.mu.Unlock()
			}
			if err := l.push(frame); err != nil || !ok {
				return
			}
		}
	}
}

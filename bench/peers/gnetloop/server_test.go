package gnetloop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/panjf2000/gnet/v2"

	"github.com/plinth-run/plinth/internal/loop"
)

// servers are the peers by name. Each serves an echo until standard input ends.
var servers = map[string]func(ready func(addr string), over <-chan struct{}) error{
	"loop": func(ready func(string), over <-chan struct{}) error {
		return serveLoop(loop.Config{}, ready, over)
	},
	"loop, portable": func(ready func(string), over <-chan struct{}) error {
		return serveLoop(loop.Config{Portable: true}, ready, over)
	},
	"gnet":      serveGnet,
	"goroutine": serveGoroutines,
}

// serve runs the server that env names, in the child process.
func serve(name string) error {
	over := make(chan struct{})
	go func() { // ends with standard input, as the process does
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	return servers[name](func(addr string) { fmt.Println("listening on", addr) }, over)
}

type loopEcho struct{}

func (loopEcho) Data(c *loop.Conn, b []byte) int {
	if err := c.End(c.Loop(), append(c.Begin(), b...)); err != nil {
		c.Close(err)
	}
	return len(b)
}
func (loopEcho) Drained(*loop.Conn)       {}
func (loopEcho) Closed(*loop.Conn, error) {}

func serveLoop(cfg loop.Config, ready func(string), over <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := loop.New(cfg)
	addr, err := g.Listen(ctx, "tcp", "127.0.0.1:0", func(*loop.Conn) loop.Handler { return loopEcho{} })
	if err != nil {
		return err
	}
	ready(addr.String())
	go func() { // ends with standard input
		<-over
		cancel()
	}()
	return g.Run(ctx)
}

type gnetEcho struct {
	gnet.BuiltinEventEngine
	addr  string
	ready func(string)
	over  <-chan struct{}
}

func (e *gnetEcho) OnBoot(eng gnet.Engine) gnet.Action {
	e.ready(e.addr)
	go func() { // ends with standard input
		<-e.over
		_ = eng.Stop(context.Background())
	}()
	return gnet.None
}

func (e *gnetEcho) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(b); err != nil {
		return gnet.Close
	}
	return gnet.None
}

func serveGnet(ready func(string), over <-chan struct{}) error {
	nl, err := net.Listen("tcp", "127.0.0.1:0") // gnet wants a number, so a free one is looked up
	if err != nil {
		return err
	}
	addr := nl.Addr().String()
	if err := nl.Close(); err != nil {
		return err
	}
	e := &gnetEcho{addr: addr, ready: ready, over: over}
	return gnet.Run(e, "tcp://"+addr, gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPNoDelay))
}

func serveGoroutines(ready func(string), over <-chan struct{}) error {
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ready(nl.Addr().String())
	go func() { // ends with standard input
		<-over
		_ = nl.Close()
	}()
	for {
		nc, err := nl.Accept()
		if err != nil {
			return nil
		}
		go func() { // ends with the connection
			defer nc.Close()
			b := make([]byte, 16<<10)
			for {
				n, err := nc.Read(b)
				if err != nil {
					return
				}
				if _, err := nc.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// address reads up to the line in which the child tells its address; gnet writes lines of its own.
func address(r io.Reader) (string, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			return addr, nil
		}
	}
	return "", errors.Join(io.ErrUnexpectedEOF, lines.Err())
}

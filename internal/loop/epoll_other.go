//go:build !linux

package loop

import (
	"errors"
	"net"
)

// Without epoll every group is portable and none of these is called.

const havePoller = false

type poller struct{}

func (l *Loop) acquire() error { return errors.ErrUnsupported }
func (l *Loop) release()       {}
func (l *Loop) ring()          {}
func (l *Loop) runEpoll()      {}
func (l *Loop) again(*Conn)    {}

func (l *Loop) listen(int, *listener) {}

func (ln *listener) take(net.Listener) error { return errors.ErrUnsupported }
func (ln *listener) drop() error             { return errors.ErrUnsupported }

func (c *Conn) watch() error { return errors.ErrUnsupported }
func (c *Conn) arm()         {}
func (c *Conn) write(*Loop)  {}
func (c *Conn) part() bool   { return true }
func (c *Conn) drop()        {}
func (c *Conn) halve() bool  { return false }

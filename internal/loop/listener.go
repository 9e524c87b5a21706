package loop

import "net"

// listener is a listening socket: a descriptor on epoll, or a net.Listener.
type listener struct {
	group  *Group
	accept func(*Conn) Handler
	fd     int
	path   string       // of a Unix socket, removed at the end
	net    net.Listener // portable
	tired  bool         // the last attempt found no descriptor
}

func (ln *listener) close() {
	var err error
	if ln.net != nil {
		err = ln.net.Close()
	} else {
		err = ln.drop()
	}
	if err != nil {
		ln.group.cfg.Log.Warn("listening socket does not close", "error", err)
	}
}

// takeListeners starts what Listen has prepared; on loop 0.
func (l *Loop) takeListeners() {
	g := l.group
	g.mu.Lock()
	fresh := g.listeners
	g.listeners = nil
	g.mu.Unlock()
	for _, ln := range fresh {
		if l.ended {
			ln.close()
			continue
		}
		l.listeners = append(l.listeners, ln)
		if ln.net != nil {
			g.tasks.Go(ln.serve)
		} else {
			l.listen(len(l.listeners)-1, ln)
		}
	}
}

// dropListeners closes all listening sockets; on loop 0.
func (l *Loop) dropListeners() {
	for _, ln := range l.listeners {
		ln.close()
	}
	l.listeners = nil
}
